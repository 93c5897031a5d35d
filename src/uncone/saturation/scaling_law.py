"""The loss that a run of N parameters and T tokens should have: L = A / N^alpha + B / T^beta + E."""

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from uncone.errors import InputError, nearest
from uncone.rows import Array
from uncone.saturation.descent import descend

CONSTANTS = ("A", "alpha", "B", "beta", "E")
DELTA = 1e-3
"""Where Huber's loss turns from squares to sizes, in log loss (Hoffmann et al. 2022)."""
GRID = (
    tuple(range(0, 26, 5)), (0.0, 0.5, 1.0, 1.5, 2.0), tuple(range(0, 26, 5)), (0.0, 0.5, 1.0, 1.5, 2.0),
    (-1.0, -0.5, 0.0, 0.5, 1.0),
)  # fmt: skip
"""The 4,500 starts of Hoffmann et al. 2022, approach 3: a = ln A, alpha, b = ln B, beta, e = ln E."""
_STEPS, _SIEVED, _KEPT = 300, 12, 500
_TYPICAL = (6.0, 0.34, 6.0, 0.28, 0.52)
"""Constants near those of Hoffmann et al. 2022: where it is asked whether the runs tell the constants apart."""
_SAME = 1e-7
_LOGGED = (0, 2, 4)


@dataclass(frozen=True)
class Law:
    """A fitted law: its constants, and the sum of Huber losses at them."""

    A: float
    alpha: float
    B: float
    beta: float
    E: float
    objective: float = math.nan

    @property
    def theta(self) -> Array:
        """a = ln A, alpha, b = ln B, beta, e = ln E: what is fitted."""
        return np.array([math.log(self.A), self.alpha, math.log(self.B), self.beta, math.log(self.E)])

    def predict(self, n: Any, t: Any) -> Array:
        """The loss of runs of `n` parameters and `t` tokens, of their shape."""
        n, t = np.asarray(n, np.float64), np.asarray(t, np.float64)
        return np.asarray(self.A / n**self.alpha + self.B / t**self.beta + self.E)

    def gap(self, n: Any, t: Any, losses: Any) -> Array:
        """loss / prediction - 1 of each run; above 0 it has a greater loss than the law says."""
        return np.asarray(losses, np.float64) / self.predict(n, t) - 1


@dataclass(frozen=True)
class Problem:
    """What is fitted: ln N and ln T of the runs `x` (2, R), their ln L `y` (R,), and the constants that are given."""

    x: Array
    y: Array
    known: Mapping[int, float]
    delta: float

    @property
    def free(self) -> Array:
        return np.array([place not in self.known for place in range(5)])

    @property
    def spare(self) -> int:
        """Runs beyond the constants to find."""
        return len(self.y) - int(self.free.sum())

    def descend(
        self, theta: Array, y: Array | None = None, *, held: int | None = None, steps: int = _STEPS, dtype: type = np.float64
    ) -> tuple[Array, Array]:  # fmt: skip
        """The ends of descents from `theta` (S, 5) on `y` (S, R), with one more constant `held` where it starts."""
        free = self.free
        if held is not None:
            free[held] = False
        # About the mean of ln N, a and alpha are apart; but a given ln A is the value at N = 1.
        shift = np.where(free[[0, 2]], self.x.mean(1), 0.0)
        theta = theta.astype(np.float64)
        theta[:, [0, 2]] -= theta[:, [1, 3]] * shift
        ends, sums = descend(
            theta, free, self.x - shift[:, None], self.y if y is None else y, delta=self.delta, steps=steps, dtype=dtype
        )  # fmt: skip
        ends[:, [0, 2]] += ends[:, [1, 3]] * shift
        return ends, sums


def fit(
    n: Any, t: Any, losses: Any, *, fixed: Mapping[str, float] | None = None, delta: float = DELTA
) -> Law:
    """The law whose Huber losses of ln L have the least sum, over 4,500 starts (Hoffmann et al. 2022, approach 3).

    Losses are summed, not averaged: an average of so small numbers ends an optimiser early (Besiroglu et al. 2024).

    Args:
        n, t, losses: of each run, (R,), above 0. `n` counts all parameters or those outside the embeddings: A and alpha
            are for the same.
        fixed: constants that are given, by "A", "alpha", "B", "beta" or "E".
        delta: where Huber's loss turns from squares to sizes.

    Raises:
        InputError: runs of other numbers, values that are not above 0, fewer runs than constants to find, or runs that
            do not tell the constants apart, such as runs of one size.
    """
    return fitted(problem_of(n, t, losses, fixed=fixed, delta=delta))


def problem_of(
    n: Any, t: Any, losses: Any, *, fixed: Mapping[str, float] | None = None, delta: float = DELTA
) -> Problem:
    """The runs, checked, as `fitted` takes them."""
    n, t, losses = checked(n, t, losses)
    if not 0 < delta < math.inf:
        raise InputError(f"expected delta above 0, got {delta}: {DELTA:g} is usual")
    problem = Problem(np.log([n, t]), np.log(losses), _known(fixed or {}), delta)
    if problem.spare < 0 or not len(losses):
        raise InputError(
            f"expected at least {max(1, problem.free.sum())} runs to fit {problem.free.sum()} constants, got {len(losses)}: "
            "fix some constants, or pass more runs"
        )
    _check_apart(problem)
    return problem


def fitted(problem: Problem) -> Law:
    """The best of all starts: a few steps of each in float32, then the best to their ends."""
    axes = [(problem.known[place],) if place in problem.known else GRID[place] for place in range(5)]
    starts = np.array(list(itertools.product(*axes)), np.float64)
    if len(starts) > _KEPT:
        ends, sums = problem.descend(starts, steps=_SIEVED, dtype=np.float32)
        starts = ends[np.argsort(sums, kind="stable")[:_KEPT]]
    ends, sums = problem.descend(starts)
    best = int(np.argmin(sums))
    a, alpha, b, beta, e = ends[best].tolist()
    return Law(math.exp(a), alpha, math.exp(b), beta, math.exp(e), float(sums[best]))


def ln_loss(theta: Array, x: Array) -> Array:
    """ln L of constants (S, 5) for runs (2, R): (S, R)."""
    a, alpha, b, beta, e = (theta[:, [place]] for place in range(5))
    return np.asarray(np.logaddexp(np.logaddexp(a - alpha * x[0], b - beta * x[1]), e))


def checked(*of_runs: Any) -> tuple[Array, ...]:
    """Parameters, tokens and losses as arrays of one length, above 0."""
    arrays = tuple(np.asarray(values, np.float64) for values in of_runs)
    if len({array.shape for array in arrays}) != 1 or arrays[0].ndim != 1:
        shapes = ", ".join(str(array.shape) for array in arrays)
        raise InputError(
            f"expected as many parameters, tokens and losses, got shapes {shapes}: give one of each a run"
        )
    for what, values in zip(("parameters", "tokens", "losses"), arrays, strict=True):
        wrong = np.flatnonzero(~(np.isfinite(values) & (values > 0)))
        if len(wrong):
            raise InputError(
                f"expected {what} above 0, got {values[wrong[0]]} in run {wrong[0] + 1} of {len(values)} and {len(wrong)} such in all: "
                "leave these runs out"
            )
    return arrays


def _known(fixed: Mapping[str, float]) -> dict[int, float]:
    known = dict[int, float]()
    for name, value in fixed.items():
        if name not in CONSTANTS:
            advice = nearest(name, CONSTANTS, "fix one of these")
            raise InputError(f"expected constants {', '.join(CONSTANTS)}, got {name!r}: {advice}")
        place = CONSTANTS.index(name)
        if not math.isfinite(value) or (place in _LOGGED and value <= 0):
            above = " above 0" if place in _LOGGED else ""
            raise InputError(f"expected a number{above} for {name}, got {value}: give another")
        known[place] = math.log(value) if place in _LOGGED else float(value)
    return known


def _check_apart(problem: Problem) -> None:
    """Refuse runs for which some constants can change together without a change of any prediction."""
    names = [name for name, is_free in zip(CONSTANTS, problem.free, strict=True) if is_free]
    theta = np.array([problem.known.get(place, value) for place, value in enumerate(_TYPICAL)])
    middle = np.array(
        [
            0.0 if place in problem.known else mean
            for place, mean in zip((0, 2), problem.x.mean(1), strict=True)
        ]
    )
    terms = np.stack(
        [
            theta[0] - theta[1] * problem.x[0],
            theta[2] - theta[3] * problem.x[1],
            np.full_like(problem.y, theta[4]),
        ]
    )
    shares = np.exp(terms - np.logaddexp.reduce(terms))
    x = problem.x - middle[:, None]
    slopes = np.stack([shares[0], shares[0] * x[0], shares[1], shares[1] * x[1], shares[2]])[problem.free]
    size = np.linalg.norm(slopes, axis=1, keepdims=True)
    values = np.linalg.svd(slopes / np.maximum(size, 1e-300), compute_uv=False)
    if len(names) and (size.min() < _SAME * size.max() or values[-1] < _SAME * values[0]):
        same = [
            f"all runs have {what} = {math.exp(of[0]):.4g}"
            for what, of in zip("NT", problem.x, strict=True)
            if np.ptp(of) < _SAME
        ]
        told = "; ".join(same) or f"{len(np.unique(problem.x, axis=1).T)} different pairs of N and T"
        raise InputError(
            f"expected runs that tell {', '.join(names)} apart, got others ({told}): fix some constants, or add runs of other "
            "N and T"
        )
