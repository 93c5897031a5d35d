"""Where does a curve bend downward: a broken line over ln(step), by least squares."""

import numpy as np

from uncone.rows import Array
from uncone.statistics.tails import point_of

_LEAST_LEFT = 2
"""Checkpoints on each side of the bend, beside it."""
_FLOOR = 1e-18


def change_points(y: Array, steps: Array, correlation: Array, *, level: float = 0.95) -> Array:
    """(place, low, high) of the bend of each curve `y` (m, n), as numbers of checkpoints, (m, 3).

    Two lines that meet at a checkpoint are fitted by generalised least squares, for jitter of this `correlation`. The
    interval holds the bends that an F test does not refuse. The second line is the flatter or falling one.
    """
    n = len(steps)
    x = np.log(np.maximum(steps, 1.0))
    knots = np.arange(_LEAST_LEFT, n - _LEAST_LEFT)
    whiten = np.linalg.inv(np.linalg.cholesky(correlation))
    z = y @ whiten.T
    total = (z**2).sum(1)
    left = np.empty((len(y), len(knots)))
    for at, knot in enumerate(knots):
        basis = whiten @ np.stack([np.ones(n), x - x[knot], np.maximum(x - x[knot], 0.0)], axis=1)
        q, r = np.linalg.qr(basis)
        fitted = z @ q
        bends_down = fitted[:, 2] * r[2, 2] < 0  # the sign of the change of slope
        straight = (fitted[:, :2] ** 2).sum(1)
        left[:, at] = total - np.where(bends_down, (fitted**2).sum(1), straight)
    left = np.maximum(left, _FLOOR)
    ratio = 1 + point_of(np.log([(1 - level) / 2]), n - 4) ** 2 / (n - 4)
    inside, best = left <= left.min(1, keepdims=True) * ratio, left.argmin(1)
    return np.stack([knots[best], knots[inside.argmax(1)], knots[len(knots) - 1 - inside[:, ::-1].argmax(1)]], axis=1)
