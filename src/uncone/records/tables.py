"""The lists in a record as tables: its findings, its bins, its layers."""

import dataclasses
from collections.abc import Iterator
from typing import Any

Rows = list[dict[str, Any]]
_LONGEST, _MOST = 4096, 16  # the most letters of a text, and numbers of a tuple, in a cell
_PLAIN = (str, int, float, bool, type(None))


def tables_of(record: Any) -> dict[str, Rows]:
    """Tables by field name, one item per row. If two fields share a name, the field nearer to the record keeps it, and
    the other has its holder's name first: `bins`, `by_count.bins`. Nested items have their holder's name or index."""
    found = dict[tuple[str, ...], Rows]()
    for path, row in _items(record, (), {}):
        found.setdefault(path, []).append(row)
    named = dict[str, Rows]()
    for path in sorted(found, key=len):
        dotted = (".".join(path[start:]) for start in range(len(path) - 1, -1, -1))
        named[next(name for name in dotted if name not in named)] = _trimmed(found[path])
    return named


def _items(part: Any, path: tuple[str, ...], whose: dict[str, Any]) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    for field in dataclasses.fields(part):
        value, here = getattr(part, field.name), (*path, field.name)
        if dataclasses.is_dataclass(value):
            yield from _items(value, here, whose)
        items = value if isinstance(value, tuple) else ()
        names = [getattr(item, "name", None) for item in items]
        names = names if None not in names and len(set(names)) == len(names) else list(range(len(items)))
        for place, item in enumerate(items):
            if dataclasses.is_dataclass(item):
                yield here, whose | _row(item)
                yield from _items(item, here, whose | {field.name.removesuffix("s"): names[place]})


def _row(item: Any) -> dict[str, Any]:
    """The plain fields of an item, and those of its parts as `FIELD.NAME`."""
    row = dict[str, Any]()
    for field in dataclasses.fields(item):
        value = getattr(item, field.name)
        if dataclasses.is_dataclass(value):
            row |= {f"{field.name}.{name}": cell for name, cell in _plain(value)}
    return dict(_plain(item)) | row


def _plain(part: Any) -> Iterator[tuple[str, Any]]:
    for field in dataclasses.fields(part):
        value = getattr(part, field.name)
        cells = value if isinstance(value, tuple) else (value,)
        if all(isinstance(cell, _PLAIN) for cell in cells):
            yield field.name, value


def _trimmed(rows: Rows) -> Rows:
    """Drop columns of long lists and texts, such as the picture's, and of lists that have their own table."""

    def is_long(cell: Any) -> bool:
        return isinstance(cell, str | tuple) and len(cell) > (_LONGEST if isinstance(cell, str) else _MOST)

    long = {name for row in rows for name, cell in row.items() if is_long(cell)}
    long |= {name for name in rows[0] if all(row.get(name) == () for row in rows)}
    return [{name: cell for name, cell in row.items() if name not in long} for row in rows]
