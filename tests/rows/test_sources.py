"""open_rows: every source reads the same numbers, and every bad input says what to do."""

import json
import math
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

import uncone
from uncone.model.counts import read_counts
from uncone.rows import GRID, CenteredRows

from ..matrices import close, equal, gaussian
from .reading import DTYPES, all_rows, refuses


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 7, GRID, GRID + 3])
def test_safetensors_and_tensors_read_alike(tmp_path: Path, dtype: str, n: int) -> None:
    x, path = gaussian(n, 5, dtype=DTYPES[dtype]), tmp_path / "f.safetensors"
    save_file({"w": x, "bias": torch.ones(3), "ids": torch.ones(2, 2, dtype=torch.int64)}, path)
    for rows in map(uncone.open_rows, (path, f"{path}#w", x)):
        assert (rows.shape, rows.dtype) == ((n, 5), dtype)
        assert equal(all_rows(rows), x.double() if dtype == "float64" else x.float())
        assert all(len(block) == GRID for block in list(rows.blocks())[:-1])


def test_arrays_of_every_layout_are_read(tmp_path: Path) -> None:
    x = gaussian(30, 6).numpy()
    x.flags.writeable = False
    for view in (x, x[::-1], x[:, ::2], x.T, x.astype(">f4")):
        assert np.array_equal(all_rows(view).numpy(), view)


def test_a_block_that_is_let_go_is_used_again(tmp_path: Path) -> None:
    save_file({"w": gaussian(4 * GRID, 3)}, tmp_path / "f.safetensors")
    seen = set()
    for block in uncone.open_rows(tmp_path / "f.safetensors").blocks():
        seen.add(block.ctypes.data)
        del block
    assert len(seen) == 1


def test_centered_rows_subtract_one_vector() -> None:
    x = gaussian(20, 3) + 5
    assert close(all_rows(CenteredRows(uncone.open_rows(x), x.double().mean(0).numpy())), x - x.mean(0), atol=1e-6)
    assert equal(x, gaussian(20, 3) + 5)


def test_rows_that_are_not_finite_are_left_out_on_request() -> None:
    x = gaussian(GRID + 40, 4)
    x[3, 1], x[GRID + 7, 0] = float("nan"), float("-inf")
    rows = uncone.open_rows(x, skip_nonfinite=True)
    keep = [i for i in range(len(x)) if i not in (3, GRID + 7)]
    assert rows.left_out == (3, GRID + 7)
    assert rows.ids is not None
    assert rows.ids.tolist() == keep
    assert equal(all_rows(rows), x[keep])
    assert uncone.open_rows(gaussian(5, 2), skip_nonfinite=True).left_out == ()


def _header(path: Path, header: object, data: bytes = b"") -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def _tensor(**changes: object) -> dict[str, object]:
    return {"w": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]} | changes}


LIES: dict[str, object] = {
    "a length beyond the file": b"",
    "no JSON": b"{nonsense",
    "a name twice": b'{"w":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},"w":{}}',
    "deep nesting": b"[" * 200_000,
    "no object": b"[1]",
    "beyond the end": _tensor(shape=[2, 4], data_offsets=[0, 32]),
    "a shape that does not fit": _tensor(shape=[3, 2]),
    "a huge shape": _tensor(shape=[2**40, 2**40]),
    "a negative size": _tensor(shape=[-2, -2]),
    "a true size": _tensor(shape=[True, 4]),
    "offsets backwards": _tensor(data_offsets=[16, 0]),
    "no offsets": {"w": {"dtype": "F32", "shape": [2, 2]}},
    "many axes": _tensor(shape=[2**62] * 60_000, data_offsets=[0, 0]),
    "an unknown dtype": _tensor(dtype="F33"),
    "shared bytes": _tensor() | {"v": {"dtype": "F32", "shape": [2], "data_offsets": [8, 16]}},
    "bytes at the begin": _tensor(shape=[1, 3], data_offsets=[4, 16]),
    "a hole": {
        "w": {"dtype": "F32", "shape": [2, 1], "data_offsets": [0, 8]},
        "v": {"dtype": "U8", "shape": [1], "data_offsets": [15, 16]},
    },
    "bytes at the end": _tensor(shape=[1, 3], data_offsets=[0, 12]),
    "metadata of numbers": _tensor() | {"__metadata__": {"n": 1}},
    "metadata in a list": _tensor() | {"__metadata__": ["pt"]},
    "a constant of JavaScript": _tensor() | {"v": math.nan},
    "nothing in a tensor": _tensor() | {"v": {"dtype": "F32", "shape": [0], "data_offsets": [8, 8]}},
}


@pytest.mark.parametrize("name", LIES)
def test_lying_safetensors_are_refused(tmp_path: Path, name: str) -> None:
    path = _header(tmp_path / "f.safetensors", LIES[name], b"\0" * 16)
    if name == "a length beyond the file":
        path.write_bytes(struct.pack("<Q", 1 << 60) + b"{}")
    refuses(r"expected a safetensors file, got .*, which .* library refuses \(.*\): it was cut", uncone.open_rows, path)
    with pytest.raises(SafetensorError):
        load_file(path)


@given(st.binary(max_size=200))
def test_random_bytes_are_refused(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "f"
    for suffix, head in ((".safetensors", b""), (".npy", b"\x93NUMPY\x01\x00")):
        path.with_suffix(suffix).write_bytes(head + data)
        with pytest.raises(uncone.UnconeError):
            uncone.open_rows(path.with_suffix(suffix))


def test_a_message_stays_short_whatever_the_header_holds(tmp_path: Path) -> None:
    tensor = {"dtype": "F32", "shape": [1, 1]}
    names = {f"{'x' * 400}{i}": tensor | {"data_offsets": [4 * i, 4 * i + 4]} for i in range(5_000)}
    path = _header(tmp_path / "f.safetensors", names, b"\0" * 20_000)
    for spec in (path, f"{path}#{'x' * 3000}"):
        assert len(refuses(".", uncone.open_rows, spec)) < 9000


def test_long_gaps_between_kept_rows_are_not_read_at_once() -> None:
    x = torch.full((5 * GRID, 3), float("nan"))
    x[::GRID] = 1.0
    rows = uncone.open_rows(x, skip_nonfinite=True)
    assert rows.shape == (5, 3)
    assert equal(all_rows(rows), torch.ones(5, 3))


def _tensors(folder: Path, part: str = "", **tensors: torch.Tensor) -> str:
    save_file(tensors, folder / "f.safetensors")
    return f"{folder}/f.safetensors{part}"


def _array(folder: Path, x: object, keep: int | None = None) -> Path:
    """x.npy, or its first bytes."""
    np.save(folder / "x.npy", np.asarray(x), allow_pickle=True)
    (folder / "x.npy").write_bytes((folder / "x.npy").read_bytes()[:keep])
    return folder / "x.npy"


def _text(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


TWO = torch.ones(2, 2)
MESSAGES = {
    "a missing file": (
        lambda folder: folder / "nothing.npy",
        r"no file or folder '.*nothing\.npy', and no model of that name .* downloads nothing",
    ),
    "a mask": (lambda _: np.ma.masked_array(np.ones((2, 2)), mask=True), "expected an array without a mask"),
    "a long spec": (lambda _: "x" * 5000, "expected a model directory"),
    "a null byte": (lambda _: "a\0b", "expected a model directory"),
    "another kind": (
        lambda folder: _text(folder / "x.csv", "1,2"),
        r"expected a model directory, .* got 'x\.csv': convert it",
    ),
    "an unknown tensor": (
        lambda folder: _tensors(folder, "#wte.wieght", **{"wte.weight": TWO, "wpe.weight": TWO + 1}),
        r"no tensor 'wte\.wieght' in .*: did you mean 'wte\.weight'",
    ),
    "several matrices": (
        lambda folder: _tensors(folder, a=TWO, b=TWO + 1, c=torch.ones(2)),
        r"expected one matrix .* got 2: say which with f\.safetensors#NAME; it holds 'a', 'b'",
    ),
    "no matrix": (lambda folder: _tensors(folder, c=torch.ones(2)), "got none among 1 tensors"),
    "pickled arrays": (lambda folder: _array(folder, [[{"a": 1}]]), r"got pickled objects in .* never loaded"),
    "a cut .npy": (
        lambda folder: _array(folder, gaussian(100, 4).numpy(), keep=-1),
        r"expected 1728 bytes for shape \(100, 4\) of float32 .* got 1727: the file was cut",
    ),
    "no .npy": (lambda folder: _text(folder / "x.npy", "hello"), r"expected a \.npy file, got .* header that does not"),
    "a part of an .npy": (lambda folder: f"{_array(folder, np.ones((2, 2)))}#0", "without '#'"),
    "an empty part": (lambda folder: _tensors(folder, "#", w=TWO), "expected a tensor's name after '#'"),
    "no spec at all": (lambda _: 3, r"expected Rows, a tensor or an array .* got int"),
    **{
        f"{kind} of shape {shape}": (make, message)
        for shapes, message in (
            (((), (3,), (2, 3, 4)), r"expected a matrix of shape \(N, D\), got shape"),
            (((0, 3), (3, 0)), "expected at least one row and column"),
        )
        for shape in shapes
        for kind, make in (
            ("a tensor", lambda _, shape=shape: torch.ones(shape)),
            ("an array", lambda _, shape=shape: np.ones(shape, dtype="f4")),
            ("an .npy", lambda folder, shape=shape: _array(folder, np.ones(shape))),
            ("a file", lambda folder, shape=shape: _tensors(folder, "#w", w=torch.ones(shape))),
        )
    },
    **{
        f"{kind} of integers": (make, r"expected .*float64, float32, float16 or bfloat16, got")
        for kind, make in (
            ("an .npy", lambda folder: _array(folder, np.ones((2, 2), dtype="i4"))),
            ("an array", lambda _: np.ones((2, 2), dtype="?")),
            ("a tensor", lambda _: TWO.bool()),
            ("a file", lambda folder: _tensors(folder, "#w", w=TWO.to(torch.int8))),
        )
    },
}


@pytest.mark.parametrize("name", MESSAGES)
def test_a_message_says_what_was_expected_what_came_and_what_to_do(tmp_path: Path, name: str) -> None:
    make, message = MESSAGES[name]
    refuses(message, uncone.open_rows, make(tmp_path))


def test_only_rows_that_are_not_finite() -> None:
    x = torch.full((2, 2), float("nan"))
    refuses("expected finite rows, got none of 2", uncone.open_rows, x, skip_nonfinite=True)


@pytest.mark.parametrize("spec", ["", "#w"])
def test_an_empty_name_is_not_the_current_folder(spec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a shell makes it of a variable that is not set: "$MODEL#input"."""
    save_file({"w": gaussian(3, 2)}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    assert uncone.open_rows(".#w").shape == (3, 2)
    refuses("no file or folder ''", uncone.open_rows, spec)


def test_a_hash_in_a_folder_name_is_no_part(tmp_path: Path) -> None:
    (tmp_path / "a#b").mkdir()
    assert uncone.open_rows(_tensors(tmp_path / "a#b", "#v", w=TWO, v=torch.ones(3, 2))).shape == (3, 2)


SIZES = ["True", "-3", "3.0", "None", "'3'", "9223372036854775808", "9" * 400, "9" * 4299, "9" * 5000]


@pytest.mark.parametrize("size", SIZES)
def test_a_size_of_an_array_that_is_no_size(tmp_path: Path, size: str) -> None:
    path = tmp_path / "x.npy"
    for shape in (f"({size}, 2)", f"(3, {size})", f"({size}, {size})"):
        header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".encode()
        path.write_bytes(b"\x93NUMPY\x02\x00" + len(header).to_bytes(4, "little") + header + bytes(24))
        with zipfile.ZipFile(tmp_path / "x.npz", "w") as file:
            file.write(path, "x.npy")
        for read, at in ((uncone.open_rows, path), (uncone.open_rows, tmp_path / "x.npz"), (read_counts, path)):
            assert len(refuses(".", read, at, *([3] if read is read_counts else []))) < 1000
