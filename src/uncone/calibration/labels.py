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
Path_ = str | os.PathLike[str]


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
        """The pairs where `kept`, (K,), of which one must be a match."""
        if not (self.matches & kept).any():
            raise InputError(
                f"expected a match of two rows with a direction in {self.source}, got none: all are zero"
            )
        where = torch.from_numpy(kept)
        return Labels(
            self.source, self.first[where], self.second[where], self.matches[kept], int((~kept).sum())
        )


def read_labels(
    path: Path_, first: Mapping[str, int], second: Mapping[str, int] | None, *, match_at: float | None
) -> Labels:
    """Read a table of pairs: two ids and, if not every pair matches, a label.

    `first` and `second` are the place of each id; `second` is None for pairs within one set, in either order.
    Pairs with a label of at least `match_at` match, by default those above 0.
    """
    matches = dict[tuple[int, int], bool]()
    for number, fields in _lines(path):
        where = f"line {number} of {path}"
        places = (first, first if second is None else second)
        for name, known in zip(fields, places, strict=False):
            if name not in known:
                raise InputError(
                    f"expected the id of a row in {where}, got {name[:60]!r}: ids are the rows' own labels or "
                    "numbers from 0, or the lines of a file given with --ids and --query-ids"
                )
        a, b = (known[name] for name, known in zip(fields, places, strict=False))
        if second is None and a == b:
            raise InputError(
                f"expected a pair of two different rows in {where}, got a row with itself: drop it"
            )
        pair = (a, b) if second is not None else (min(a, b), max(a, b))
        value = _label(fields[2], where) if len(fields) == 3 else 1.0
        match = value > 0 if match_at is None else value >= match_at
        if matches.setdefault(pair, match) != match:
            raise InputError(
                f"expected one label of a pair, got another one in {where}: decide whether it matches"
            )
    if not any(matches.values()):
        bar = "above 0" if match_at is None else f"of at least {match_at:g}"
        raise InputError(
            f"expected pairs that match in {path}, got {len(matches)} pairs and none with a label {bar}"
        )
    places_a, places_b = torch.tensor(list(matches), dtype=torch.int64).T
    return Labels(Path(path).name, places_a, places_b, np.array(list(matches.values())))


def places_of(rows: Rows, ids: Path_ | None) -> dict[str, int]:
    """The place of each id: a line of the file `ids`, each another one, else a label of the rows, else the row's
    number. Of a label that stands twice the first row counts, as where words are looked up."""
    numbers = range(rows.shape[0]) if rows.ids is None else rows.ids.tolist()
    names: Sequence[str | None]
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


def _lines(path: Path_) -> Iterator[tuple[int, list[str]]]:
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
    return _number(fields[2]) is None


def _text_lines(path: Path_) -> Iterator[str]:
    """The lines of a table; a carriage return alone ends one too."""
    for _, line in lines_of(path, how=f"give a table of {_FORM}", longest=_LARGEST):
        yield from line.split("\r")


def _label(text: str, where: str) -> float:
    value = _number(text)
    if value is None or not math.isfinite(value):
        raise InputError(f"expected a number as label in {where}, got {text[:60]!r}: above 0 is a match")
    return value


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
