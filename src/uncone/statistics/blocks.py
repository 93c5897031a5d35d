from functools import lru_cache

import numpy as np

from uncone.statistics.arrays import Array

FEWEST_BLOCKS = 10  # with fewer blocks there is no interval
DRAWS = 1000


def ratio_interval(sums: Array, over: int, under: int, value: float, seed: int) -> tuple[float, float] | None:
    """The 95% percentile interval of the ratio `value` of two columns of `sums` (blocks, m), widened to hold it: the
    blocks are drawn with replacement (Efron 1979, by blocks), the same blocks for all ratios."""
    n = len(sums)
    if n < FEWEST_BLOCKS:
        return None
    drawn = draws(n, seed) @ sums
    with np.errstate(invalid="ignore", divide="ignore"):
        ratios = drawn[:, over] / drawn[:, under]
    ratios = ratios[np.isfinite(ratios)]
    if len(ratios) < DRAWS // 2:
        return None
    low, high = np.quantile(ratios, [0.025, 0.975]).tolist()
    return min(low, value), max(high, value)


@lru_cache(4)
def draws(n: int, seed: int = 0, many: int = DRAWS) -> Array:
    """How often each of n blocks is drawn, float64 (many, n), read-only: many intervals take the same draws."""
    drawn = np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), size=many).astype(np.float64)
    drawn.flags.writeable = False
    return drawn


def block_sums(values: Array, blocks: Array) -> Array:
    """(blocks, m): sums of values (N, m) over the blocks (N,), numbered from 0."""
    return np.stack([np.bincount(blocks, column) for column in values.T], axis=1)


def block_means(values: Array, blocks: Array) -> Array:
    """(R, blocks): means of values (R, N) over the `blocks` of tokens (N,)."""
    _, place, counts = np.unique(blocks, return_inverse=True, return_counts=True)
    return block_sums(values.T, place).T / counts
