"""Is 0 in the hull of points? Either answer comes with a proof.

A direction v with <v, h> < 0 for every state h exists if and only if 0 is outside the hull of the states. The
distance of the hull's nearest point is the largest margin (Gao et al. 2019, theorems 1 and 2).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from uncone.diagnosis.why.reach.faces import blocks
from uncone.diagnosis.why.reach.hull import EPS, Hull, holds_zero, scaled
from uncone.errors import InputError
from uncone.rows import Array

EPSILON = 1e-4  # of the mean norm: a smaller margin counts as none unless it is proven to be above 0
_NOTHING = 1e-13  # of the largest norm: a nearer point is 0
CLOSE = 0.01  # the margin found is at least 1 - CLOSE of the largest
MOST_STEPS = 20_000
_ROUNDING = float(np.finfo(np.float32).eps)


@dataclass(frozen=True, eq=False)
class Separation:
    """Whether a direction v has <v, h> <= -margin for all points h (n, d). True if `margin`, verified in float64
    with its rounding, is above 0; False if `bound` is below epsilon times the mean norm; None if neither is proven."""

    exists: bool | None
    direction: Array  # (d,), a unit vector
    margin: float
    bound: float
    mean_norm: float
    is_inside: bool  # 0 is inside the simplex of `support` beyond all rounding: no direction has any margin
    support: Array  # (k,): places of points whose mean by `weights` has at most the norm `bound` (Farkas)
    weights: Array  # (k,), of sum 1
    steps: int


def separate(
    points: Array,
    *,
    epsilon: float = EPSILON,
    most: int = MOST_STEPS,
    progress: Callable[[int, int], None] | None = None,
) -> Separation:
    """Find the direction of the largest margin from the nearest point of the hull (Wolfe 1976).

    Each step adds the lowest point along the current direction, by one product with all points (n, d), and moves to
    the nearest point of the hull of at most d + 1 kept points. `epsilon` is a share of the mean norm; `most` limits the
    steps.

    Raises:
        InputError: no points, or numbers that are not finite.
    """
    if points.ndim != 2 or not points.size:
        raise InputError(f"expected points (n, d), got shape {points.shape}: pass at least one state")
    if not (np.isfinite(points.max()) and np.isfinite(points.min())):
        raise InputError("expected finite states, got NaN or inf: leave them out")
    points, power, _ = scaled(points)
    unit = math.ldexp(1.0, -power)
    norms = np.concatenate([np.linalg.norm(block, axis=1) for block in blocks(points)])
    mean, first = float(norms.mean()), int(norms.argmin())
    hull = Hull(points[first], first, float(norms.max()))
    best, steps, done, noise = hull.x, 0, False, 4 * float(np.finfo(points.dtype).eps)
    while not done and steps < most:
        if progress:
            progress(steps, most)
        size = float(np.linalg.norm(hull.x))
        if size <= _NOTHING * hull.largest:
            break
        if size <= noise * hull.largest and hull.bound() < epsilon * mean:
            break  # decided, and heights are rounding
        heights = points @ hull.x.astype(points.dtype)
        place = int(heights.argmin())
        done = float(heights[place]) >= (1 - CLOSE) * size**2 or place in hull.places
        best = hull.x
        if not done:
            hull.take(points[place].astype(np.float64), place)
            steps += 1
    bound, size = hull.bound(), float(np.linalg.norm(best))
    direction = -best / size if size > 0 else np.zeros(points.shape[1])
    highest = max(float((block @ direction).max()) for block in blocks(points))
    # less what rounding can add to it
    margin = -highest - (points.shape[1] + 3) * EPS * float(norms.max())
    exists = True if margin > 0 else False if bound < epsilon * mean or not mean else None
    is_inside, support = exists is not True and holds_zero(hull.kept, hull.largest), np.array(hull.places)
    lengths = (margin * unit, bound * unit, mean * unit)
    return Separation(exists, direction, *lengths, is_inside, support, hull.weights, steps)


def layer_norm_direction(gain: Array, bias: Array) -> tuple[Array, float]:
    """The unit direction that every output of a LayerNorm avoids, and its margin, which is 0 if there is none.

    An output is h = gain * z + bias with a sum of z of 0, so <1 / gain, h> = sum(bias / gain) for any text (Gao et al.
    2019, appendix C). Where gains (d,) are 0, entries of h equal the bias, and the largest of these is the margin. A
    sum within the rounding of float32 counts as 0.

    >>> direction, margin = layer_norm_direction(np.ones(4), np.full(4, 0.5))
    >>> direction.tolist(), margin
    ([-0.5, -0.5, -0.5, -0.5], 1.0)
    """
    gain, bias = np.asarray(gain, np.float64), np.asarray(bias, np.float64)
    if gain.ndim != 1 or gain.shape != bias.shape or not gain.size:
        raise InputError(f"expected gain and bias (d,), got shapes {gain.shape} and {bias.shape}: pass one norm's")
    if not (np.isfinite(gain).all() and np.isfinite(bias).all()):
        raise InputError("expected finite gains and biases, got NaN or inf: the model is damaged")
    fixed, direction = np.where(gain == 0, bias, 0.0), np.zeros_like(gain)
    place = int(np.abs(fixed).argmax())
    if fixed[place] != 0:
        direction[place] = -math.copysign(1.0, fixed[place])
        return direction, abs(float(fixed[place]))
    if not (least := float(np.abs(gain).min())):
        return direction, 0.0
    inverse = least / gain  # at most 1: a tiny gain makes no infinity
    height, length = float(np.sum(bias * inverse)), float(np.linalg.norm(inverse))
    # outputs are float32
    if abs(height) <= _ROUNDING * float(np.sum(np.abs(inverse) * (np.abs(gain) + np.abs(bias)))):
        return direction, 0.0
    return -math.copysign(1.0, height) * inverse / length, abs(height) / length


def separation_chance(n: int, d: int) -> float:
    """The probability that n random points (d,) avoid some direction: 2^(1-n) sum_(k<d) C(n-1, k) (Cover 1965).

    >>> separation_chance(10, 10), separation_chance(20, 10)
    (1.0, 0.5)
    """
    if n <= d:
        return 1.0
    logs = [math.lgamma(n) - math.lgamma(k + 1) - math.lgamma(n - k) for k in range(d)]
    top = max(logs)
    total = top + math.log(math.fsum(math.exp(one - top) for one in logs)) + (1 - n) * math.log(2)
    return float(round(math.exp(min(total, 0.0)), 12))
