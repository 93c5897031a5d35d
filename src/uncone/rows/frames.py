"""Rows from a pandas, polars or pyarrow table in memory. None of these packages is imported here."""

from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any

import numpy as np

from uncone.errors import InputError
from uncone.rows.base import Labels
from uncone.rows.floats import Array, as_array
from uncone.rows.names import KEY_COLUMNS, LABEL_COLUMNS, LONGEST_LABEL, listing

_PEEKED = 100  # cells whose first value shows what a column holds
_Load = Callable[[], Labels] | None
_NOT_LISTS = (str, bytes, dict, set)


def is_frame(x: Any) -> bool:
    return hasattr(x, "__array__") and (hasattr(x, "columns") or _is_series(x))


def read_frame(x: Any) -> tuple[Array, str, _Load, _Load]:
    """The numbers (N, D) of a table, its name, and functions that load its ids and its labels.

    Rows are the lists of one column, whatever the other columns hold, or else the numbers of all columns. The first of
    `KEY_COLUMNS` gives the ids, or else the pandas index if it holds texts or has such a name. The first of
    `LABEL_COLUMNS` with texts gives the labels. InputError names the column at fault."""
    kind = type(x).__name__
    pairs = [(str(getattr(x, "name", None) or ""), x)] if _is_series(x) else _columns(x)
    held = {name: _held(series) for name, series in pairs}
    lists = [(name, series) for name, series in pairs if held[name] == "lists"]
    key = next((name for name in KEY_COLUMNS if held.get(name) in ("texts", "numbers")), None)
    if len(lists) > 1:
        got, way = listing([name for name, _ in lists]), f"df[{[*filter(None, [key]), lists[0][0]]!r}]"
        raise InputError(f"expected one column of lists in the {kind}, got {got}: choose one, as in {way}")
    is_wrong = {name: _is_series(x) or (what != "numbers" and name != key) for name, what in held.items()}
    if not lists and (any(is_wrong.values()) or set(held) <= {key}):
        wrong = [f"{f'column {name!r}' if name else 'a column'} of {held[name]}" for name in held if is_wrong[name]]
        got = " and ".join(wrong[:3]) or ("no column" if key is None else f"only ids, in {key!r}")
        expected = f"a {kind} with a number in every cell, or with a column of lists of numbers"
        raise InputError(f"expected {expected}, got {got}: drop it, or pass the vectors, as in df['embedding']")
    source = f"{kind}#{lists[0][0]}" if lists and lists[0][0] else kind
    numbers = _stacked(*lists[0]) if lists else _numbers(x, [pair for pair in pairs if pair[0] != key], key)
    index, label = getattr(x, "index", None), next((name for name in LABEL_COLUMNS if held.get(name) == "texts"), None)
    has_names = index is not None and (index.name in KEY_COLUMNS or _held(index) == "texts")
    keys = dict(pairs)[key] if key is not None else index if has_names else None
    labels = None if label is None else dict(pairs)[label]
    return (
        numbers,
        source,
        None if keys is None else lambda: _names(keys),
        None if labels is None else lambda: [text and text[:LONGEST_LABEL] for text in _names(labels)],
    )


def _is_series(x: Any) -> bool:
    return all(hasattr(x, name) for name in ("to_numpy", "dtype", "name"))


def _columns(frame: Any) -> list[tuple[str, Any]]:
    if hasattr(frame, "items"):
        return [(str(name), series) for name, series in frame.items()]
    columns = frame.get_columns() if hasattr(frame, "get_columns") else frame.columns
    return list(zip(getattr(frame, "column_names", frame.columns), columns, strict=True))


def _held(series: Any) -> str:
    """What the first cells of a column hold: "lists", "numbers", "texts", or a type."""
    cells = np.asarray(series)[:_PEEKED]
    if cells.ndim > 1:
        return "lists"
    if cells.dtype.kind in "fiu":
        return "numbers"
    first = next((one for one in cells if not _is_missing(one)), None)
    if isinstance(first, str):
        return "texts"
    if hasattr(first, "__len__") and not isinstance(first, _NOT_LISTS):
        return "lists"
    return "numbers" if isinstance(first, Real) and not isinstance(first, bool | np.bool_) else type(first).__name__


def _is_missing(cell: Any) -> bool:
    return cell is None or type(cell).__name__ == "NAType" or (isinstance(cell, float) and cell != cell)


def _stacked(name: str, series: Any) -> Array:
    """The lists of a column as rows (N, D)."""
    cells = np.asarray(series)
    if cells.ndim > 1:
        return cells
    rows = [None if _is_missing(cell) else np.asarray(as_array(cell)) for cell in cells]
    d = next(len(row) for row in rows if row is not None and row.ndim)
    for place, row in enumerate(rows):
        if row is None or row.ndim != 1 or len(row) != d or row.dtype.kind not in "fiu":
            got = "none" if row is None else f"{len(row)}" if row.ndim == 1 else f"shape {row.shape}"
            got = f"{got} of {row.dtype}" if row is not None and row.dtype.kind not in "fiu" else got
            where = f"column {name!r}" if name else "the Series"
            raise InputError(
                f"expected a list of {d} numbers in row {place} of {where}, got {got}: fill it, or drop the row"
            )
    return np.stack([row for row in rows if row is not None])


def _numbers(frame: Any, pairs: Sequence[tuple[str, Any]], key: str | None) -> Array:
    """All columns except `key`, row by row. An array of a whole frame with several types would hold objects."""
    found = None if key is not None else np.asarray(frame, order="C")
    if found is None or found.dtype.kind not in "fiu":
        found = np.stack([_column(name, series) for name, series in pairs], axis=1)
    return found


def _column(name: str, series: Any) -> Array:
    cells = np.asarray(series)
    if cells.dtype.kind in "fiu":
        return cells
    for place, cell in enumerate(cells):
        if not _is_missing(cell) and (isinstance(cell, bool | np.bool_) or not isinstance(cell, Real)):
            got = f"{type(cell).__name__} in row {place}"
            raise InputError(f"expected a number in every cell of column {name!r}, got {got}: drop or convert it")
    return np.array([np.nan if _is_missing(cell) else float(cell) for cell in cells])


def _names(series: Any) -> list[str | None]:
    """Texts, and whole numbers as texts; None for a missing cell."""

    def of(value: Any) -> str | None:
        if _is_missing(value):
            return None
        return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)

    return [of(value) for value in np.asarray(series)]
