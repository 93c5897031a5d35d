"""Intervals of numbers that follow from sums over blocks of a text."""

from collections.abc import Callable

import numpy as np

from uncone.statistics.arrays import Array

FEWEST_BLOCKS = 10  # With fewer blocks there is no interval
DRAWS, CONFIDENCE = 1000, 0.95


def block_interval(sums: Array, statistic: Callable[[Array], Array], *, seed: int = 0) -> tuple[float, float] | None:
    """The 95% percentile interval of a statistic, the blocks drawn with replacement (Efron 1979, by blocks).

    Args:
        sums: (blocks, m), the sums of each block.
        statistic: of summed blocks (draws, m), the number of each draw (draws,), NaN where it is undefined.
        seed: of the draws: the same blocks are drawn for all statistics of one number of blocks.
    """
    n = len(sums)
    if n < FEWEST_BLOCKS:
        return None
    with np.errstate(invalid="ignore", divide="ignore"):
        drawn = statistic(draws(n, seed) @ sums)
    drawn = drawn[np.isfinite(drawn)]
    if len(drawn) < DRAWS // 2:
        return None
    low, high = np.quantile(drawn, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)


def draws(n: int, seed: int = 0, many: int = DRAWS) -> Array:
    """How often each of n blocks is drawn, float64 (many, n)."""
    return np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), size=many).astype(np.float64)


def block_sums(values: Array, blocks: Array) -> Array:
    """(blocks, m): sums of values (N, m) over the blocks (N,), numbered from 0."""
    return np.stack([np.bincount(blocks, column) for column in values.T], axis=1)


def block_means(values: Array, blocks: Array) -> Array:
    """(R, blocks): means over each block of tokens, of values (R, N) and the block of each token (N,)."""
    _, place, counts = np.unique(blocks, return_inverse=True, return_counts=True)
    return block_sums(values.T, place).T / counts
