"""Parquet files that hold far more numbers than bytes: what no matrix can be is refused before it is decoded, and the rest is read."""

import contextlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import uncone
from uncone import InputError
from uncone.rows import parquet_footer
from uncone.rows.bytes import LocalFile
from uncone.rows.parquet_footer import check_pages, column_chunks

from ..matrices import gaussian

pa = pytest.importorskip("pyarrow", reason="the extra [parquet] is not installed")
pq = pytest.importorskip("pyarrow.parquet", reason="the extra [parquet] is not installed")

MILLION = 1_000_000


def _lists(lengths: list[int]) -> object:
    """Lists of zeros."""
    offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(np.zeros(offsets[-1], np.float32)))


def _write(path: Path, *groups: object, **options: object) -> Path:
    """One row group for each array of lists."""
    with pq.ParquetWriter(path, pa.schema([("v", groups[0].type)]), compression="zstd", **options) as writer:
        for group in groups:
            writer.write_table(pa.table({"v": group}), row_group_size=len(group))
    return path


def _patched(path: Path, count: int, said: int) -> Path:
    """The number of values `count` of the last chunk in the footer, replaced by `said` in as many bytes."""
    content = bytearray(path.read_bytes())
    found, new = _varint(2 * count), _varint(2 * said)
    new = bytes([*(byte | 128 for byte in new), *[128] * (len(found) - len(new) - 1), 0]) if len(new) < len(found) else new
    at = content.rindex(b"\x16" + found)  # an i64 one field on
    content[at + 1 : at + 1 + len(found)] = new
    path.write_bytes(content)
    return path


def _varint(value: int) -> bytes:
    parts = []
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    return bytes([*parts, value])


BOMBS: dict[str, tuple[Callable[[Path], Path], str]] = {
    "long lists after a short one": (
        lambda path: _write(path, _lists([1]), _lists([MILLION] * 20)),
        r"expected lists of 1 numbers in rows 1 to 20 of .*#v, got 20000000 numbers in all: write lists of one length",
    ),
    "a long list first": (
        lambda path: _write(path, _lists([20 * MILLION, 1, 1])),
        r"expected lists of one length in rows 0 to 2 of .*#v, got 20000002 numbers in all",
    ),
    "one list of all the numbers": (
        lambda path: _write(path, _lists([1] * 999_999 + [19 * MILLION + 1])),
        r"expected 1000000 lists of 20 numbers in a row group of .*, got 20000000 numbers in \d+ bytes, which cannot be lists of one length",
    ),
    "a footer of fewer": (
        lambda path: _patched(_write(path, _lists([1]), _lists([MILLION] * 20)), 20 * MILLION, 20),
        r"the footer of .* lies: a page of \d+ values in \d+ bytes, in a chunk of 20 values",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def bombs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("bombs")
    return {name: make(folder / f"{i}.parquet") for i, (name, (make, _)) in enumerate(BOMBS.items())}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused(bombs: dict[str, Path], name: str) -> None:
    assert bombs[name].stat().st_size < 20_000
    with pytest.raises(InputError, match=BOMBS[name][1]):
        list(uncone.open_rows(bombs[name]).blocks())


def test_refusing_a_bomb_takes_no_memory(bombs: dict[str, Path], tmp_path: Path) -> None:
    """2.2 GB were taken before the message came."""
    code = """
import resource, sys, uncone
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
list(uncone.open_rows(sys.argv[1]).blocks())
before = peak()
for path in sys.argv[2:]:
    try:
        list(uncone.open_rows(path).blocks())
    except uncone.InputError:
        print(peak() - before)
"""
    honest = _write(tmp_path / "x.parquet", _lists([3, 3]))
    run = [sys.executable, "-c", code, str(honest), *map(str, bombs.values())]
    taken = [float(line) for line in subprocess.run(run, capture_output=True, text=True, check=True).stdout.split()]
    assert len(taken) == len(BOMBS)
    assert max(taken) < 100


@pytest.mark.slow
def test_a_long_label_that_stands_in_many_rows_is_decoded_once(tmp_path: Path) -> None:
    code = """
import resource, sys, uncone
rows = uncone.open_rows(sys.argv[1])
list(rows.blocks())
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
assert rows.labels[0] == "a" * 80 and len(rows.labels) == 6000
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
"""
    text = pa.DictionaryArray.from_arrays(pa.array(np.zeros(6000, np.int32)), pa.array(["a" * 200_000]))
    table = pa.table({"v": _lists([2] * 6000), "word": text})
    pq.write_table(table, tmp_path / "x.parquet", compression="zstd", store_schema=False, dictionary_pagesize_limit=2**30)
    done = subprocess.run([sys.executable, "-c", code, f"{tmp_path}/x.parquet#v"], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 200  # 1.2 GB, if each row had its own


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("d", [1, 2, 7, 8, 9, 300])
def test_equal_numbers_are_no_bomb(tmp_path: Path, version: str, d: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is held against a bomb holds of no honest file, however well it packs."""
    monkeypatch.setattr(parquet_footer, "MOST_SURPLUS", 0)
    rows = uncone.open_rows(_write(tmp_path / "x.parquet", _lists([d] * 20_000), data_page_version=version))
    assert rows.shape == (20_000, d)
    assert sum(float(block.abs().sum()) for block in rows.blocks()) == 0


OPTIONS: dict[str, dict[str, object]] = {
    "as it comes": {}, "no dictionary": {"use_dictionary": False}, "second pages": {"data_page_version": "2.0"},
    "split bytes": {"use_dictionary": False, "column_encoding": {"v.list.element": "BYTE_STREAM_SPLIT"}},
    "small pages": {"data_page_size": 100}, "gzip": {"compression": "gzip"}, "none": {"compression": "none"},
    "an index": {"write_page_index": True, "write_page_checksum": True}, "names": {"use_compliant_nested_type": False},
}  # fmt: skip


@pytest.mark.parametrize("name", OPTIONS)
def test_counts_are_those_that_were_written(tmp_path: Path, name: str) -> None:
    """The oracle is pyarrow's own reading of the footer, which is safe on its own file."""
    x = gaussian(70, 3)
    array = pa.FixedSizeListArray.from_arrays(pa.array(x.numpy().reshape(-1)), 3)
    options = {"column_encoding": None, **OPTIONS[name]}
    if options["column_encoding"]:
        array = pa.ListArray.from_arrays(pa.array(np.arange(0, 211, 3, dtype=np.int32)), pa.array(x.numpy().reshape(-1)))
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"id": range(70), "v": array, "w": ["a"] * 70}), path, row_group_size=30, **options)
    source, metadata = LocalFile(path), pq.read_metadata(path)
    chunks = column_chunks(source, "v")
    for i, (chunk, rows) in enumerate(zip(chunks, (30, 30, 10), strict=True)):
        told = metadata.row_group(i).column(1)
        first = told.dictionary_page_offset if told.has_dictionary_page else told.data_page_offset
        assert (chunk.values, chunk.start, chunk.stop - chunk.start) == (told.num_values, first, told.total_compressed_size)
        check_pages(source, chunk, rows, 3)
    assert torch.equal(torch.cat([block.clone() for block in uncone.open_rows(f"{path}#v").blocks()]), x)


def test_headers_of_pages_may_be_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_footer, "_HEADER", 2)
    test_counts_are_those_that_were_written(tmp_path, "an index")


LIES = {
    "a chunk beyond the file": ({5: 6, 7: 10**6, 9: 4}, "a chunk of 6 values in 1000000 bytes at 4 of a file of"),
    "a chunk of nothing": ({}, "0 chunks in a row group"),
    "fewer than none": ({5: -1, 7: 10, 9: 4}, "a chunk of -1 values"),
}


@pytest.mark.parametrize("name", LIES)
def test_lying_footers_are_refused(tmp_path: Path, name: str) -> None:
    fields, message = LIES[name]
    metadata, last = b"", 0
    for field, value in ({3: None} | fields if fields else {}).items():
        metadata += bytes([(field - last) << 4 | (9 if value is None else 6)])
        metadata += b"\x18\x01v" if value is None else _varint((value << 1) ^ (value >> 63))
        last = field
    footer = b"\x49\x1c\x19\x1c\x3c" + metadata + b"\0\0\0\0"  # FileMetaData.4 = [RowGroup.1 = [ColumnChunk.3 = {...}]]
    (tmp_path / "x.parquet").write_bytes(b"PAR1" + bytes(20) + footer + len(footer).to_bytes(4, "little") + b"PAR1")
    with pytest.raises(InputError, match=f"the footer of .* lies: {message}"):
        column_chunks(LocalFile(tmp_path / "x.parquet"), "v")


BROKEN = {
    "its end": b"\x16", "a number without end": b"\x16" + b"\xff" * 20, "structs in structs without end": b"\x1c" * 40,
    "items in": b"\x19\xfc\xff\xff\x03", "a value of type": b"\x1d\x01", "lists in lists": b"\x19" * 60,
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_broken_footers_are_refused(tmp_path: Path, name: str) -> None:
    footer = BROKEN[name]
    (tmp_path / "x.parquet").write_bytes(b"PAR1" + footer + len(footer).to_bytes(4, "little") + b"PAR1")
    message = "" if name == "lists in lists" else name
    with pytest.raises(InputError, match=rf"expected a Parquet file, got .* whose metadata does not parse \(.*{message}"):
        column_chunks(LocalFile(tmp_path / "x.parquet"), "v")


@settings(deadline=None, max_examples=200)
@given(st.binary(max_size=80))
def test_random_footers_are_refused_or_empty(tmp_path_factory: pytest.TempPathFactory, footer: bytes) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "x.parquet"
    path.write_bytes(b"PAR1" + footer + len(footer).to_bytes(4, "little") + b"PAR1")
    with contextlib.suppress(InputError):
        assert all(chunk.stop <= path.stat().st_size for chunk in column_chunks(LocalFile(path), "v"))
