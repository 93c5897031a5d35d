"""`.npz` files: stored members in place, deflated ones as they inflate, and no byte more than the file can hold."""

import struct
import zipfile
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import uncone
from uncone.rows import GRID
from uncone.rows.bytes import FlatRows
from uncone.rows.npy import ColumnRows, InflatedRows

from ..matrices import equal, gaussian
from .reading import CHANGES, all_rows, mutated, printed, refused_or_read, refuses, write_zip

SAVE = {"stored": np.savez, "deflated": np.savez_compressed}


@pytest.mark.parametrize("how", SAVE)
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", ">f4", ">f8"])
@pytest.mark.parametrize("n", [1, GRID + 3])
def test_every_dtype_reads_as_it_was_saved(tmp_path: Path, how: str, dtype: str, n: int) -> None:
    x = gaussian(n, 5).numpy().astype(dtype)
    SAVE[how](tmp_path / "x.npz", w=x, ids=np.arange(3), bias=np.ones(5))
    wide = torch.from_numpy(x.astype("f8" if x.dtype.itemsize == 8 else "f4"))
    for spec in (f"{tmp_path}/x.npz", f"{tmp_path}/x.npz#w"):
        rows = uncone.open_rows(spec)
        assert (rows.shape, rows.dtype) == ((n, 5), np.dtype(dtype).newbyteorder("=").name)
        assert rows.name.endswith("x.npz#w")
        assert equal(all_rows(rows), wide)
        assert equal(rows.read(n // 2, n), wide[n // 2 :])
        assert equal(rows.read(0, 1), wide[:1])


def test_rows_are_read_in_place_where_they_can_be(tmp_path: Path) -> None:
    x = gaussian(20, 3).numpy()
    for name, order, reader in (("s", "C", FlatRows), ("s", "F", ColumnRows), ("d", "C", InflatedRows)):
        save = np.savez if name == "s" else np.savez_compressed
        save(tmp_path / "x.npz", a=np.ones(4), w=np.asarray(x, order=order))
        rows = uncone.open_rows(tmp_path / "x.npz")
        assert isinstance(rows, reader)
        assert np.array_equal(all_rows(rows).numpy(), x)
    np.savez_compressed(tmp_path / "d.npz", w=np.asfortranarray(x))
    message = r"expected a row-major matrix, got a deflated column-major one from .*d\.npz#w"
    refuses(message, uncone.open_rows, tmp_path / "d.npz")


def test_a_member_longer_than_its_directory_says_is_found(tmp_path: Path) -> None:
    """zipfile pads a member's own header where it does not know its size before."""
    x = gaussian(20, 3).numpy()
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive, archive.open("w.npy", "w", force_zip64=True) as member:
        np.save(member, x)
    assert np.array_equal(all_rows(tmp_path / "x.npz").numpy(), x)


def test_the_directory_of_the_zip_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was read for every deflated array: a file of a few thousand took a minute to open."""
    x, opened = gaussian(20, 3).numpy(), list[object]()
    np.savez_compressed(tmp_path / "x.npz", w=x, **{f"bias{i}": np.ones(3) for i in range(20)})
    real = zipfile.ZipFile
    monkeypatch.setattr(zipfile, "ZipFile", lambda *given: opened.append(given) or real(*given))
    assert np.array_equal(all_rows(tmp_path / "x.npz").numpy(), x)
    assert len(opened) == 1


def _npy(header: str, data: bytes = b"") -> bytes:
    text = header.encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + data


HUGE = "{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000, 1000000), }"
SMALL = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2), }"
TWO = np.ones((2, 2))


class TestMessages:
    @pytest.mark.parametrize(
        ("arrays", "part", "message"),
        [
            (
                {"vectors": TWO, "ids": np.arange(2)},
                "#vector",
                r"no array 'vector' in .*x\.npz: did you mean 'vectors'\?",
            ),
            (
                {"a": TWO, "b": TWO, "c": np.arange(2)},
                "",
                r"expected one matrix in .*, got 2: say which with x\.npz#NAME; it holds 'a', 'b'",
            ),
            ({"c": np.arange(2)}, "", r"expected a matrix of floats in .*, got none among 1 arrays"),
            ({"c": np.arange(2)}, "#c", r"expected float64, .*, got dtype int64 in .*#c"),
            ({"w": np.array([[{"a": 1}]], dtype=object)}, "#w", r"got pickled objects in .* never loaded"),
            ({"w": np.ones(3)}, "#w", r"expected a matrix of shape \(N, D\)"),
            ({"w": np.ones((2, 3, 4))}, "#w", r"expected a matrix of shape \(N, D\)"),
            ({"w": np.ones((0, 3))}, "#w", "expected at least one row"),
        ],
    )
    @pytest.mark.parametrize("how", SAVE)
    def test_no_matrix(self, tmp_path: Path, how: str, arrays: dict[str, np.ndarray], part: str, message: str) -> None:
        SAVE[how](tmp_path / "x.npz", **arrays)
        refuses(message, uncone.open_rows, f"{tmp_path}/x.npz{part}")

    @pytest.mark.parametrize("content", [b"", b"PK", b"hello" * 100])
    def test_no_zip(self, tmp_path: Path, content: bytes) -> None:
        (tmp_path / "x.npz").write_bytes(content)
        refuses(r"expected a \.npz file, got .* which is not a zip of arrays", uncone.open_rows, tmp_path / "x.npz")

    @pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
    def test_petabytes_are_not_believed(self, tmp_path: Path, method: int) -> None:
        path = write_zip(tmp_path / "x.npz", {"w.npy": _npy(HUGE, b"\0" * 400)}, method)
        message = r"expected 4000000000000\d+ bytes for shape \(1000000000, 1000000\) of float32"
        refuses(message, uncone.open_rows, f"{path}#w")

    def test_petabytes_in_the_directory_are_not_believed(self, tmp_path: Path) -> None:
        path = write_zip(tmp_path / "x.npz", {"w.npy": _npy(SMALL, b"\0" * 16)}, zipfile.ZIP_DEFLATED)
        content = bytearray(path.read_bytes())
        at = content.rindex(b"PK\1\2") + 24  # the uncompressed size
        content[at : at + 4] = struct.pack("<I", 2**32 - 2)
        path.write_bytes(content)
        message = r"the zip .* is wrong about 'w\.npy': \d+ deflated bytes cannot hold 4294967294"
        refuses(message, uncone.open_rows, f"{path}#w")

    def test_a_name_twice(self, tmp_path: Path) -> None:
        with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
            archive.writestr("w.npy", _npy(SMALL, b"\0" * 16))
            with pytest.warns(UserWarning, match="Duplicate name"):
                archive.writestr("w.npy", _npy(SMALL, b"\1" * 16))
        refuses("its name occurs twice", uncone.open_rows, tmp_path / "x.npz")

    def test_another_compression(self, tmp_path: Path) -> None:
        path = write_zip(tmp_path / "x.npz", {"w.npy": _npy(SMALL, b"\0" * 16)}, zipfile.ZIP_LZMA)
        refuses("expected an array stored or deflated, got", uncone.open_rows, f"{path}#w")

    def test_a_damaged_stream(self, tmp_path: Path) -> None:
        np.savez_compressed(tmp_path / "x.npz", w=gaussian(2 * GRID, 8).numpy())
        content = bytearray((tmp_path / "x.npz").read_bytes())
        content[len(content) // 2] ^= 255
        (tmp_path / "x.npz").write_bytes(content)
        refuses(r"expected deflated bytes of .*, got bytes that do not inflate", all_rows, tmp_path / "x.npz")

    @pytest.mark.parametrize("how", SAVE)
    @pytest.mark.parametrize("order", ["C", "F"])
    def test_another_checksum(self, tmp_path: Path, how: str, order: Literal["C", "F"]) -> None:
        """Of what was not read to its end nothing is known. A column-major matrix is read once when it is opened."""
        x = gaussian(GRID + 3, 8).numpy()
        SAVE[how](tmp_path / "x.npz", w=np.asarray(x, order=order))
        content = bytearray((tmp_path / "x.npz").read_bytes())
        content[content.rindex(b"PK\1\2") + 16] ^= 1
        (tmp_path / "x.npz").write_bytes(content)
        with np.load(tmp_path / "x.npz") as archive, pytest.raises(zipfile.BadZipFile, match="Bad CRC"):
            archive["w"]
        if (how, order) == ("deflated", "F"):
            return
        if order == "F":
            refuses("its checksum does not match its bytes", uncone.open_rows, tmp_path / "x.npz")
            return
        rows = uncone.open_rows(tmp_path / "x.npz")
        if how == "stored":  # the pieces of a deflated one are larger than it
            assert np.array_equal(rows.read(2, 7), x[2:7])
        for _ in range(2):
            refuses(r"its checksum does not match its bytes|Bad CRC-32", all_rows, rows)

    @pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
    def test_bytes_after_the_array(self, tmp_path: Path, method: int) -> None:
        path = write_zip(tmp_path / "x.npz", {"w.npy": _npy(SMALL, b"\0" * 24)}, method)
        refuses(r"is wrong about 'w\.npy': its array takes 86 bytes of 94", uncone.open_rows, path)

    @pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
    def test_another_name_in_the_header_of_an_array(self, tmp_path: Path, method: int) -> None:
        path = write_zip(tmp_path / "x.npz", {"w.npy": _npy(SMALL, b"\0" * 16), "v.npy": b"no array"}, method)
        path.write_bytes(path.read_bytes().replace(b"w.npy", b"v.npy", 1))
        message = r"is wrong about 'w\.npy': File name in directory 'w\.npy' and header b'v\.npy' differ"
        refuses(message, uncone.open_rows, path)

    def test_a_name_that_is_no_ascii(self, tmp_path: Path) -> None:
        np.savez(tmp_path / "x.npz", ü=np.ones((2, 2)))
        assert equal(all_rows(f"{tmp_path}/x.npz#ü"), torch.ones(2, 2, dtype=torch.float64))


@given(st.sampled_from(sorted(SAVE)), CHANGES, st.integers(0, 10**6), st.sampled_from(["", "#w"]))
def test_mutated_files_are_refused_or_read(
    tmp_path_factory: pytest.TempPathFactory, how: str, changes: list[tuple[int, int]], stop: int, part: str
) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "x.npz"
    SAVE[how](path, w=gaussian(20, 3).numpy(), v=np.arange(4))
    path.write_bytes(mutated(path.read_bytes(), changes, stop if stop % 2 else None))
    refused_or_read(f"{path}{part}")


@given(st.binary(max_size=200))
def test_random_bytes_are_refused(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "x.npz"
    for content in (data, b"PK\3\4" + data, data + b"PK\5\6" + bytes(18)):
        path.write_bytes(content)
        with pytest.raises(uncone.UnconeError):
            uncone.open_rows(path)


_PEAK = """
import sys, threading, uncone
from uncone.measure import odd_rows
odd_rows.MOST_KEYS = 2**17
def held(): return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("RssAnon")) / 1024
def peak(path):
    most, done = 0, threading.Event()
    def watch():
        nonlocal most
        while not done.wait(0.01):
            most = max(most, held())
    thread = threading.Thread(target=watch)
    thread.start()
    rows = uncone.open_rows(path)
    uncone.diagnose(rows) if sys.argv[1] == "diagnose" else uncone.Moments.of(rows)
    done.set()
    thread.join()
    return most
peak(sys.argv[2])
before = peak(sys.argv[2])
print(peak(sys.argv[3]) - before)
"""


@pytest.mark.parametrize(
    ("what", "fewer", "more"),
    [
        ("moments", 200_000, 2_000_000),
        # Both above the share of the rows that are compared as equal, which is made smaller here
        pytest.param("diagnose", 150_000, 2_000_000, marks=pytest.mark.slow),
    ],
)
def test_memory_does_not_grow_with_rows_of_a_deflated_matrix(tmp_path: Path, what: str, fewer: int, more: int) -> None:
    """Their numbers, marks and a list of those to draw took 17 bytes a row: 31 MB of the larger matrix."""
    for name, rows in (("small", fewer), ("large", more)):
        x = np.resize(np.random.default_rng(0).integers(-99, 99, 50_000).astype(np.float32), (rows, 1))
        np.savez_compressed(tmp_path / name, x=x)
    assert printed(_PEAK, what, tmp_path / "small.npz", tmp_path / "large.npz") < 15
