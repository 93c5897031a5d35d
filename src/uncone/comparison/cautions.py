"""What else than the rows may have moved a number: another size, another scale, another definition."""

import math
from dataclasses import dataclass

from uncone.records import Measurement, Subject
from uncone.records.text import number

REFERENCE_SHARE = 0.1
"""Where the isotropic value moved by a tenth of what the reading moved, size or scale explains part of the
difference."""
SCALE_APART = 0.05
"""Mean norms this far apart (relative to the larger) are another scale: I(W) falls about as exp(-2
|mean|)."""
ALMOST_NONE = 1e-9
"""Isotropic values nearer than this, relative to the larger, differ by rounding."""

_SCALE = ("partition_isotropy", "gaussian_isotropy")
_SAMPLING = (
    "isoscore", "isoscore_star", "participation_ratio", "effective_rank", "rankme", "stable_rank", "stable_rank_centered",
    "anisotropy_1", "anisotropy_1_raw", "singular_entropy", "singular_entropy_raw", "condition_number",
)  # fmt: skip
_PER_DIMENSION = ("rogue_dimensions", "dominant_dimension", "outlier_dimensions")
_NO_SIZE = ("norm_id_correlation", "mean_cosine")  # their expectation over isotropic rows is 0 for every size


@dataclass(frozen=True)
class Measured:
    """A measurement and the subject it is of."""

    reading: Measurement
    subject: Subject


def comparable(before: Measurement, after: Measurement, letters: tuple[str, str]) -> str:
    """Why the two readings cannot be subtracted; empty where they can."""
    if before.better != after.better:
        return f"{letters[0]} and {letters[1]} disagree on which end is better"
    if before.centered is not after.centered:
        return f"read from other rows: {_rows(before)} in {letters[0]}, {_rows(after)} in {letters[1]}"
    return ""


def find_cautions(base: Measured, side: Measured, difference: float, letters: tuple[str, str]) -> list[str]:
    """What else may have moved the number by `difference`."""
    before, after = base.reading, side.reading
    if _definition(before) != _definition(after):
        return [f"defined otherwise in {letters[0]} and {letters[1]}: compare the definitions"]
    if before.name in _SCALE:
        a, b = _norm(base.subject), _norm(side.subject)
        if a is not None and b is not None:
            return [_scale_words(a, b, letters)] if _apart(a, b) > SCALE_APART else []
        return [f"it depends on the scale of the rows, not known for {' and '.join(letters)}"]
    if (before.n, before.d) == (after.n, after.d):
        return []
    if before.reference is None or after.reference is None:
        if before.name in _NO_SIZE:
            return []
        return [
            f"how it depends on the number of rows and columns is not known ({_sizes(before, after, letters)})"
        ]
    moved = abs(after.reference - before.reference)
    if _apart(before.reference, after.reference) <= ALMOST_NONE or moved < REFERENCE_SHARE * abs(difference):
        return []
    return [f"{_why(before.name)} ({_sizes(before, after, letters)}): compare the distances"]


def _why(name: str) -> str:
    if name in _SAMPLING:
        return "its finite-sample bias depends on the number of rows and columns"
    if name in _PER_DIMENSION:
        return "an even share depends on the number of columns"
    return "it depends on the number of rows or columns"


def _sizes(before: Measurement, after: Measurement, letters: tuple[str, str]) -> str:
    return f"{before.n:,} x {before.d:,} in {letters[0]}, {after.n:,} x {after.d:,} in {letters[1]}"


def _scale_words(before: float, after: float, letters: tuple[str, str]) -> str:
    ends = f"{number(before)} in {letters[0]}, {number(after)} in {letters[1]}"
    return f"it depends on the scale of the rows (mean norm {ends})"


def _norm(subject: Subject) -> float | None:
    return None if subject.norms is None else subject.norms.mean


def _apart(a: float, b: float) -> float:
    """The difference relative to the larger; 0 where both are 0."""
    largest = max(abs(a), abs(b))
    return abs(a / largest - b / largest) if largest > 0 and math.isfinite(largest) else 0.0


def _rows(reading: Measurement) -> str:
    return {True: "the mean row subtracted", False: "rows as stored", None: "neither said"}[reading.centered]


def _definition(reading: Measurement) -> str:
    return reading.definition.partition("; not scale-free")[0]  # what follows tells the data, not the measure
