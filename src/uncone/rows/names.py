"""The matrices of a file by name, and the names of columns that hold ids or labels."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypeVar

from uncone.errors import InputError, nearest
from uncone.roles import Path_

T = TypeVar("T")
LABEL_COLUMNS = ("token", "word", "label", "name", "title", "text", "id")
KEY_COLUMNS = ("id", "_id", "doc_id", "docid", "document_id", "corpus_id", "corpus-id", "query_id", "query-id", "qid")
"""Columns of labels (texts) and ids (texts or whole numbers): the first column that exists counts."""
LONGEST_LABEL = 80
_LONGEST, _COMPARED = 200, 2000  # a header may hold a million long names


def named(known: Mapping[str, T], name: str, where: object, kind: str = "tensor") -> T:
    """The item called `name`. InputError lists the names most like it, or the first few."""
    if name in known:
        return known[name]
    names = sorted(known)
    short = [other for other in names if len(other) <= _LONGEST][:_COMPARED]
    way_out = nearest(name[:_LONGEST], short, f"it holds {listing(names) or 'none'}")
    raise InputError(f"no {kind} {name!r} in {where}: {way_out}")


def listing(names: Iterable[str], most: int = 12) -> str:
    names = list(names)
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(repr(name[:_LONGEST]) for name in names[:most]) + rest


def only(names: list[str], path: Path_, *, among: str, kind: str = "matrix") -> str:
    if len(names) == 1:
        return names[0]
    if not names:
        raise InputError(f"expected a {kind} of floats in {path}, got none among {among}: no rows to read")
    way = f"say which with {Path(path).name}#NAME; it holds {listing(names)}"
    raise InputError(f"expected one {kind} in {path}, got {len(names)}: {way}")
