import numpy as np

from uncone.statistics.arrays import Array


def rising(y: Array) -> Array:
    """The never-falling series nearest to `y` (n,), which may be empty, by least squares, in linear time."""
    blocks: list[tuple[float, int]] = []
    for value in y.tolist():
        total, size = value, 1
        while blocks and blocks[-1][0] * size > total * blocks[-1][1]:
            total, size = total + blocks[-1][0], size + blocks.pop()[1]
        blocks.append((total, size))
    return np.concatenate([np.empty(0), *(np.full(size, total / size) for total, size in blocks)])
