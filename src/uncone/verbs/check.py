"""`check`: numbers of a diagnosis against bars, for scripts and continuous integration.

The module is not called `check`: importing it would then hide the function of that name in the package.
"""

import difflib
import math
import numbers
from collections.abc import Mapping, Sequence
from typing import Any, Literal, SupportsFloat

from uncone.errors import InputError
from uncone.records import PARTS, Bar, Check, Diagnosis, Measurement, taken_in

WITHOUT_EFFECT = "without_effect"
_NEAREST = 3
_MOST_NAMES = 2000  # names are looked through one by one for the nearest


def check(
    diagnosis: Diagnosis,
    *,
    maxima: Mapping[str, SupportsFloat] | None = None,
    minima: Mapping[str, SupportsFloat] | None = None,
) -> Check:
    """Say whether numbers of a diagnosis are within bars.

    A number is named SUBJECT.MEASURE, such as `input.isoscore`, and what is in its details SUBJECT.MEASURE.DETAIL; items
    of a list by their place, from 0. A reading of a group of tokens is SUBJECT.GROUP.READING, such as
    `input.rare.cosine_to_reserved`; a head's raw reading, which no probability depends on, head.without_effect.MEASURE.
    SUBJECT may be left out where there is one subject. A number equal to its bar is within it.

    Args:
        diagnosis: what `uncone.diagnose` gave.
        maxima: for each name the largest value that is within the bar: any real number, of NumPy too.
        minima: for each name the smallest.

    Returns:
        A `Check`: `ok`, and each number with its bar.

    Raises:
        InputError: no bar at all, a bar that is not finite, an unknown name (the nearest are said), or a number that is
            undefined or not finite: what cannot be measured is neither within a bar nor beyond it.

    Example:
        >>> import numpy, uncone
        >>> found = uncone.check(uncone.diagnose(numpy.eye(64)), maxima={"mean_cosine": 0.1}, minima={"rows.isoscore": 0.5})
        >>> found.ok, found.bars[0].name, found.bars[0].value
        (True, 'rows.mean_cosine', 0.0)
    """
    wanted = [*_wanted(maxima or {}, "max"), *_wanted(minima or {}, "min")]
    if not wanted:
        raise InputError(
            "expected at least one bar, got none: give one such as --max mean_cosine=0.3 or maxima={...}"
        )
    bars = tuple(_bar(diagnosis, name, kind, bar) for name, kind, bar in wanted)
    return Check(diagnosis.name, all(bar.ok for bar in bars), bars)


def _wanted(
    bars: Mapping[str, SupportsFloat], kind: Literal["max", "min"]
) -> list[tuple[str, Literal["max", "min"], float]]:
    for name, bar in bars.items():
        if not _is_finite(bar):
            raise InputError(
                f"expected a finite number as the {kind} of {name}, got {bar!r}: give one such as 0.3"
            )
    return [(name, kind, float(bar)) for name, bar in bars.items()]


def _bar(diagnosis: Diagnosis, name: str, kind: Literal["max", "min"], bar: float) -> Bar:
    full, value = _number(diagnosis, name)
    return Bar(full, value, kind, bar, value <= bar if kind == "max" else value >= bar)


def _number(diagnosis: Diagnosis, name: str) -> tuple[str, float]:
    """The number called `name`, and its whole name."""
    full, measurement, path = _find(diagnosis, name)
    value: Any
    if path:
        full, value = f"{full}.{path}", _detail(full, measurement, path)
    elif measurement.value is None:
        raise InputError(
            f"{full} is undefined here: {measurement.reason or 'no reason is given'}: take its bar out"
        )
    else:
        value = measurement.value
    if not _is_finite(value):
        raise InputError(f"expected a finite number at {full}, got {_short(value)}: name a number")
    return full, float(value)


def _find(diagnosis: Diagnosis, name: str) -> tuple[str, Measurement, str]:
    """The whole name of the measurement that `name` begins with, the measurement, and the rest of `name`."""
    named = dict[str, Measurement]()
    for subject in diagnosis.subjects:
        for table in PARTS:
            prefix = f"{subject.name}.{WITHOUT_EFFECT}" if table == WITHOUT_EFFECT else subject.name
            for measurement in taken_in(subject, table):
                named.setdefault(f"{prefix}.{measurement.name}", measurement)
    candidates = [
        name,
        *(f"{subject.name}.{name}" for subject in diagnosis.subjects if len(diagnosis.subjects) == 1),
    ]
    for candidate in candidates:
        full = max(
            (known for known in named if f"{candidate}.".startswith(f"{known}.")), key=len, default=None
        )
        if full is not None and not candidate.endswith("."):
            return full, named[full], candidate[len(full) + 1 :]
    raise InputError(f"expected a number of this diagnosis, got {name!r}: {_nearest(name, list(named))}")


def _nearest(name: str, known: Sequence[str]) -> str:
    """What to do about a name that is not known: the names that look like it, or that end like it."""
    last = name.rpartition(".")[2]
    same = [full for full in known if full.rpartition(".")[2] == last]
    near = dict.fromkeys([*same, *difflib.get_close_matches(name, known[:_MOST_NAMES], _NEAREST, 0.5)])
    if near:
        return f"the nearest are {', '.join(list(near)[:_NEAREST])}"
    return f"names are SUBJECT.MEASURE, such as {known[0]}" if known else "it has no measurements"


def _detail(full: str, measurement: Measurement, path: str) -> Any:
    """What lies in the details of a measurement at the dotted `path`."""
    found: Any = measurement.details
    for part in path.split("."):
        if isinstance(found, Mapping) and part in found:
            found = found[part]
        elif (
            isinstance(found, Sequence) and not isinstance(found, str) and part in map(str, range(len(found)))
        ):
            found = found[int(part)]
        else:
            raise InputError(f"expected a detail of {full}, got {path!r}: {_details_there(found)}")
    return found


def _details_there(found: Any) -> str:
    if isinstance(found, Mapping) and found:
        return f"there is {', '.join(_short(str(key)) for key in list(found)[:10])}"
    if isinstance(found, Sequence) and not isinstance(found, str) and found:
        return f"there are items 0 to {len(found) - 1}"
    return "there is nothing further"


def _is_finite(value: Any) -> bool:
    """Whether it is a real number, of Python or NumPy, that a float holds."""
    if not isinstance(value, numbers.Real) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(float(value))  # before anything is compared: a float16 holds no bound of a float
    except OverflowError:
        return False


def _short(value: Any) -> str:
    shown = value if isinstance(value, str) else repr(value)
    return shown if len(shown) <= 60 else shown[:59] + "…"
