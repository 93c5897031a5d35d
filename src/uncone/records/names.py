"""Measurements and their details by name, such as `input.mean_cosine`."""

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

from uncone.errors import UnknownName
from uncone.records.parts import Measurement
from uncone.records.text import shortened

_NEAREST = 3
LONGEST = 60  # characters of a key or of a value in a message


def find(named: Mapping[str, Measurement], name: str, prefixes: Sequence[str]) -> tuple[str, Measurement, str]:
    """The full name of the measurement that `name` begins with, the measurement, and the rest of `name`. The only
    prefix may be left out."""
    only = [f"{prefixes[0]}.{name}"] if len(prefixes) == 1 else []
    for candidate in (name, *only):
        full = max((known for known in named if f"{candidate}.".startswith(f"{known}.")), key=len, default=None)
        if full is not None and not candidate.endswith("."):
            return full, named[full], candidate[len(full) + 1 :]
    raise UnknownName(f"expected a number of this diagnosis, got {name!r}: {nearest(name, list(named))}")


def nearest(name: str, known: Sequence[str]) -> str:
    last = name.rpartition(".")[2]
    same = [full for full in known if full.rpartition(".")[2] == last]
    near = dict.fromkeys([*same, *difflib.get_close_matches(name, known[:2000], _NEAREST, 0.5)])
    if near:
        return f"the nearest are {', '.join(list(near)[:_NEAREST])}"
    return f"names are SUBJECT.MEASURE, such as {known[0]}" if known else "it has no measurements"


def detail(full: str, measurement: Measurement, path: str) -> Any:
    """The detail of the measurement `full` at the dotted `path`, where items of lists are named by index."""
    value: Any = measurement.details
    for part in path.split("."):
        inner, there = dict[str, Any](), ""
        if isinstance(value, Mapping):
            inner = dict(value)
            there = f"choose from {', '.join(shortened(str(key), LONGEST) for key in list(inner)[:10])}"
        elif isinstance(value, Sequence) and not isinstance(value, str):
            inner = {str(place): item for place, item in enumerate(value)}
            there = f"there are items 0 to {len(value) - 1}"
        if part not in inner:
            there = there if inner else "there is nothing further"
            raise UnknownName(f"expected a detail of {full}, got {path!r}: {there}")
        value = inner[part]
    return value
