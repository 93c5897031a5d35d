"""When does a series over checkpoints turn, and which of two turned first?

A series that turns falls, then rises, and may recover at its end. We detect a turn only if both the fall at the
beginning and the rise at the end, or at the end of a part of the series, are beyond chance. Isotonic parts locate the
turn, and draws about them give its interval. Noise may be autocorrelated.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from uncone.rows import Array
from uncone.saturation.curves.late_fall import FEWEST, design, jitter_of, shortcoming
from uncone.statistics.correlations import CORRELATIONS
from uncone.statistics.isotonic import rising

DRAWS = 1000
LEVEL = 0.05  # the most p of a turn, after Holm over its family of series
SURE = 0.95  # least probability of an order that we name, and the share of draws in an interval
_WARM_UP, _GAIN = 3, 20.0
"""A start in the other direction is left out, up to a third of the series, if that saves so many variances."""
_AT_ONCE = 2**20  # numbers of the series that are fitted at once
_TRIED, _HIGHEST = 24, 0.98
_RECOVERED, _SHARE = (0.75, 0.5625), 0.025
"""Where else a series that recovers may end, and the share of the level for each of these ends."""
_TILT = -8.0  # finds more of the late rises of single series, which no family makes known

_Ends = tuple[Array, Array, npt.NDArray[np.int64]]


@dataclass(frozen=True, eq=False)
class Turn:
    at: float
    low: float
    high: float
    p: float  # how often a series that never turns would look like this
    correlation: float
    visible: float  # the rise over the last third that is detected in 80% of such series, in white noise
    start: int  # the first place that was used: before it the series went the other way
    draws: Array  # bootstrapped times


@dataclass(frozen=True, eq=False)
class _Noise:
    """AR(1): how likely each of `correlations` is, and for each a sum of squares with its degrees of freedom."""

    weights: Array
    squares: Array
    degrees: int
    correlations: Array

    @property
    def mean(self) -> Array:
        """The mean correlation as Fisher's z, which has no ends, and the logarithm of the mean variance."""
        correlation, square = self.weights @ self.correlations, self.weights @ self.squares
        return np.array([np.arctanh(correlation), np.log(square / self.degrees)])

    def draw(self, normal: Array, generator: np.random.Generator) -> Array:
        """Noise of standard normal numbers (B, n), each row with a correlation and a variance of its own."""
        of = generator.choice(len(self.weights), len(normal), p=self.weights)
        scale = np.sqrt(self.squares[of] / generator.chisquare(self.degrees, len(normal)))
        phi, noise = self.correlations[of], np.empty_like(normal)
        noise[:, 0], fresh = normal[:, 0], np.sqrt(1 - phi**2)
        for i in range(1, normal.shape[1]):
            noise[:, i] = phi * noise[:, i - 1] + fresh * normal[:, i]
        return noise * scale[:, None]


def find_turn(x: Array, y: Array, normal: Array, generator: np.random.Generator, *, peak: bool = False) -> Turn | None:
    """The turn of a series `y` over ascending steps `x`, a valley unless `peak`; None with fewer than `FEWEST` points.

    `normal` are standard normal numbers (B, n): series that share them have correlated noise.
    """
    y = -y if peak else y
    start = _warm_up(y)
    x, y, normal = x[start:], y[start:], normal[:, start:]
    if shortcoming(x):
        return None
    observed = _Parts(y[None])
    fit, place = observed.fit(y), observed.place
    wander = _noise_of(y, fit)
    noise = _rough(y) if wander is None else _corrected(wander, fit, normal)
    places = _Parts(fit + noise.draw(normal, generator)).place
    # a turn may be anywhere up to halfway to the next checkpoint
    draws = np.interp(places + generator.uniform(-0.5, 0.5, len(places)), np.arange(len(x)), x)
    at, tail = float(np.interp(place, np.arange(len(x)), x)[0]), (1 - SURE) / 2
    low, high = np.quantile(draws, (tail, 1 - tail))
    correlation = 0.0 if wander is None else float(wander.weights @ wander.correlations)
    visible = design(x, _TILT).visible * float(jitter_of(y[None], x)[0])
    return Turn(at, min(float(low), at), max(float(high), at), _chance(x, y), correlation, visible, start, draws)


def _chance(x: Array, y: Array) -> float:
    """Without a turn, the chance of such a fall at the beginning or of such a rise at the end: the larger of both."""
    y, of = y[None] - y.mean(), design(x, _TILT)
    read = of.read(-y)
    rises = [float(of.alone(read)[0]) / (1 - _SHARE * len(_RECOVERED))]
    for end in (round(part * len(x)) for part in _RECOVERED):
        if not shortcoming(x[:end]):
            shorter = design(x[:end], _TILT)
            rises.append(float(shorter.alone(shorter.read(-y[:, :end]))[0]) / _SHARE)
    return min(1.0, max(min(rises), float(of.rising_first(-y, read)[0])))


def probability_before(first: Turn, second: Turn) -> float:
    """The share of draws in which `first` turned before `second`; a tie counts half."""
    difference = second.draws - first.draws
    return float((difference > 0).mean() + 0.5 * (difference == 0).mean())


class _Parts:
    """The best falling, rising and falling parts of the rows of y (B, n), by least squares; the last may be missing.

    `left` is the residual sum of squares, and `place` the middle of the lowest block.
    """

    def __init__(self, y: Array) -> None:
        y = y - y.mean(axis=1, keepdims=True)
        b, n = y.shape
        ends = [end for end in dict.fromkeys((n, *(n * part // 8 for part in range(3, 8)))) if end > 2]
        fits = _all_falling([y, -y[:, ::-1], *(y[:, :end][:, ::-1] for end in ends)])
        falling = next(fits)
        recovery = np.column_stack([np.zeros(b), next(fits)[0]])[:, ::-1]  # of the falling end from each place on
        self.left = np.full(b, np.inf)
        self.place, self.split, self.end = np.empty(b), np.empty(b, np.int64), np.empty(b, np.int64)
        for end, risen in zip(ends, fits, strict=True):
            self._take(end, falling, risen, recovery[:, end])

    def _take(self, end: int, falling: _Ends, rising: _Ends, recovery: Array) -> None:
        """The parts whose recovery begins at `end`, for the rows where they are better than earlier parts."""
        squares = falling[0][:, :end].copy()  # the fit rises after k
        squares[:, :-1] += rising[0][:, ::-1][:, 1:]
        rows, k = np.arange(len(squares)), squares.argmin(axis=1)
        following = np.minimum(k + 1, end - 1)
        mirrored = end - 1 - following
        is_left = (falling[1][rows, k] <= rising[1][rows, mirrored]) | (k == end - 1)
        first = np.where(is_left, falling[2][rows, k], following)
        last = np.where(is_left, k, end - 1 - rising[2][rows, mirrored])
        left = squares[rows, k] + recovery
        better = left < self.left * (1 - 1e-12)
        for name, values in (("left", left), ("place", (first + last) / 2), ("split", k), ("end", end)):
            setattr(self, name, np.where(better, values, getattr(self, name)))

    def fit(self, y: Array, row: int = 0) -> Array:
        """The fit of a row, which is y."""
        k, end = int(self.split[row]) + 1, int(self.end[row])
        return np.concatenate([-rising(-y[:k]), rising(y[k:end]), -rising(-y[end:])])


def _all_falling(parts: Sequence[Array]) -> Iterator[_Ends]:
    """`_falling` of each part (B, at most n), several at a time: later values do not change the fit of a beginning."""
    b, n = parts[0].shape
    together = max(1, _AT_ONCE // (b * n))
    for start in range(0, len(parts), together):
        some = parts[start : start + together]
        padded = np.concatenate([np.pad(part, ((0, 0), (0, n - part.shape[1]))) for part in some])
        squares, level, first = (ends.reshape(-1, b, n) for ends in _falling(padded))
        for place, part in enumerate(some):
            m = part.shape[1]
            yield squares[place, :, :m], level[place, :, :m], first[place, :, :m]


def _falling(y: Array) -> _Ends:
    """For each beginning's falling fit: the residual sum of squares, the last level and its block's start; (B, n)."""
    b, n = y.shape
    sums, counts, starts = np.empty((b, n)), np.empty((b, n)), np.empty((b, n), np.int64)
    left, level, start = np.empty((b, n)), np.empty((b, n)), np.empty((b, n), np.int64)
    rows, before, explained = np.arange(b), np.zeros(b, np.int64), np.zeros(b)  # before: blocks before the last one
    total = np.square(y).cumsum(axis=1)
    for i in range(n):
        s, c, first = y[:, i].copy(), np.ones(b), np.full(b, i)
        explained += np.square(s)
        live = rows if i else rows[:0]
        while len(live):
            t = before[live] - 1
            last = s[live], c[live], sums[live, t], counts[live, t]
            wrong = last[0] * last[3] > last[2] * last[1]
            live, t = live[wrong], t[wrong]
            s1, c1, s0, c0 = (part[wrong] for part in last)
            explained[live] += (s1 + s0) ** 2 / (c1 + c0) - s1**2 / c1 - s0**2 / c0
            s[live], c[live], first[live], before[live] = s1 + s0, c1 + c0, starts[live, t], t
            live = live[t > 0]
        left[:, i], level[:, i], start[:, i] = np.maximum(total[:, i] - explained, 0.0), s / c, first
        sums[rows, before], counts[rows, before], starts[rows, before] = s, c, first
        before += 1
    return left, level, start


def _noise_of(y: Array, fit: Array) -> _Noise | None:
    """The restricted likelihood of each correlation of the noise about a fit, with a level for each block.

    The inverse of an AR(1) correlation is tridiagonal, and so is the matrix of the levels: a recursion over blocks.
    """
    starts = np.flatnonzero(np.append(True, np.diff(fit) != 0))
    y, n, phi = y - fit, len(y), CORRELATIONS
    degrees = n - len(starts)
    if degrees < 3 or float(np.square(y).sum()) <= 1e-24 * float(np.square(fit - fit.mean()).sum()):
        return None
    diagonal = np.tile((1 + phi**2)[:, None], n)
    diagonal[:, [0, -1]] = 1.0
    applied = diagonal * y
    applied[:, 1:] -= np.outer(phi, y[:-1])
    applied[:, :-1] -= np.outer(phi, y[1:])
    sizes = np.diff(np.append(starts, n))
    levels = np.add.reduceat(diagonal, starts, axis=1) - 2 * np.outer(phi, sizes - 1)
    sums = np.add.reduceat(applied, starts, axis=1)
    pivot, right = levels[:, 0], sums[:, 0]
    determinant, explained = np.log(pivot), right**2 / pivot
    for b in range(1, len(starts)):
        pivot, right = levels[:, b] - phi**2 / pivot, sums[:, b] + phi / pivot * right
        determinant, explained = determinant + np.log(pivot), explained + right**2 / pivot
    fresh = 1 - phi**2
    squares = np.maximum(applied @ y - explained, 0.0) / fresh
    likelihood = (n - 1) * np.log(fresh) + determinant - len(starts) * np.log(fresh) + degrees * np.log(squares)
    weights = np.exp((likelihood.min() - likelihood) / 2)
    return _Noise(weights / weights.sum(), squares, degrees, phi)


def _roughness(y: Array) -> Array:
    """The variance of noise between neighbours in the rows of y (B, n), by second differences."""
    return (1.4826 * np.median(np.abs(np.diff(y, 2, axis=1)), axis=1)) ** 2 / 6


def _rough(y: Array) -> _Noise:
    """From second differences, for a series that its parts fit exactly, although some differences are shape."""
    degrees = len(y) - 2
    return _Noise(np.ones(1), _roughness(y[None]) * degrees, degrees, np.zeros(1))


def _corrected(noise: _Noise, fit: Array, normal: Array) -> _Noise:
    """The noise without the bias of its estimate (a bootstrap): parts that mistake wander for shape leave too little
    noise, which is hardly correlated."""
    simulated = noise.draw(normal[:_TRIED], np.random.default_rng(0)) + fit
    parts = _Parts(simulated)
    estimates = (_noise_of(y, parts.fit(y, row)) for row, y in enumerate(simulated))
    again = [one.mean for one in estimates if one is not None]
    if not again:
        return noise
    shift, wider = np.maximum(noise.mean - np.mean(again, axis=0), 0.0)
    correlations = np.minimum(np.tanh(np.arctanh(noise.correlations) + shift), _HIGHEST)
    return replace(noise, squares=noise.squares * np.exp(wider), correlations=correlations)


def _warm_up(y: Array) -> int:
    """How many checkpoints rise before the fall to the valley: the first is often the lowest."""
    most = min(len(y) // _WARM_UP, len(y) - FEWEST)
    if most < 1:
        return 0
    # in row s a steep fall, through which any fit passes, replaces the first s points
    places, top = np.arange(len(y)), float(y.max()) + float(np.ptp(y)) * np.arange(len(y), 0, -1)
    rows = np.where(places < np.arange(most + 1)[:, None], top, y)
    left = _Parts(rows).left
    left[1:] += [float(np.square(y[:s] - rising(y[:s])).sum()) for s in range(1, most + 1)]
    best = int(left.argmin())
    rest = y[best:]
    noise = _noise_of(rest, _Parts(rest[None]).fit(rest))
    least = 0.0 if noise is None else _GAIN * (noise.weights @ noise.squares) / noise.degrees
    least = max(least, 1e-9 * left[0])  # rounding
    return best if left[best] < left[0] - least else 0
