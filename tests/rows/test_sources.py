"""open_rows: every source reads the same numbers, and every bad input says what to do."""

import json
import math
import os
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
from uncone import InputError
from uncone.model.counts import read_counts
from uncone.rows import GRID, CenteredRows

from ..matrices import close, equal, gaussian

DTYPES = {"float64": torch.float64, "float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


def _all(rows: uncone.Rows) -> torch.Tensor:
    return torch.from_numpy(np.concatenate(list(rows.blocks())))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 7, GRID, GRID + 3])
def test_safetensors_and_tensors_read_alike(tmp_path: Path, dtype: str, n: int) -> None:
    x = gaussian(n, 5, dtype=DTYPES[dtype])
    save_file({"w": x, "bias": torch.ones(3), "ids": torch.ones(2, 2, dtype=torch.int64)}, tmp_path / "f.safetensors")
    expected = x.double() if dtype == "float64" else x.float()
    for rows in (
        uncone.open_rows(tmp_path / "f.safetensors"),
        uncone.open_rows(f"{tmp_path}/f.safetensors#w"),
        uncone.open_rows(x),
    ):
        assert (rows.shape, rows.dtype) == ((n, 5), dtype)
        assert equal(_all(rows), expected)
        assert all(len(block) == GRID for block in list(rows.blocks())[:-1])


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", ">f4", ">f8"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_npy_reads_every_order_and_dtype(tmp_path: Path, dtype: str, order: str) -> None:
    x = np.asarray(gaussian(50, 4).numpy(), dtype=dtype, order=order)  # type: ignore[call-overload]
    np.save(tmp_path / "x.npy", x)
    rows = uncone.open_rows(tmp_path / "x.npy")
    assert np.array_equal(_all(rows).numpy(), x)
    assert equal(
        rows.read(10, 12), torch.from_numpy(x[10:12].astype("f8" if "8" in str(dtype) or dtype == "float64" else "f4"))
    )


def test_arrays_of_every_layout_are_read(tmp_path: Path) -> None:
    x = gaussian(30, 6).numpy()
    x.flags.writeable = False
    for view in (x, x[::-1], x[:, ::2], x.T, x.astype(">f4")):
        assert np.array_equal(_all(uncone.open_rows(view)).numpy(), view)


def test_a_block_that_is_kept_never_changes(tmp_path: Path) -> None:
    x = gaussian(3 * GRID + 5, 3)
    save_file({"w": x}, tmp_path / "f.safetensors")
    kept = list(uncone.open_rows(tmp_path / "f.safetensors").blocks())
    assert equal(np.concatenate(kept), x)


def test_a_block_that_is_let_go_is_used_again(tmp_path: Path) -> None:
    save_file({"w": gaussian(4 * GRID, 3)}, tmp_path / "f.safetensors")
    seen = set()
    for block in uncone.open_rows(tmp_path / "f.safetensors").blocks():
        seen.add(block.ctypes.data)
        del block
    assert len(seen) == 1


def test_take_reads_the_rows_asked_for(tmp_path: Path) -> None:
    x = gaussian(2 * GRID + 9, 3)
    np.save(tmp_path / "x.npy", x.numpy())
    wanted = torch.tensor([0, 5, GRID - 1, GRID, 2 * GRID + 8])
    assert equal(uncone.open_rows(tmp_path / "x.npy").take(wanted), x[wanted])


def test_centered_rows_subtract_one_vector() -> None:
    x = gaussian(20, 3) + 5
    rows = CenteredRows(uncone.open_rows(x), x.double().mean(0).numpy())
    assert close(_all(rows), x - x.mean(0), atol=1e-6)
    assert equal(x, gaussian(20, 3) + 5)


def test_rows_that_are_not_finite_are_left_out_on_request() -> None:
    x = gaussian(GRID + 40, 4)
    x[3, 1], x[GRID + 7, 0] = float("nan"), float("-inf")
    rows = uncone.open_rows(x, skip_nonfinite=True)
    keep = [i for i in range(len(x)) if i not in (3, GRID + 7)]
    assert rows.left_out == (3, GRID + 7)
    assert rows.ids is not None
    assert rows.ids.tolist() == keep
    assert equal(_all(rows), x[keep])
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
    with pytest.raises(
        InputError, match=r"expected a safetensors file, got .*, which the library refuses \(.*\): it was cut"
    ):
        uncone.open_rows(path)
    with pytest.raises(SafetensorError):
        load_file(path)


@given(st.binary(max_size=200))
def test_random_bytes_are_refused_or_read(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "f.safetensors"
    path.write_bytes(data)
    with pytest.raises(uncone.UnconeError):
        uncone.open_rows(path)
    npy = path.with_suffix(".npy")
    npy.write_bytes(b"\x93NUMPY\x01\x00" + data)
    with pytest.raises(uncone.UnconeError):
        uncone.open_rows(npy)


def test_a_file_cut_while_it_is_open_is_an_error(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", gaussian(100, 4).numpy())
    rows = uncone.open_rows(tmp_path / "x.npy")
    os.truncate(tmp_path / "x.npy", 500)
    with pytest.raises(InputError, match="the file was cut"):
        list(rows.blocks())


def test_a_message_stays_short_whatever_the_header_holds(tmp_path: Path) -> None:
    names = {
        f"{'x' * 400}{i}": {"dtype": "F32", "shape": [1, 1], "data_offsets": [4 * i, 4 * i + 4]} for i in range(5_000)
    }
    path = _header(tmp_path / "f.safetensors", names, b"\0" * 20_000)
    for spec in (path, f"{path}#{'x' * 3000}"):
        with pytest.raises(InputError) as caught:
            uncone.open_rows(spec)
        assert len(str(caught.value)) < 9000


def test_long_gaps_between_kept_rows_are_not_read_at_once() -> None:
    x = torch.full((5 * GRID, 3), float("nan"))
    x[::GRID] = 1.0
    rows = uncone.open_rows(x, skip_nonfinite=True)
    assert rows.shape == (5, 3)
    assert equal(_all(rows), torch.ones(5, 3))


class TestMessages:
    """Each says what was expected, what came and what to do."""

    def test_missing_file(self, tmp_path: Path) -> None:
        with pytest.raises(
            InputError, match=r"no file or folder '.*nothing\.npy', and no model of that name .* downloads nothing"
        ):
            uncone.open_rows(tmp_path / "nothing.npy")

    def test_a_mask_is_not_ignored(self) -> None:
        with pytest.raises(InputError, match="expected an array without a mask"):
            uncone.open_rows(np.ma.masked_array(np.ones((2, 2)), mask=True))

    @pytest.mark.parametrize("spec", ["x" * 5000, "a\0b"])
    def test_what_is_no_path(self, spec: str) -> None:
        with pytest.raises(InputError, match="expected a model directory"):
            uncone.open_rows(spec)

    def test_another_kind(self, tmp_path: Path) -> None:
        (tmp_path / "x.csv").write_text("1,2")
        with pytest.raises(
            InputError, match=r"expected a model directory, .* got 'x\.csv' of another kind: convert it"
        ):
            uncone.open_rows(tmp_path / "x.csv")

    def test_unknown_tensor_names_the_nearest(self, tmp_path: Path) -> None:
        save_file({"wte.weight": torch.ones(2, 2), "wpe.weight": torch.ones(2, 2)}, tmp_path / "f.safetensors")
        with pytest.raises(InputError, match=r"no tensor 'wte\.wieght' in .*: did you mean 'wte\.weight'"):
            uncone.open_rows(f"{tmp_path}/f.safetensors#wte.wieght")

    def test_several_matrices_are_listed(self, tmp_path: Path) -> None:
        save_file({"a": torch.ones(2, 2), "b": torch.ones(2, 2), "c": torch.ones(2)}, tmp_path / "f.safetensors")
        with pytest.raises(
            InputError, match=r"expected one matrix .* got 2: say which with f\.safetensors#NAME; it holds 'a', 'b'"
        ):
            uncone.open_rows(tmp_path / "f.safetensors")

    def test_no_matrix(self, tmp_path: Path) -> None:
        save_file({"c": torch.ones(2)}, tmp_path / "f.safetensors")
        with pytest.raises(InputError, match="got none among 1 tensors"):
            uncone.open_rows(tmp_path / "f.safetensors")

    @pytest.mark.parametrize("shape", [(), (3,), (2, 3, 4)])
    def test_wrong_rank(self, shape: tuple[int, ...], tmp_path: Path) -> None:
        save_file({"w": torch.ones(shape)}, tmp_path / "f.safetensors")
        for spec in (torch.ones(shape), np.ones(shape, dtype="f4"), f"{tmp_path}/f.safetensors#w"):
            with pytest.raises(InputError, match=r"expected a matrix of shape \(N, D\), got shape"):
                uncone.open_rows(spec)

    @pytest.mark.parametrize("shape", [(0, 3), (3, 0)])
    def test_nothing_in_it(self, shape: tuple[int, int], tmp_path: Path) -> None:
        np.save(tmp_path / "x.npy", np.ones(shape))
        for spec in (torch.ones(shape), tmp_path / "x.npy"):
            with pytest.raises(InputError, match="expected at least one row and column"):
                uncone.open_rows(spec)

    def test_integers(self, tmp_path: Path) -> None:
        np.save(tmp_path / "x.npy", np.ones((2, 2), dtype="i4"))
        save_file({"w": torch.ones(2, 2, dtype=torch.int8)}, tmp_path / "f.safetensors")
        for spec in (
            tmp_path / "x.npy",
            np.ones((2, 2), dtype="?"),
            torch.ones(2, 2).bool(),
            f"{tmp_path}/f.safetensors#w",
        ):
            with pytest.raises(InputError, match=r"expected .*float64, float32, float16 or bfloat16, got"):
                uncone.open_rows(spec)

    def test_pickled_arrays_are_never_loaded(self, tmp_path: Path) -> None:
        np.save(tmp_path / "x.npy", np.array([[{"a": 1}]], dtype=object), allow_pickle=True)
        with pytest.raises(InputError, match=r"got pickled objects in .* never loaded"):
            uncone.open_rows(tmp_path / "x.npy")

    def test_truncated_npy(self, tmp_path: Path) -> None:
        np.save(tmp_path / "x.npy", gaussian(100, 4).numpy())
        content = (tmp_path / "x.npy").read_bytes()
        (tmp_path / "x.npy").write_bytes(content[:-1])
        with pytest.raises(
            InputError, match=r"expected 1728 bytes for shape \(100, 4\) of float32 .* got 1727: the file was cut"
        ):
            uncone.open_rows(tmp_path / "x.npy")

    def test_no_npy(self, tmp_path: Path) -> None:
        (tmp_path / "x.npy").write_bytes(b"hello")
        with pytest.raises(InputError, match=r"expected a \.npy file, got .* header that does not parse"):
            uncone.open_rows(tmp_path / "x.npy")

    def test_a_part_of_an_npy(self, tmp_path: Path) -> None:
        np.save(tmp_path / "x.npy", np.ones((2, 2)))
        with pytest.raises(InputError, match="without '#'"):
            uncone.open_rows(f"{tmp_path}/x.npy#0")

    def test_empty_part(self, tmp_path: Path) -> None:
        save_file({"w": torch.ones(2, 2)}, tmp_path / "f.safetensors")
        with pytest.raises(InputError, match="expected a tensor's name after '#'"):
            uncone.open_rows(f"{tmp_path}/f.safetensors#")

    def test_no_spec_at_all(self) -> None:
        with pytest.raises(InputError, match=r"expected Rows, a tensor or an array .* got int"):
            uncone.open_rows(3)

    def test_only_rows_that_are_not_finite(self) -> None:
        with pytest.raises(InputError, match="expected finite rows, got none of 2"):
            uncone.open_rows(torch.full((2, 2), float("nan")), skip_nonfinite=True)

    @pytest.mark.parametrize("spec", ["", "#w"])
    def test_an_empty_name_is_not_the_current_folder(
        self, spec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As a shell makes it of a variable that is not set: "$MODEL#input"."""
        save_file({"w": gaussian(3, 2)}, tmp_path / "model.safetensors")
        (tmp_path / "config.json").write_text("{}")
        monkeypatch.chdir(tmp_path)
        assert uncone.open_rows(".#w").shape == (3, 2)
        with pytest.raises(InputError, match="no file or folder ''"):
            uncone.open_rows(spec)

    def test_a_hash_in_a_folder_name_is_no_part(self, tmp_path: Path) -> None:
        folder = tmp_path / "a#b"
        folder.mkdir()
        save_file({"w": torch.ones(2, 2), "v": torch.ones(3, 2)}, folder / "f.safetensors")
        assert uncone.open_rows(f"{folder}/f.safetensors#v").shape == (3, 2)


@pytest.mark.parametrize(
    "size", ["True", "-3", "3.0", "None", "'3'", "9223372036854775808", "9" * 400, "9" * 4299, "9" * 5000]
)
@pytest.mark.parametrize("shape", ["({}, 2)", "(3, {})", "({0}, {0})"])
def test_a_size_of_an_array_that_is_no_size(tmp_path: Path, size: str, shape: str) -> None:
    shape = shape.format(size)
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".encode()
    content = b"\x93NUMPY\x02\x00" + len(header).to_bytes(4, "little") + header + bytes(24)
    (tmp_path / "x.npy").write_bytes(content)
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as file:
        file.writestr("x.npy", content)
    for read in (
        uncone.open_rows,
        lambda path: uncone.open_rows(path.with_suffix(".npz")),
        lambda path: read_counts(path, 3),
    ):
        with pytest.raises(InputError) as error:
            read(tmp_path / "x.npy")
        assert len(str(error.value)) < 1000
