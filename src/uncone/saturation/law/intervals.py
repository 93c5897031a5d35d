import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from uncone.errors import InputError
from uncone.roles import Progress
from uncone.rows import Array
from uncone.saturation.law.fit import ENOUGH, SMALL, Law, Problem, finite_exp, ln_loss
from uncone.saturation.law.profile import Ends, Profile, searched

LEVEL = 0.95
_LEAST_NOISE = 1e-8  # of an exact fit, so that it has intervals, though of no width
_FEWEST, _STEPS = 100, 80
RUNS_A_CONSTANT = 3
"""With fewer runs the bootstrap interval held a planted constant in 91.6 % of simulations (12 runs, five constants)."""
_ANYWHERE = 1e6  # high over low: an interval this wide is useless
CHI_SQUARE = 3.841459  # the 95% quantile of one degree of freedom: the least threshold


@dataclass(frozen=True)
class Uncertainty:
    """Fits of simulated runs: the law's prediction for each run, times log-normal noise of the size that was found.

    A percentile bootstrap of few runs is too narrow, so intervals are studentised: the error of each simulated fit is
    divided by its noise and multiplied by the noise of the real fit. Intervals of constants are not mirrored about the
    estimate, because a badly known constant is skewed the way its fits are.
    """

    problem: Problem
    law: Law  # of the real runs
    noise: float  # standard deviation of ln L about the law
    drawn: Array  # `theta` of the simulated fits, (B, 5)
    noises: Array  # of each simulated fit, (B,)
    thresholds: dict[int, float]  # of each free constant: how far its deviance may rise
    seed: int

    def constants(self) -> dict[int, Ends]:
        """The bootstrap interval of each free constant, with None for an end beyond all that a fit may have.

        There are no intervals if the fit has lost a term or a power ended at its limit, because its simulated runs then
        scatter too little, and none with few runs, where intervals hold the constant too rarely. E is drawn as E,
        because its logarithm has no 0.
        """
        problem, theta = self.problem, self.law.theta
        is_at_limit = problem.missing(theta) or problem.at_limit(theta)
        if is_at_limit or len(problem.y) < RUNS_A_CONSTANT * len(self.thresholds):
            return {}
        theta, drawn, limits = map(searched, (theta, self.drawn, problem.limits))
        ends = theta + self._quantiles(drawn - theta)
        within = (limits[0] < ends) & (ends < limits[1])
        bounded = np.where(within, ends, np.array(None)).T.tolist()
        return {place: natural(place, bounded[place]) for place in self.thresholds}

    def band(self, n: Array, t: Array) -> tuple[Array, Array] | None:
        """The interval of the loss of a new run of each size. None if it may be anywhere."""
        low, high = self._exp(*self._with_noise(n, t, np.eye(len(n))))
        return None if (high > _ANYWHERE * low).any() else (low, high)

    def mean_gap(self, n: Array, t: Array, losses: Array) -> tuple[float, float, float] | None:
        """The mean gap of runs outside the fit, with noise as in the fit, and its interval; None without one."""
        _, errors = self._with_noise(n, t, np.full((1, len(n)), 1 / len(n)))
        (low,), (high,) = self._exp(np.zeros(1), errors)
        mean = float(self.law.gap(n, t, losses).mean())
        if high > _ANYWHERE * low:
            return None
        return mean, float((1 + mean) * low - 1), float((1 + mean) * high - 1)

    def chances(self, n: Array, t: Array, losses: Array) -> list[float]:
        """For each run outside the fit, the chance of a gap as large on either side, if the law holds for it."""
        center, errors = self._with_noise(n, t, np.eye(len(n)))
        ratios, gaps = errors / self.noises[:, None] * self.noise, np.log(losses) - center
        beyond = np.minimum((ratios >= gaps).sum(0), (ratios <= gaps).sum(0))
        return np.minimum(1.0, 2 * (beyond + 1) / (len(ratios) + 1)).tolist()  # type: ignore[no-any-return]

    def profiles(self) -> dict[int, Ends]:
        """The values at which the deviance, with all else refitted, is below its threshold; None for an end beyond all
        values that were tried."""
        unit = float(deviance(np.array(1.0), np.array(self.noise), self.problem.delta))
        rises = {place: threshold / unit for place, threshold in self.thresholds.items()}
        ends = Profile(self.problem, self.law.theta, self.law.objective, self.drawn, rises).ends()
        return {place: natural(place, of) for place, of in ends.items()}

    def _with_noise(self, n: Array, t: Array, mean: Array) -> tuple[Array, Array]:
        """ln of the law at runs, averaged by `mean`, and its simulated errors (B, k), with the noise of the runs."""
        x = np.log([n, t])
        center = ln_loss(self.law.theta[None], x)
        errors = (ln_loss(self.drawn, x) - center) @ mean.T
        noise = np.random.default_rng((self.seed, 1)).standard_normal((len(errors), 1)) * self.noise
        return (center @ mean.T)[0], errors + noise * np.linalg.norm(mean, axis=1)

    def _exp(self, center: Array, errors: Array) -> tuple[Array, Array]:
        low, high = self._quantiles(errors)
        return finite_exp(center - high), finite_exp(center - low)

    def _quantiles(self, errors: Array) -> Array:
        """Quantiles (2, k) of errors (B, k), each as if its fit had found the noise of the real fit."""
        ratios = errors / self.noises[:, None] * self.noise
        # of B + 1 draws, because the truth is one more (Davison and Hinkley 1997, section 2.4)
        return np.quantile(ratios, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0, method="weibull")


def uncertainty(
    problem: Problem, law: Law, resamples: int = 1000, seed: int = 0, progress: Progress | None = None
) -> Uncertainty:
    """Simulate the runs `resamples` times and fit each, starting from the law, with all constants and without each.

    A rise of Huber's sum is scaled to be a chi-square with many runs. With few runs its quantile comes from the
    simulated fits.
    """
    if resamples < _FEWEST:
        raise InputError(f"expected at least {_FEWEST} resamples, got {resamples}: 1,000 is usual")
    notify = progress or (lambda *_: None)
    places = np.flatnonzero(problem.free).tolist()
    theta, generator = law.theta[None], np.random.default_rng((seed, 0))
    expected = ln_loss(theta, problem.x)
    noise = max(float(_noise(problem.y - expected, problem.spare)[0]), _LEAST_NOISE)
    y = expected + noise * generator.standard_normal((resamples, len(problem.y)))
    starts = np.repeat(theta, resamples, 0)
    if problem.free[4]:  # a descent only notices an E that is a real share of the losses
        starts[:, 4] = np.maximum(starts[:, 4], problem.y.min() - SMALL)
    notify("simulate", 0, len(places) + 1)
    drawn, sums = problem.descend(starts, y, steps=_STEPS, done=ENOUGH)
    noises = np.maximum(_noise(y - ln_loss(drawn, problem.x), problem.spare), 1e-3 * noise)
    thresholds = {}
    for done, place in enumerate(places, 1):
        notify("simulate", done, len(places) + 1)
        held = np.where(np.arange(5) == place, theta, starts)
        _, restricted = problem.descend(held, y, held=place, steps=_STEPS, done=ENOUGH)
        rises = deviance(np.maximum(restricted - sums, 0), noises, problem.delta)
        thresholds[place] = max(float(np.quantile(rises, LEVEL)), CHI_SQUARE)
    notify("simulate", len(places) + 1, len(places) + 1)
    return Uncertainty(problem, law, noise, drawn, noises, thresholds, seed)


def deviance(rise: Array, noise: Array, delta: float) -> Array:
    """A rise of Huber's sum as a chi-square of one degree of freedom: 2 rise E[psi'] / E[psi^2] of normal noise, with
    psi the derivative of Huber's loss (Huber and Ronchetti 2009, section 13.6)."""
    z = delta / noise
    inside = np.array([math.erf(value / math.sqrt(2)) for value in np.atleast_1d(z)]).reshape(z.shape)
    density = np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
    square = inside - 2 * z * density  # of the residuals within delta, over noise^2
    # the series where the difference has no digits left
    square = np.where(z < 1e-3, 2 * z**3 / (3 * math.sqrt(2 * math.pi)), square)
    return np.asarray(2 * rise * inside / (noise**2 * (square + z**2 * (1 - inside))))


def _noise(residuals: Array, spare: int) -> Array:
    return np.asarray(np.sqrt((residuals**2).sum(1) / spare))


def natural(place: int, ends: Sequence[float | None]) -> Ends:
    """A and B from their logarithms."""
    low, high = (math.exp(end) if end is not None and place in (0, 2) else end for end in ends)
    return low, high
