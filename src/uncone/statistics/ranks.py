import numpy as np

from uncone.statistics.arrays import Array


def centred_ranks(values: Array) -> Array:
    """The ranks of values (n,), ties by their mean, less the mean rank."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks = counts.cumsum() - (counts - 1) / 2
    return ranks[place.reshape(-1)] - (len(values) + 1) / 2
