"""Do counts follow a power law, or does a log-normal or a power law with a cut fit them better?"""

import math

import numpy as np

from uncone.records.tokens import Estimate
from uncone.rows import Array
from uncone.statistics.holm import holm
from uncone.statistics.tails import NORMAL, log_tail
from uncone.tokens.record import Rival

_PANELS, _POINTS, _ROUNDS, _GRID, _STEPS = 20, 12, 6, 12, 80
_LARGEST, _LARGEST_LOG, _REACH = 1e3, 500.0, 1.96
_SHARES = (1e-5, 1e3)  # shares of the term that a rival has and the power law lacks
APART = 1.96  # from this value of Vuong's z on, one rival is named alone


def rivals(falling: Array) -> tuple[tuple[Rival, ...], Estimate, str]:
    """Compare Zipf's law with rivals by the likelihood of the counts of types, R of them, the largest first.

    Zipf's law of exponent s among ranks is the power law x^-(1 + 1/s) among counts x (Clauset, Shalizi and Newman 2009,
    whose likelihood ratios these are). With z the log of a count over the least one and y = z / mean z the densities
    are exp(-y), exp(-a y - b y^2) (log-normal) and exp(-a y - c e^z) (cut). Both rivals have the power law as a limit,
    so twice the gain is read as a chi-square. Vuong's z, for laws that are not limits of each other, compares the
    rivals.

    Returns:
        The rivals, the better first; the bend, by how much the exponent differs between the ends of the ranks, from
        the coefficient of variation of z (the uniformly most powerful unbiased test of Malevergne, Pisarenko and
        Sornette 2011): (2 - mean y^2) / 2 ln R, of deviation ln R / sqrt R under the power law; and the rivals to name.
    """
    n, least = len(falling), float(falling[-1])
    logs = np.log(falling / max(least - 0.5, least / 2))  # a count represents all numbers that round to it
    mean = float(logs.mean())
    y, top = logs / mean, float(logs.max())
    nodes, weights = _nodes(max(50.0, 1.5 * top / mean))
    cut = np.exp(np.minimum(mean * nodes - top, _LARGEST_LOG))
    of = {
        "a log-normal": _gains(y, y**2, nodes, weights, nodes**2),
        "a power law with a cut": _gains(y, np.exp(logs - top), nodes, weights, cut),
    }
    gained = {name: max(0.0, float(gains.sum())) for name, gains in of.items()}
    tails = np.exp(log_tail(np.sqrt(2 * np.array(list(gained.values()))), NORMAL))
    chances = holm(np.minimum(1.0, 2 * tails).tolist())
    found = [Rival(name, gain, p) for (name, gain), p in zip(gained.items(), chances, strict=True)]
    found.sort(key=lambda rival: -rival.gain)
    first, second = (of[rival.name] for rival in found)
    apart = first - second
    spread = math.sqrt(n) * float(apart.std())
    is_apart = abs(float(apart.sum())) > APART * spread
    named = found[0].name if is_apart else " or ".join(rival.name for rival in found)
    bend, error = (2 - float(np.mean(y**2))) / 2 * math.log(n), math.log(n) / math.sqrt(n)
    return tuple(found), Estimate(bend, (bend - _REACH * error, bend + _REACH * error)), named


def _nodes(end: float) -> tuple[Array, Array]:
    """Points from 0 to `end` and their weights, by Gauss and Legendre in panels that grow."""
    edges = np.concatenate([[0.0], np.geomspace(0.02, end, _PANELS)])
    x, w = np.polynomial.legendre.leggauss(_POINTS)
    half = np.diff(edges)[:, None] / 2
    return (edges[:-1, None] + half * (1 + x)).ravel(), (half * w).ravel()


def _gains(y: Array, term: Array, nodes: Array, weights: Array, at: Array) -> Array:
    """(n,): ln of the density exp(-a y - b term) at its most likely a and b >= 0, less that of exp(-y).

    The likelihood is concave: for each b of a grid the best a, and a finer grid about the best b.
    """
    grid, wanted = np.geomspace(*_SHARES, _GRID), float(term.mean())
    for _ in range(_ROUNDS):
        a, logs = _best(grid, nodes, weights, at)
        best = int(np.argmax(-a - grid * wanted - logs))
        kept = float(a[best]), float(grid[best]), float(logs[best])
        grid = np.geomspace(grid[max(best - 1, 0)], grid[min(best + 1, _GRID - 1)], _GRID)
    slope, share, total = kept
    return np.asarray((1 - slope) * y - share * term - total)


def _best(grid: Array, nodes: Array, weights: Array, at: Array) -> tuple[Array, Array]:
    """For each b the a with a mean of 1, by Newton's method between two bounds, and the log of the integral."""
    a, low, high = np.ones(len(grid)), np.full(len(grid), -_LARGEST), np.full(len(grid), _LARGEST)
    base, rows = -grid[:, None] * at, np.arange(len(grid))
    logs = np.zeros(len(grid))
    for _ in range(_STEPS):
        of = base[rows] - a[rows, None] * nodes
        top = of.max(1)
        p = np.exp(of - top[:, None]) * weights
        total = p.sum(1)
        mean = p @ nodes / total
        variance = np.maximum(p @ nodes**2 / total - mean**2, 1e-12)
        logs[rows] = np.log(total) + top
        low[rows], high[rows] = np.where(mean > 1, a[rows], low[rows]), np.where(mean > 1, high[rows], a[rows])
        step = a[rows] + (mean - 1) / variance
        inside = (step > low[rows]) & (step < high[rows])
        step = np.where(inside, step, (low[rows] + high[rows]) / 2)
        left = np.abs(mean - 1) > 1e-9
        a[rows[left]] = step[left]
        rows = rows[left]
        if not len(rows):
            break
    return a, logs
