"""`check`: numbers of a diagnosis against bars, for scripts."""

import math
import numbers
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal, SupportsFloat

from uncone.comparison.bars.record import Bar, Check
from uncone.diagnosis.record import Diagnosis
from uncone.errors import InputError
from uncone.records.names import LONGEST, detail
from uncone.records.parts import DEFECTS
from uncone.records.text import shortened
from uncone.roles import Path_, Role


def check(
    diagnosis: Annotated[Diagnosis | Path_, Role.READ],
    *,
    max: Mapping[str, SupportsFloat] | None = None,
    min: Mapping[str, SupportsFloat] | None = None,
    fail_on: Literal["severe", "warning"] | None = None,
) -> Check:
    """Say whether numbers of a diagnosis are within bars, and whether it found a defect.

    A number is named SUBJECT.MEASURE, such as `input.isoscore`; its details SUBJECT.MEASURE.DETAIL, items of a list by
    their place, from 0; a reading of a group of tokens SUBJECT.GROUP.READING, such as `input.rare.cosine_to_reserved`;
    a head's reading that changes no probability head.without_effect.MEASURE. SUBJECT may be left out where there is
    one. A number equal to its bar is within it.

    Args:
        diagnosis: the result of `uncone.diagnose`, or the file that it was saved to.
        max: for each name the largest value that is within the bar, as in head.mean_cosine=0.3.
        min: for each name the smallest.
        fail_on: the mildest defect that fails, "warning" or "severe"; None asks for bars alone.

    Returns:
        A `Check`.

    Raises:
        InputError: no bar at all, a bar that is not finite, an unknown name, or a number that is undefined or not
            finite.

    Example:
        >>> import numpy, uncone
        >>> d = uncone.diagnose(numpy.eye(64))
        >>> result = uncone.check(d, max={"mean_cosine": 0.1}, min={"rows.isoscore": 0.5})
        >>> result.ok, result.bars[0].name, result.bars[0].value
        (True, 'rows.mean_cosine', 0.0)
    """
    if not isinstance(diagnosis, Diagnosis):
        diagnosis = Diagnosis.load(diagnosis)
    bars = [_bar(diagnosis, *one, "max") for one in (max or {}).items()]
    bars += [_bar(diagnosis, *one, "min") for one in (min or {}).items()]
    if fail_on not in (None, *DEFECTS):
        raise InputError(f"expected fail_on severe or warning, got {fail_on!r}: choose one, or leave it out")
    if not bars and fail_on is None:
        how = "--max mean_cosine=0.3 (max={...}) or --fail-on severe"
        raise InputError(f"expected at least one bar or fail_on, got neither: give one such as {how}")
    unjudged = [one.name for one in diagnosis.subjects if any(f.cause == "not_measured" for f in one.findings)]
    if fail_on is not None and unjudged:
        got = f"{unjudged[0]} with too little to judge: diagnose more rows, or give bars alone"
        raise InputError(f"expected a diagnosis that judges all it holds with fail_on, got {got}")
    held = Check(diagnosis.name, all(bar.ok for bar in bars), tuple(bars), diagnosis.verdict, diagnosis.level, fail_on)
    return replace(held, ok=held.ok and not held.is_defective)


def _bar(diagnosis: Diagnosis, name: str, limit: SupportsFloat, kind: Literal["max", "min"]) -> Bar:
    if not _is_finite(limit):
        raise InputError(f"expected a finite number as the {kind} of {name}, got {limit!r}: give one such as 0.3")
    full, measurement, path = diagnosis.find(name)
    value: Any = measurement.value
    if path:
        full, value = f"{full}.{path}", detail(full, measurement, path)
    elif value is None:
        raise InputError(f"{full} is undefined here: {measurement.reason or 'no reason is given'}: take its bar out")
    if not _is_finite(value):
        shown = shortened(value if isinstance(value, str) else repr(value), LONGEST)
        raise InputError(f"expected a finite number at {full}, got {shown}: name a number")
    number, bar = float(value), float(limit)
    return Bar(full, number, kind, bar, number <= bar if kind == "max" else number >= bar)


def _is_finite(value: Any) -> bool:
    """Whether a float holds this real number, of Python or NumPy."""
    try:  # before anything is compared: a float16 holds no bound of a float
        is_real = isinstance(value, numbers.Real) and not isinstance(value, bool)
        return is_real and math.isfinite(float(value))
    except OverflowError:
        return False
