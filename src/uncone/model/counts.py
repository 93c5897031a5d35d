"""How often each token occurs in some text: counts by id from a table of tokens or an array."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from uncone.errors import InputError
from uncone.records.wording import counted, plural
from uncone.regular import open_regular
from uncone.rows.bytes import LocalFile
from uncone.rows.npy import LONGEST_HEADER, array_header

Tensor = torch.Tensor
LARGEST_TABLE = 512 * 2**20
LARGEST_COUNT = 2**53
"""Beyond, a float64 no longer holds every whole number."""
MOST_MISMATCHED = 0.01
"""A table of another vocabulary differs in nearly every token; one of the same may spell some otherwise."""
_HEADERS = {("id", "token", "count"), ("id", "count"), ("token", "count"), ("word", "count")}
_HOW = "expected a first line `id<TAB>token<TAB>count`, `id<TAB>count` or `token<TAB>count`"


@dataclass(frozen=True)
class TokenCounts:
    """The counts of N rows, int64 (N,), and what is to be said about them."""

    counts: Tensor
    notes: tuple[str, ...] = ()


def read_counts(
    path: str | os.PathLike[str], n: int, labels: Sequence[str | None] | None = None
) -> TokenCounts:
    """The counts of ids 0 to n - 1, from a table or an array.

    Args:
        path: a table in UTF-8, columns separated by tabs under a line with their names: `id`, `token` (or `word`) and
            `count`, or without one of the first two; or a `.npy` file of n whole numbers.
        n: the number of rows.
        labels: the token of each row, as the tokenizer spells it. A table by token needs it; with ids too it is checked.

    Returns:
        Whole numbers of at least 0. Rows that the table does not name have 0, and a note says how many. Of several rows with
        one token the first has the count of a table by token, and a note says so.

    Raises:
        InputError: no such file, a line that does not fit (with its number), an id or token given twice, a table of another
            vocabulary, no count above 0, an array of another length or type.
    """
    path = Path(path)
    counts = _from_npy(path, n) if path.suffix == ".npy" else None
    notes: tuple[str, ...] = ()
    if counts is None:
        counts, notes = _from_table(path, n, labels)
    return TokenCounts(_checked(counts, path.name), notes)


def as_counts(counts: Any, n: int, labels: Sequence[str | None] | None = None) -> TokenCounts:
    """`counts` of n rows: a path for `read_counts`, or a tensor or array (n,) of whole numbers of at least 0."""
    if isinstance(counts, str | os.PathLike):
        return read_counts(counts, n, labels)
    if not isinstance(counts, torch.Tensor | np.ndarray):
        raise InputError(
            f"expected counts as a file, a tensor or an array, got {type(counts).__name__}: give one number a row"
        )
    if isinstance(counts, torch.Tensor):
        counts = counts.detach().cpu()
        counts = (counts.double() if counts.is_floating_point() else counts).numpy()  # NumPy has no bfloat16
    return TokenCounts(_checked(_whole(counts, n, "counts"), "counts"))


def _checked(counts: Tensor, name: str) -> Tensor:
    if not bool((counts > 0).any()):
        raise InputError(f"expected a count above 0, got none in {name}: count the tokens of a text")
    return counts


def _from_npy(path: Path, n: int) -> Tensor:
    source = LocalFile(path)
    header = array_header(source.head(LONGEST_HEADER), path.name)
    _check_vector(header.shape, header.dtype, n, path.name)
    found = np.empty(n, header.dtype)
    source.read_into(header.offset, found.view(np.uint8).data)
    return _whole(found, n, path.name)


def _check_vector(shape: tuple[int, ...], dtype: np.dtype[Any], n: int, name: str) -> None:
    if shape != (n,) or dtype.kind not in "iuf":
        raise InputError(
            f"expected {n} counts, one a row, got {dtype} of shape {shape} in {name}: count the tokens by id"
        )


def _whole(found: Any, n: int, name: str) -> Tensor:
    _check_vector(found.shape, found.dtype, n, name)
    values = np.array(found, dtype=np.float64)
    wrong = ~((values >= 0) & (values <= LARGEST_COUNT) & (values == np.floor(values)))
    if wrong.any():
        at = int(wrong.argmax())
        raise InputError(
            f"expected whole counts from 0 up, got {values[at]:g} at row {at} of {name}: count, do not weigh"
        )
    return torch.from_numpy(values.astype(np.int64))


def _from_table(path: Path, n: int, labels: Sequence[str | None] | None) -> tuple[Tensor, tuple[str, ...]]:
    try:
        with open_regular(path, how="give a file of counts") as lines:
            size = os.fstat(lines.fileno()).st_size
            if size > LARGEST_TABLE:
                raise InputError(
                    f"expected at most {LARGEST_TABLE} bytes, got {size} in {path.name}: a table has one line a token"
                )
            return _parse(enumerate(lines, start=1), path.name, n, labels)
    except OSError as error:
        raise InputError(
            f"cannot read {path.name}: {error.strerror or error}: give a file of counts"
        ) from error


def _parse(
    lines: Iterator[tuple[int, bytes]], name: str, n: int, labels: Sequence[str | None] | None
) -> tuple[Tensor, tuple[str, ...]]:
    columns = tuple(_cells(next(lines, (1, b""))[1], name, 1))
    if tuple(column.lower() for column in columns) not in _HEADERS:
        raise InputError(
            f"{_HOW} in {name}, got {' '.join(columns)[:60]!r}: name the columns in the first line"
        )
    by_id = columns[0].lower() == "id"
    if not by_id and labels is None:
        raise InputError(
            f"expected counts by id, because no tokenizer was found, got a table by token in {name}: add a column `id`"
        )
    ids, shared = ({}, set[str]()) if by_id or labels is None else _by_token(labels)
    found, differ = dict[int, int](), list[tuple[int, int, str]]()
    unknown = doubled = read = 0
    for number, line in lines:
        cells = _cells(line, name, number)
        if cells == [""]:
            continue
        if len(cells) != len(columns):
            raise InputError(
                f"expected {len(columns)} columns, got {len(cells)} in line {number} of {name}: separate them by tabs"
            )
        read += 1
        index = _number(cells[0], n - 1, "an id", name, number) if by_id else ids.get(cells[0])
        count = _number(cells[-1], LARGEST_COUNT, "a count", name, number)
        if index is None:
            unknown += 1
            continue
        if index in found:
            raise InputError(
                f"expected each {columns[0].lower()} once, got {cells[0][:40]!r} again in line {number} of {name}: add its counts up"
            )
        found[index] = count
        doubled += cells[0] in shared
        if len(columns) == 3 and labels is not None and labels[index] != cells[1]:
            differ.append((number, index, cells[1]))
    if not read:
        raise InputError(
            f"expected a line for each token, got none under the first of {name}: count the tokens of a text"
        )
    _check_vocabulary(differ, unknown, read, name, labels)
    counts = torch.zeros(n, dtype=torch.int64)
    counts[list(found)] = torch.tensor(list(found.values()), dtype=torch.int64)
    return counts, _notes(n - len(found), unknown, len(differ), doubled, name)


def _by_token(labels: Sequence[str | None]) -> tuple[dict[str, int], set[str]]:
    """The first row of each token, and the tokens that more than one row has."""
    ids, shared = dict[str, int](), set[str]()
    for i, label in enumerate(labels):
        if label is not None and ids.setdefault(label, i) != i:
            shared.add(label)
    return ids, shared


def _cells(line: bytes, name: str, number: int) -> list[str]:
    try:
        return line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n").split("\t")
    except UnicodeDecodeError as error:
        raise InputError(
            f"expected UTF-8, got other bytes in line {number} of {name}: save the table as UTF-8"
        ) from error


def _number(text: str, most: int, what: str, name: str, line: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 20 and int(text) <= most):
        raise InputError(
            f"expected {what} from 0 to {most}, got {text[:40]!r} in line {line} of {name}: the table belongs to other rows, or was cut"
        )
    return int(text)


def _check_vocabulary(
    differ: list[tuple[int, int, str]],
    unknown: int,
    read: int,
    name: str,
    labels: Sequence[str | None] | None,
) -> None:
    if len(differ) > MOST_MISMATCHED * read and labels is not None:
        line, index, token = differ[0]
        here = "which has no token" if labels[index] is None else f"which is {str(labels[index])[:40]!r}"
        more = f", and {len(differ) - 1:,} more" if len(differ) > 1 else ""
        raise InputError(
            f"expected the tokens of this vocabulary, got {token[:40]!r} for id {index} in line {line} of {name}, {here}{more}: "
            "count with this tokenizer"
        )
    if unknown == read:
        raise InputError(
            f"expected tokens of this vocabulary, got none of them in {counted(read, 'line')} of {name}: count with this tokenizer"
        )


def _notes(missing: int, unknown: int, differ: int, doubled: int, name: str) -> tuple[str, ...]:
    found = []
    if missing:
        found.append(
            f"{counted(missing, 'row is', 'rows are')} not named in {name}: {plural(missing, 'its', 'their')} count is taken as 0."
        )
    if unknown:
        tokens, are, were = (
            counted(unknown, "token"),
            plural(unknown, "is", "are"),
            plural(unknown, "was", "were"),
        )
        found.append(f"{tokens} of {name} {are} not in this vocabulary and {were} left out.")
    if differ:
        tokens, are, were = (
            counted(differ, "token"),
            plural(differ, "is", "are"),
            plural(differ, "it was", "they were"),
        )
        found.append(f"{tokens} of {name} {are} spelled otherwise in this vocabulary; {were} placed by id.")
    if doubled:
        tokens, those, each = (
            counted(doubled, "token"),
            plural(doubled, "is that", "are those"),
            plural(doubled, "its", "each"),
        )
        found.append(
            f"{tokens} of {name} {those} of several rows: {each} count is taken for the first row; give counts by id."
        )
    return tuple(found)
