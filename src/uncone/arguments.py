"""Arguments of public functions, checked once at the edge: each comes back as the number that it is."""

import math
from numbers import Integral, Real
from typing import Any

from uncone.errors import InputError

_SHOWN = 40

MOST_SEED = 2_000_000_000  # seeds of Faiss are signed and of 32 bits


def whole_number(value: Any, name: str, least: int | None = None, most: int | None = None) -> int:
    """`value` as an int, from `least` to `most` where there are such ends."""
    up = "" if least is None else f" from {least:,}" + (" up" if most is None else f" to {most:,}")
    is_whole = isinstance(value, Integral) and not isinstance(value, bool)
    if not is_whole or (least is not None and value < least) or (most is not None and value > most):
        raise InputError(f"expected {name} to be a whole number{up}, got {shown(value)}: choose another")
    return int(value)


def finite_number(value: Any, name: str) -> float:
    """`value` as a float that is neither NaN nor infinite."""
    try:
        number = float(value) if isinstance(value, Real) and not isinstance(value, bool) else math.nan
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise InputError(f"expected {name} to be a finite number, got {shown(value)}: choose another")
    return number


def share(value: Any, name: str) -> float:
    """`value` as a float from 0 to 1."""
    number = finite_number(value, name)
    if not 0 <= number <= 1:
        raise InputError(f"expected {name} to be a number from 0 to 1, got {shown(value)}: choose another")
    return number


def flag(value: Any, name: str) -> bool:
    """`value` as a bool: 0 and 1 are, but no text, whatever it says, and no array."""
    is_number = isinstance(value, Real) or type(value).__name__ in ("bool", "bool_")  # NumPy's two names of one
    if not is_number or value not in (0, 1):
        raise InputError(f"expected {name} to be True or False, got {shown(value)}: choose one of them")
    return bool(value)


def one_of(value: Any, name: str, choices: tuple[str, ...]) -> str:
    """`value`, which is one of the `choices`."""
    if not isinstance(value, str) or value not in choices:
        known = " or ".join(map(repr, choices))
        raise InputError(f"expected {name} {known}, got {shown(value)}: choose one of them")
    return value


def check_seed(seed: Any) -> None:
    """Refuse what not every generator in use takes as a seed."""
    if isinstance(seed, bool) or not isinstance(seed, Integral) or not 0 <= int(seed) <= MOST_SEED:
        raise InputError(f"expected a seed from 0 to {MOST_SEED:,}, got {shown(seed)}: 0 is usual")


def shown(value: Any) -> str:
    """A value as a message shows it: what is no number or text by its type, and by its shape where it has one."""
    if value is None or isinstance(value, str | bytes | Real):
        try:
            return repr(value)[:_SHOWN]
        except ValueError:  # Python prints no whole number of thousands of digits
            return "a whole number of thousands of digits"
    shape = getattr(value, "shape", None)
    return type(value).__name__ + (f" of shape {tuple(shape)}" if isinstance(shape, tuple) else "")
