"""Pairs with a label, from a table of two ids and a score: which of them match, by the rows' own numbers."""

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from uncone.errors import InputError
from uncone.regular import lines_of
from uncone.rows import Rows

_FORM = (
    "columns between tabs: id of the query or first row, id of the row, and a label (without it all match)"
)
_NAMES = (
    "query-id", "query_id", "corpus-id", "corpus_id", "query", "document", "id1", "id2", "sentence1", "sentence2",
)  # fmt: skip
"""Names of columns of ids, as a first line may have them."""
_LARGEST = 512 * 2**20


@dataclass(frozen=True)
class Labels:
    """Pairs (query or first row, row) by their places, int64 (K,) each, and which of them match."""

    source: str
    first: torch.Tensor
    second: torch.Tensor
    matches: npt.NDArray[np.bool_]
    dropped: int = 0

    def matching(self) -> tuple[torch.Tensor, torch.Tensor]:
        """The pairs that match, int64 (K,) each."""
        is_match = torch.from_numpy(self.matches)
        return self.first[is_match], self.second[is_match]

    def only(self, kept: npt.NDArray[np.bool_]) -> "Labels":
        """Those of `kept`, (K,).

        Raises:
            InputError: no match is among them.
        """
        if not (self.matches & kept).any():
            raise InputError(
                f"expected a match of two rows with a direction in {self.source}, got none: all are zero"
            )
        where = torch.from_numpy(kept)
        return Labels(
            self.source, self.first[where], self.second[where], self.matches[kept], int((~kept).sum())
        )


def read_labels(
    path: str | os.PathLike[str],
    first: Mapping[str, int],
    second: Mapping[str, int] | None,
    *,
    match_at: float | None,
) -> Labels:
    """Read a table of pairs.

    Args:
        path: UTF-8, columns separated by tabs: two ids, and a label if not every pair matches. A line of
            names may come first.
        first, second: the place of each id; `second` is None for pairs within one set, in either order.
        match_at: pairs with a label of at least this match; by default those above 0.

    Raises:
        InputError: the file cannot be read, a line is not of this form or names an id that is not there, a
            pair comes twice with different labels, or no pair matches.
    """
    places, matches, seen = list[tuple[int, int]](), list[bool](), dict[tuple[int, int], bool]()
    for number, fields in _lines(path):
        where = f"line {number} of {path}"
        a, b = _place(fields[0], first, where), _place(fields[1], first if second is None else second, where)
        if second is None:
            a, b = min(a, b), max(a, b)
            if a == b:
                raise InputError(
                    f"expected a pair of two different rows in {where}, got a row with itself: drop it"
                )
        value = _label(fields[2], where) if len(fields) == 3 else 1.0
        match = value > 0 if match_at is None else value >= match_at
        if seen.setdefault((a, b), match) != match:
            raise InputError(
                f"expected one label of a pair, got another one in {where}: decide whether it matches"
            )
        if len(seen) > len(places):
            places.append((a, b))
            matches.append(match)
    if not any(matches):
        bar = "above 0" if match_at is None else f"of at least {match_at:g}"
        raise InputError(
            f"expected pairs that match in {path}, got {len(places)} pairs and none with a label {bar}"
        )
    places_a, places_b = torch.tensor(places, dtype=torch.int64).T
    return Labels(Path(path).name, places_a, places_b, np.array(matches))


def places_of(rows: Rows, ids: str | os.PathLike[str] | None) -> dict[str, int]:
    """The place of each id: a line of the file `ids`, else a label of the rows, else the row's number.

    Of a label that stands twice the first row counts, as where words are looked up.

    Raises:
        InputError: `ids` cannot be read, has another number of lines than there are rows, or holds an id
            twice.
    """
    numbers = range(rows.shape[0]) if rows.ids is None else rows.ids.tolist()
    names: Sequence[str | None] | None
    if ids is not None:
        lines = list(_text_lines(ids))
        total = rows.shape[0] + len(rows.left_out)
        if len(lines) != total:
            raise InputError(
                f"expected {total} lines in {ids}, one id for each row of {rows.name}, got {len(lines)}"
            )
        names = [lines[number].strip() for number in numbers]
    else:
        names = rows.labels if rows.labels is not None else [str(number) for number in numbers]
    places = dict[str, int]()
    for place, name in enumerate(names):
        if name is not None:
            places.setdefault(name, place)
    if ids is not None and len(places) < len(names):
        raise InputError(
            f"expected each id once in {ids}, got {len(names) - len(places)} lines that repeat one: make "
            "them unique"
        )
    return places


def _lines(path: str | os.PathLike[str]) -> Iterator[tuple[int, list[str]]]:
    """The number and the fields of each line that is not empty, without a line of names."""
    width = 0
    for number, line in enumerate(_text_lines(path), start=1):
        fields = [field.strip() for field in line.split("\t")]
        if not any(fields) or (number == 1 and _is_header(fields)):
            continue
        if len(fields) not in (2, 3) or (width and len(fields) != width):
            raise InputError(
                f"expected {width or '2 or 3'} columns in line {number} of {path}, got {len(fields)}: {_FORM}"
            )
        width = len(fields)
        yield number, fields


def _is_header(fields: list[str]) -> bool:
    """The first line names columns: its label is no number, or both its ids are names of columns."""
    if len(fields) != 3:
        return all(field.lower() in _NAMES for field in fields)
    try:
        float(fields[2])
    except ValueError:
        return True
    return False


def _text_lines(path: str | os.PathLike[str]) -> Iterator[str]:
    """The lines of a table; a carriage return alone ends one too."""
    for _, line in lines_of(path, how=f"give a table of {_FORM}", longest=_LARGEST):
        yield from line.split("\r")


def _place(name: str, places: Mapping[str, int], where: str) -> int:
    if name not in places:
        raise InputError(
            f"expected the id of a row in {where}, got {name[:60]!r}: ids are the rows' own labels or "
            "numbers from 0, or the lines of a file given with --ids and --query-ids"
        )
    return places[name]


def _label(text: str, where: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InputError(f"expected a number as label in {where}, got {text[:60]!r}: above 0 is a match")
    return value
