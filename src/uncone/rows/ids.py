"""The ids of rows: what a table of pairs or of judgements calls them."""

import os
from collections.abc import Sequence

from uncone.errors import InputError
from uncone.regular import lines_of
from uncone.rows.base import Rows

Ids = str | os.PathLike[str] | Sequence[object]
"""A file of ids, one a line, or the ids themselves."""
_LARGEST = 512 * 2**20


def places_of(rows: Rows, ids: Ids | None) -> dict[str, int]:
    """The place of each id: of `ids`, else the source's own ids or labels, else the row's number.

    `ids` has one for each row of the source. Of equal labels the first row counts, as where words are looked
    up.
    """
    numbers = range(rows.shape[0]) if rows.ids is None else rows.ids.tolist()
    names: Sequence[str | None]
    if ids is not None:
        given, where = _read(ids) if isinstance(ids, str | os.PathLike) else (list(map(str, ids)), "the ids")
        total = rows.shape[0] + len(rows.left_out)
        if len(given) != total:
            raise InputError(
                f"expected {total} lines in {where}, one per row of {rows.name}, got {len(given)}"
            )
        names = [given[number].strip() for number in numbers]
    else:
        where, keys = rows.name, rows.keys
        names = keys if keys is not None else [str(number) for number in numbers]
    places = dict[str, int]()
    for place, name in enumerate(names):
        if name is not None:
            places.setdefault(name, place)
    if ids is not None and len(places) < len(names):
        raise InputError(
            f"expected each id once in {where}, got {len(names) - len(places)} lines that repeat one: make "
            "them unique"
        )
    return places


def _read(file: str | os.PathLike[str]) -> tuple[list[str], str]:
    """The lines of a file, and its name; a carriage return alone ends a line too."""
    lines = lines_of(file, how="give a text file of ids, one a line", longest=_LARGEST)
    return [part for _, line in lines for part in line.split("\r")], os.fspath(file)
