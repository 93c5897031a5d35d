import math

import numpy as np

from uncone.statistics.arrays import Array


def centred_ranks(values: Array) -> Array:
    """The ranks of values (n,), ties by their mean, less the mean rank."""
    return _ranked(values)[0]


def rank_correlation(x: Array, y: Array) -> tuple[float, float] | None:
    """Spearman's correlation of x and y (n,), ties by their mean rank, and its variance; None where either is constant.

    The variance is that of the influence of each pair (the infinitesimal jackknife, Efron 1982, chapter 6), which holds
    for any joint distribution and any ties. With f and g the mid-distribution functions less 1/2, r = E f g /
    sqrt(E f^2 E g^2), and a pair (x, y) moves E f g by f(x) g(y) + E sign(X - x) g(Y) / 2 + E f(X) sign(Y - y) / 2 -
    3 E f g.
    """
    n = len(x)
    (f, of_x), (g, of_y) = ((ranks / max(n, 1), place) for ranks, place in map(_ranked, (x, y)))
    of_f, of_g = float(f @ f) / max(n, 1), float(g @ g) / max(n, 1)
    if not of_f * of_g > 0:
        return None
    root, both = math.sqrt(of_f * of_g), float(f @ g) / n
    r = max(-1.0, min(1.0, both / root))
    moves = f * g + _half_signs(of_x, g) + _half_signs(of_y, f) - 3 * both
    spreads = (f * f + 2 * _half_signs(of_x, f)) / of_f + (g * g + 2 * _half_signs(of_y, g)) / of_g - 6
    influence = moves / root - r / 2 * spreads
    return r, float(influence @ influence) / (n * (n - 1))


def _ranked(values: Array) -> tuple[Array, Array]:
    """Centred ranks, and the place of each value among the different values."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    place = place.reshape(-1)
    ranks = counts.cumsum() - (counts - 1) / 2
    return ranks[place] - (len(values) + 1) / 2, place


def _half_signs(place: Array, weights: Array) -> Array:
    """The mean of sign(X - x) w / 2 over all pairs (X, w), at each x of this place."""
    sums = np.bincount(place, weights=weights)
    to_here = sums.cumsum()
    means: Array = (to_here[-1] - 2 * to_here + sums) / (2 * len(place))
    return means[place]
