"""How a reading changes with frequency: a rank correlation, and whether the reading rises and then falls."""

import math
from statistics import NormalDist

import numpy as np

from uncone.diagnosis.bins.record import Turn
from uncone.records.tokens import Estimate
from uncone.rows import Array
from uncone.statistics.ranks import centred_ranks, rank_correlation

CONFIDENCE = 0.95
LITTLE = 0.1  # such a rank correlation explains a hundredth of the ranks, which no reader would notice
FEWEST_RANKED = 50  # 95% intervals of 100 rows cover the truth in 89% of the worst simulated samples, of 50 in fewer
FEWEST_APART = 10  # rows with another value than the commonest: with fewer, a few rows decide
_SEED = 0  # of the halves


def spearman(x: Array, y: Array, *, confidence: float = CONFIDENCE) -> Estimate:
    """Spearman's rank correlation of x and y (n,), ties by their mean rank; undefined where either is constant.

    The interval is tanh(atanh(r) +- z s / (1 - r^2)), with the standard error s by `rank_correlation`, which holds with
    heavy ties and whatever the joint distribution. There is no interval below 50 rows, or if fewer than 10 rows have
    another value than the commonest. If |r| is 1, the interval has no width.

    >>> spearman(np.array([1.0, 2.0, 3.0]), np.array([1.0, 3.0, 2.0])).value
    0.5
    """
    found = rank_correlation(x, y)
    if found is None:
        return Estimate(None)
    (r, variance), n = found, len(x)
    commonest = max(int(np.unique(values, return_counts=True)[1].max()) for values in (x, y))
    if n < FEWEST_RANKED or n - commonest < FEWEST_APART:
        return Estimate(r)
    if 1 - abs(r) < 1e-12:
        return Estimate(r, (r, r))
    z, reach = math.atanh(r), NormalDist().inv_cdf((1 + confidence) / 2) * math.sqrt(variance) / (1 - r**2)
    return Estimate(r, (min(r, math.tanh(z - reach)), max(r, math.tanh(z + reach))))


def find_turn(order: Array, values: Array, edges: list[int], *, confidence: float = CONFIDENCE) -> Turn | None:
    """Where `values` (n,) rise and then fall with `order` (n,), or fall and then rise; None if no turn is found.

    Two lines (Simonsohn 2018), with rank correlations in the place of slopes: each side of a cut must have a
    correlation of at least 0.1 whose interval excludes 0, with opposite signs. One half of the rows, drawn with a fixed
    seed, chooses the cut among `edges` and the signs; the other half is tested. A relation that never turns gives a
    turn in at most 2.5% of cases: its weaker side must be on the wrong side of its interval."""
    first = np.random.default_rng(_SEED).random(len(order)) < 0.5
    at, sign = _steepest_cut(order[first], values[first], edges)
    sides = [~first & (order < at), ~first & (order >= at)]
    below, above = (spearman(order[side], values[side], confidence=confidence) for side in sides)
    if not sign or not (_is_sure(below, sign) and _is_sure(above, -sign)):
        return None
    return Turn(at, below, above, (int(sides[0].sum()), int(sides[1].sum())))


def _is_sure(side: Estimate, sign: int) -> bool:
    ends, value = side.interval, side.value
    return ends is not None and value is not None and sign * value >= LITTLE and sign * ends[(1 - sign) // 2] > 0


def _steepest_cut(order: Array, values: Array, edges: list[int]) -> tuple[int, int]:
    """The edge whose less steep side is the steepest, both tested as linear in ranks, and the sign below it; (0, 0)
    where no edge parts slopes of opposite signs."""
    place = np.searchsorted(edges, order, side="right") - 1
    x, y = centred_ranks(order), centred_ranks(values)
    products = [np.ones_like(x), x, y, x * x, y * y, x * y]
    sums = np.stack([np.bincount(place, weights=one, minlength=len(edges)) for one in products]).cumsum(1)
    best, at, sign = 0.0, 0, 0
    for k in range(1, len(edges)):
        below, above = _steepness(sums[:, k - 1]), _steepness(sums[:, -1] - sums[:, k - 1])
        if below * above < 0 and min(abs(below), abs(above)) > best:
            best, at, sign = min(abs(below), abs(above)), edges[k], 1 if below > 0 else -1
    return at, sign


def _steepness(sums: Array) -> float:
    n, x, y, xx, yy, xy = map(float, sums)
    if n < FEWEST_RANKED / 2:
        return 0.0
    spreads = xx - x * x / n, yy - y * y / n
    if min(spreads) <= n / 4:  # one value: two different values give ranks further apart
        return 0.0
    return (xy - x * y / n) / math.sqrt(spreads[0] * spreads[1]) * math.sqrt(n)
