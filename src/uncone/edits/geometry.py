"""What a repair did to vectors: the same measures before and after, how far the vectors moved, which directions are gone."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch

from uncone import measure
from uncone.errors import UndefinedMeasure
from uncone.moments import Moments
from uncone.records import Measurement
from uncone.rows import Rows, as_rows
from uncone.threads import on_one_thread
from uncone.transforms import Affine, Transformation

Tensor = torch.Tensor
MOST_ROWS = 65_536
_MOST_BYTES = 128 * 2**20
"""Of the rows that are measured, before and after each: numbers of so many rows are those of all to three digits."""


@dataclass(frozen=True)
class Geometry:
    """Both sides, of the same rows."""

    measured: int
    before: tuple[Measurement, ...]
    after: tuple[Measurement, ...]
    relative_change: float | None


def compare(before: Rows | Tensor, after: Rows | Tensor) -> Geometry:
    """Mean cosine, IsoScore and I(W) of up to `MOST_ROWS` evenly spaced rows, the same on both sides (N, D) and (N, K)."""
    sides = as_rows(before), as_rows(after)
    n = sides[0].shape[0]
    room = _MOST_BYTES // (8 * max(rows.shape[1] for rows in sides))
    count = min(n, MOST_ROWS, max(2, room))
    chosen = torch.arange(count) * (n - 1) // max(1, count - 1) if count < n else torch.arange(n)
    x, y = (rows.take(chosen) for rows in sides)
    change = None
    if x.shape == y.shape:
        change = _relative_change(x, y)
    return Geometry(count, _measures(x), _measures(y), change)


@on_one_thread
def _relative_change(x: Tensor, y: Tensor) -> float | None:
    moved, whole = (
        float(torch.linalg.vector_norm((y - x).double())),
        float(torch.linalg.vector_norm(x.double())),
    )
    return moved / whole if whole > 0 else None


@on_one_thread
def rank_lost(transformation: Transformation | Affine) -> int | None:
    """How many directions of the rows nothing is left of; None where the transformation is not affine."""
    affine = (
        transformation if isinstance(transformation, Affine) else getattr(transformation, "affine_", None)
    )
    if affine is None:
        return None
    if affine.weight is None:
        return 0
    values = torch.linalg.svdvals(affine.weight)
    kept = int((values > affine.d * torch.finfo(torch.float64).eps * float(values[0])).sum())
    return affine.d - kept


def _measures(x: Tensor) -> tuple[Measurement, ...]:
    m = Moments.of(x)
    found = []
    taken: tuple[tuple[str, Callable[[], Measurement]], ...] = (
        ("mean_cosine", lambda: measure.mean_cosine(m)),
        ("isoscore", lambda: measure.isoscore(m)),
        ("partition_isotropy", lambda: measure.partition_isotropy(x, m)),
    )
    for name, function in taken:
        try:
            found.append(function())
        except UndefinedMeasure as error:
            better: Literal["lower", "higher"] = "lower" if name == "mean_cosine" else "higher"
            found.append(Measurement(name, None, reason=str(error), better=better, n=m.n, d=m.d))
    return tuple(found)
