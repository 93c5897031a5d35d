"""The ids of rows: what a table of pairs or of judgements calls them."""

import os
from collections.abc import Sequence

from uncone.errors import InputError
from uncone.regular import table_lines
from uncone.roles import Path_
from uncone.rows.base import Rows

Ids = Path_ | Sequence[object]
"""A file of ids, one a line, or the ids themselves."""


def places_of(rows: Rows, ids: Ids | None) -> dict[str, int]:
    """The place of each id: of `ids`, else the source's own ids or labels, else the row's number.

    `ids` has one for each row of the source. Of equal labels the first row counts, as where words are looked up.
    """
    numbers = range(rows.shape[0]) if rows.ids is None else rows.ids.tolist()
    names: Sequence[str | None]
    if ids is not None:
        if isinstance(ids, str | os.PathLike):
            given, where = list(table_lines(ids, how="give a text file of ids, one a line")), os.fspath(ids)
        else:
            given, where = list(map(str, ids)), "the ids"
        total = rows.shape[0] + len(rows.left_out)
        if len(given) != total:
            raise InputError(f"expected {total} lines in {where}, one per row of {rows.name}, got {len(given)}")
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
            f"expected each id once in {where}, got {len(names) - len(places)} lines that repeat one: make them unique"
        )
    return places
