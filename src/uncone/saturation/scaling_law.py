"""The loss that a run of N parameters and T tokens should have: L = A / N^alpha + B / T^beta + E."""

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from uncone.errors import InputError
from uncone.rows import Array

NAMES = ("a", "alpha", "b", "beta", "e")
"""a = ln A, b = ln B, e = ln E: what is fitted."""
DELTA = 1e-3
"""Where Huber's loss turns from squares to sizes, in log loss (Hoffmann et al. 2022)."""
GRID = {
    "a": tuple(range(0, 26, 5)), "alpha": (0.0, 0.5, 1.0, 1.5, 2.0), "b": tuple(range(0, 26, 5)),
    "beta": (0.0, 0.5, 1.0, 1.5, 2.0), "e": (-1.0, -0.5, 0.0, 0.5, 1.0),
}  # fmt: skip
"""The 4,500 starts of Hoffmann et al. 2022, approach 3."""
_STEPS, _SIEVED, _KEPT = 200, 12, 200
_DONE = 1e-12
_LARGEST = 1e12


@dataclass(frozen=True)
class Law:
    """A fitted law: its constants, and the sum of Huber losses at them."""

    A: float
    alpha: float
    B: float
    beta: float
    E: float
    objective: float

    def predict(self, n: Any, t: Any) -> Array:
        """The loss of runs of `n` parameters and `t` tokens, of their shape."""
        n, t = np.asarray(n, np.float64), np.asarray(t, np.float64)
        return np.asarray(self.A / n**self.alpha + self.B / t**self.beta + self.E)


def fit(
    n: Any, t: Any, losses: Any, *, fixed: Mapping[str, float] | None = None, delta: float = DELTA,
    progress: Callable[[str, int, int], None] | None = None,
) -> Law:  # fmt: skip
    """The law whose Huber losses of ln L have the least sum, over 4,500 starts (Hoffmann et al. 2022, approach 3).

    Losses are summed, not averaged: an average of so small numbers ends an optimiser early (Besiroglu et al. 2024).

    Args:
        n, t, losses: of each run, (R,), above 0.
        fixed: constants that are given, by "A", "alpha", "B", "beta" or "E".
        delta: where Huber's loss turns linear.

    Raises:
        InputError: runs of other numbers, values that are not above 0, or fewer runs than constants to find.
    """
    n, t, y = _checked(n, t, losses)
    known = _logarithms(fixed or {})
    free = [name for name in NAMES if name not in known]
    if len(y) < len(free):
        raise InputError(
            f"expected at least {len(free)} runs to fit {len(free)} constants, got {len(y)}: fix some, or pass more runs"
        )
    axes = [(known[name],) if name in known else GRID[name] for name in NAMES]
    starts = np.array(list(itertools.product(*axes)))
    x = np.stack([np.log(n), np.log(t)])
    is_free = np.array([name not in known for name in NAMES])
    starts, _ = _descend(starts, is_free, x, np.log(y), delta, _SIEVED)
    order = np.argsort(_objective(starts, x, np.log(y), delta), kind="stable")
    ends, _ = _descend(starts[order[:_KEPT]], is_free, x, np.log(y), delta, _STEPS)
    objective = _objective(ends, x, np.log(y), delta)
    best = int(np.argmin(objective))
    a, alpha, b, beta, e = ends[best].tolist()
    return Law(math.exp(a), alpha, math.exp(b), beta, math.exp(e), float(objective[best]))


def _predicted(theta: Array, x: Array) -> tuple[Array, Array]:
    """ln L (S, R) of constants (S, 5), and its derivatives (S, R, 5)."""
    a, alpha, b, beta, e = (theta[:, [i]] for i in range(5))
    terms = np.stack([a - alpha * x[0], b - beta * x[1], np.broadcast_to(e, (len(theta), x.shape[1]))])
    largest = terms.max(0)
    shares = np.exp(terms - largest)
    total = shares.sum(0)
    shares /= total
    derivatives = np.stack([shares[0], -shares[0] * x[0], shares[1], -shares[1] * x[1], shares[2]], axis=-1)
    return largest + np.log(total), derivatives


def _huber(residuals: Array, delta: float) -> Array:
    size = np.abs(residuals)
    return np.where(size <= delta, 0.5 * size**2, delta * (size - 0.5 * delta))


def _objective(theta: Array, x: Array, y: Array, delta: float) -> Array:
    return np.asarray(_huber(_predicted(theta, x)[0] - y, delta).sum(1))


def _descend(
    theta: Array, free: Array, x: Array, y: Array, delta: float, steps: int
) -> tuple[Array, Array]:
    """All starts at once, by Levenberg and Marquardt on reweighted squares; the constants, and their objectives."""
    theta, damping = theta.astype(np.float64), np.full(len(theta), 1e-2)
    current = _objective(theta, x, y, delta)
    running = np.arange(len(theta))
    for _ in range(steps):
        if not len(running):
            break
        predicted, derivatives = _predicted(theta[running], x)
        residuals = predicted - y
        weights = np.minimum(1.0, delta / np.maximum(np.abs(residuals), 1e-300))
        j = derivatives[..., free]
        weighted = j * weights[..., None]
        normal = np.einsum("srp,srq->spq", weighted, j)
        slope = np.einsum("srp,sr->sp", weighted, residuals)
        size = np.einsum("spp->sp", normal)
        eye = np.eye(j.shape[-1])
        scale = np.maximum(size, 1e-12 * size.max(1, keepdims=True) + 1e-300)
        step = np.linalg.solve(normal + (damping[running, None] * scale)[:, :, None] * eye, -slope[..., None])
        moved = theta[running].copy()
        moved[:, free] += step[..., 0]
        found = _objective(moved, x, y, delta)
        better = found < current[running]
        gained = (current[running] - found) / np.maximum(current[running], 1e-300)
        theta[running[better]], current[running[better]] = moved[better], found[better]
        damping[running] = np.where(better, damping[running] / 3, damping[running] * 4)
        ended = (better & (gained < _DONE)) | (damping[running] > _LARGEST)
        running = running[~ended]
    return theta, current


def _logarithms(fixed: Mapping[str, float]) -> dict[str, float]:
    known = dict[str, float]()
    for name, value in fixed.items():
        if name not in ("A", "alpha", "B", "beta", "E"):
            raise InputError(f"expected constants A, alpha, B, beta or E, got {name!r}: fix one of these")
        if name in ("A", "B", "E") and not 0 < value < math.inf:
            raise InputError(f"expected {name} above 0, got {value}: give a positive number")
        known[name.lower()] = math.log(value) if name in ("A", "B", "E") else float(value)
    return known


def _checked(*of_runs: Any) -> tuple[Array, ...]:
    arrays = tuple(np.asarray(values, np.float64) for values in of_runs)
    if len({array.shape for array in arrays}) != 1 or arrays[0].ndim != 1:
        shapes = ", ".join(str(array.shape) for array in arrays)
        raise InputError(f"expected as many parameters, tokens and losses, got shapes {shapes}: give one of each a run")
    if not all(np.isfinite(array).all() and (array > 0).all() for array in arrays):
        raise InputError("expected parameters, tokens and losses above 0, got others: leave such runs out")
    return arrays
