"""How often each token occurs in some text: counts by id from a table or an array."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from uncone.errors import InputError
from uncone.records.text import counted, plural
from uncone.regular import lines_of
from uncone.roles import Path_
from uncone.rows import Array, as_array
from uncone.rows.base import Labels
from uncone.rows.bytes import LocalFile
from uncone.rows.npy import LONGEST_HEADER, array_header

LARGEST_COUNT = 2**53  # beyond this, a float64 no longer holds every whole number
_HEADERS = {("id", "token", "count"), ("id", "count"), ("token", "count"), ("word", "count")}
_HOW = "expected a first line `id<TAB>token<TAB>count`, `id<TAB>count` or `token<TAB>count`"


@dataclass(frozen=True)
class TokenCounts:
    counts: Array  # int64 (N,)
    notes: tuple[str, ...] = ()


def read_counts(path: Path_, n: int, labels: Labels = None) -> TokenCounts:
    """Read the counts of ids 0 to n - 1 from a table, or from a `.npy` file of n whole numbers.

    A table has the columns `id`, `token` (or `word`) and `count`, but may lack one of the first two. A table by token
    needs `labels`; a table with ids and tokens is checked against them. Rows that the table does not name get 0. If
    several rows share a token, the first row gets its count.
    """
    path = Path(path)
    if path.suffix != ".npy":
        return _from_table(path, n, labels)
    source = LocalFile(path)
    header = array_header(source.head(LONGEST_HEADER), path.name)
    _check_vector(header.shape, header.dtype, n, path.name)
    stored = np.empty(n, header.dtype)
    source.read_into(header.offset, stored.view(np.uint8).data)
    return _whole(stored, path.name)


def is_counts(path: Path_) -> bool:
    path = Path(path)
    if path.suffix == ".npy":
        return True
    if path.suffix != ".tsv" or not path.is_file():
        return False
    columns = next(lines_of(path, how="give a file of counts in UTF-8"), (1, ""))[1].lower().split("\t")
    return tuple(columns) in _HEADERS


def as_counts(counts: Any, n: int, labels: Labels = None) -> TokenCounts:
    """Counts from a path (as `read_counts`), or from a tensor or array (n,) of whole numbers from 0 up."""
    if isinstance(counts, str | os.PathLike):
        return read_counts(counts, n, labels)
    counts = as_array(counts)
    if not isinstance(counts, np.ndarray):
        kind = type(counts).__name__
        raise InputError(f"expected a file, tensor or array of counts, got {kind}: give one number per row")
    _check_vector(counts.shape, counts.dtype, n, "counts")
    return _whole(counts, "counts")


def _check_vector(shape: tuple[int, ...], dtype: np.dtype[Any], n: int, name: str) -> None:
    if shape != (n,) or dtype.kind not in "iuf":
        raise InputError(
            f"expected {n} counts, got {dtype} of shape {shape} in {name}: give one per row, or count again if rows were added"
        )


def _whole(stored: Any, name: str) -> TokenCounts:
    values = np.array(stored, dtype=np.float64)
    wrong = ~((values >= 0) & (values <= LARGEST_COUNT) & (values == np.floor(values)))
    if wrong.any():
        at = int(wrong.argmax())
        got = f"{values[at]:g} at row {at} of {name}"
        raise InputError(f"expected whole counts from 0 up, got {got}: give counts, not weights")
    return _some(TokenCounts(values.astype(np.int64)), name)


def _some(read: TokenCounts, name: str) -> TokenCounts:
    if not (read.counts > 0).any():
        raise InputError(f"expected a count above 0, got none in {name}: count the tokens of a text")
    return read


def _from_table(path: Path, n: int, labels: Labels) -> TokenCounts:
    name, lines = path.name, lines_of(path, how="give a file of counts in UTF-8")
    columns = next(lines, (1, ""))[1].split("\t")
    kind = columns[0].lower()
    if tuple(column.lower() for column in columns) not in _HEADERS:
        raise InputError(f"{_HOW} in {name}, got {' '.join(columns)[:60]!r}: name the columns in line 1")
    if kind != "id" and labels is None:
        raise InputError(f"expected counts by id, as no tokenizer was found, got tokens in {name}: add a column `id`")
    ids, shared = dict[str, int](), set[str]()  # the first row of each token; tokens of several rows
    for i, label in enumerate(labels or ()) if kind != "id" else ():
        if label is not None and ids.setdefault(label, i) != i:
            shared.add(label)
    counts, differ = {}, []
    unknown = doubled = read = 0
    for number, line in lines:
        if not line:
            continue
        cells = line.split("\t")
        if len(cells) != len(columns):
            raise InputError(f"expected {len(columns)} columns, got {len(cells)} in line {number} of {name}: use tabs")
        read += 1
        index = _number(cells[0], n - 1, "an id", name, number) if kind == "id" else ids.get(cells[0])
        count = _number(cells[-1], LARGEST_COUNT, "a count", name, number)
        if index is None:
            unknown += 1
            continue
        if index in counts:
            raise InputError(
                f"expected each {kind} once, got {cells[0][:40]!r} again in line {number} of {name}: add up its counts"
            )
        counts[index] = count
        doubled += cells[0] in shared
        if len(columns) == 3 and labels is not None and labels[index] != cells[1]:
            differ.append((number, index, cells[1]))
    if not read:
        raise InputError(f"expected a line for each token, got only the first in {name}: count the tokens of a text")
    if unknown == read:
        where = f"in {counted(read, 'line')} of {name}"
        raise InputError(f"expected tokens of this vocabulary, got none {where}: count with this tokenizer")
    if labels is not None and len(differ) > 0.01 * read:  # the same vocabulary may spell some tokens differently
        at, index, token = differ[0]
        here = "which has no token" if labels[index] is None else f"which is {str(labels[index])[:40]!r}"
        more = f", and {len(differ) - 1:,} more" if len(differ) > 1 else ""
        got = f"{token[:40]!r} for id {index} in line {at} of {name}, {here}{more}"
        raise InputError(f"expected tokens of this vocabulary, got {got}: count with this tokenizer")
    vector = np.zeros(n, np.int64)
    vector[list(counts)] = list(counts.values())
    return _some(TokenCounts(vector, _notes(n - len(counts), unknown, len(differ), doubled, name)), name)


def _number(text: str, most: int, what: str, name: str, line: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 20 and int(text) <= most):
        got = f"{text[:40]!r} in line {line} of {name}: the table belongs to other rows, or was cut"
        raise InputError(f"expected {what} from 0 to {most}, got {got}")
    return int(text)


def _notes(missing: int, unknown: int, differ: int, doubled: int, name: str) -> tuple[str, ...]:
    unnamed = counted(missing, "row is", "rows are")
    rows = f"{unnamed} not named in {name}: {plural(missing, 'its', 'their')} count is taken as 0."
    spelled, first_row = "spelled differently in this vocabulary", "count goes to the first row. Give counts by id"
    of_tokens = (
        (unknown, "is not in this vocabulary and was", "are not in this vocabulary and were", "left out"),
        (differ, f"is {spelled} and was", f"are {spelled} and were", "placed by id"),
        (doubled, "belongs to several rows: its", "belong to several rows: each", first_row),
    )
    notes = (f"{counted(n, 'token')} of {name} {plural(n, one, many)} {then}." for n, one, many, then in of_tokens if n)
    return (rows, *notes) if missing else tuple(notes)
