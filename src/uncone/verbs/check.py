"""`check`: numbers of a diagnosis against bars, for scripts and continuous integration."""

import difflib
import math
import numbers
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, SupportsFloat

from uncone.errors import InputError
from uncone.records import DEFECTS, PARTS, Bar, Check, Diagnosis, Measurement, taken_in

_NEAREST = 3
_MOST_NAMES = 2000  # names are looked through one by one for the nearest


def check(
    diagnosis: Diagnosis,
    *,
    maxima: Mapping[str, SupportsFloat] | None = None,
    minima: Mapping[str, SupportsFloat] | None = None,
    fail_on: Literal["severe", "warning"] | None = None,
) -> Check:
    """Say whether numbers of a diagnosis are within bars, and whether it found a defect.

    A number is named SUBJECT.MEASURE, such as `input.isoscore`; its details SUBJECT.MEASURE.DETAIL, items of
    a list by their place, from 0; a reading of a group of tokens SUBJECT.GROUP.READING, such as
    `input.rare.cosine_to_reserved`; a head's reading that changes no probability head.without_effect.MEASURE.
    SUBJECT may be left out where there is one. A number equal to its bar is within it.

    Args:
        diagnosis: the result of `uncone.diagnose`.
        maxima: for each name the largest value that is within the bar: any real number, of NumPy too.
        minima: for each name the smallest.
        fail_on: the mildest defect that fails, "warning" or "severe"; None asks for bars alone.

    Returns:
        A `Check`: `ok`, the verdict of the diagnosis, and each number with its bar.

    Raises:
        InputError: no bar at all, a bar that is not finite, an unknown name (the nearest are given), or a
            number that is undefined or not finite, and so neither within a bar nor beyond it.

    Example:
        >>> import numpy, uncone
        >>> d = uncone.diagnose(numpy.eye(64))
        >>> result = uncone.check(d, maxima={"mean_cosine": 0.1}, minima={"rows.isoscore": 0.5})
        >>> result.ok, result.bars[0].name, result.bars[0].value
        (True, 'rows.mean_cosine', 0.0)
    """
    bars = [_bar(diagnosis, name, "max", bar) for name, bar in (maxima or {}).items()]
    bars += [_bar(diagnosis, name, "min", bar) for name, bar in (minima or {}).items()]
    if fail_on not in (None, *DEFECTS):
        raise InputError(f"expected fail_on severe or warning, got {fail_on!r}: choose one, or leave it out")
    if not bars and fail_on is None:
        raise InputError(
            "expected at least one bar or fail_on, got neither: give one such as --max mean_cosine=0.3 "
            "(maxima={...}) or --fail-on severe"
        )
    held = Check(diagnosis.name, True, tuple(bars), diagnosis.verdict, diagnosis.level, fail_on)
    return replace(held, ok=all(bar.ok for bar in bars) and not held.is_defective)


def _bar(diagnosis: Diagnosis, name: str, kind: Literal["max", "min"], limit: SupportsFloat) -> Bar:
    if not _is_finite(limit):
        raise InputError(
            f"expected a finite number as the {kind} of {name}, got {limit!r}: give one such as 0.3"
        )
    full, measurement, path = _find(diagnosis, name)
    value: Any = measurement.value
    if path:
        full, value = f"{full}.{path}", _detail(full, measurement, path)
    elif value is None:
        raise InputError(
            f"{full} is undefined here: {measurement.reason or 'no reason is given'}: take its bar out"
        )
    if not _is_finite(value):
        raise InputError(f"expected a finite number at {full}, got {_short(value)}: name a number")
    number, bar = float(value), float(limit)
    return Bar(full, number, kind, bar, number <= bar if kind == "max" else number >= bar)


def _find(diagnosis: Diagnosis, name: str) -> tuple[str, Measurement, str]:
    """The whole name of the measurement that `name` begins with, the measurement, and the rest of `name`."""
    named = dict[str, Measurement]()
    for subject in diagnosis.subjects:
        for table in PARTS:
            prefix = f"{subject.name}.{table}" if table == "without_effect" else subject.name
            for measurement in taken_in(subject, table):
                named.setdefault(f"{prefix}.{measurement.name}", measurement)
    only = (
        [f"{subject.name}.{name}" for subject in diagnosis.subjects] if len(diagnosis.subjects) == 1 else []
    )
    for candidate in (name, *only):
        begun = (known for known in named if f"{candidate}.".startswith(f"{known}."))
        full = max(begun, key=len, default=None)
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
    """The detail of a measurement at the dotted `path`."""
    value: Any = measurement.details
    for part in path.split("."):
        inner, there = dict[str, Any](), ""
        if isinstance(value, Mapping):
            inner = dict(value)
            there = f"there is {', '.join(_short(str(key)) for key in list(inner)[:10])}"
        elif isinstance(value, Sequence) and not isinstance(value, str):
            inner = {str(place): item for place, item in enumerate(value)}
            there = f"there are items 0 to {len(value) - 1}"
        if part not in inner:
            told = there if inner else "there is nothing further"
            raise InputError(f"expected a detail of {full}, got {path!r}: {told}")
        value = inner[part]
    return value


def _is_finite(value: Any) -> bool:
    """Whether it is a real number, of Python or NumPy, that a float holds."""
    try:  # before anything is compared: a float16 holds no bound of a float
        is_real = isinstance(value, numbers.Real) and not isinstance(value, bool)
        return is_real and math.isfinite(float(value))
    except OverflowError:
        return False


def _short(value: Any) -> str:
    shown = value if isinstance(value, str) else repr(value)
    return shown if len(shown) <= 60 else shown[:59] + "…"
