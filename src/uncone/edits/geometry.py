"""What a repair did to vectors: measures before and after, how far they moved, and a verdict."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch

from uncone import measure
from uncone.edits.fit import Fit
from uncone.edits.texts import Path_
from uncone.errors import UndefinedMeasure
from uncone.moments import Moments
from uncone.records import Measurement, RepairCost, Repaired
from uncone.records.wording import listing, percent, plural
from uncone.rows import Rows, as_rows
from uncone.threads import on_one_thread
from uncone.transforms import Affine, Transformation
from uncone.transforms.fitted import shared_name
from uncone.version import versions

Tensor = torch.Tensor
MOST_ROWS = 65_536
_MOST_BYTES = 128 * 2**20
"""Of the measured rows on each side: so many give the numbers of all rows to three digits."""
NEAR_ZERO = 0.05
"""A mean cosine below this is no common direction to speak of."""
CLEARLY_MORE = 0.05
"""IsoScore and the mean cosine are of 0 to 1: a smaller step is none that a reader would act on."""
_TITLES = {"mean_cosine": "the mean cosine", "isoscore": "IsoScore", "partition_isotropy": "I(W)"}
_TASK = (
    "These numbers are about the vectors' geometry, not about a task. Whether search or similarity gets "
    "better is for a task to say: uncone evaluate, or --method auto --data DIR."
)


@dataclass(frozen=True)
class Geometry:
    """The same measures of the same rows on both sides; none where nothing was measured."""

    measured: int = 0
    before: tuple[Measurement, ...] = ()
    after: tuple[Measurement, ...] = ()
    relative_change: float | None = None


def compare(before: Rows | Tensor, after: Rows | Tensor) -> Geometry:
    """Mean cosine, IsoScore and I(W) of the same rows (N, D) and (N, K): up to `MOST_ROWS`, evenly spaced."""
    sides = as_rows(before), as_rows(after)
    n = sides[0].shape[0]
    room = _MOST_BYTES // (8 * max(rows.shape[1] for rows in sides))
    count = min(n, MOST_ROWS, max(2, room))
    chosen = torch.arange(count) * (n - 1) // max(1, count - 1) if count < n else torch.arange(n)
    x, y = (rows.take(chosen) for rows in sides)
    change = _relative_change(x, y) if x.shape == y.shape else None
    return Geometry(count, _measures(x), _measures(y), change)


@on_one_thread
def _relative_change(x: Tensor, y: Tensor) -> float | None:
    moved, whole = (float(torch.linalg.vector_norm(rows.double())) for rows in (y - x, x))
    return moved / whole if whole > 0 else None


@on_one_thread
def rank_lost(transformation: Transformation | Affine) -> int | None:
    """How many directions of the rows are lost; None where the transformation is not affine."""
    affine = getattr(transformation, "affine_", transformation)
    if not isinstance(affine, Affine):
        return None
    if affine.weight is None:
        return 0
    values = torch.linalg.svdvals(affine.weight)
    kept = int((values > affine.d * torch.finfo(torch.float64).eps * float(values[0])).sum())
    return affine.d - kept


def _measures(x: Tensor) -> tuple[Measurement, ...]:
    m = Moments.of(x)
    readings = []
    taken: tuple[tuple[str, Callable[[], Measurement]], ...] = (
        ("mean_cosine", lambda: measure.mean_cosine(m)),
        ("isoscore", lambda: measure.isoscore(m)),
        ("partition_isotropy", lambda: measure.partition_isotropy(x, m)),
    )
    for name, function in taken:
        try:
            readings.append(function())
        except UndefinedMeasure as error:
            better: Literal["lower", "higher"] = "lower" if name == "mean_cosine" else "higher"
            readings.append(Measurement(name, None, reason=str(error), better=better, n=m.n, d=m.d))
    return tuple(readings)


def record_of(
    fit: Fit, geometry: Geometry, *, name: str, out: Path_, kind: Literal["vectors", "encoder"], n: int, d: int, k: int,
    dtype: str, seconds: float, notes: tuple[str, ...],
) -> Repaired:  # fmt: skip
    """The record of a repair of rows (n, d) to (n, k), written in `seconds`."""
    cost = RepairCost(fit.seconds, seconds, geometry.relative_change, rank_lost(fit.transformation))
    return Repaired(
        verdict=give_verdict(name, fit.method, geometry, cost, d, k), name=name, out=shared_name(str(out)), kind=kind,
        method=fit.method, gains=gains(geometry), n=n, d=d, k=k, dtype=dtype, fitted=fit.fitted, cost=cost,
        measured=geometry.measured, before=geometry.before, after=geometry.after, options=fit.options,
        notes=(*fit.notes, *notes, _TASK), versions=versions("torch"),
    )  # fmt: skip


def gains(geometry: Geometry) -> bool | None:
    """Whether the common direction or the use of dimensions got clearly better, and neither clearly worse.

    None where neither was measured.

    I(W) takes no part: it depends on the scale of the vectors, which repairs change.
    """
    before, after = _values(geometry.before), _values(geometry.after)
    common, even = (before.get(name) for name in ("mean_cosine", "isoscore"))
    common_after, even_after = (after.get(name) for name in ("mean_cosine", "isoscore"))
    steps = []
    if common is not None and common_after is not None:
        step = abs(common) - abs(common_after)
        steps.append(step if abs(common) > NEAR_ZERO or step < 0 else 0.0)
    if even is not None and even_after is not None:
        steps.append(even_after - even)
    return max(steps) >= CLEARLY_MORE and min(steps) > -CLEARLY_MORE if steps else None


def give_verdict(name: str, method: str, geometry: Geometry, cost: RepairCost, d: int, k: int) -> str:
    """Gain and cost in one sentence; without a gain, the advice to leave the vectors as they are."""
    if not geometry.measured:
        return f"{name} was repaired with {method}; nothing was measured. {_paid(cost, d, k)}"
    told = listing([_change(b, a) for b, a in zip(geometry.before, geometry.after, strict=True)])
    if gains(geometry) is None:
        return (
            f"{name} was repaired with {method}, but neither its mean cosine nor its IsoScore is defined on "
            f"both sides: nothing can be said of a gain. {_paid(cost, d, k)}"
        )
    if gains(geometry):
        return f"{name}: {method} takes {told}. {_paid(cost, d, k)}"
    common = _values(geometry.before).get("mean_cosine")
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
