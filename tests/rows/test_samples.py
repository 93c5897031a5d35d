"""What a notebook holds as rows: lists, masks over positions, and the way out for three axes."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from safetensors.torch import save_file

import uncone
from tests.matrices import equal
from uncone import InputError
from uncone.rows import as_numbers, as_samples

from .reading import refuses

STATES = torch.arange(24, dtype=torch.float32).reshape(2, 3, 4)
MASK = torch.tensor([[True, True, False], [True, False, False]])


def _saved(kind: str, states: torch.Tensor) -> str:
    """A file in the current folder that holds `states` under the name h, as a spec without its part."""
    x, end = states.numpy(), "npz" if kind == "deflated" else kind
    save = {
        "npy": lambda: np.save("x.npy", x),
        "npz": lambda: np.savez("x.npz", h=x),
        "deflated": lambda: np.savez_compressed("x.npz", h=x, ids=np.arange(3)),
        "safetensors": lambda: save_file({"h": states, "bias": states[0, 0].clone()}, "x.safetensors"),
        "pt": lambda: torch.save({"h": states}, "x.pt"),
    }
    save[kind]()
    return f"x.{end}"


@pytest.mark.parametrize("part", ["", "#h"])
@pytest.mark.parametrize("kind", ["npy", "npz", "deflated", "safetensors", "pt"])
def test_three_axes_in_a_file_are_refused_with_a_line_that_works(
    kind: str, part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    spec = _saved(kind, STATES) + part * (kind != "npy")
    for open_it in (uncone.open_rows, uncone.diagnose):
        message = refuses(r"expected a matrix of shape \(N, D\), got shape \(2, 3, 4\)", open_it, spec)
    way = re.search(r"each of 6 positions is a row in (.+), with x = (.+); x\[mask\] leaves padding out$", message)
    assert way is not None
    space: dict[str, Any] = {"numpy": np, "torch": torch, "safetensors": safetensors}
    x = space["x"] = eval(way[2], space)
    assert equal(uncone.open_rows(eval(way[1], space)).read(0, 6), STATES.reshape(6, 4))
    assert equal(uncone.open_rows(x[MASK.numpy()]).read(0, 3), STATES[MASK])


def test_a_file_with_a_matrix_beside_it_opens_the_matrix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    save_file({"h": STATES, "w": torch.eye(4)}, "x.safetensors")
    assert uncone.open_rows("x.safetensors").shape == (4, 4)


def test_other_numbers_of_axes_keep_their_message(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", v=np.ones(3), ids=np.ones((2, 2, 2), dtype=np.int64))
    refuses("got none among 2 arrays", uncone.open_rows, tmp_path / "x.npz")
    for x in (np.ones(3), np.ones((2, 0, 4))):
        refuses("pass one row per item", uncone.open_rows, x)


@pytest.mark.parametrize(
    "kind", [torch.clone, torch.Tensor.numpy, torch.Tensor.tolist], ids=["tensor", "array", "list"]
)
def test_a_mask_keeps_the_positions_that_are_true(kind: Any) -> None:
    for mask in (MASK, MASK.numpy(), MASK.tolist(), MASK.long(), MASK.numpy().astype(np.uint8)[:, ::1]):
        rows = as_samples(kind(STATES), mask)
        assert equal(rows.read(0, 3), STATES[MASK])
        assert rows.ids is not None
        assert rows.ids.tolist() == [0, 1, 3]
    assert as_samples(kind(STATES[0]), [1, 0, 1]).shape == (2, 4)
    assert as_samples(kind(STATES[None]), MASK[None]).shape == (3, 4), "any axes before the last"
    refuses(r"got shape \(2, 3, 4\) from \w+: each of 6 positions is a row in x.reshape", as_samples, kind(STATES))


_NO_MASKS: list[Any] = [MASK.T, MASK[0], MASK.float(), MASK.long() * 2, MASK.numpy() * 1j, MASK.numpy().astype(object)]


@pytest.mark.parametrize("mask", [*_NO_MASKS, [[True], [True, False]], "x", [None]], ids=lambda x: type(x).__name__)
def test_what_is_no_mask_of_the_positions_is_refused(mask: Any) -> None:
    refuses(r"expected a mask of shape \(2, 3\), with True .or 1. for each position to keep", as_samples, STATES, mask)


def test_a_mask_that_keeps_nothing_is_refused() -> None:
    with pytest.raises(
        InputError, match=r"expected a mask that keeps a row, got a mask of shape \(2, 3\) that keeps none"
    ):
        as_samples(STATES, torch.zeros(2, 3, dtype=torch.bool))


def test_lists_are_float64() -> None:
    for x in ([[1, 2], [3, 4]], ((1.0, 2.0), (3.0, 4.0)), [np.array([1.0, 2.0]), np.array([3, 4])]):
        assert equal(as_numbers(x), torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=torch.float64))
    assert equal(as_numbers([torch.ones(2, requires_grad=True), [2.0, 3.0]]), np.array([[1.0, 1.0], [2.0, 3.0]]))
    assert uncone.open_rows([[1, 2], [3, 4]]).shape == (2, 2)


WHOLE = np.array([[-3, 2, 0], [100, -7, 1]])


@pytest.mark.parametrize("dtype", ["i1", "<i2", ">i4", "i8", "u1", "u2", "u4", "u8"])
@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy, np.asfortranarray], ids=["array", "tensor", "fortran"])
def test_integers_become_float64(kind: Any, dtype: str) -> None:
    x = np.abs(WHOLE).astype(dtype) if "u" in dtype else WHOLE.astype(dtype)
    before = x.copy()
    given = kind(x if x.dtype.isnative else x.astype(x.dtype.newbyteorder("=")) if kind is torch.from_numpy else x)
    rows = as_samples(given)
    assert rows.dtype == "float64"
    assert rows.read(0, 2).tolist() == x.tolist()
    assert as_samples(given, [0, 1]).read(0, 1).tolist() == x[1:].tolist()
    assert (x == before).all()


@pytest.mark.parametrize(
    ("kind", "dtype"), [(np.asarray, "i8"), (np.asarray, "u8"), (torch.from_numpy, "i8"), (np.ndarray.tolist, "i8")]
)
def test_only_integers_that_float64_holds_are_taken(kind: Any, dtype: str) -> None:
    x = np.array([[2**53, 0], [1, 2]], dtype)
    assert as_samples(kind(x)).read(0, 1).tolist() == [[2.0**53, 0.0]]
    for beyond in (2**53 + 1, *([-(2**53) - 1, -(2**63)] if dtype == "i8" else [2**64 - 1])):
        x[0, 0] = beyond
        refuses(rf"up to 2\^53, .* got a magnitude of {abs(beyond)} from .*: pass floats", lambda: as_samples(kind(x)))


def test_bools_are_refused_with_the_way_out() -> None:
    refuses(r"got dtype bool from array: use x\.astype\('float32'\)", as_samples, WHOLE > 0)
    refuses(r"got bool from tensor: use x\.float\(\)", lambda: as_samples(torch.from_numpy(WHOLE > 0)))


def test_integers_without_numbers_are_refused() -> None:
    refuses("got int64 from tensor", lambda: as_samples(torch.ones(2, 2, dtype=torch.int64, device="meta")))


def test_a_frame_of_numbers_is_taken() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": [1, 2, 3], "b": [0.5, 1.5, -2.5], "c": pandas.array([4, 5, 6], dtype="Int64")})
    wanted = [[1.0, 0.5, 4.0], [2.0, 1.5, 5.0], [3.0, -2.5, 6.0]]
    rows = as_samples(frame)
    assert (rows.dtype, rows.name, rows.read(0, 3).tolist()) == ("float64", "DataFrame", wanted)
    assert as_samples(frame, [1, 0, 1]).read(0, 2).tolist() == [wanted[0], wanted[2]]
    assert as_samples(frame[["b"]].astype("float32")).dtype == "float32"
    assert uncone.open_rows(frame).shape == (3, 3)


@pytest.mark.parametrize(
    "column", [["1", "2"], [True, False], [None, {}], [1 + 1j, 2]], ids=["text", "bools", "objects", "complex"]
)
@pytest.mark.parametrize("beside", [{}, {"b": [1, 2]}], ids=["alone", "mixed"])
def test_a_frame_of_anything_else_is_refused(column: list[Any], beside: dict[str, list[int]]) -> None:
    pandas = pytest.importorskip("pandas")
    with pytest.raises(InputError, match=r"expected a DataFrame with a number in every cell, or .* got column 'a' of "):
        as_samples(pandas.DataFrame({"a": column} | beside))


@pytest.mark.parametrize(
    ("x", "message"),
    [
        ([[1.0], [1.0, 2.0]], "expected a list of rows of one length, got a list that makes no array"),
        ([torch.ones(2), torch.ones(3)], "expected a list of rows of one length"),
        ([["a"]], "expected an array of float64, float32, float16 or bfloat16, got dtype <U1"),
        ([[None]], "got dtype object"),
        ([], "got shape \\(0,\\)"),
        ({1: 2}, "expected Rows, a tensor or an array"),
        ("text", "expected Rows, a tensor or an array"),
        (np.ma.array(np.eye(2)), "expected an array without a mask"),
    ],
)
def test_what_is_no_list_of_rows_is_refused(x: Any, message: str) -> None:
    refuses(message, as_samples, x)


def test_a_nested_name_of_a_checkpoint_gives_no_line_that_would_fail(tmp_path: Path) -> None:
    torch.save({"a": {"h": STATES}}, tmp_path / "x.pt")
    refuses(r"a row in x\.reshape\(-1, 4\); x\[mask\] leaves padding out$", uncone.open_rows, tmp_path / "x.pt")
