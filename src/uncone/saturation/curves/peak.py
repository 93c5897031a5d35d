"""How far does a curve that never declines end below its highest value, by chance?

Each draw is made to reach that far and is weighted by how likely it was (Adler, Blanchet and Liu 2012), so that a
chance of 1e-9, as correction for hundreds of curves needs, takes as few draws as one of 0.1.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from uncone import threads
from uncone.rows import Array
from uncone.saturation.curves.contrast import Design
from uncone.statistics.correlations import CORRELATIONS
from uncone.statistics.isotonic import isotonic
from uncone.statistics.tails import NORMAL, log_tail, point_of

DRAWS = 400  # of each curve; the chance is then known to a few percent of itself
_BLOCK = 2**20  # numbers in the largest array of a block of curves


@dataclass(frozen=True, eq=False)
class Noise:
    """Student's t: a value's deviation is its `shape` times `scale`, if its correlation is the k-th."""

    shape: Array  # (m, n)
    scale: Array  # (m, K)
    degrees: int


def p_of_peak(y: Array, noise: Noise, of: Design, weights: Array, *, seed: int, tick: Callable[[int], None]) -> Array:
    """P(the highest value as far above the last one | the curve never declines), (m,), of curves `y` (m, n)."""
    p = np.ones(len(y))
    fallen = np.flatnonzero(y.max(1) > y[:, -1])
    size = max(1, _BLOCK // (len(CORRELATIONS) * y.shape[1]))
    blocks = [fallen[at : at + size] for at in range(0, len(fallen), size)]
    drawn = _Drawn.of(of, noise.degrees, seed)

    def work(rows: Array) -> None:
        of_rows = Noise(noise.shape[rows], noise.scale[rows], noise.degrees)
        p[rows] = _block(y[rows], of_rows, of, weights[rows], drawn)
        tick(len(rows))

    threads.share(partial(work, rows) for rows in blocks)
    tick(len(y) - len(fallen))
    return p


@dataclass(frozen=True, eq=False)
class _Drawn:
    values: Array  # (K, B, n)
    even: Array  # (B,)
    uniform: Array
    scale: Array

    @classmethod
    def of(cls, design: Design, degrees: int, seed: int) -> "_Drawn":
        n = len(design.body)
        random = np.random.default_rng([seed, n])
        values = random.standard_normal((DRAWS, n)) @ np.swapaxes(design.root, 1, 2)
        uniform = random.permutation((np.arange(DRAWS) + random.random(DRAWS)) / DRAWS)
        scale = np.ones(DRAWS) if degrees >= NORMAL else 1 / np.sqrt(random.chisquare(degrees + 1, DRAWS))
        return cls(values, (np.arange(DRAWS) + 0.5) / DRAWS, uniform, scale)


def _block(y: Array, noise: Noise, of: Design, weights: Array, drawn: _Drawn) -> Array:
    n = y.shape[1]
    mean = isotonic(y)
    reach = y.max(1) - y[:, -1]
    shape, last = noise.shape[:, None, :-1], noise.shape[:, None, -1:]
    with_last = CORRELATIONS[:, None] ** np.arange(n - 1, 0, -1)  # (K, n - 1)
    spreads = np.sqrt(shape**2 + last**2 - 2 * shape * last * with_last)
    wanted = reach[:, None] - (mean[:, :-1] - mean[:, [-1]])
    logs_of = log_tail(wanted[:, None] / (noise.scale[:, :, None] * spreads), noise.degrees)
    chances_of = weights[:, :, None] * np.exp(logs_of)
    draws = np.arange(DRAWS)

    def overlap(i: int) -> float:
        """The mean of 1 / (how many values reach so far) where a value drawn beforehand does: the sum of the chances
        (K, n - 1) counts a draw once for each value that reaches so far."""
        shape, spread, logs, chances = noise.shape[i], spreads[i], logs_of[i], chances_of[i]
        cumulative = np.cumsum(chances)
        chosen = np.searchsorted(cumulative, drawn.even * cumulative[-1], side="right")
        k, j = np.divmod(np.minimum(chosen, chances.size - 1), chances.shape[1])
        t = point_of(logs[k, j] + np.log(drawn.uniform), noise.degrees)  # beyond the reach
        deviation = spread[k, j]
        slope = shape * (of.correlation[k, j] * shape[j, None] - of.correlation[k, -1] * shape[-1])
        slope /= deviation[:, None] ** 2
        rest = drawn.values[k, draws] * shape
        rest -= slope * (rest[draws, j] - rest[:, -1])[:, None]  # independent of (value j) - (last value)
        wide = drawn.scale if noise.degrees >= NORMAL else drawn.scale * np.sqrt(noise.degrees + t**2)
        values = mean[i] + noise.scale[i][k][:, None] * (slope * (t * deviation)[:, None] + rest * wide[:, None])
        reached = values[:, :-1] - values[:, [-1]] >= reach[i]
        reached[draws, j] = True
        return float(np.mean(1.0 / reached.sum(1)))

    each = [overlap(i) for i in range(len(y))]
    return np.asarray(np.clip(chances_of.sum((1, 2)) * each, 1e-300, 1.0))
