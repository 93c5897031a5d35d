"""Arguments of public functions, checked once at the edge."""

import math
from numbers import Integral, Real
from typing import Any

from uncone.errors import InputError

MOST_SEED = 2_000_000_000  # seeds of Faiss are signed and of 32 bits


def whole_number(value: Any, name: str, least: int | None = None, most: int | None = None) -> int:
    up = "" if least is None else f" from {least:,}" + (" up" if most is None else f" to {most:,}")
    is_whole = isinstance(value, Integral) and not isinstance(value, bool)
    if not is_whole or (least is not None and value < least) or (most is not None and value > most):
        raise _other(name, f"a whole number{up}", value)
    return int(value)


def finite_number(value: Any, name: str) -> float:
    try:
        number = float(value) if isinstance(value, Real) and not isinstance(value, bool) else math.nan
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise _other(name, "a finite number", value)
    return number


def share(value: Any, name: str) -> float:
    number = finite_number(value, name)
    if not 0 <= number <= 1:
        raise _other(name, "a number from 0 to 1", value)
    return number


def flag(value: Any, name: str) -> bool:
    """0 and 1 are bools too, but no text is, whatever its words, and no array."""
    is_number = isinstance(value, Real) or type(value).__name__ in ("bool", "bool_")  # NumPy's two names of a bool
    if not is_number or value not in (0, 1):
        raise _other(name, "True or False", value, "one of them")
    return bool(value)


def one_of(value: Any, name: str, choices: tuple[str, ...]) -> str:
    if not isinstance(value, str) or value not in choices:
        known = " or ".join(map(repr, choices))
        raise InputError(f"expected {name} {known}, got {shown(value)}: choose one of them")
    return value


def _other(name: str, expected: str, value: Any, which: str = "another") -> InputError:
    return InputError(f"expected {name} to be {expected}, got {shown(value)}: choose {which}")


def check_seed(seed: Any) -> None:
    """Refuse a seed that some generator in use does not take."""
    if isinstance(seed, bool) or not isinstance(seed, Integral) or not 0 <= int(seed) <= MOST_SEED:
        raise InputError(f"expected a seed from 0 to {MOST_SEED:,}, got {shown(seed)}: 0 is usual")


def shown(value: Any) -> str:
    """A number or a text as it is, any other value as its type, with its shape if it has one."""
    if value is None or isinstance(value, str | bytes | Real):
        try:
            return repr(value)[:40]
        except ValueError:  # Python prints no whole number of thousands of digits
            return "a whole number of thousands of digits"
    shape = getattr(value, "shape", None)
    return type(value).__name__ + (f" of shape {tuple(shape)}" if isinstance(shape, tuple) else "")
