"""One sentence: what a repair gained, and what it cost."""

from uncone.edits.geometry import Geometry
from uncone.records import Measurement
from uncone.records.repair import RepairCost
from uncone.records.wording import listing, percent, plural

NEAR_ZERO = 0.05
"""A mean cosine below this is no common direction to speak of."""
CLEARLY_MORE = 0.05
"""IsoScore and the mean cosine are of 0 to 1: a smaller step is none that a reader would act on."""
_TITLES = {"mean_cosine": "the mean cosine", "isoscore": "IsoScore", "partition_isotropy": "I(W)"}
TASK = (
    "These numbers are about the vectors' geometry, not about a task. Whether search or similarity gets better is for a task to say: uncone "
    "evaluate, or --method auto --data DIR."
)


def gains(found: Geometry) -> bool | None:
    """Whether the common direction got clearly smaller, or dimensions are clearly more evenly used, and neither clearly worse.

    None where neither was measured.

    I(W) takes no part: it depends on the scale of the vectors, which repairs change.
    """
    before, after = _values(found.before), _values(found.after)
    common, even = (before.get(name) for name in ("mean_cosine", "isoscore"))
    common_after, even_after = (after.get(name) for name in ("mean_cosine", "isoscore"))
    steps = []
    if common is not None and common_after is not None:
        step = abs(common) - abs(common_after)
        steps.append(step if abs(common) > NEAR_ZERO or step < 0 else 0.0)
    if even is not None and even_after is not None:
        steps.append(even_after - even)
    return max(steps) >= CLEARLY_MORE and min(steps) > -CLEARLY_MORE if steps else None


def give_verdict(name: str, method: str, found: Geometry | None, cost: RepairCost, d: int, k: int) -> str:
    """What was gained and what it cost, in one sentence; where nothing was, to leave the vectors as they are."""
    if found is None:
        return f"{name} was repaired with {method}; nothing was measured. {_paid(cost, d, k)}"
    told = listing([_change(b, a) for b, a in zip(found.before, found.after, strict=True)])
    if gains(found) is None:
        return (
            f"{name} was repaired with {method}, but neither its mean cosine nor its IsoScore is defined on both sides: nothing can be said of a "
            f"gain. {_paid(cost, d, k)}"
        )
    if gains(found):
        return f"{name}: {method} takes {told}. {_paid(cost, d, k)}"
    common = _values(found.before).get("mean_cosine")
    why = (
        f"its mean cosine is near 0 already ({_shown(common)})"
        if common is not None and abs(common) <= NEAR_ZERO
        else "nothing gains clearly"
    )
    return f"Leave {name} as it is: {why}; {method} takes {told}. {_paid(cost, d, k)}"


def _change(before: Measurement, after: Measurement) -> str:
    return f"{_TITLES[before.name]} from {_shown(before.value)} to {_shown(after.value)}"


def _paid(cost: RepairCost, d: int, k: int) -> str:
    fit = "" if cost.fit_seconds is None else f"{_seconds(cost.fit_seconds)} to fit, "
    parts = [f"{fit}{_seconds(cost.apply_seconds)} to write"]
    if cost.relative_change is not None:
        parts.append(f"the vectors moved by {percent(cost.relative_change)} of their length")
    if k != d:
        parts.append(f"{k} of {d} columns are left")
    elif cost.rank_lost is not None:
        parts.append(
            f"{cost.rank_lost} of {d} {plural(d, 'direction')} lost"
            if cost.rank_lost
            else "no direction was lost"
        )
    return f"Cost: {'; '.join(parts)}."


def _values(measurements: tuple[Measurement, ...]) -> dict[str, float]:
    return {m.name: m.value for m in measurements if m.value is not None}


def _shown(value: float | None) -> str:
    return "undefined" if value is None else f"{value:.3g}"


def _seconds(value: float) -> str:
    return f"{value:.2g} s" if value < 10 else f"{value:.0f} s"
