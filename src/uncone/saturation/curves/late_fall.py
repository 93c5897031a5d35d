"""The chance that a series ends in such a fall although it never falls.

Generalised least squares estimates a fall over the second half of the last 10, 12, 14 ... checkpoints, up to all from
`BODY` on, against noise that is AR(1) about a quadratic trend. The restricted likelihood of that noise shows how likely
each correlation is. The least chance is calibrated on series that never fall, whose noise has the correlation `WORST`:
at lower correlations false alarms are rarer.
"""

import math
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import numpy as np

from uncone.rows import Array
from uncone.statistics.correlations import CORRELATIONS
from uncone.statistics.tails import log_tail

BODY = 0.2  # the share of the training before which nothing is judged
FEWEST, FEWEST_FALLING = 10, 3  # checkpoints of a window, and in its second half
WORST = 0.8
POWER = 0.8  # for the smallest fall that counts as visible
_WIDER = 1.2  # from one window to the next
TILT = -4.0
"""The prior of a correlation r is exp(TILT r): draws keep the level, and this prior detects more in white noise."""
_TOGETHER = 0.75  # the prior chance that a curve shares the correlation of its family
_DRAWS, _WHITE, _LARGEST_FAMILY = 16_000, 400, 64
_LEVELS, _MORE = (0.05, 0.005), 1.04
"""The quantiles of the draws at these levels become chances `_MORE` times as large, because the draws are few."""
_FLOOR = 1e-18  # of a sum of squares, for curves without any jitter
_PRIOR = TILT * CORRELATIONS


@dataclass(frozen=True, eq=False)
class Window:
    """The l checkpoints from the place `start` on; arrays with K first have a row for each of `CORRELATIONS`."""

    start: int
    trend: Array  # (l, 3): orthonormal columns that span the quadratic trends
    residual: Array  # (K, l, l): y' P y is the residual sum of squares
    determinant: Array  # (K,): ln |R| + ln |X' R^-1 X|
    weights: Array  # (K, l): weights' y is the fall, up to a factor
    variance: Array  # (K,): of the fall, for noise of variance 1
    degrees: int


@dataclass(frozen=True, eq=False)
class Readings:
    """What was read from m series."""

    chances: Array  # (windows, m, K): of such a fall, if the correlation is the k-th
    own: Array  # (windows, m, K): how likely each correlation is by the window alone
    likelihood: Array  # (m, K): ln, of the body
    variances: Array  # (windows, m, K): of the noise
    jitter: Array  # (m,): by second differences


Line = tuple[float, float]


@dataclass(frozen=True, eq=False)
class Design:
    """What depends on the n checkpoints alone."""

    steps: Array
    windows: tuple[Window, ...]  # from the narrowest to the body
    tilt: float = TILT
    _lines: dict[int, Line] = field(default_factory=dict)  # by the size of the family; 0 is for beginnings

    def read(self, y: Array) -> Readings:
        """Read series `y` (m, n), where higher is better."""
        read = [_read(y[:, window.start :], window) for window in self.windows]
        chances, likelihoods, variances = (np.stack(of) for of in zip(*read, strict=True))
        jitter = jitter_of(y[:, self.windows[-1].start :], self.steps[self.windows[-1].start :])
        return Readings(chances, _normal(likelihoods + self.tilt * CORRELATIONS), likelihoods[-1], variances, jitter)

    def alone(self, read: Readings) -> Array:
        """The chance of each series by its own noise, (m,)."""
        return _levelled(_least(read.own * read.chances), self._line(1))

    def together(self, read: Readings, weights: Array, family: int) -> Array:
        """The chance of each series by the correlations of `posteriors`, (m, K), in families of this size."""
        return _levelled(_least(weights * read.chances), self._line(min(family, _LARGEST_FAMILY)))

    def rising_first(self, y: Array, read: Readings) -> Array:
        """The chance that a series which never rises begins with such a rise, (m,): compares the means of the first and
        the last third of the first 3, 4, 5, 6 ... checkpoints, with the noise of the quietest window."""
        return _levelled(self._beginnings(y, read), self._line(0))

    def _beginnings(self, y: Array, read: Readings) -> Array:
        place, chances = np.arange(len(self.steps)), []
        window = (read.own * read.variances).sum(2).argmin(0), np.arange(len(y))
        own, variances, size = read.own[window], read.variances[window], 3
        while size <= 2 * len(place) // 3:
            third = size // 3
            weights = ((place < third) / third) - ((place >= size - third) & (place < size)) / third
            at = np.flatnonzero(weights)
            variance = (
                CORRELATIONS[:, None, None] ** np.abs(at - at[:, None]) * np.outer(weights[at], weights[at])
            ).sum((1, 2))
            risen = (y @ weights)[:, None] / np.sqrt(variances * variance)
            chances.append(np.exp(log_tail(-risen, self.windows[0].degrees)))
            size = max(size + 1, round(size * _WIDER))
        return _least(own * np.stack(chances))

    @cached_property
    def visible(self) -> float:
        """The fall over the last third of the training, in deviations of white noise, that is detected in a share
        `POWER` of curves that are judged alone."""
        u = self.steps / self.steps[-1]
        white = np.random.default_rng(1).standard_normal((_WHITE, len(u)))
        low, high = 0.0, 64.0
        for _ in range(9):
            size = (low + high) / 2
            found = np.mean(self.alone(self.read(white - size * np.maximum(3 * u - 2, 0))) <= _LEVELS[0])
            low, high = (low, size) if found >= POWER else (size, high)
        return high

    def _drawn(self) -> tuple[Array, Readings]:
        place = np.arange(len(self.steps))
        root = np.linalg.cholesky(WORST ** np.abs(place - place[:, None]))
        y = np.random.default_rng(0).standard_normal((_DRAWS, len(place))) @ root.T
        return y, self.read(y)

    def _line(self, family: int) -> Line:
        if family not in self._lines:
            y, drawn = self._drawn()  # not kept: it is large
            if family <= 1:  # whoever needs one of them often needs both
                self._lines[0] = _line_of(self._beginnings(y, drawn))
                self._lines[1] = _line_of(_least(drawn.own * drawn.chances))
            else:
                m = _DRAWS // family * family
                weights, _ = posteriors(drawn.likelihood[:m].reshape(-1, family, len(CORRELATIONS)))
                self._lines[family] = _line_of(_least(weights.reshape(m, -1) * drawn.chances[:, :m]))
        return self._lines[family]


def _line_of(p: Array) -> Line:
    """The line in ln p that calibrates chances of draws without a fall."""
    at, far = (math.log(np.quantile(p, level)) for level in _LEVELS)
    slope = math.log(_LEVELS[0] / _LEVELS[1]) / (at - far)
    return math.log(_MORE * _LEVELS[0]) - slope * at, slope


def design(steps: Array, tilt: float = TILT) -> Design:
    return _design(tuple(steps.tolist()), tilt)


@lru_cache(maxsize=64)  # of 128 checkpoints each takes some 6 MB
def _design(of_steps: tuple[float, ...], tilt: float) -> Design:
    steps = np.array(of_steps)
    return Design(steps, tuple(_window(steps, len(steps) - size) for size in reversed(_sizes(steps))), tilt)


def _sizes(steps: Array) -> list[int]:
    """The sizes of the windows, from the widest on."""
    size, found = int((steps >= BODY * steps[-1]).sum()), list[int]()
    while size >= FEWEST:
        found.append(size)
        size = round(size / _WIDER)
    return [size for size in found if (_second_half(steps[-size:]) > 0).sum() >= FEWEST_FALLING]


def _second_half(steps: Array) -> Array:
    """How far each checkpoint is beyond the middle."""
    return np.asarray(np.maximum(steps - (steps[0] + steps[-1]) / 2, 0.0) / (steps[-1] - steps[0]))


def shortcoming(steps: Array) -> str:
    """Why these checkpoints give no verdict; empty where they do."""
    if not len(steps):
        return "no checkpoint"
    if (body := int((steps >= BODY * steps[-1]).sum())) < FEWEST:
        return f"{body} checkpoints in the last {1 - BODY:.0%} of the training: at least {FEWEST} are needed"
    if not _sizes(steps):
        return f"fewer than {FEWEST_FALLING} checkpoints in the second half of the last {body}"
    return ""


def _window(steps: Array, start: int) -> Window:
    steps = steps[start:]
    x, place, one = np.vander((steps - steps.mean()) / np.ptp(steps), 3), np.arange(len(steps)), np.ones(len(steps))
    correlation = CORRELATIONS[:, None, None] ** np.abs(place - place[:, None])
    inverse = np.linalg.inv(correlation)
    weighted = x.T @ inverse  # (K, 3, l)
    information = weighted @ x
    residual = inverse - np.swapaxes(weighted, 1, 2) @ np.linalg.solve(information, weighted)
    determinant = np.linalg.slogdet(correlation)[1] + np.linalg.slogdet(information)[1]
    ramp, level = inverse @ _second_half(steps), inverse @ one
    weights = level * (ramp.sum(1) / level.sum(1))[:, None] - ramp
    variance = np.einsum("ki,kij,kj->k", weights, correlation, weights)
    return Window(start, np.linalg.qr(x)[0], residual, determinant, weights, variance, len(x) - 3)


def _read(y: Array, window: Window) -> tuple[Array, Array, Array]:
    # P removes the trend too, but the rounding of a large trend would look like noise
    rest = y - (y @ window.trend) @ window.trend.T
    squares = np.stack([np.einsum("mi,mi->m", rest @ p, rest) for p in window.residual], axis=1)
    squares = np.maximum(squares, _FLOOR)
    variances = squares / window.degrees
    chances = np.exp(log_tail(y @ window.weights.T / np.sqrt(variances * window.variance), window.degrees))
    return chances, -0.5 * (window.determinant + window.degrees * np.log(squares)), variances


def _least(chances: Array) -> Array:
    return np.asarray(chances.sum(2).min(0))


def _levelled(p: Array, line: Line) -> Array:
    return np.asarray(np.clip(np.exp(line[0] + line[1] * np.log(np.maximum(p, 1e-300))), 1e-300, 1.0))


def _normal(logs: Array) -> Array:
    weights = np.exp(logs - logs.max(-1, keepdims=True))
    return np.asarray(weights / weights.sum(-1, keepdims=True))


def posteriors(likelihood: Array) -> tuple[Array, Array]:
    """For families (..., m, K): how likely each correlation is for each curve if it shares the others' correlation, and
    how likely it shares it (..., m), by how well the others predict the curve. So short curves pool their little
    evidence, and quiet curves do not decide for a few loud curves."""
    others = _normal(likelihood.sum(-2, keepdims=True) - likelihood + _PRIOR)
    of_curve = np.exp(likelihood - likelihood.max(-1, keepdims=True))
    predicted, own = (others * of_curve).sum(-1), (_normal(_PRIOR) * of_curve).sum(-1)
    share = _TOGETHER * predicted / (_TOGETHER * predicted + (1 - _TOGETHER) * own)
    if likelihood.shape[-2] == 1:
        share = np.zeros_like(share)
    return _normal(np.log(np.maximum(others, 1e-300)) + likelihood), share


def jitter_of(y: Array, steps: Array) -> Array:
    """The deviation of white noise (m,) from each value less the line through its neighbours, in which a slow bend
    hardly counts."""
    left = (steps[2:] - steps[1:-1]) / (steps[2:] - steps[:-2])
    bent = y[:, 1:-1] - left * y[:, :-2] - (1 - left) * y[:, 2:]
    return np.asarray(np.sqrt(np.mean(bent**2 / (1 + left**2 + (1 - left) ** 2), axis=1)))
