"""Parquet columns of lists: every type and layout reads the same, and every bad row says its number."""

import os
import re
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import uncone
from uncone import InputError
from uncone.rows import GRID, parquet

from ..matrices import equal, gaussian
from .reading import all_rows, growth, printed, refused_or_read, refuses

pa = pytest.importorskip("pyarrow", reason="the extra [parquet] is not installed")
pq = pytest.importorskip("pyarrow.parquet", reason="the extra [parquet] is not installed")

VALUES = ("float64", "float32", "float16")


def _fixed(x: torch.Tensor) -> object:
    return pa.FixedSizeListArray.from_arrays(pa.array(x.numpy().reshape(-1)), x.shape[1])


def _listed(x: torch.Tensor, *, large: bool = False) -> object:
    n, d = x.shape
    array, offset = (pa.LargeListArray, np.int64) if large else (pa.ListArray, np.int32)
    return array.from_arrays(pa.array(np.arange(0, n * d + 1, d, dtype=offset)), pa.array(x.numpy().reshape(-1)))


LAYOUTS = {"fixed": _fixed, "lists": _listed, "large lists": lambda x: _listed(x, large=True)}
THREE = _listed(gaussian(3, 2))


def _write(path: Path, columns: dict[str, object], **options: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path, **options)
    return path


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", VALUES)
@pytest.mark.parametrize("group", [None, 1000, GRID])
def test_every_layout_and_dtype_reads_the_same(tmp_path: Path, layout: str, dtype: str, group: int | None) -> None:
    x = gaussian(2 * GRID + 7, 3).to(getattr(torch, dtype))
    path = _write(tmp_path / "x.parquet", {"id": range(len(x)), "v": LAYOUTS[layout](x)}, row_group_size=group)
    wide = x if dtype == "float64" else x.float()
    for spec in (path, f"{path}#v"):
        rows = uncone.open_rows(spec)
        assert (rows.shape, rows.dtype, rows.name) == (tuple(x.shape), dtype, f"{path}#v")
        assert [len(block) for block in rows.blocks()] == [GRID, GRID, 7]
        assert equal(all_rows(rows), wide)
        assert equal(rows.take(torch.tensor([0, 999, 2 * GRID])), wide[[0, 999, 2 * GRID]])
        for part in (slice(GRID + 900, GRID + 1100), slice(3, 5)):
            assert equal(rows.read(part.start, part.stop), wide[part])


def test_a_tensor_column_is_a_column_of_lists(tmp_path: Path) -> None:
    x = gaussian(20, 4)
    _write(tmp_path / "x.parquet", {"v": pa.FixedShapeTensorArray.from_numpy_ndarray(x.numpy())})
    assert equal(all_rows(tmp_path / "x.parquet"), x)


def test_part_files_are_one_matrix_in_the_order_of_their_paths(tmp_path: Path) -> None:
    x = gaussian(90, 3)
    for k, name in enumerate(("a=1/part-0.parquet", "a=1/part-1.parquet", "a=2/b=x/part-0.parquet")):
        _write(tmp_path / "table" / name, {"v": _listed(x[30 * k : 30 * k + 30])}, row_group_size=8)
    (tmp_path / "table" / "_SUCCESS").write_text("")
    _write(tmp_path / "table" / "_temporary" / "part-9.parquet", {"v": _listed(x)})
    _write(tmp_path / "table" / "a=3" / "empty.parquet", {"v": _listed(x[:0])})
    for spec in (tmp_path / "table", f"{tmp_path}/table#v"):
        rows = uncone.open_rows(spec)
        assert rows.shape == (90, 3)
        assert equal(all_rows(rows), x)
        assert equal(rows.read(25, 65), x[25:65])
    assert uncone.diagnose(tmp_path / "table").name == "table#v"


def test_a_model_directory_stays_one(tmp_path: Path) -> None:
    _write(tmp_path / "x.parquet", {"v": THREE})
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(uncone.UnconeError, match="safetensors"):
        uncone.diagnose(tmp_path)


@pytest.mark.parametrize("column", ["token", "word", "label", "name", "title", "text", "id"])
def test_a_column_of_text_gives_the_labels(tmp_path: Path, column: str) -> None:
    columns = {"v": THREE, "other": ["x", "y", "z"], column: ["a", None, "é" * 300]}
    assert uncone.open_rows(_write(tmp_path / "x.parquet", columns)).labels == ["a", None, "é" * 80]


def test_other_columns_give_no_labels(tmp_path: Path) -> None:
    columns = {"v": THREE, "id": [1, 2, 3], "note": ["a"] * 3}
    assert uncone.open_rows(_write(tmp_path / "x.parquet", columns)).labels is None


def test_labels_that_are_no_utf8_cost_nothing(tmp_path: Path) -> None:
    text = pa.array([b"a\xff", b"b", b"c"], pa.binary()).view(pa.string())
    rows = uncone.open_rows(_write(tmp_path / "x.parquet", {"v": THREE, "word": text}))
    assert rows.labels == ["a\ufffd", "b", "c"]


OPTIONS: dict[str, dict[str, object]] = {
    "no dictionary": {"use_dictionary": False},
    "second pages": {"data_page_version": "2.0"},
    "names": {"use_compliant_nested_type": False},
    "split bytes": {"use_dictionary": False, "column_encoding": {"v.list.element": "BYTE_STREAM_SPLIT"}},
    "small pages": {"data_page_size": 100},
    "gzip": {"compression": "gzip"},
    "none": {"compression": "none"},
    "an index": {"write_page_index": True, "write_page_checksum": True},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_every_way_to_write_reads_the_same(tmp_path: Path, name: str) -> None:
    x = gaussian(70, 3)
    columns = {"id": range(70), "v": _listed(x), "w": ["a"] * 70}
    path = _write(tmp_path / "x.parquet", columns, row_group_size=30, **OPTIONS[name])
    assert equal(all_rows(f"{path}#v"), x)


@pytest.mark.parametrize(
    "options", [{}, {"use_dictionary": False}, {"use_dictionary": False, "data_page_version": "2.0"}]
)
def test_pages_of_other_counts_than_the_footer_says(tmp_path: Path, options: dict[str, object]) -> None:
    """40 rows came with 25 labels: each place where a number of 40 stands is made 25 in turn."""
    columns = {"v": _fixed(gaussian(40, 3)), "word": [f"w{i}" for i in range(40)]}
    path = _write(tmp_path / "x.parquet", columns, compression="none", **options)
    content, refused = path.read_bytes(), []
    for at in range(len(content) - 9):
        if content[at] in (0x15, 0x16) and content[at + 1] == 2 * 40:  # an i32 or i64 in Thrift's compact protocol
            path.write_bytes(content[: at + 1] + bytes([2 * 25]) + content[at + 2 :])
            try:
                rows = uncone.open_rows(f"{path}#v")
                assert len(all_rows(rows)) == len(rows.labels or ()) == 40
            except InputError as error:
                refused.append(str(error))
    for message in ("is wrong: 40 labels, got 25; copy it again", "25 rows in groups of 40"):
        assert any(message in one for one in refused)


BAD_ROWS = {
    "a null": ([[1.0, 2.0], None, [3.0, 4.0]], "row 1 of .*x\\.parquet#v, got a null: fill or drop it"),
    "a null in a list": ([[1.0, 2.0], [3.0, 4.0], [5.0, None]], "row 2 of .*, got a null in the list"),
    "a short list": ([[1.0, 2.0], [3.0], [5.0, 6.0, 7.0]], "row 1 of .*, got a list of 1"),
    "a long list": ([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0, 7.0]], "row 2 of .*, got a list of 3"),
    "an empty list": ([[1.0, 2.0], [], [3.0, 4.0]], "row 1 of .*, got a list of 0"),
}


@pytest.mark.parametrize("name", BAD_ROWS)
def test_a_bad_row_is_named(tmp_path: Path, name: str) -> None:
    lists, message = BAD_ROWS[name]
    path = _write(tmp_path / "x.parquet", {"v": pa.array(lists, pa.list_(pa.float32()))}, row_group_size=2)
    refuses(f"expected a list of 2 numbers in {message}", all_rows, path)


@pytest.mark.parametrize(
    ("lists", "type", "message"),
    [
        ([[], []], pa.list_(pa.float32()), "expected at least one row and column"),
        ([None, [1.0]], pa.list_(pa.float32()), "expected a list of numbers in row 0 of .*, got a null"),
        ([[1.0, 2.0], None], pa.list_(pa.float32(), 2), "in row 1 of .*, got a null"),
    ],
)
def test_bad_rows_of_other_kinds(tmp_path: Path, lists: list[object], type: pa.DataType, message: str) -> None:
    refuses(message, lambda: all_rows(_write(tmp_path / "x.parquet", {"v": pa.array(lists, type)})))


def test_a_bad_row_far_in_is_named(tmp_path: Path) -> None:
    lists = [[1.0, 2.0]] * (GRID + 20)
    lists[GRID + 10] = [1.0]
    rows = uncone.open_rows(_write(tmp_path / "x.parquet", {"v": pa.array(lists, pa.list_(pa.float32()))}))
    refuses(f"in row {GRID + 10} of ", all_rows, rows)
    refuses(f"in row {GRID + 10} of ", rows.read, GRID + 5, GRID + 15)
    assert rows.read(0, 1).tolist() == [[1.0, 2.0]]


def test_no_rows_are_read_from_any_place(tmp_path: Path) -> None:
    """Past the last row there is no row group to begin at: that raised IndexError."""
    rows = uncone.open_rows(_write(tmp_path / "x.parquet", {"v": _listed(gaussian(10, 2))}))
    assert [tuple(rows.read(row, row).shape) for row in (0, 5, 10)] == [(0, 2)] * 3


@pytest.mark.parametrize(("said", "got"), [(5, "more"), (15, "10")])
def test_a_part_of_other_rows_than_said(tmp_path: Path, said: int, got: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of the next part came under other numbers in a pass than in a range."""
    for name in ("a", "b"):
        _write(tmp_path / "t" / f"{name}.parquet", {"v": _listed(gaussian(10, 2))})
    real, of = parquet.open_part, {"a.parquet": {"rows": said}}
    monkeypatch.setattr(parquet, "open_part", lambda path: replace(real(path), **of.get(path.name, {})))
    refuses(rf"the footer of .*a\.parquet is wrong: {said} rows, got {got}; copy it", all_rows, tmp_path / "t")


class TestMessages:
    def test_folders_in_folders_without_end(self, tmp_path: Path) -> None:
        """A thousand of them raised RecursionError."""
        deepest = tmp_path.joinpath("t", *["k=v"] * 65)
        deepest.mkdir(parents=True)
        _write(deepest / "x.parquet", {"v": THREE})
        refuses(r"expected folders key=value at most 64 deep, got deeper folders in ", uncone.open_rows, tmp_path / "t")
        assert uncone.open_rows(tmp_path / "t" / "k=v").shape == (3, 2)

    @pytest.mark.parametrize(
        ("name", "make"),
        [
            ("b.parquet", os.mkfifo),
            ("b.parquet", lambda entry: entry.symlink_to(entry.with_name("nothing"))),
            ("k=v", lambda entry: entry.symlink_to(entry.parent)),
        ],
    )
    def test_what_would_be_left_out_of_a_folder_is_refused(self, tmp_path: Path, name: str, make) -> None:
        """Rows were missing without a word."""
        _write(tmp_path / "t" / "a.parquet", {"v": THREE})
        (tmp_path / "t" / "_SUCCESS").write_text("")
        make(tmp_path / "t" / name)
        refuses(rf"expected files in .*t, got a link or pipe {name}: remove it", uncone.open_rows, tmp_path / "t")

    def test_a_linked_file_is_read(self, tmp_path: Path) -> None:
        _write(tmp_path / "a.parquet", {"v": THREE})
        (tmp_path / "t").mkdir()
        (tmp_path / "t" / "a.parquet").symlink_to(tmp_path / "a.parquet")
        assert uncone.open_rows(tmp_path / "t").shape == (3, 2)

    def test_a_long_type_is_cut(self, tmp_path: Path) -> None:
        path = _write(tmp_path / "x.parquet", {"v": [{f"field_{i}": 1 for i in range(1000)}]})
        with pytest.raises(InputError, match=r"in column 'v' of .*, got struct<field_0: int64") as caught:
            uncone.open_rows(f"{path}#v")
        assert len(str(caught.value)) < 400 + len(str(path))

    @pytest.mark.parametrize(
        ("columns", "part", "message"),
        [
            ({"embedding": THREE}, "#embeding", r"no column 'embeding' in .*x\.parquet: did you mean 'embedding'\?"),
            (
                {"a": THREE, "b": _fixed(gaussian(3, 2)), "c": [1.0, 2.0, 3.0]},
                "",
                r"expected one column of lists in .*, got 2: say which with x\.parquet#NAME; it holds 'a', 'b'",
            ),
            (
                {"c": [1.0, 2.0], "d": [[1], [2]]},
                "",
                r"expected a column of lists of floats in .*, got none among 'c', 'd'",
            ),
            *(
                ({"c": values}, "#c", r"expected lists of float64, float32 or float16 in column 'c' of .*, got ")
                for values in ([1.0, 2.0], [[1], [2]], [["a"], ["b"]], [[[1.0]], [[2.0]]], ["a", "b"])
            ),
            *(
                (
                    {"v": layout(gaussian(3, 2)).slice(0, 0)},
                    "",
                    r"expected at least one row and column, got shape \(0, ",
                )
                for layout in LAYOUTS.values()
            ),
        ],
    )
    def test_no_lists_of_floats(self, tmp_path: Path, columns: dict[str, object], part: str, message: str) -> None:
        refuses(message, uncone.open_rows, f"{_write(tmp_path / 'x.parquet', columns)}{part}")

    def test_two_columns_of_one_name(self, tmp_path: Path) -> None:
        x = THREE
        pq.write_table(pa.Table.from_arrays([x, x], ["v", "v"]), tmp_path / "x.parquet")
        refuses(r"expected one column 'v' in .*, got 2: rename", uncone.open_rows, f"{tmp_path}/x.parquet#v")

    @pytest.mark.parametrize(
        ("a", "b", "message"),
        [
            (
                {"v": _fixed(gaussian(3, 2))},
                {"v": _fixed(gaussian(3, 2).double())},
                r"got lists of 2 float in a\.parquet and lists of 2 double in b\.parquet: write all parts",
            ),
            ({"v": _fixed(gaussian(3, 2))}, {"w": _fixed(gaussian(3, 2))}, r"no column 'v' in .*b\.parquet: "),
            (
                {"v": THREE},
                {"v": _listed(gaussian(3, 5))},
                r"expected a list of 2 numbers in row 0 of .*b\.parquet#v, got a list of 5",
            ),
        ],
    )
    def test_parts_that_differ(self, tmp_path: Path, a: dict[str, object], b: dict[str, object], message: str) -> None:
        _write(tmp_path / "t" / "a.parquet", a)
        _write(tmp_path / "t" / "b.parquet", b)
        refuses(message, all_rows, tmp_path / "t")

    @pytest.mark.parametrize("content", [b"", b"PAR1", b"hello" * 10, b"PAR1" + b"\xff" * 20 + b"PAR1"])
    def test_no_parquet(self, tmp_path: Path, content: bytes) -> None:
        (tmp_path / "x.parquet").write_bytes(content)
        refuses(r"expected Parquet, got .* which pyarrow cannot read", uncone.open_rows, tmp_path / "x.parquet")

    def test_without_pyarrow(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = _write(tmp_path / "x.parquet", {"v": THREE})
        monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
        refuses(r"expected pyarrow for reading .*: pip install 'uncone\[parquet\]'", uncone.open_rows, path)


@given(
    st.booleans(),
    st.lists(st.tuples(st.booleans(), st.integers(0, 10**6), st.integers(0, 255)), max_size=3),
    st.integers(0, 10**6),
)
def test_mutated_files_are_refused_or_read(
    tmp_path_factory: pytest.TempPathFactory, fixed: bool, changes: list[tuple[bool, int, int]], stop: int
) -> None:
    columns = {"v": (_fixed if fixed else _listed)(gaussian(40, 3)), "word": [f"w{i}" for i in range(40)]}
    path = _write(tmp_path_factory.mktemp("fuzz") / "x.parquet", columns, row_group_size=15)
    content = bytearray(path.read_bytes())
    footer = int.from_bytes(content[-8:-4], "little")
    for in_footer, at, value in changes:
        content[len(content) - 8 - at % footer if in_footer else at % len(content)] = value
    path.write_bytes(content[: stop % (len(content) + 1)] if stop % 3 == 0 else content)
    refused_or_read(f"{path}#v")


@given(st.binary(max_size=200))
def test_random_bytes_are_refused(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "x.parquet"
    path.write_bytes(b"PAR1" + data + len(data).to_bytes(4, "little") + b"PAR1")
    with pytest.raises(uncone.UnconeError):
        uncone.open_rows(path)


def test_a_page_that_says_it_has_two_gigabytes_takes_none(tmp_path: Path) -> None:
    code = """
import sys, uncone
def peak(): return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")) / 1024
list(uncone.open_rows(sys.argv[1]).blocks())
before = peak()
try:
    uncone.open_rows(sys.argv[2])
except uncone.InputError as error:
    assert "which pyarrow cannot read" in str(error)
    print(peak() - before)
"""
    path = _write(tmp_path / "x.parquet", {"v": _listed(gaussian(9, 3))}, use_dictionary=False)
    size = rb"[\x80-\xff]*[\x00-\x7f]"
    # The header of the first page: its kind, its size, and that in the file.
    first = re.compile(rb"^(PAR1\x15\x00\x15" + size + rb"\x15)" + size, re.DOTALL)
    content, times = first.subn(lambda found: found[1] + b"\xfe\xff\xff\xff\x0f", path.read_bytes())
    assert times == 1
    (tmp_path / "y.parquet").write_bytes(content)
    assert printed(code, path, tmp_path / "y.parquet") < 100


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
    table = pa.table({"v": _listed(torch.zeros(6000, 2)), "word": text})
    options = {"compression": "zstd", "store_schema": False, "dictionary_pagesize_limit": 2**30}
    pq.write_table(table, tmp_path / "x.parquet", **options)
    assert printed(code, f"{tmp_path}/x.parquet#v") < 200  # 1.2 GB, if each row had its own


@pytest.mark.slow
def test_memory_does_not_grow_with_a_row_group(tmp_path: Path) -> None:
    """Anonymous memory while one row group of 300 MB is read, beyond what a small file takes."""
    for name, n in (("small", GRID), ("large", 200_000)):
        _write(tmp_path / f"{name}.parquet", {"v": _listed(gaussian(n, 384))}, row_group_size=n)
    assert growth(tmp_path / "small.parquet", tmp_path / "large.parquet") < 150  # one block takes 12 MiB
