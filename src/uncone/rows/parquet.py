"""Rows of a Parquet column of lists, in a file or in a folder of part files.

No row group is held whole, and the counts read are compared with the footer's.
"""

import bisect
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from uncone.errors import InputError, first_line, needed
from uncone.rows.base import GRID, Labels, Rows, check_shape
from uncone.rows.bytes import File, SequentialFile, StreamedRows, as_file
from uncone.rows.floats import Array
from uncone.rows.names import KEY_COLUMNS, LABEL_COLUMNS, LONGEST_LABEL, listing, named, only
from uncone.rows.parts import Part as SomeRows
from uncone.rows.parts import RowsInParts

DTYPES = {"halffloat": "float16", "float": "float32", "double": "float64"}
_DEEPEST = 64
_BUFFER_BYTES = 2**20
_REMOTE_BYTES = 2**23  # bytes of a request


def open_parquet(path: Path | File, column: str | None) -> Rows:
    """A column of lists of floats of one length, of a file or a folder of part files, sorted by path.

    Part files may be in folders named `key=value`. Names that begin with `_` or `.` are skipped.
    """
    files: list[Any] = [path]
    if isinstance(path, Path) and path.is_dir():
        files = sorted(_walk(path), key=lambda file: file.parts)
    if not files:
        raise InputError(f"expected .parquet files in {path}, got none: give a folder of part files")
    parts = [open_part(file) for file in files]
    if column is None:
        names = [field.name for field in parts[0].schema if kind_of(field.type) is not None]
        column = only(names, str(path), among=listing(parts[0].schema.names), kind="column of lists")
    return ParquetRows(parts, column, f"{path}#{column}")


def is_parquet_folder(path: Path) -> bool:
    is_one = path.is_dir() and not any((path / name).exists() for name in ("config.json", "modules.json"))
    return is_one and next(_walk(path), None) is not None


class ParquetRows(RowsInParts, StreamedRows):
    """Reading refuses a list that is null, holds a null or has another length."""

    def __init__(self, parts: "list[Part]", column: str, name: str) -> None:
        super().__init__()
        self._parts, self._column, self.name = [part for part in parts if part.rows], column, name
        kinds = [part.kind(column) for part in parts]
        for part, kind in zip(parts, kinds, strict=True):
            if kind != kinds[0]:
                first = f"{_told(kinds[0])} in {parts[0].path.name}"
                got = f"{first} and {_told(kind)} in {part.path.name}: write all parts alike"
                raise InputError(f"expected the same type of column {column!r} in all parts of {name}, got {got}")
        value, length = kinds[0]
        self.dtype = DTYPES[value]
        self._firsts = list(itertools.accumulate((part.rows for part in self._parts), initial=0))
        d = length if self._parts and length is not None else self._first_length()
        self.shape = (self._firsts[-1], d)
        check_shape(self.shape, name)
        if len(self._parts) > 1:
            self.parts = tuple(
                SomeRows(partial(open_parquet, one.path, column), str(one.path), (one.rows, d), self.dtype)
                for one in self._parts
            )

    @property
    def files(self) -> tuple[Path, ...]:
        return tuple(part.path for part in self._parts if isinstance(part.path, Path))

    def begin(self, row: int) -> int:
        k = bisect.bisect_right(self._firsts, row) - 1
        groups = self._parts[k].groups
        return self._firsts[k] + groups[bisect.bisect_right(groups, row - self._firsts[k]) - 1]

    def pieces(self, begin: int) -> Iterator[Array]:
        d = self.shape[1]
        for first, part in zip(self._firsts, self._parts, strict=False):
            if first + part.rows <= begin:
                continue
            row = max(0, begin - first)
            for array in part.batches(self._column, max(1, min(GRID, 2**24 // d)), part.groups.index(row)):
                _check_lists(array, d, row, f"{part.path}#{self._column}")
                row += len(array)
                if row > part.rows:  # otherwise rows of the next part would get wrong numbers in a pass
                    break
                yield array.flatten().to_numpy().reshape(len(array), d)
            part.check_count("rows", row)

    def _first_length(self) -> int:
        for part in self._parts:
            for array in part.batches(self._column, 1):
                if array.null_count == 0:
                    return len(array.flatten())
                _check_lists(array, 0, 0, f"{part.path}#{self._column}")
        return 1  # without rows

    def load_labels(self) -> Labels:
        column = self._common(LABEL_COLUMNS, "is_string", "is_large_string")
        return column and [label for part in self._parts for label in part.labels(column)]

    def load_keys(self) -> Labels:
        column = self._common(KEY_COLUMNS, "is_string", "is_large_string", "is_integer")
        return column and [key for part in self._parts for key in part.keys(column)]

    def _common(self, names: Sequence[str], *kinds: str) -> Any:
        import pyarrow.types as types

        columns = set()
        for part in self._parts:
            fitting = {f.name for f in part.schema if any(getattr(types, kind)(f.type) for kind in kinds)}
            columns.add(next((name for name in names if name in fitting), None))
        return columns.pop() if len(columns) == 1 else None


_Kind = tuple[str, int | None]  # of lists: Arrow's type of values, and a fixed length


def _told(kind: _Kind) -> str:
    value, length = kind
    return f"lists of {value}" if length is None else f"lists of {length} {value}"


@dataclass(frozen=True)
class Part:
    path: Path | File
    schema: Any
    rows: int
    groups: list[int]  # the first row of each row group that has any
    group_numbers: list[int]

    def kind(self, column: str) -> _Kind:
        count = self.schema.names.count(column)
        if count > 1:
            raise InputError(f"expected one column {column!r} in {self.path}, got {count}: rename them")
        arrow = named({field.name: field.type for field in self.schema}, column, self.path, "column")
        kind = kind_of(arrow)
        if kind is None:
            where = f"column {column!r} of {self.path}"
            way = "write a column of lists, one vector each, of a floating type"
            raise InputError(f"expected lists of float64, float32 or float16 in {where}, got {str(arrow)[:80]}: {way}")
        return kind

    def labels(self, column: str) -> Iterator[str | None]:
        return self._checked("labels", self.batches(column, GRID, as_dictionary=True), _shortened)

    def keys(self, column: str) -> Iterator[str | None]:
        values = self._checked("ids", self.batches(column, GRID), lambda array: array.to_pylist())
        return (None if value is None else str(value) for value in values)

    def _checked(self, what: str, arrays: Iterator[Any], items: Callable[[Any], list[Any]]) -> Iterator[Any]:
        count = 0
        for array in arrays:
            count += len(array)
            with guarded(self.path):
                made = items(array)
            yield from made
        self.check_count(what, count)

    def check_count(self, what: str, count: int) -> None:
        """Refuse a count that differs from the footer's: pyarrow passes on whatever pages hold."""
        if count != self.rows:
            got = "more" if count > self.rows else count
            raise InputError(f"the footer of {self.path} is wrong: {self.rows} {what}, got {got}; copy it again")

    def batches(self, column: str, size: int, group: int = 0, *, as_dictionary: bool = False) -> Iterator[Any]:
        """`group` counts only groups with rows."""
        with guarded(self.path):
            file = _parquet_file(self.path, [column] if as_dictionary else None)
            for batch in file.iter_batches(batch_size=size, row_groups=self.group_numbers[group:], columns=[column]):
                array = batch.column(batch.schema.get_field_index(column))
                if len(array):
                    yield getattr(array, "storage", array)


def open_part(path: Path | File) -> Part:
    """Open a part file, whose footer must not contradict itself."""
    with guarded(path):
        file = _parquet_file(path)
        # Do not read the metadata of columns: pyarrow 26 ends the process over some damaged metadata.
        metadata, schema = file.metadata, file.schema_arrow
    rows = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
    if metadata.num_rows != sum(rows) or min(rows, default=0) < 0:
        raise InputError(
            f"the footer of {path} is wrong: {metadata.num_rows} rows in groups of {sum(rows)}; copy it again"
        )
    numbers = [i for i, count in enumerate(rows) if count]
    firsts = list(itertools.accumulate((rows[i] for i in numbers), initial=0))[:-1]
    return Part(path, schema, sum(rows), firsts, numbers)


@contextmanager
def guarded(path: Path | File) -> Iterator[None]:
    """Turn whatever pyarrow raises over damaged files into one of our errors."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        got = f"{path} which pyarrow cannot read ({first_line(error)})"
        raise InputError(f"expected Parquet, got {got}: copy it again") from error


def pyarrow_parquet(what: str) -> Any:
    return needed("pyarrow.parquet", f"expected pyarrow for {what}, got none: pip install 'uncone[parquet]'")


def _parquet_file(path: Path | File, dictionaries: list[str] | None = None) -> Any:
    source = as_file(path)  # its errors, before pyarrow's
    pq = pyarrow_parquet(f"reading {path}")
    # With a buffer pyarrow makes room for a page as large as its header says, up to 2 GiB. Without one it first reads
    # a column chunk, which bounds the page; from Python's files it takes what is there.
    file: Any = SequentialFile(source) if not source.is_local or source.size <= 2**24 else path
    size = 0 if source.size <= 2**24 else _BUFFER_BYTES if source.is_local else _REMOTE_BYTES
    return pq.ParquetFile(file, buffer_size=size, pre_buffer=False, read_dictionary=dictionaries)


def _walk(folder: Path, depth: int = 0) -> Iterator[Path]:
    if depth > _DEEPEST:
        got = f"deeper folders in {str(folder)[:200]}: give one of them"
        raise InputError(f"expected folders key=value at most {_DEEPEST} deep, got {got}")
    try:
        entries = sorted(folder.iterdir())
    except OSError as error:
        raise InputError(f"cannot read {folder}: {error.strerror}: give a folder that can be read") from error
    for entry in entries:
        if entry.name.startswith(("_", ".")):
            continue
        is_folder = entry.is_dir() and "=" in entry.name
        is_part = entry.name.endswith(".parquet") and not entry.is_dir()
        if (is_part and not entry.is_file()) or (is_folder and entry.is_symlink()):
            raise InputError(f"expected files in {folder}, got a link or pipe {entry.name[:200]}: remove it")
        if is_part:
            yield entry
        elif is_folder:
            yield from _walk(entry, depth + 1)


def kind_of(arrow: Any) -> _Kind | None:
    import pyarrow.types as types

    arrow = getattr(arrow, "storage_type", arrow)
    fixed = types.is_fixed_size_list(arrow)
    if not (fixed or types.is_list(arrow) or types.is_large_list(arrow)):
        return None
    value = str(arrow.value_type)
    return (value, arrow.list_size if fixed else None) if value in DTYPES else None


def _check_lists(array: Any, d: int, first: int, where: str) -> None:
    """The first list is row `first` of `where`."""

    def wrong(row: int, what: str) -> InputError:
        numbers = f"{d} numbers" if d else "numbers"
        return InputError(f"expected a list of {numbers} in row {first + row} of {where}, got {what}: fill or drop it")

    def first_null(of: Any) -> int:
        return int(np.flatnonzero(of.is_null().to_numpy(zero_copy_only=False))[0])

    if array.null_count:
        raise wrong(first_null(array), "a null")
    if hasattr(array, "offsets"):
        lengths = np.diff(array.offsets.to_numpy())
        other = np.flatnonzero(lengths != d)
        if len(other):
            raise wrong(int(other[0]), f"a list of {lengths[other[0]]}")
    values = array.flatten()
    if len(values) != d * len(array):
        raise wrong(0, f"{len(values)} numbers in {len(array)} rows")
    if values.null_count:
        raise wrong(first_null(values) // d, "a null in the list")


def _shortened(array: Any) -> list[str | None]:
    """Texts as labels. Bytes that are not UTF-8, which Parquet does not rule out, become U+FFFD."""
    import pyarrow as pa
    import pyarrow.compute as pc

    used = pc.unique(array.indices).drop_null()
    texts = array.dictionary.take(used)
    texts = texts.cast(pa.large_binary() if pa.types.is_large_string(texts.type) else pa.binary())
    cut = pc.binary_slice(texts, 0, 4 * LONGEST_LABEL).to_pylist()
    labels = [None if text is None else text.decode("utf-8", "replace")[:LONGEST_LABEL] for text in cut]
    of = dict(zip(used.to_pylist(), labels, strict=True))
    return [of.get(index) for index in array.indices.to_pylist()]
