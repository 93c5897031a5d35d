"""One measure over several diagnoses: differences from the baseline, their intervals and directions."""

import math
import sys
from collections.abc import Sequence
from typing import Literal

from uncone.comparison.cautions import Measured, comparable, find_cautions
from uncone.records import Change, ComparedMeasure, Measurement

ROUNDING = 1e-6
"""Readings rest on float32 products, which keep six to seven digits; of a number near 0, a tenth of this
share of its range."""
MEANINGFUL = 0.02
"""A change counts from a fiftieth of the measure's range on; readings of healthy tables of one size, drawn
anew, differ by less."""
MEANINGFUL_UNBOUNDED = 0.1
"""Where a range has no end: from a tenth of the larger of the two values on."""

Direction = Literal["better", "worse", "equal", "unclear", "neither"]
INTERVALS = (
    "Intervals of differences: readings are taken as independent and their intervals as of one level. With readings a and b in "
    "[a1, a2] and [b1, b2], the difference b - a lies in [b - a - sqrt((b - b1)^2 + (a2 - a)^2), b - a + sqrt((b2 - b)^2 + "
    "(a - a1)^2)], the root of the summed squares of the half widths, each on its own side (MOVER; Zou & Donner 2008). Readings "
    "of shared rows or shared random choices vary together, and then the interval is wider than need be. A difference has none "
    "unless both readings have one."
)


def compare_measure(
    name: str, measured: Sequence[Measured | None], letters: Sequence[str]
) -> ComparedMeasure:
    """The measure called `name`, its readings in the order of the diagnoses; None where it was not taken."""
    readings = [None if side is None else side.reading for side in measured]
    taken = [reading for reading in readings if reading is not None]
    first = next(
        (reading for reading in taken if reading.value is not None), taken[0]
    )  # an undefined one has no direction
    against = [
        _against(measured[0], side, (letters[0], letter))
        for letter, side in zip(letters, measured, strict=True)
    ]
    against[0] = (None, [])
    return ComparedMeasure(
        name=name, better=first.better,
        values=tuple(_finite(None if reading is None else reading.value) for reading in readings),
        distances=tuple(None if reading is None else _distance(reading) for reading in readings),
        changes=tuple(change for change, _ in against), cautions=tuple(tuple(said) for _, said in against),
    )  # fmt: skip


def _against(
    base: Measured | None, side: Measured | None, letters: tuple[str, str]
) -> tuple[Change | None, list[str]]:
    """The change from `base` to `side`, and what is to be said about it; None where there is nothing to
    subtract."""
    if base is None or side is None:
        return None, []
    before, after = _finite(base.reading.value), _finite(side.reading.value)
    if before is None or after is None:
        return None, []
    why = comparable(base.reading, side.reading, letters)
    if why:
        return None, [why]
    difference = after - before
    if not math.isfinite(difference):
        return None, [f"the difference of {letters[0]} and {letters[1]} is too large for a number"]
    interval, cautions = _interval(base.reading, side.reading, letters)
    cautions += find_cautions(base, side, difference, letters)
    direction, width = _direction(before, side.reading, interval), range_width(side.reading.range)
    size = abs(difference) / (width or max(abs(before), abs(after))) if difference else 0.0
    is_large = math.inf > size >= (MEANINGFUL if width else MEANINGFUL_UNBOUNDED)
    meaningful = direction in ("better", "worse") and is_large and not cautions
    return Change(difference, direction, min(size, sys.float_info.max), meaningful, interval), cautions


def _direction(before: float, after: Measurement, interval: tuple[float, float] | None) -> Direction:
    value = float(after)
    if abs(value - before) <= _rounding(before, value, after.range):
        return "equal"
    if interval is not None and interval[0] <= 0 <= interval[1]:
        return "unclear"
    if after.better == "neither":
        return "neither"
    return "better" if (value > before) == (after.better == "higher") else "worse"


def _rounding(before: float, after: float, limits: tuple[float | None, float | None]) -> float:
    """What rounding can make of two equal readings: a share of the larger, and of the range where it has two
    ends."""
    return max(ROUNDING * max(abs(before), abs(after)), ROUNDING / 10 * range_width(limits))


def range_width(limits: tuple[float | None, float | None]) -> float:
    """From end to end of a range; 0 where one is open."""
    low, high = limits
    width = high - low if low is not None and high is not None else 0.0
    return width if 0 < width < math.inf else 0.0


def _interval(
    before: Measurement, after: Measurement, letters: tuple[str, str]
) -> tuple[tuple[float, float] | None, list[str]]:
    """The interval of the difference of two independent readings (MOVER), and what is wrong with theirs.

    Zou & Donner 2008, "Construction of confidence limits about effect measures", eq. for a difference: each
    limit takes the half width on its own side, so that intervals need not lie evenly about their readings.
    For even ones it is the root of the summed squares of the half widths.
    """
    if before.interval is None or after.interval is None:
        return None, []
    a, b = float(before), float(after)
    (a1, a2), (b1, b2) = before.interval, after.interval
    if not (a1 <= a <= a2 and b1 <= b <= b2):
        which = letters[0] if not a1 <= a <= a2 else letters[1]
        return None, [
            f"the reading of {which} lies outside its own interval: no interval of the difference is given"
        ]
    low, high = b - a - math.hypot(b - b1, a2 - a), b - a + math.hypot(b2 - b, a - a1)
    if not (math.isfinite(low) and math.isfinite(high)):
        return None, ["the interval of the difference is too wide for numbers"]
    return (low, high), []


def _distance(reading: Measurement) -> float | None:
    value = _finite(reading.value)
    return None if value is None or reading.reference is None else _finite(value - reading.reference)


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
