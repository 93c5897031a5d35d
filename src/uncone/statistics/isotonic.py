import numpy as np

from uncone.statistics.arrays import Array


def isotonic(y: Array) -> Array:
    """The never falling curves nearest to `y` (m, n) in squares: max over a <= i, min over b >= i, of mean(y[a..b])."""
    m, n = y.shape
    sums = np.concatenate([np.zeros((m, 1)), np.cumsum(y, axis=1)], axis=1)
    fitted = np.full((m, n), -np.inf)
    for a in range(n):
        means = (sums[:, a + 1 :] - sums[:, [a]]) / np.arange(1, n - a + 1)
        least = np.minimum.accumulate(means[:, ::-1], axis=1)[:, ::-1]
        np.maximum(fitted[:, a:], least, out=fitted[:, a:])
    return fitted


def rising(y: Array) -> Array:
    """Of one series (n,), which may be empty, in linear time."""
    blocks: list[tuple[float, int]] = []
    for value in y.tolist():
        total, size = value, 1
        while blocks and blocks[-1][0] * size > total * blocks[-1][1]:
            total, size = total + blocks[-1][0], size + blocks.pop()[1]
        blocks.append((total, size))
    return np.concatenate([np.empty(0), *(np.full(size, total / size) for total, size in blocks)])
