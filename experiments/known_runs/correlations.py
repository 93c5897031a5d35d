"""Rank correlations of a few runs, and what chance would give: Kendall's tau-b, exact permutations, the bootstrap, Holm.

A cell holds the runs that are compared with each other: one size and one remedy (7 learning rates), or one size and one learning
rate (10 remedies). A pooled value is the unweighted mean of tau-b over cells. Runs of different sizes are never compared.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
RESAMPLES = 9_999
_EXACT = 7
"""Runs up to which all orders are gone through."""
_ORDERS = 20_000
"""Orders drawn at random for larger cells."""
_DRAWS = 99_999
"""Sums of one order a cell, for pooled values."""
_ALIKE = 1e-9  # sums of the same terms in another order
MOST_TIED = 0.5
"""Of the pairs of a cell: where more readings tie, two or three runs would decide tau-b, and the cell is left out."""


@dataclass(frozen=True)
class Pooled:
    """The mean of tau-b over cells, its 95 % interval, and how often chance gives one as far from 0."""

    tau: float
    low: float
    high: float
    p: float
    spearman: float
    cells: int
    left_out: int
    """Cells in which more than half of the pairs of readings tie to the digits given."""
    by_cell: tuple[float, ...]
    p_by_cell: tuple[float, ...]


def signs(values: Sequence[float]) -> Array:
    """Of every pair: 1 where the second is larger, -1 where it is smaller, 0 for a tie; (n, n)."""
    x = np.asarray(values, dtype=float)
    return np.sign(x[None, :] - x[:, None])


def tau_b(x: Sequence[float], y: Sequence[float]) -> float:
    """Kendall's tau-b (Kendall 1945), nan where one side has ties only."""
    return float(_weighted(signs(x), signs(y), np.ones((1, len(x))))[0])


def tells(x: Sequence[float]) -> bool:
    """Whether at most `MOST_TIED` of the pairs tie."""
    pairs = len(x) * (len(x) - 1)
    return pairs > 0 and float((signs(x) == 0).sum() - len(x)) <= MOST_TIED * pairs


def _weighted(a: Array, b: Array, weights: Array) -> Array:
    """tau-b of resamples; `weights` (B, n) says how often each run was drawn. Copies of a run are ties of both sides."""
    together, of_x, of_y = (np.einsum("bi,ij,bj->b", weights, m, weights) for m in (a * b, a * a, b * b))
    with np.errstate(invalid="ignore", divide="ignore"):
        return together / np.sqrt(of_x * of_y)


def spearman(x: Sequence[float], y: Sequence[float]) -> float:
    """Pearson's correlation of the ranks, ties at their mean rank; nan where one side has ties only."""
    a, b = ranks(x), ranks(y)
    if np.ptp(a) == 0 or np.ptp(b) == 0:
        return math.nan
    return float(np.corrcoef(a, b)[0, 1])


def ranks(values: Sequence[float]) -> Array:
    """From 1 up, ties at their mean rank."""
    s = signs(values)
    return 0.5 * ((s < 0).sum(1) - (s > 0).sum(1) + len(s) + 1)


@cache
def _orders(n: int) -> Array:
    """All orders of n runs, or a sample of them with the given order first; (orders, n)."""
    if n <= _EXACT:
        return np.array(list(itertools.permutations(range(n))))
    generator = np.random.default_rng(n)
    return np.array([np.arange(n), *(generator.permutation(n) for _ in range(_ORDERS - 1))])


def by_chance(x: Sequence[float], y: Sequence[float]) -> Array:
    """tau-b for every order of the losses y."""
    a, b, orders = signs(x), signs(y), _orders(len(x))
    together = np.zeros(len(orders))
    for i, j in itertools.combinations(range(len(x)), 2):
        together += a[i, j] * b[orders[:, i], orders[:, j]]
    return together / math.sqrt((a * a).sum() / 2 * (b * b).sum() / 2)


def pool(cells: Sequence[tuple[Sequence[float], Sequence[float]]], seed: int = 0) -> Pooled | None:
    """The mean tau-b over the cells of (readings, losses) that tell anything; None where none does.

    The interval is the percentile bootstrap over the runs of each cell; a resample in which a cell has one reading only is
    left to the other cells. The p value is two-sided, from orders of the losses within each cell.
    """
    defined = [(x, y) for x, y in cells if tells(x)]
    if not defined:
        return None
    generator = np.random.default_rng(seed)
    values = [tau_b(x, y) for x, y in defined]
    drawn, summed, alone = [], np.zeros(_DRAWS), []
    for (x, y), value in zip(defined, values, strict=True):
        n, chance = len(x), by_chance(x, y)
        weights = generator.multinomial(n, np.full(n, 1 / n), size=RESAMPLES).astype(float)
        drawn.append(_weighted(signs(x), signs(y), weights))
        summed += generator.choice(chance, size=_DRAWS)
        alone.append(float(np.mean(np.abs(chance) >= abs(value) - _ALIKE)))
    resampled = np.array(drawn)
    there = np.isfinite(resampled).sum(0)
    means = np.where(np.isfinite(resampled), resampled, 0.0).sum(0)[there > 0] / there[there > 0]
    low, high = np.quantile(means, [0.025, 0.975])
    extreme = np.sum(np.abs(summed) >= abs(sum(values)) - _ALIKE)
    p = alone[0] if len(alone) == 1 else float((1 + extreme) / (_DRAWS + 1))
    rho = float(np.mean([spearman(x, y) for x, y in defined]))
    return Pooled(
        float(np.mean(values)),
        float(low),
        float(high),
        p,
        rho,
        len(values),
        len(cells) - len(defined),
        tuple(values),
        tuple(alone),
    )


def holm(p: Sequence[float]) -> list[float]:
    """The p values corrected for their number (Holm 1979), in the order given."""
    order, corrected, largest = sorted(range(len(p)), key=lambda i: p[i]), [0.0] * len(p), 0.0
    for rank, i in enumerate(order):
        largest = max(largest, min(1.0, (len(p) - rank) * p[i]))
        corrected[i] = largest
    return corrected
