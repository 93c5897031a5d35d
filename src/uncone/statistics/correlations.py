import math
from statistics import NormalDist

import numpy as np

CORRELATIONS = np.linspace(0.0, 0.95, 20)  # equally likely before the data


def fisher_interval(r: float, n: int, confidence: float) -> tuple[float, float] | None:
    """The interval of Spearman's correlation r of n pairs: tanh(atanh(r) +- z sqrt((1 + r^2 / 2) / (n - 3))), Fisher's
    with the variance of Bonett & Wright 2000. None below 4 pairs, and if |r| is 1."""
    if n < 4 or abs(r) >= 1:
        return None
    z, reach = math.atanh(r), NormalDist().inv_cdf((1 + confidence) / 2) * math.sqrt((1 + r**2 / 2) / (n - 3))
    return math.tanh(z - reach), math.tanh(z + reach)
