"""The matrices of a file by name: which one is meant, and the nearest names where none is."""

import difflib
from collections.abc import Iterable
from pathlib import Path

from uncone.errors import InputError

_SHOWN = 12
_LONGEST, _COMPARED = 200, 2000
"""Comparing takes the product of lengths, and a header may hold a million names."""


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of an error message: the known names most like `name`, or the first few."""
    names = sorted(known)
    if not names:
        return ": it holds none"
    close = difflib.get_close_matches(
        name[:_LONGEST], [n for n in names if len(n) <= _LONGEST][:_COMPARED], n=3, cutoff=0.5
    )
    if close:
        return f": did you mean {' or '.join(map(repr, close))}?"
    return f": it holds {listing(names)}"


def listing(names: Iterable[str]) -> str:
    """Names, quoted, at most a dozen of them."""
    names = list(names)
    rest = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(repr(name[:_LONGEST]) for name in names[:_SHOWN]) + rest


def only(names: list[str], path: Path, *, among: str, kind: str = "matrix") -> str:
    """The one name of a file that has `among` other things.

    Raises:
        InputError: there is none, or more than one.
    """
    if len(names) == 1:
        return names[0]
    if not names:
        raise InputError(
            f"expected a {kind} of floats in {path}, got none among {among}: there are no rows to read"
        )
    raise InputError(
        f"expected one {kind} in {path}, got {len(names)}: say which with {path.name}#NAME; it holds {listing(names)}"
    )
