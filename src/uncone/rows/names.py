"""What to say of a name that is not there: the nearest ones that are."""

import difflib
from collections.abc import Iterable

_SHOWN = 12
_LONGEST, _COMPARED = (
    200,
    2000,
)  # comparing takes the product of lengths, and a header may hold a million names


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
