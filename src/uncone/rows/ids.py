"""The names that a table of pairs or judgements uses for rows."""

import os
from collections.abc import Sequence
from pathlib import Path

from uncone.errors import InputError
from uncone.regular import table_lines
from uncone.roles import Path_
from uncone.rows.base import Labels, Rows

Ids = Path_ | Sequence[object]  # a file of ids, one per line, or the ids themselves


def ids_beside(rows: Rows) -> Path | None:
    """NAME.ids next to the rows' file NAME.npy, if there is one and the rows have no ids of their own."""
    path = Path(rows.name).with_suffix(".ids")
    return path if rows.keys is None and rows.name.endswith(".npy") and path.is_file() else None


def note_on_ids(*paths: Path | None) -> str:
    """The note that ids were read from files which nobody named; "" for none."""
    names = [path.name for path in paths if path is not None]
    return f"Ids were read from {' and '.join(names)}, next to the vectors." if names else ""


def places_of(rows: Rows, ids: Ids | None) -> dict[str, int]:
    """The place of each id: from `ids` (one for each row of the source), else from its own ids or labels, else from row
    numbers.

    If labels are equal, the first row counts, as when words are looked up.
    """
    numbers = range(rows.shape[0]) if rows.ids is None else rows.ids.tolist()
    names: Labels = rows.keys if ids is None else None
    if ids is not None:
        if isinstance(ids, str | os.PathLike):
            given, where = list(table_lines(ids, how="give a text file of ids, one per line")), os.fspath(ids)
        else:
            given, where = list(map(str, ids)), "the ids"
        total = rows.shape[0] + len(rows.left_out)
        if len(given) != total:
            raise InputError(f"expected {total} lines in {where}, one per row of {rows.name}, got {len(given)}")
        names = [given[number].strip() for number in numbers]
        if repeated := len(names) - len(set(names)):
            got = f"{repeated} lines that repeat an id: make them unique"
            raise InputError(f"expected each id once in {where}, got {got}")
    places = dict[str, int]()
    for place, name in enumerate(map(str, numbers) if names is None else names):
        if name is not None:
            places.setdefault(name, place)
    return places
