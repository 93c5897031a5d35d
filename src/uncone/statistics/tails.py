"""Tails of Student's t and of the normal distribution, also far out, without scipy."""

import math
from functools import lru_cache

import numpy as np

from uncone.statistics.arrays import Array

NORMAL = 1000  # from this many degrees of freedom on, Student's t counts as normal
_LARGEST, _LEAST_LOG = 1e4, -680.0
"""A table ends at this point, or where the density leaves the range of a float."""


@lru_cache(maxsize=256)
def _table(degrees: int) -> tuple[Array, Array]:
    """Points from low to high, evenly in asinh t, and ln P(t > point): the trapezoid rule in asinh t, from the right."""
    normal = degrees >= NORMAL
    of_t = degrees * math.expm1(min(-2 * _LEAST_LOG / (degrees + 1), 100.0))
    end = math.asinh(min(math.sqrt(-2 * _LEAST_LOG if normal else of_t), _LARGEST))
    s = np.linspace(-end, end, 20_001)
    t = np.sinh(s)
    logs = -0.5 * t**2 if normal else -0.5 * (degrees + 1) * np.log1p(t**2 / degrees)
    density = np.exp(logs) * np.cosh(s)
    beyond = density[-1] / (t[-1] ** 2 if normal else degrees)  # the tail in asinh t falls as t^-degrees
    steps = 0.5 * (density[1:] + density[:-1]) * (s[1] - s[0])
    above = np.concatenate([np.cumsum(steps[::-1])[::-1], [0.0]]) + beyond
    return t, np.log(above / (above[0] + beyond))


def log_tail(t: Array, degrees: int) -> Array:
    """ln P(T > t) of Student's t; `degrees` from `NORMAL` on are the normal distribution."""
    points, logs = _table(min(degrees, NORMAL))
    t = np.clip(t, points[0], points[-1])
    last = len(points) - 1
    with np.errstate(invalid="ignore"):  # NaN has no place, and stays NaN
        place = ((np.arcsinh(t) / math.asinh(points[-1]) + 1) * (last / 2)).astype(np.intp)
    left = np.clip(place, 0, last - 1)  # as np.interp, which searches for the place and takes three times as long
    slope = (logs[left + 1] - logs[left]) / (points[left + 1] - points[left])
    return np.asarray(logs[left] + slope * (t - points[left]))


def point_of(log_p: Array, degrees: int) -> Array:
    """The inverse of `log_tail`."""
    t, logs = _table(min(degrees, NORMAL))
    return np.interp(-log_p, -logs, t)
