"""What changed from the baseline in findings and measures, and what else may have caused it."""

import math
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import Literal, NamedTuple

from uncone.comparison.record import BETTER, LETTERS, WORSE, Change, ComparedFinding, ComparedMeasure, FindingChange
from uncone.records.parts import Finding, Measurement
from uncone.records.text import Limits, number

ROUNDING = 1e-6  # of float32 products; of a number near 0, a tenth of this share of its range
MEANINGFUL = 0.02  # of a range; readings of healthy tables of one size differ by less
MEANINGFUL_UNBOUNDED = 0.1  # of the larger of the two values, where a range has no end
REFERENCE_SHARE = 0.1  # by which the isotropic value moved, of the change: then size or scale explains part of it
SCATTERS = 4.0  # so many standard errors are chance
SCALE_APART = 0.05  # mean norms this far apart (of the larger) are another scale: I(W) falls about as exp(-2 |mean|)
INTERVALS = (
    "Intervals of differences assume independent readings and intervals of one level. With a in [a1, a2] and "
    "b in [b1, b2], the interval of b - a is [b - a - sqrt((b - b1)^2 + (a2 - a)^2), b - a + "
    "sqrt((b2 - b)^2 + (a - a1)^2)], the root of the summed squares of the half widths on each side "
    "(MOVER; Zou & Donner 2008). Readings that share rows or random choices vary together, so the interval is "
    "wider than it needs to be. A difference has an interval only if both readings have one."
)
_RANKS = ("isoscore", "isoscore_star", "participation_ratio", "effective_rank", "rankme", "stable_rank")
_SHAPES = ("stable_rank_centered", "anisotropy_1", "anisotropy_1_raw", "singular_entropy", "singular_entropy_raw")
_SPECTRAL = (*_RANKS, *_SHAPES, "condition_number")
_WHY_SIZE = dict.fromkeys(_SPECTRAL, "its finite-sample bias depends on the number of rows and columns")
_BY_COLUMN = ("rogue_dimensions", "dominant_dimension", "outlier_dimensions")
_WHY_SIZE |= dict.fromkeys(_BY_COLUMN, "an even share depends on the number of columns")
_ROWS = {True: "the mean row subtracted", False: "rows as stored", None: "not recorded"}

Direction = Literal["better", "worse", "changed", "equal", "unclear"]
Ways = Mapping[str, Literal["better", "worse"]]  # by measure, what became of the defect whose evidence it is
GREW = 0.02  # a defect grew or shrank when its extent, a cosine or a share, moved by a fiftieth


class _Side(NamedTuple):
    reading: Measurement
    norm: float | None
    letter: str
    way: Literal["better", "worse"] | None = None


Found = Mapping[str, Finding]  # the findings of one side by their cause; empty where there is no such side


def compare_findings(sides: Sequence[Found], unlike: Collection[tuple[str, int]] = ()) -> tuple[ComparedFinding, ...]:
    """The findings of all sides by cause, each against the first side's; nothing is concluded about `unlike` causes and
    places, which one of the two did not look for."""
    judged = [bool(side) and "not_measured" not in side for side in sides]
    compared = []
    for cause in dict.fromkeys(cause for side in sides for cause in side):
        found = [side.get(cause) for side in sides]
        changes = tuple(
            ""
            if not (judged[0] and judged[place])
            else "not_measured"
            if (cause, place) in unlike
            else _became(found[0], one)
            for place, one in enumerate(found)
        )
        compared.append(ComparedFinding(cause, tuple(None if one is None else one.level for one in found), changes))
    return tuple(compared)


def _became(before: Finding | None, after: Finding | None) -> FindingChange:
    """What became of a finding. Empty if it is no defect or its extent is not known, or if a note is a defect of the
    same extent on the other side because another finding lists these rows on one side alone."""
    was, is_ = (one is not None and one.is_defect for one in (before, after))
    moved = None
    if before is not None and after is not None and before.extent is not None and after.extent is not None:
        moved = after.extent - before.extent
    if was is not is_:
        return "" if moved is not None and (moved <= 0 if is_ else moved >= 0) else "new" if is_ else "gone"
    if before is None or after is None or not is_:
        return ""
    if before.level != after.level:
        return "grew" if after.level == "severe" else "shrank"
    return "" if moved is None or abs(moved) < GREW else "grew" if moved > 0 else "shrank"


def ways_of(findings: Sequence[ComparedFinding], sides: Sequence[Found], place: int) -> Ways:
    """By measure, whether the defects it is evidence of got better or worse; a worse defect decides."""
    ways = dict[str, Literal["better", "worse"]]()
    for finding in sorted(findings, key=lambda one: one.changes[place] in WORSE):
        change, found = finding.changes[place], [side.get(finding.cause) for side in (sides[0], sides[place])]
        for name in (name for one in found if one is not None for name in one.measures):
            if change in (*WORSE, *BETTER):
                ways[name] = "worse" if change in WORSE else "better"
    return ways


def compare_measure(
    name: str, readings: Sequence[Measurement | None], norms: Sequence[float | None], ways: Sequence[Ways] = ()
) -> ComparedMeasure:
    """`readings` and `norms` are of each diagnosis."""
    taken = [reading for reading in readings if reading is not None]
    first = next((one for one in taken if one.value is not None), taken[0])  # an undefined one has no direction
    given = zip(readings, norms, LETTERS, ways or [{}] * len(readings), strict=False)
    sides = [None if one is None else _Side(one, norm, letter, way.get(name)) for one, norm, letter, way in given]
    against = [(None, []), *(_against(sides[0], side) for side in sides[1:])]
    return ComparedMeasure(
        name=name,
        better=first.better,
        values=tuple(None if reading is None else _finite(reading.value) for reading in readings),
        distances=tuple(None if reading is None else _finite(reading.distance) for reading in readings),
        changes=tuple(change for change, _ in against),
        cautions=tuple(tuple(said) for _, said in against),
    )


def _against(base: _Side | None, side: _Side | None) -> tuple[Change | None, list[str]]:
    """The change, and remarks; None if nothing can be subtracted."""
    before, after = (None if one is None else _finite(one.reading.value) for one in (base, side))
    if base is None or side is None or before is None or after is None:
        return None, []
    (old, _, a, _), (new, _, b, _) = base, side
    if old.better != new.better:
        return None, [f"{a} and {b} disagree on which end is better"]
    if old.centered is not new.centered:
        return None, [f"read from different rows: {_ROWS[old.centered]} in {a}, {_ROWS[new.centered]} in {b}"]
    difference = after - before
    if not math.isfinite(difference):
        return None, [f"the difference of {a} and {b} is too large for a number"]
    interval, cautions = _interval(old, new, (a, b))
    cautions += _cautions(base, side, difference)
    direction, width = _direction(before, side, interval), range_width(new.range)
    size = abs(difference) / (width or max(abs(before), abs(after))) if difference else 0.0
    is_large = math.inf > size >= (MEANINGFUL if width else MEANINGFUL_UNBOUNDED)
    if old.name == "norm_id_correlation" and min(old.n, new.n) >= 2:
        # of unrelated ranks each correlation scatters by 1 / sqrt(n - 1)
        is_large = is_large and abs(difference) >= SCATTERS * math.sqrt(1 / (old.n - 1) + 1 / (new.n - 1))
    meaningful = direction in ("better", "worse", "changed") and is_large and not cautions
    return Change(difference, direction, min(size, sys.float_info.max), meaningful, interval), cautions


def _direction(before: float, side: _Side, interval: tuple[float, float] | None) -> Direction:
    after, value = side.reading, float(side.reading)
    rounding = max(ROUNDING * max(abs(before), abs(value)), ROUNDING / 10 * range_width(after.range))
    if abs(value - before) <= rounding:
        return "equal"
    if interval is not None and interval[0] <= 0 <= interval[1]:
        return "unclear"
    rises = (value > before) == (after.better == "higher")
    return side.way if after.better != "neither" and side.way == ("better" if rises else "worse") else "changed"


def range_width(limits: Limits) -> float:
    """The width of a range; 0 if an end is open."""
    low, high = limits
    width = high - low if low is not None and high is not None else 0.0
    return width if 0 < width < math.inf else 0.0


def _interval(
    before: Measurement, after: Measurement, letters: tuple[str, str]
) -> tuple[tuple[float, float] | None, list[str]]:
    """The interval of the difference of two independent readings, and what is wrong with theirs, by MOVER (Zou & Donner
    2008, eq. for a difference): each limit takes the half width on its own side."""
    if before.interval is None or after.interval is None:
        return None, []
    a, b = float(before), float(after)
    (a1, a2), (b1, b2) = before.interval, after.interval
    if not (a1 <= a <= a2 and b1 <= b <= b2):
        beyond = f"the reading of {letters[a1 <= a <= a2]} is outside its own interval"
        return None, [f"{beyond}: no interval of the difference is given"]
    low, high = b - a - math.hypot(b - b1, a2 - a), b - a + math.hypot(b2 - b, a - a1)
    if not (math.isfinite(low) and math.isfinite(high)):
        return None, ["the interval of the difference is too wide for numbers"]
    return (low, high), []


def _cautions(base: _Side, side: _Side, difference: float) -> list[str]:
    (before, norm, a, _), (after, other, b, _) = base, side
    if _definition(before) != _definition(after):
        return [f"defined differently in {a} and {b}: compare the definitions"]
    if before.name in ("partition_isotropy", "gaussian_isotropy"):
        if norm is None or other is None:
            return [f"it depends on the scale of the rows, which is not known for {a} and {b}"]
        ends = f"{number(norm)} in {a}, {number(other)} in {b}"
        is_apart = _apart(norm, other) > SCALE_APART
        return [f"it depends on the scale of the rows (mean norm {ends})"] if is_apart else []
    if (before.n, before.d) == (after.n, after.d):
        return []
    sizes = f"{before.n:,} x {before.d:,} in {a}, {after.n:,} x {after.d:,} in {b}"
    if before.reference is None or after.reference is None:
        words = f"its dependence on the number of rows and columns is not known ({sizes})"
        # of these the expectation over isotropic rows is 0 for every size
        return [] if before.name in ("norm_id_correlation", "mean_cosine") else [words]
    shift = abs(after.reference - before.reference)
    is_rounding = _apart(before.reference, after.reference) <= 1e-9
    if is_rounding or shift < REFERENCE_SHARE * abs(difference):
        return []
    why = _WHY_SIZE.get(before.name, "it depends on the number of rows or columns")
    return [f"{why} ({sizes}): compare the distances"]


def _apart(a: float, b: float) -> float:
    largest = max(abs(a), abs(b))
    return abs(a / largest - b / largest) if largest > 0 and math.isfinite(largest) else 0.0


def _definition(reading: Measurement) -> str:
    return reading.definition.partition("; not scale-free")[0]  # what follows describes the data, not the measure


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
