"""How well the runs of a scaling law say its constants, its predictions, and the gap of other runs."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from uncone.errors import InputError
from uncone.rows import Array
from uncone.saturation.scaling_law import Law, Problem, ln_loss

Progress = Callable[[str, int, int], None]
LEVEL = 0.95
_LEAST_NOISE = 1e-8
"""Of an exact fit, so that its intervals have no width but are there."""
_DOUBLINGS, _BETWEEN, _ROUNDS = 14, 9, 3
_FEWEST = 100


@dataclass(frozen=True)
class Uncertainty:
    """Fits of simulated runs: the law's prediction for each run, times log-normal noise of the size that was found.

    An interval is studentised: the error of each simulated fit is divided by the noise that this fit found, and the
    quantiles are multiplied by the noise of the real one. A percentile bootstrap of few runs is too narrow. Those of
    constants are not turned about the estimate, since a constant that is badly known is skewed the way its fits are.

    Attributes:
        law: of the real runs.
        noise: standard deviation of ln L about the law, over runs less constants.
        drawn: constants of the simulated fits, (B, 5): a, alpha, b, beta, e.
        noises: the noise that each of them found, (B,).
        thresholds: for each free constant, how far its deviance may rise within its profile interval.
    """

    problem: Problem
    law: Law
    noise: float
    drawn: Array
    noises: Array
    thresholds: dict[int, float]
    seed: int

    def constants(self) -> list[tuple[float, float] | None]:
        """The bootstrap interval of each constant; None of a given one."""
        low, high = self.law.theta + self._quantiles(self.drawn - self.law.theta)
        return [
            _natural(place, low[place], high[place]) if place in self.thresholds else None
            for place in range(5)
        ]

    def band(self, n: Array, t: Array) -> tuple[Array, Array]:
        """Where a new run of each size has its loss: the law's error and the noise of one run."""
        return self._exp(self._with_noise(np.log([n, t]), np.eye(len(n))))

    def mean_gap(self, n: Array, t: Array, losses: Array) -> tuple[float, float, float]:
        """The mean gap of runs outside the fit, and the ends of its interval, where their noise is as in the fit."""
        x, each = np.log([n, t]), np.full((1, len(n)), 1 / len(n))
        _, errors = self._with_noise(x, each)
        low, high = self._exp((np.zeros(1), errors))
        mean = float(self.law.gap(n, t, losses).mean())
        return mean, float((1 + mean) * low[0] - 1), float((1 + mean) * high[0] - 1)

    def profile(self, place: int) -> tuple[float | None, float | None]:
        """The values of a constant at which the deviance, all other constants refitted, is below its threshold.

        None for an end that lies beyond all values that were tried: the runs do not bound the constant there.
        """
        theta = self.law.theta
        spread = self.drawn - theta
        unit = float(np.sqrt(np.mean(spread[:, place] ** 2))) or 1e-9
        along = spread.T @ spread[:, place] / (spread[:, place] @ spread[:, place] or 1.0)

        def rises(values: Array) -> Array:
            straight = np.repeat(theta[None], len(values), 0)
            starts = np.concatenate([theta + (values - theta[place])[:, None] * along, straight])
            starts[:, place] = np.tile(values, 2)
            _, sums = self.problem.descend(starts, held=place)
            rise = np.minimum(*np.split(sums, 2)) - self.law.objective
            return deviance(rise, np.array(self.noise), self.problem.delta) - self.thresholds[place]

        ends: list[float | None] = []
        for side in (-1, 1):
            reach = theta[place] + side * unit * np.concatenate([[0.0], 2.0 ** np.arange(-2, _DOUBLINGS)])
            ends.append(_crossing(rises, reach))
        low, high = (None if end is None else _natural(place, end, end)[0] for end in ends)
        return low, high

    def _with_noise(self, x: Array, mean: Array) -> tuple[Array, Array]:
        """ln of the law at runs, averaged by `mean`, and its simulated errors (B, k), with the noise of the runs."""
        center = ln_loss(self.law.theta[None], x)
        errors = (ln_loss(self.drawn, x) - center) @ mean.T
        noise = np.random.default_rng((self.seed, 1)).standard_normal((len(errors), 1)) * self.noise
        return (center @ mean.T)[0], errors + noise * np.linalg.norm(mean, axis=1)

    def _exp(self, of: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = self._ends(*of)
        return np.exp(low), np.exp(high)

    def _ends(self, center: Array, errors: Array) -> tuple[Array, Array]:
        low, high = self._quantiles(errors)
        return center - high, center - low

    def _quantiles(self, errors: Array) -> Array:
        """(2, k): of simulated errors (B, k), each as if its fit had found the noise of the real one."""
        ratios = errors / self.noises[:, None] * self.noise
        return np.quantile(ratios, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)


def uncertainty(
    problem: Problem, law: Law, *, resamples: int = 1000, seed: int = 0, progress: Progress | None = None
) -> Uncertainty:
    """Simulate the runs `resamples` times and fit each, warm from the law, with all constants and without each.

    The likelihood is that of log-normal noise. The deviance of a rise of Huber's sum is scaled so that it would have
    one chi-square's distribution with many runs; its quantile is taken from the simulated fits, as there are few.

    Raises:
        InputError: no more runs than constants, which leave nothing to tell the noise by, or few resamples.
    """
    if problem.spare < 1:
        raise InputError(
            f"expected more runs than constants to tell the noise by, got {len(problem.y)} runs: fix more constants"
        )
    if resamples < _FEWEST:
        raise InputError(f"expected at least {_FEWEST} resamples, got {resamples}: 1,000 is usual")
    told = progress or (lambda *_: None)
    places = np.flatnonzero(problem.free).tolist()
    theta, generator = law.theta[None], np.random.default_rng((seed, 0))
    expected = ln_loss(theta, problem.x)
    noise = max(float(_noise(problem.y - expected, problem.spare)[0]), _LEAST_NOISE)
    y = expected + noise * generator.standard_normal((resamples, len(problem.y)))
    starts = np.repeat(theta, resamples, 0)
    told("simulate", 0, len(places) + 1)
    drawn, sums = problem.descend(starts, y)
    noises = np.maximum(_noise(y - ln_loss(drawn, problem.x), problem.spare), 1e-3 * noise)
    thresholds = {}
    for done, place in enumerate(places):
        told("simulate", done + 1, len(places) + 1)
        _, restricted = problem.descend(starts, y, held=place)
        rises = deviance(np.maximum(restricted - sums, 0), noises, problem.delta)
        thresholds[place] = float(np.quantile(rises, LEVEL))
    told("simulate", len(places) + 1, len(places) + 1)
    return Uncertainty(problem, law, noise, drawn, noises, thresholds, seed)


def deviance(rise: Array, noise: Array, delta: float) -> Array:
    """A rise of Huber's sum as a chi-square of one degree of freedom: 2 rise E[psi'] / E[psi^2] of normal noise.

    psi is the derivative of Huber's loss (Huber and Ronchetti 2009, section 13.6).
    """
    z = delta / noise
    inside = np.array([math.erf(value / math.sqrt(2)) for value in np.atleast_1d(z)]).reshape(z.shape)
    density = np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
    square = inside - 2 * z * density  # of the residuals within delta, over noise^2
    small = z < 1e-3  # where the difference has no digits left: its series
    square = np.where(small, 2 * z**3 / (3 * math.sqrt(2 * math.pi)), square)
    return np.asarray(2 * rise * inside / (noise**2 * (square + z**2 * (1 - inside))))


def _noise(residuals: Array, spare: int) -> Array:
    return np.asarray(np.sqrt((residuals**2).sum(1) / spare))


def _natural(place: int, low: float, high: float) -> tuple[float, float]:
    """Ends in the constant's own unit, from those of its logarithm."""
    if place % 2:
        return float(low), float(high)
    return tuple(math.exp(min(end, 700.0)) for end in (low, high))  # type: ignore[return-value]


def _crossing(rises: Callable[[Array], Array], reach: Array) -> float | None:
    """Where `rises`, negative at the first of `reach`, first turns positive; None where it never does."""
    for round_ in range(_ROUNDS):
        found = rises(reach)
        above = np.flatnonzero(found > 0)
        if not len(above) or above[0] == 0:
            return float(reach[0]) if len(above) else None
        low, high = reach[above[0] - 1], reach[above[0]]
        if round_ < _ROUNDS - 1:
            reach = np.linspace(low, high, _BETWEEN)
    below, over = found[above[0] - 1], found[above[0]]
    return float(low + (high - low) * below / (below - over))
