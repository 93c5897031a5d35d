"""The late mean of a curve less its middle mean, against the jitter between checkpoints.

Jitter is AR(1) about a quadratic trend; how likely each correlation is comes from the restricted likelihoods of a
family of curves.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from uncone.rows import Array
from uncone.statistics.correlations import CORRELATIONS
from uncone.statistics.tails import log_tail, point_of

BODY, MIDDLE, LATE = 0.2, (0.22, 0.52), 0.77
"""Shares of the training: where jitter is read, and the two windows that are compared."""
FEWEST, FEWEST_IN_WINDOW = 10, 2  # checkpoints from `BODY` on, and in each window
_FLOOR = 1e-18  # of a sum of squares, for curves without any jitter


@dataclass(frozen=True, eq=False)
class Design:
    """What depends on the n checkpoints alone; arrays with K first have a row for each of `CORRELATIONS`."""

    body: Array  # (n,): bool
    middle: Array
    late: Array
    weights: Array  # (n,): contrast = weights' y
    trend: Array  # (b, degree + 1): orthonormal columns that span the quadratic trends
    residual: Array  # (K, b, b): y' P y is the body's residual sum of squares
    determinant: Array  # (K,): ln |R| + ln |X' R^-1 X|
    variance: Array  # (K,): of the contrast, for jitter of variance 1
    correlation: Array  # (K, n, n)
    root: Array  # (K, n, n): Cholesky's factor of `correlation`
    jitter: Array  # (b - 2, b): unit rows whose squares average to the variance of white jitter
    degrees: int


@dataclass(frozen=True, eq=False)
class Contrasts:
    """Of m curves over one design."""

    value: Array  # (m,)
    error: Array  # (m,): sigma sqrt(1 / late + 1 / middle), sigma the larger of jitter and mean standard error
    jitter: Array
    variances: Array  # (m, K): of the jitter, if its correlation is the k-th
    likelihood: Array  # (m, K): ln


def shortcoming(steps: Array) -> str:
    """Why these checkpoints give no verdict; empty where they do."""
    if not len(steps):
        return "no checkpoint"
    body, middle, late = (int(window.sum()) for window in windows(steps))
    if body < FEWEST:
        return f"{body} checkpoints in the last {1 - BODY:.0%} of the training: at least {FEWEST} are needed"
    for name, n, (start, end) in (("middle", middle, MIDDLE), ("late", late, (LATE, 1.0))):
        if n < FEWEST_IN_WINDOW:
            span = f"{start:.0%} to {end:.0%} of the training"
            return f"{n} checkpoints in the {name} window ({span}): at least {FEWEST_IN_WINDOW} are needed"
    return ""


def windows(steps: Array) -> tuple[Array, Array, Array]:
    """Which checkpoints are of the body, of the middle window and of the late one."""
    part = steps / steps[-1]
    return part >= BODY, (part >= MIDDLE[0]) & (part <= MIDDLE[1]), part >= LATE


def design(steps: Array) -> Design:
    return _design(tuple(steps.tolist()))


@lru_cache(maxsize=8)  # of 128 checkpoints each takes 8 MB
def _design(of_steps: tuple[float, ...]) -> Design:
    steps = np.array(of_steps)
    body, middle, late = windows(steps)
    x = np.vander((steps[body] - steps[body].mean()) / np.ptp(steps[body]), 3)
    weights = late / late.sum() - middle / middle.sum()
    place = np.arange(len(steps))
    correlation = CORRELATIONS[:, None, None] ** np.abs(place - place[:, None])
    inner = correlation[:, : len(x), : len(x)]
    inverse = np.linalg.inv(inner)
    weighted = x.T @ inverse  # (K, degree + 1, b)
    information = weighted @ x
    residual = inverse - np.swapaxes(weighted, 1, 2) @ np.linalg.solve(information, weighted)
    determinant = np.linalg.slogdet(inner)[1] + np.linalg.slogdet(information)[1]
    variance = np.einsum("i,kij,j->k", weights, correlation, weights)
    trend, root, jitter = np.linalg.qr(x)[0], np.linalg.cholesky(correlation), _second_differences(steps[body])
    of_jitter = (residual, determinant, variance, correlation, root, jitter, len(x) - 3)
    return Design(body, middle, late, weights, trend, *of_jitter)


def _second_differences(steps: Array) -> Array:
    """Each value less the line through its neighbours, which takes curvature out and leaves jitter."""
    left = (steps[2:] - steps[1:-1]) / (steps[2:] - steps[:-2])
    rows = np.zeros((len(left), len(steps)))
    at = np.arange(len(left))
    rows[at, at], rows[at, at + 1], rows[at, at + 2] = -left, 1.0, left - 1
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))


def contrasts(y: Array, errors: Array | None, of: Design) -> Contrasts:
    """Of curves `y` (m, n), where higher is better."""
    body = y[:, of.body]
    # P takes out the trend too, but the rounding of a large one would pass for jitter
    rest = body - (body @ of.trend) @ of.trend.T
    squares = np.stack([np.einsum("mi,mi->m", rest @ p, rest) for p in of.residual], axis=1)
    squares = np.maximum(squares, _FLOOR)
    sigma = jitter = np.sqrt(np.mean((body @ of.jitter.T) ** 2, axis=1))
    if errors is not None:
        sigma = np.maximum(jitter, errors[:, of.middle | of.late].mean(1))
    error = sigma * math.sqrt(1 / of.late.sum() + 1 / of.middle.sum())
    likelihood = -0.5 * (of.determinant + of.degrees * np.log(squares))
    return Contrasts(y @ of.weights, error, jitter, squares / of.degrees, likelihood)


def posteriors(likelihoods: Array) -> Array:
    """How likely each of `CORRELATIONS` is for each curve of a family, (m, K), from log likelihoods.

    Either one correlation holds for all curves, or each has its own, weighed by how well they foretell the curves. So
    short curves share what little they say, and a quiet majority does not speak for a few of much jitter.
    """
    scaled = np.exp(likelihoods - likelihoods.max(1, keepdims=True))
    total = np.log(np.maximum(scaled, 1e-300)).sum(0)
    joint = np.exp(total - total.max())
    for_one, for_own = total.max() + np.log(joint.mean()), np.log(scaled.mean(1)).sum()
    share = 1 / (1 + np.exp(np.clip(for_own - for_one, -500, 500)))
    return np.asarray(share * joint / joint.sum() + (1 - share) * (scaled / scaled.sum(1, keepdims=True)))


def p_of(found: Contrasts, errors: Array | None, of: Design, weights: Array) -> Array:
    """P(a contrast as low | no decline), (m,), averaged over the correlations with `weights` (m, K). The variance is at
    least that of the standard errors."""
    variance = found.variances * of.variance
    if errors is not None:
        variance = np.maximum(variance, ((of.weights * errors) ** 2).sum(1, keepdims=True))
    below = np.exp(log_tail(-found.value[:, None] / np.sqrt(variance), of.degrees))
    return np.asarray(np.minimum((weights * below).sum(1), 1.0))


def change_points(y: Array, steps: Array, correlation: Array) -> Array:
    """(place, low, high) of the bend of each curve `y` (m, n) over ln(step), as numbers of checkpoints, (m, 3).

    Two lines that meet at a checkpoint are fitted by generalised least squares. The 95% interval holds what an F test
    does not refuse. The second line is the flatter or falling one.
    """
    n, x = len(steps), np.log(np.maximum(steps, 1.0))
    knots = np.arange(2, n - 2)
    whiten = np.linalg.inv(np.linalg.cholesky(correlation))
    z = y @ whiten.T
    total = (z**2).sum(1)
    left = np.empty((len(y), len(knots)))
    for at, knot in enumerate(knots):
        q, r = np.linalg.qr(whiten @ np.stack([np.ones(n), x - x[knot], np.maximum(x - x[knot], 0.0)], axis=1))
        fitted = z @ q
        bends_down = fitted[:, 2] * r[2, 2] < 0
        left[:, at] = total - np.where(bends_down, (fitted**2).sum(1), (fitted[:, :2] ** 2).sum(1))
    left = np.maximum(left, _FLOOR)
    ratio = 1 + point_of(np.log([(1 - 0.95) / 2]), n - 4) ** 2 / (n - 4)
    inside, best = left <= left.min(1, keepdims=True) * ratio, left.argmin(1)
    return np.stack([knots[best], knots[inside.argmax(1)], knots[len(knots) - 1 - inside[:, ::-1].argmax(1)]], axis=1)
