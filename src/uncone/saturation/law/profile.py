from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from uncone.rows import Array
from uncone.saturation.law.fit import ENOUGH, Problem

Ends = tuple[float | None, float | None]
_RUNGS, _BETWEEN, _ROUNDS, _NEAR, _STEPS = 10, 7, 2, 2, 40
_FIRST = 0.25  # of a constant's spread: the first value that is tried
_E = 4


@dataclass(frozen=True)
class Profile:
    """The search for both ends of the interval of each constant, all at once, up to `Problem.limits`.

    The sum has several valleys. So each value is refitted from many starts: the law, the law without one of its terms,
    the simulated fits nearest to the value, and the fits at its neighbours. E is searched as E, because runs often
    allow an E of 0.
    """

    problem: Problem
    law: Array  # `theta`, (5,)
    least: float  # its sum
    drawn: Array  # `theta` of simulated fits, (B, 5)
    rises: Mapping[int, float]  # of each free constant: how far the sum may rise within its interval

    def ends(self) -> dict[int, Ends]:
        """The ends for the free constants; None for an end beyond all values that were tried."""
        if not self.rises:
            return {}
        places = np.repeat([*self.rises], 2)
        values = np.stack([self._ladder(place, side) for place in self.rises for side in (-1, 1)])
        fits = self._refit(places, values, self._bases(places, values))
        best, sums = self._swept(places, values, *fits)
        least = min(self.least, float(sums.min()))
        rises = np.repeat([*self.rises.values()], 2)
        last = _last(sums - least, rises)
        is_open = last == values.shape[1] - 1
        for _ in range(_ROUNDS):
            values, best, sums = self._between(places, values, best, sums, last)
            last = _last(sums - least, rises)
        found = _crossing(values, sums - least, rises, last)
        ends = [None if beyond else float(end) for end, beyond in zip(found, is_open, strict=True)]
        return {place: (ends[2 * i], ends[2 * i + 1]) for i, place in enumerate(self.rises)}

    def _ladder(self, place: int, side: int) -> Array:
        start, drawn = searched(self.law)[place], searched(self.drawn)[:, place]
        limit = searched(self.problem.limits)[int(side > 0), place]
        farthest = max(side * float(limit - start), 0.0)
        spread = float(np.ptp(np.quantile(drawn, [0.16, 0.84]))) / 2
        first = min(max(_FIRST * spread, 1e-12 * farthest), farthest / 2)
        steps = np.geomspace(first, farthest, _RUNGS) if farthest > 0 else np.zeros(_RUNGS)
        return np.asarray(start + side * np.concatenate([[0.0], steps]))

    def _bases(self, places: Array, values: Array) -> Array:
        """Where the refits at each value start, (K, M, S, 5), without the value itself."""
        without = np.repeat(self.law[None], 4, 0)
        for term, level in enumerate((0, 2, _E)):
            if self.problem.free[level]:
                without[1 + term, level] = self.problem.box[0, level]
        away = np.abs(searched(self.drawn).T[places][:, None] - values[..., None])
        drawn = self.drawn[np.argsort(away, kind="stable")[..., :_NEAR]]
        return np.concatenate([np.broadcast_to(without, (*values.shape, 4, 5)), drawn], axis=2)

    def _refit(self, places: Array, values: Array, bases: Array) -> tuple[Array, Array]:
        """The best fit from the `bases` (K, M, S, 5) at each value (K, M), and its sum."""
        places = places[:, None, None]
        starts = self._at(places, values[:, :, None], bases)
        held = np.broadcast_to(places, starts.shape[:3]).ravel()
        ends, sums = self.problem.descend(starts.reshape(-1, 5), held=held, steps=_STEPS, done=ENOUGH)
        ends, sums = ends.reshape(starts.shape), sums.reshape(starts.shape[:3])
        best = np.take_along_axis(ends, sums.argmin(2)[..., None, None], 2)[:, :, 0]
        return best, sums.min(2)

    def _at(self, places: Array, values: Array, bases: Array) -> Array:
        """The bases moved to the values; a term keeps its size at the mean of ln N or ln T, to start near the runs."""
        starts = bases.copy()
        for place in self.rises:
            inner = np.log(np.maximum(values, 1e-300)) if place == _E else values
            inner = np.maximum(inner, self.problem.box[0, place])
            here, moved = places == place, inner - bases[..., place]
            starts[..., place] = np.where(here, inner, starts[..., place])
            other = place ^ 1
            if place != _E and self.problem.free[other]:
                mean = self.problem.x[place // 2].mean()
                starts[..., other] += np.where(here, moved * mean if place % 2 else moved / (mean or np.inf), 0.0)
        return starts

    def _swept(self, places: Array, values: Array, best: Array, sums: Array) -> tuple[Array, Array]:
        """Each value refitted from the fits at its neighbours."""
        padded = np.concatenate([best[:, :1], best, best[:, -1:]], axis=1)
        again, lower = self._refit(places, values, np.stack([padded[:, :-2], padded[:, 2:]], axis=2))
        better = lower < sums
        return np.where(better[..., None], again, best), np.where(better, lower, sums)

    def _between(
        self, places: Array, values: Array, best: Array, sums: Array, last: Array
    ) -> tuple[Array, Array, Array]:
        """The last value within each interval, the first beyond it, and values between them."""
        rows, after = np.arange(len(places)), np.minimum(last + 1, values.shape[1] - 1)
        inside = np.linspace(values[rows, last], values[rows, after], _BETWEEN + 2, axis=1)
        both = np.stack([best[rows, last], best[rows, after]], axis=1)
        bases = np.broadcast_to(both[:, None], (len(places), _BETWEEN, 2, 5))
        found, lower = self._refit(places, inside[:, 1:-1], bases)
        best = np.concatenate([both[:, :1], found, both[:, 1:]], axis=1)
        return inside, best, np.column_stack([sums[rows, last], lower, sums[rows, after]])


def searched(theta: Array) -> Array:
    """Constants (..., 5) with E in the place of e."""
    return np.concatenate([theta[..., :_E], np.exp(theta[..., _E:])], axis=-1)


def _last(above: Array, rises: Array) -> Array:
    allowed = above <= rises[:, None]
    allowed[:, 0] = True
    return np.asarray(above.shape[1] - 1 - allowed[:, ::-1].argmax(1))


def _crossing(values: Array, above: Array, rises: Array, last: Array) -> Array:
    """Where the sum is `rises` above the least, near which it grows like a square."""
    rows, after = np.arange(len(values)), np.minimum(last + 1, values.shape[1] - 1)
    here, there = (np.sqrt(np.maximum(above[rows, at], 0.0)) for at in (last, after))
    share = (np.sqrt(rises) - here) / np.maximum(there - here, 1e-300)
    low, high = values[rows, last], values[rows, after]
    return np.asarray(low + (high - low) * np.clip(share, 0.0, 1.0))
