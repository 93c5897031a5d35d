"""The loss that a run of N parameters and T tokens should have: L = A / N^alpha + B / T^beta + E."""

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from uncone.errors import InputError, nearest
from uncone.rows import Array
from uncone.saturation.law.descent import descend

CONSTANTS = ("A", "alpha", "B", "beta", "E")
DELTA = 1e-3
"""Where Huber's loss of ln L turns from squares to sizes (Hoffmann et al. 2022)."""
_LEVELS, _POWERS = tuple(range(0, 26, 5)), (0.0, 0.5, 1.0, 1.5, 2.0)
GRID = (_LEVELS, _POWERS, _LEVELS, _POWERS, (-1.0, -0.5, 0.0, 0.5, 1.0))
"""The 4,500 starts of Hoffmann et al. 2022, approach 3, as `Law.theta`."""
_TYPICAL = (6.0, 0.34, 6.0, 0.28, 0.52)  # near Hoffmann et al. 2022: here runs must determine the constants
_SAME = 1e-7
_FARTHEST, _NOTHING, ENOUGH = 300.0, 40.0, 1e-7
"""The farthest that a power moves ln L over the runs; how far below ln L a term is 0 to every digit; and the share by
which a last step lowers a sum, where more digits are useless."""
_HIGHEST = 600.0
_RANGE = {"parameters": 1e50, "tokens": 1e50, "losses": 1e30}  # beyond, sums leave the range of a float
_USUAL, _WIDE = (21.0, 25.0, 1.0), (10.0, 10.0, 2.0)
"""ln N, ln T and ln L of usual runs, and how far away runs count as in another unit."""
SMALL = 3.0  # how far ln of one run's part in a term may be below ln L
_LOGGED = (0, 2, 4)


@dataclass(frozen=True)
class Law:
    """A fitted law, with the sum of Huber losses at its constants."""

    A: float
    alpha: float
    B: float
    beta: float
    E: float
    objective: float = math.nan

    @property
    def theta(self) -> Array:
        """The fitted constants: a = ln A, alpha, b = ln B, beta, e = ln E."""
        return np.array([math.log(self.A), self.alpha, math.log(self.B), self.beta, math.log(self.E)])

    def predict(self, n: Any, t: Any) -> Array:
        x = np.log(np.asarray(np.broadcast_arrays(n, t), np.float64))
        return finite_exp(ln_loss(self.theta, x.reshape(2, -1))).reshape(x.shape[1:])

    def gap(self, n: Any, t: Any, losses: Any) -> Array:
        """loss / prediction - 1 of each run."""
        return np.asarray(losses, np.float64) / self.predict(n, t) - 1


@dataclass(frozen=True)
class Problem:
    """ln N and ln T of the runs `x` (2, R), their ln L `y` (R,), and the constants that are given."""

    x: Array
    y: Array
    known: Mapping[int, float]
    delta: float

    @property
    def free(self) -> Array:
        return ~np.isin(np.arange(5), [*self.known])

    @property
    def spare(self) -> int:
        """Runs beyond the free constants."""
        return len(self.y) - 5 + len(self.known)

    @cached_property
    def box(self) -> Array:
        """The least and the greatest `theta` that is tried, finite, (2, 5).

        With greater exponents a term falls within a part of a step between two runs. E is at least e^-40 of the least
        loss, which is 0 to every digit.
        """
        size = np.abs(self.x).max(1)
        n, t = powers = _FARTHEST / np.maximum(size, 1.0)
        of_n, of_t = powers * size
        low, high = self.y.min() - _NOTHING, self.y.max() + 1
        return np.array([[low - of_n, -n, low - of_t, -t, low], [high + of_n, n, high + of_t, t, high]])

    @cached_property
    def limits(self) -> Array:
        """The least and the greatest `theta` of a law, (2, 5): a and b where the power is at its limit and one run
        alone has the term."""
        found, y = self.box.copy(), self.y
        for level, x in zip((0, 2), self.x, strict=True):
            power = found[1, level + 1]
            found[0, level] = y.min() - power * np.abs(x).max()
            found[1, level] = max(y.min() - SMALL + power * max(x.min(), -x.max(), 0.0), y.max() + 1)
        found[0, 4] = -np.inf
        return found

    def in_units(self, theta: Array, *, always: bool = False) -> Array:
        """Constants (S, 5) for runs of usual N, T and nats, converted to the units of these runs if they differ."""
        steps = np.array([*self.x.mean(1), np.median(self.y)]) - _USUAL
        n, t, loss = np.where(always | (np.abs(steps) > _WIDE), steps, 0.0)
        moved = np.zeros_like(theta)
        moved[:, 0], moved[:, 2] = theta[:, 1] * n, theta[:, 3] * t
        moved[:, _LOGGED] += loss
        return np.where(self.free, theta + moved, theta)

    def missing(self, theta: Array) -> list[str]:
        """The free terms that are not part of the losses at `theta`: "A", "B" or "E"."""
        gone = ((terms(theta, self.x) - ln_loss(theta, self.x)).max(1) < -_NOTHING / 2) & self.free[::2]
        return [name for name, is_gone in zip("ABE", gone, strict=True) if is_gone]

    def at_limit(self, theta: Array) -> list[str]:
        ended = (np.abs(theta) > 0.999 * self.box[1]) & self.free
        return [CONSTANTS[place] for place in (1, 3) if ended[place]]

    def descend(
        self,
        theta: Array,
        y: Array | None = None,
        *,
        held: int | Array = -1,
        steps: int = 300,
        dtype: type = np.float64,
        done: float = 1e-13,
    ) -> tuple[Array, Array]:
        """The ends of descents from `theta` (S, 5) on `y` (S, R), with one more constant `held`, or one each (S,)."""
        y = np.broadcast_to(self.y if y is None else y, (len(theta), len(self.y)))
        ends, sums = np.empty(theta.shape), np.empty(len(theta))
        free = self.free & (np.arange(5) != np.full(len(theta), held)[:, None])
        for of_a, of_b in itertools.product((False, True), repeat=2):
            # about the mean of ln N, a and alpha are separate, but a given ln A is at N = 1
            rows = np.flatnonzero((free[:, 0] == of_a) & (free[:, 2] == of_b))
            if len(rows):
                shift = np.where([of_a, of_b], self.x.mean(1), 0.0)
                start = theta[rows].astype(np.float64)
                start[:, [0, 2]] -= start[:, [1, 3]] * shift
                own, how = (free[rows], self.x - shift[:, None], y[rows], self.box), (steps, done, dtype)
                end, sums[rows] = descend(start, *own, self.delta, *how)
                end[:, [0, 2]] += end[:, [1, 3]] * shift
                ends[rows] = end
        return ends, sums


def problem_of(
    n: Any, t: Any, losses: Any, *, fixed: Mapping[str, float] | None = None, delta: float = DELTA
) -> Problem:
    """Refuses arrays of different lengths, values that are not above 0, fewer runs than constants, and runs that do not
    determine the constants, such as runs of one size."""
    n, t, losses = checked(n, t, losses)
    if not 0 < delta < math.inf:
        raise InputError(f"expected delta above 0, got {delta}: {DELTA:g} is usual")
    problem = Problem(np.log([n, t]), np.log(losses), _known(fixed or {}), delta)
    if problem.spare < 0 or not len(losses):
        free = 5 - len(problem.known)
        came = f"got {len(losses)}: fix some constants, or pass more runs"
        raise InputError(f"expected at least {max(1, free)} runs to fit {free} constants, {came}")
    _check_apart(problem)
    return problem


def fitted(problem: Problem) -> Law:
    """The law whose Huber losses of ln L have the least sum: an average of such small numbers would stop an optimiser
    early (Besiroglu et al. 2024)."""
    axes = [(problem.known[place],) if place in problem.known else GRID[place] for place in range(5)]
    starts = problem.in_units(np.array(list(itertools.product(*axes)), np.float64))
    if len(starts) > 500:
        ends, sums = problem.descend(starts, steps=12, dtype=np.float32)
        starts = ends[np.argsort(sums, kind="stable")[:500]]
        ends, sums = problem.descend(starts, steps=50, done=ENOUGH)
        starts = ends[np.argsort(sums, kind="stable")[:120]]
    ends, sums = problem.descend(starts)
    a, alpha, b, beta, e = ends[sums.argmin()].tolist()
    return Law(math.exp(a), alpha, math.exp(b), beta, math.exp(e), float(sums.min()))


def terms(theta: Array, x: Array) -> Array:
    """ln of the three terms of L at constants (..., 5) for runs (2, R): (3, ..., R)."""
    a, alpha, b, beta, e = np.moveaxis(theta[..., None], -2, 0)
    return np.stack(np.broadcast_arrays(a - alpha * x[0], b - beta * x[1], e))


def finite_exp(values: Array) -> Array:
    """exp, but never infinite: a law may be read where it has no meaning."""
    return np.exp(np.minimum(values, _HIGHEST))


def ln_loss(theta: Array, x: Array) -> Array:
    """ln L of constants (..., 5) for runs (2, R): (..., R)."""
    return np.asarray(np.logaddexp.reduce(terms(theta, x)))


def checked(*of_runs: Any) -> tuple[Array, ...]:
    arrays = tuple(np.asarray(values, np.float64) for values in of_runs)
    if len({array.shape for array in arrays}) != 1 or arrays[0].ndim != 1:
        shapes = ", ".join(str(array.shape) for array in arrays)
        raise InputError(
            f"expected as many parameters, tokens and losses, got shapes {shapes}: give one of each per run"
        )
    for (what, most), values in zip(_RANGE.items(), arrays, strict=True):
        wrong = np.flatnonzero(~(np.isfinite(values) & (values > 0)))
        if len(wrong):
            came = f"got {values[wrong[0]]} in run {wrong[0] + 1} of {len(values)} and {len(wrong)} such in all"
            raise InputError(f"expected {what} above 0, {came}: leave these runs out")
        far = np.flatnonzero(np.abs(np.log(values)) > math.log(most))
        if len(far):
            came = f"got {values[far[0]]:g} in run {far[0] + 1} of {len(values)}"
            raise InputError(f"expected {what} between {1 / most:g} and {most:g}, {came}: give them in another unit")
    return arrays


def _known(fixed: Mapping[str, float]) -> dict[int, float]:
    known = dict[int, float]()
    for name, value in fixed.items():
        if name not in CONSTANTS:
            advice = nearest(name, CONSTANTS, "fix one of these")
            raise InputError(f"expected constants {', '.join(CONSTANTS)}, got {name!r}: {advice}")
        is_logged = (place := CONSTANTS.index(name)) in _LOGGED
        if not math.isfinite(value) or (is_logged and value <= 0):
            above = " above 0" if is_logged else ""
            raise InputError(f"expected a number{above} for {name}, got {value}: give another")
        known[place] = math.log(value) if is_logged else float(value)
    return known


def _check_apart(problem: Problem) -> None:
    """Refuse runs for which some constants can change together without a change of any prediction."""
    names = [name for name, is_free in zip(CONSTANTS, problem.free, strict=True) if is_free]
    theta = np.array([problem.known.get(place, value) for place, value in enumerate(_TYPICAL)])
    theta = problem.in_units(theta[None], always=True)[0]
    x = problem.x - np.where(problem.free[[0, 2]], problem.x.mean(1), 0.0)[:, None]
    a, b, e = np.exp(terms(theta, problem.x) - ln_loss(theta, problem.x))
    slopes = np.stack([a, a * x[0], b, b * x[1], e])[problem.free]
    size = np.linalg.norm(slopes, axis=1, keepdims=True)
    values = np.linalg.svd(slopes / np.maximum(size, 1e-300), compute_uv=False)
    if len(names) and (size.min() < _SAME * size.max() or values[-1] < _SAME * values[0]):
        pairs = zip("NT", problem.x, strict=True)
        same = [f"all runs have {what} = {math.exp(of[0]):.4g}" for what, of in pairs if np.ptp(of) < _SAME]
        came = "; ".join(same) or f"{len(np.unique(problem.x, axis=1).T)} different pairs of N and T"
        way_out = "fix some constants, or add runs of other N and T"
        raise InputError(f"expected runs that determine {', '.join(names)}, got others ({came}): {way_out}")
