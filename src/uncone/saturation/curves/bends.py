"""Where a curve bends down: from `BODY` on, a line over ln(step) and then a fall, straight or over ln(step)."""

import numpy as np

from uncone.rows import Array
from uncone.saturation.curves.late_fall import BODY

_REFUSED = 0.025  # nominal: the correlation is estimated, and intervals hold 93% and more of simulated bends
_FLOOR = 1e-18


def bends(y: Array, steps: Array, correlation: float) -> Array:
    """(place, low, high) of the bend of each curve `y` (m, n), as numbers of checkpoints, (m, 3).

    The parts meet at a checkpoint and are fitted by generalised least squares, against AR(1) noise. The interval holds
    every place that an F test does not reject, for either fall. An early rise is before `BODY`, so a curve that bends
    down earlier bends at the first checkpoint that is tried.
    """
    first = int((steps < BODY * steps[-1]).sum())
    y, x, place = y[:, first:], steps[first:] / steps[-1], np.arange(len(steps) - first)
    whiten = np.linalg.inv(np.linalg.cholesky(correlation ** np.abs(place - place[:, None])))
    z = y @ whiten.T
    knots, total = np.arange(1, len(x) - 2), (z**2).sum(1)
    left = np.full((len(y), len(knots)), np.inf)
    for at, knot in enumerate(knots):
        for fall in (x, np.log(x)):
            columns = [np.ones(len(x)), np.log(x), np.maximum(fall - fall[knot], 0.0)]
            q, r = np.linalg.qr(whiten @ np.stack(columns, axis=1))
            fitted = z @ q
            falls = fitted[:, 2] * r[2, 2] < 0
            explained = np.where(falls, (fitted**2).sum(1), (fitted[:, :2] ** 2).sum(1))
            left[:, at] = np.minimum(left[:, at], total - explained)
    left = np.maximum(left, _FLOOR)
    degrees = len(x) - 4
    ratio = _REFUSED ** (-2 / degrees)  # of F for two parameters, the bend and which fall it is
    inside, best = left <= left.min(1, keepdims=True) * ratio, left.argmin(1)
    low, high = inside.argmax(1), len(knots) - 1 - inside[:, ::-1].argmax(1)
    return first + np.stack([knots[best], knots[low], knots[high]], axis=1)
