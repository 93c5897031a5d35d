import csv
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice, repeat
from pathlib import Path
from typing import Any

import numpy as np

from uncone.errors import InputError, needed
from uncone.memory import check_memory
from uncone.regular import PACKED, lines_of
from uncone.saturation.tables.cells import Cells

HOW = "give a table with a header in CSV, TSV, JSON lines or Parquet"
LARGEST_JSON = 256 * 2**20
_MOST_COLUMNS = 1000
_TAKEN, _TAKEN_WHOLE, _UNPACKED = 8, 30, 5
"""Bytes of memory per byte of a table, of an array of JSON, and of a packed file."""


@dataclass(frozen=True)
class Table:
    """Columns of equal length, of texts, numbers and None."""

    name: str
    columns: Mapping[str, Sequence[Any]]
    notes: tuple[str, ...] = ()
    lower: Mapping[tuple[str, str], bool] = field(default_factory=dict)
    """By (task, metric): whether lower is better, where the source has it."""
    logged: bool = False
    """A training wrote it, with learning rates and gauges next to measures of quality."""

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    @property
    def short_name(self) -> str:
        """The last two parts of a path, because results are shared."""
        return "/".join(Path(self.name).parts[-2:]).lstrip("/")


def of_rows(rows: Iterable[Mapping[str, Any]], name: str, notes: Sequence[str] = (), **more: Any) -> Table:
    """The table of rows; a cell that a row lacks is None."""
    columns = dict[str, Cells]()
    for n, row in enumerate(rows):
        for key, value in row.items():
            if key not in columns:
                if len(columns) == _MOST_COLUMNS:
                    raise InputError(f"expected at most {_MOST_COLUMNS} columns in {name}, got more: {HOW}")
                columns[key] = Cells(repeat(None, n))
            columns[key].extend((value,))
        for column in columns.values():
            if len(column) == n:
                column.extend((None,))
    return Table(name, columns, tuple(notes), **more)


def check_size(path: Path, taken: int = _TAKEN) -> None:
    size = os.path.getsize(path) * (_UNPACKED if path.suffix.lower() in PACKED else 1)
    check_memory(taken * size, f"a table of {size / 1e9:.1f} GB", "leave columns or runs out")


def read_delimited(path: Path) -> Table:
    """Tabs, semicolons or commas separate the columns, as in the first line."""
    check_size(path)
    lines = lines_of(path, how=HOW)
    first = next((line for _, line in lines if line.strip()), "")
    delimiter = next((mark for mark in "\t;" if first.count(mark) > first.count(",")), ",")
    header = next(_cells([first], delimiter, path))
    if len(set(header)) < len(header) or not first:
        came = f"in the first line of {path}, got {first[:80]!r}"
        raise InputError(f"expected a header with different names {came}: {HOW}")
    columns = [Cells() for _ in header]
    rows = _checked(_cells((f"{line}\n" for _, line in lines), delimiter, path), len(header), path)
    while block := list(islice(rows, 4096)):
        for column, cells in zip(columns, zip(*block, strict=True), strict=True):
            column.extend(cells)
    return Table(str(path), dict(zip(map(str.strip, header), columns, strict=True)))


def _checked(rows: Iterable[list[str]], width: int, path: Path) -> Iterator[list[str]]:
    """The rows that are not empty, each with `width` cells."""
    for at, cells in enumerate(rows, 1):
        if len(cells) not in (0, width):
            came = f"row {at} below the header of {path}, got {len(cells)}"
            raise InputError(f"expected {width} columns in {came}: correct that row")
        if cells:
            yield cells


def _cells(lines: Iterable[str], delimiter: str, path: Path) -> Iterator[list[str]]:
    try:
        yield from csv.reader(lines, delimiter=delimiter, strict=True)
    except csv.Error as error:
        raise InputError(f"expected a table, got {path}, which does not parse ({error}): {HOW}") from error


def read_json_lines(path: Path) -> Table:
    """One object per line, or one array of objects. Values that are lists or objects are skipped."""
    lines = ((at, line) for at, line in lines_of(path, how=HOW) if line.strip())
    first = list(islice(lines, 1))
    is_array = bool(first) and first[0][1].lstrip().startswith("[")
    check_size(path, _TAKEN_WHOLE if is_array else _TAKEN)
    if is_array:
        entries = parsed("\n".join(line for _, line in chain(first, lines)), str(path))
    else:
        entries = (parsed(line, f"line {at} of {path}") for at, line in chain(first, lines))
    return of_rows((_plain(entry, path) for entry in entries), str(path))


def _plain(entry: Any, path: Path) -> dict[str, Any]:
    if not isinstance(entry, dict):
        raise InputError(f"expected one JSON object per line or an array of objects, got others in {path}: {HOW}")
    return {key: value for key, value in entry.items() if isinstance(value, str | int | float | None)}


def parsed(text: str, where: str) -> Any:
    """NaN is read: a loss may be NaN."""
    try:
        return json.loads(text, parse_int=lambda digits: int(digits) if len(digits) < 19 else float(digits))
    except (ValueError, RecursionError) as error:
        raise InputError(f"expected JSON, got {where}, which does not parse ({error}): {HOW}") from error


def read_parquet(path: Path) -> Table:
    """The columns of numbers, texts and truth values (extra `[parquet]`)."""
    needed("pyarrow.parquet", f"expected pyarrow for reading {path}, got none: pip install 'uncone[parquet]'")
    from uncone.rows.parquet import guarded, open_part

    part = open_part(path)
    with guarded(path):
        import pyarrow.types as types

        of_text, of_number = ("string", "large_string", "dictionary"), ("integer", "floating", "boolean", "decimal")
        kinds = [getattr(types, f"is_{kind}") for kind in (*of_text, *of_number)]
        names = [field.name for field in part.schema if any(is_kind(field.type) for is_kind in kinds)]
        columns = {
            name: Cells(value for array in part.batches(name, 2**16) for value in array.to_pylist()) for name in names
        }
    for name, values in columns.items():
        part.check_count(f"values of {name}", len(values))
    return Table(str(path), columns)


def of_memory(source: Any) -> Table:
    """The table of a pandas DataFrame, of columns by name, or of a list of rows."""
    if hasattr(source, "to_dict") and hasattr(source, "columns"):
        source = {str(name): source[name].tolist() for name in source.columns}
    if isinstance(source, Mapping):
        of = ((str(name), column) for name, column in source.items() if isinstance(column, Sequence | np.ndarray))
        columns = {name: list(column) for name, column in of}
        if len({*map(len, columns.values())}) > 1:
            raise InputError("expected columns of one length, got different lengths: pass as many cells of each")
        return Table("the table", columns)
    if isinstance(source, Sequence) and all(isinstance(row, Mapping) for row in source):
        return of_rows(source, "the table")
    raise InputError(f"expected a path, a pandas DataFrame, columns or rows, got {type(source).__name__}: {HOW}")
