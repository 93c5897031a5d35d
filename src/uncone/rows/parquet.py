"""Rows of a Parquet column of lists, in one file or in a folder of part files. Needs pyarrow, the extra `parquet`.

Batches of rows are decoded one after another, the next while the one before is in use, and handed on without a copy where
they lie on the grid. No row group is held whole, however large it is.
"""

import bisect
import itertools
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch

from uncone.errors import InputError
from uncone.rows.array import check_shape
from uncone.rows.base import GRID, Rows
from uncone.rows.bytes import LocalFile
from uncone.rows.names import listing, nearest
from uncone.rows.parquet_lists import check_lists, list_values, value_type
from uncone.rows.streamed import StreamedRows

T = TypeVar("T")
SUFFIX = ".parquet"
LABEL_COLUMNS = ("token", "word", "label", "name", "title", "text", "id")
"""Columns of text that are taken for labels; the first that is there."""
LONGEST_LABEL = 80
_DEEPEST = 64
_BATCH_BYTES = 128 * 2**20
_BUFFER_BYTES = 2**20
_FLOATING = "float64, float32 or float16"
_DTYPES = {"halffloat": "float16", "float": "float32", "double": "float64"}


def open_parquet(path: str | os.PathLike[str], column: str | None = None) -> Rows:
    """Open a column of lists of floats, all of one length: of a Parquet file, or of all part files of a folder, sorted by path.

    Args:
        path: a file; or a folder of `.parquet` files, also in folders below that are named `key=value`. Names that begin with
            `_` or `.` are passed over.
        column: its name; it may be left out where one column has lists of floats.

    Raises:
        InputError: pyarrow is missing; no such file; no Parquet; no such column, or several and none named; a column of
            something else; parts that differ.
    """
    files = _part_files(Path(path)) if Path(path).is_dir() else [Path(path)]
    if not files:
        raise InputError(f"expected {SUFFIX} files in {path}, got none: give a folder of part files")
    parts = [_open_part(file) for file in files]
    name = _only_column(parts[0], str(path)) if column is None else column
    return ParquetRows(parts, name, f"{path}#{name}")


def is_parquet_folder(path: Path) -> bool:
    """Whether `path` is a folder of Parquet files and no model."""
    is_one = path.is_dir() and not any((path / name).exists() for name in ("config.json", "modules.json"))
    return is_one and next(_walk(path), None) is not None


class ParquetRows(StreamedRows):
    """The lists of one column, one row each. `labels` come from a column of text with a name of `LABEL_COLUMNS`, if there is one.

    Reading raises InputError, with the number of the row, for a list that is null, holds a null or has another length.
    """

    def __init__(self, parts: list["_Part"], column: str, name: str) -> None:
        super().__init__()
        self._parts, self._column, self.name = [part for part in parts if part.rows], column, name
        kinds = [part.kind(column) for part in parts]
        for part, kind in zip(parts, kinds, strict=True):
            if kind != kinds[0]:
                raise InputError(
                    f"expected column {column!r} to be alike in all parts of {name}, got {kinds[0]} in {parts[0].path.name} and {kind} "
                    f"in {part.path.name}: write the parts alike"
                )
        self.dtype = _DTYPES[kinds[0].value]
        self._firsts = list(itertools.accumulate((part.rows for part in self._parts), initial=0))
        d = kinds[0].length if self._parts and kinds[0].length is not None else self._first_length()
        check_shape((self._firsts[-1], d), name)
        self.shape = (self._firsts[-1], d)

    def begin(self, row: int) -> int:
        k = bisect.bisect_right(self._firsts, row) - 1
        groups = self._parts[k].groups
        return self._firsts[k] + groups[bisect.bisect_right(groups, row - self._firsts[k]) - 1]

    def pieces(self, begin: int) -> Iterator[torch.Tensor]:
        d = self.shape[1]
        for first, part in zip(self._firsts, self._parts, strict=False):
            if first + part.rows <= begin:
                continue
            row = max(0, begin - first)
            size = max(1, min(GRID, _BATCH_BYTES // (8 * d)))
            for array in part.batches(self._column, size, part.groups.index(row)):
                check_lists(array, d, row, f"{part.path}#{self._column}")
                row += len(array)
                if row > part.rows:  # the rows of the next part would be other ones in order than out of order
                    break
                yield list_values(array).view(len(array), d)
            if row != part.rows:
                raise InputError(
                    f"the footer of {part.path} lies: {part.rows} rows, got {'more' if row > part.rows else row}; copy or write the file again"
                )

    def _first_length(self) -> int:
        """The length of the first list, which all others must have."""
        for part in self._parts:
            for array in part.batches(self._column, 1):
                if array.null_count == 0:
                    return len(array.flatten())
                check_lists(array, 0, 0, f"{part.path}#{self._column}")
        return 1  # no rows: it does not matter

    def load_labels(self) -> list[str | None] | None:
        """The texts of the column of labels, if all parts have it."""
        column = self._parts[0].label_column()
        if column is None or any(part.label_column() != column for part in self._parts):
            return None
        return [label for part in self._parts for array in part.batches(column, GRID) for label in _shortened(array)]


@dataclass(frozen=True)
class _Kind:
    """What the lists of a column are: the name of Arrow's type of their values, and their length where the type says it."""

    value: str
    length: int | None

    def __str__(self) -> str:
        return f"lists of {self.value}" if self.length is None else f"lists of {self.length} {self.value}"


@dataclass(frozen=True)
class _Part:
    """One Parquet file: its number of rows, and the first row of each row group that has any."""

    path: Path
    schema: Any
    rows: int
    groups: list[int]
    group_numbers: list[int]

    def kind(self, column: str) -> _Kind:
        index = self.schema.get_all_field_indices(column)
        if len(index) != 1:
            if index:
                raise InputError(f"expected one column {column!r} in {self.path}, got {len(index)} of that name: rename them")
            raise InputError(f"no column {column!r} in {self.path}{nearest(column, self.schema.names)}")
        found = value_type(self.schema.field(index[0]).type)
        if found is None or str(found[0]) not in _DTYPES:
            raise InputError(
                f"expected lists of {_FLOATING} in column {column!r} of {self.path}, got {str(self.schema.field(index[0]).type)[:80]}: "
                "write a column of lists, one vector each, of a floating type"
            )
        return _Kind(str(found[0]), found[1])

    def label_column(self) -> str | None:
        """The first column of text that may name the rows."""
        import pyarrow as pa

        text = {field.name for field in self.schema if pa.types.is_string(field.type) or pa.types.is_large_string(field.type)}
        return next((name for name in LABEL_COLUMNS if name in text), None)

    def batches(self, column: str, size: int, group: int = 0) -> Iterator[Any]:
        """The column from row group `group` on (of those with rows), as Arrow arrays of `size` rows."""
        file = _guarded(self.path, partial(_parquet_file, self.path))
        reader = _guarded(
            self.path,
            lambda: file.iter_batches(batch_size=size, row_groups=self.group_numbers[group:], columns=[column]),
        )
        while (batch := _guarded(self.path, lambda: next(reader, None))) is not None:
            array = batch.column(batch.schema.get_field_index(column))
            if len(array):
                yield getattr(array, "storage", array)


def _part_files(folder: Path) -> list[Path]:
    return sorted(_walk(folder), key=lambda path: path.relative_to(folder).parts)


def _walk(folder: Path, depth: int = 0) -> Iterator[Path]:
    if depth > _DEEPEST:
        raise InputError(
            f"expected folders named key=value at most {_DEEPEST} deep, got deeper ones in {str(folder)[:200]}: give one of them"
        )
    try:
        entries = sorted(folder.iterdir())
    except OSError as error:
        raise InputError(f"cannot read {folder}: {error.strerror}: give a folder that can be read") from error
    for entry in entries:
        if entry.name.startswith(("_", ".")):
            continue
        if entry.name.endswith(SUFFIX) and entry.is_file():
            yield entry
        elif "=" in entry.name and entry.is_dir() and not entry.is_symlink():
            yield from _walk(entry, depth + 1)


def _open_part(path: Path) -> _Part:
    LocalFile(path)  # its errors, before pyarrow's
    file = _guarded(path, partial(_parquet_file, path))
    # Not a word of a column's own metadata: pyarrow 26 ends the process over some that are damaged.
    metadata, schema = file.metadata, _guarded(path, lambda: file.schema_arrow)
    rows = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
    if metadata.num_rows != sum(rows) or min(rows, default=0) < 0:
        raise InputError(
            f"the footer of {path} lies: {metadata.num_rows} rows in row groups of {sum(rows)}; copy or write the file again"
        )
    numbers = [i for i, count in enumerate(rows) if count]
    firsts = list(itertools.accumulate((rows[i] for i in numbers), initial=0))[:-1]
    return _Part(path, schema, sum(rows), firsts, numbers)


def _parquet_file(path: Path) -> Any:
    try:
        import pyarrow.parquet as pq
    except ImportError as error:
        raise InputError(f"expected pyarrow for reading {path}, got none installed: pip install 'uncone[parquet]'") from error
    # Without a buffer size a whole column chunk is read into memory before its first page is decoded.
    return pq.ParquetFile(path, buffer_size=_BUFFER_BYTES, pre_buffer=False)


def _guarded(path: Path, work: Callable[[], T]) -> T:
    """What `work` gives. pyarrow raises errors of many kinds over damaged files."""
    try:
        return work()
    except InputError:
        raise
    except Exception as error:
        told: str = (str(error).splitlines() or [type(error).__name__])[0][:200]
        raise InputError(
            f"expected a Parquet file, got {path} which pyarrow does not read ({told}): copy or write it again"
        ) from error


def _only_column(part: _Part, where: str) -> str:
    names: list[str] = [
        field.name for field in part.schema if (found := value_type(field.type)) is not None and str(found[0]) in _DTYPES
    ]
    if len(names) == 1:
        return names[0]
    if not names:
        raise InputError(
            f"expected a column of lists of {_FLOATING} in {where}, got none among {listing(part.schema.names)}: "
            "write one vector a row, as a list"
        )
    raise InputError(
        f"expected one column of lists in {where}, got {len(names)}: say which with {Path(where).name}#NAME; it holds {listing(names)}"
    )


def _shortened(array: Any) -> list[str | None]:
    """Texts as labels. Those that are no UTF-8, which Parquet does not rule out, get U+FFFD and cost nothing else."""
    import pyarrow as pa

    texts = array.cast(pa.large_binary() if pa.types.is_large_string(array.type) else pa.binary()).to_pylist()
    return [None if text is None else text[: 4 * LONGEST_LABEL].decode("utf-8", "replace")[:LONGEST_LABEL] for text in texts]
