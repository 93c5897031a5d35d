"""Rows of a Parquet column of lists, in one file or in a folder of part files. Needs pyarrow, the extra `parquet`.

pyarrow reads the footer and the pages. Batches of rows are decoded one after another, the next while the one before is in use,
and handed on without a copy where they lie on the grid. No row group is held whole, however large it is. What comes is held against
what the footer says, and against the shape.
"""

import bisect
import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import torch

from uncone.errors import InputError
from uncone.rows.array import check_shape
from uncone.rows.base import GRID, Rows
from uncone.rows.names import listing
from uncone.rows.parquet_lists import check_lists, list_values, value_type
from uncone.rows.parquet_part import DTYPES, FLOATING, Part, open_part
from uncone.rows.streamed import StreamedRows

SUFFIX = ".parquet"
_DEEPEST = 64
_BATCH_BYTES = 128 * 2**20


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
    parts = [open_part(file) for file in files]
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

    def __init__(self, parts: list[Part], column: str, name: str) -> None:
        super().__init__()
        self._parts, self._column, self.name = [part for part in parts if part.rows], column, name
        kinds = [part.kind(column) for part in parts]
        for part, kind in zip(parts, kinds, strict=True):
            if kind != kinds[0]:
                raise InputError(
                    f"expected column {column!r} to be alike in all parts of {name}, got {kinds[0]} in {parts[0].path.name} and {kind} "
                    f"in {part.path.name}: write the parts alike"
                )
        self.dtype = DTYPES[kinds[0].value]
        self._firsts = list(itertools.accumulate((part.rows for part in self._parts), initial=0))
        d = kinds[0].length if self._parts and kinds[0].length is not None else self._first_length()
        check_shape((self._firsts[-1], d), name)
        self.shape = (self._firsts[-1], d)

    @property
    def files(self) -> tuple[Path, ...]:
        """The part files that have rows, in their order."""
        return tuple(part.path for part in self._parts)

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
                if (
                    row > part.rows
                ):  # the rows of the next part would be other ones in order than out of order
                    break
                yield list_values(array).view(len(array), d)
            part.check_count("rows", row)

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
        return [label for part in self._parts for label in part.labels(column)]


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
        is_folder, is_part = entry.is_dir(), entry.name.endswith(SUFFIX)
        if (is_part and not is_folder and not entry.is_file()) or (
            is_folder and "=" in entry.name and entry.is_symlink()
        ):
            raise InputError(
                f"expected files and folders in {folder}, got {entry.name[:200]}, a link or a pipe: remove it"
            )
        if is_part and not is_folder:
            yield entry
        elif is_folder and "=" in entry.name:
            yield from _walk(entry, depth + 1)


def _only_column(part: Part, where: str) -> str:
    names: list[str] = [
        field.name
        for field in part.schema
        if (found := value_type(field.type)) is not None and str(found[0]) in DTYPES
    ]
    if len(names) == 1:
        return names[0]
    if not names:
        raise InputError(
            f"expected a column of lists of {FLOATING} in {where}, got none among {listing(part.schema.names)}: "
            "write one vector a row, as a list"
        )
    raise InputError(
        f"expected one column of lists in {where}, got {len(names)}: say which with {Path(where).name}#NAME; it holds {listing(names)}"
    )
