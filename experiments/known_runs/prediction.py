"""How well one number of a run gives the rank of its loss among the runs of its size: out of sample, remedy by remedy.

All runs of one remedy and strength are held out together. A run's loss rank is predicted as the mean rank of the other runs nearest
in the number (nine, and all that are as near as the ninth): nine is how many other runs share a learning rate.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from correlations import RESAMPLES, Array, ranks
from runs import Run

NEAREST = 9
NEAREST_AT_ONE_RATE = 3
Number = Callable[[Run], float]


@dataclass(frozen=True)
class Skill:
    """The share of the variance of loss ranks that is predicted, 1 at best; below 0 the mean rank would have been better."""

    value: float
    low: float
    high: float
    by_size: dict[int, float]


def skills(runs: Sequence[Run], numbers: dict[str, Number]) -> dict[str, Skill]:
    """Of each number, and of each with the learning rate given; 95 % by the bootstrap over size x remedy."""
    ways = {name: _squares(runs, number, at_one_rate=False) for name, number in numbers.items()}
    given = {
        f"{name}, rate given": _squares(runs, number, at_one_rate=True)
        for name, number in numbers.items()
        if name != "learning rate"
    }
    return {name: _skill(found) for name, found in (ways | given).items()}


Squares = dict[tuple[int, tuple[str, str]], tuple[float, float]]
"""Of each size and remedy: the squared errors, and the squared distances from the mean rank of the other remedies."""


def _squares(runs: Sequence[Run], number: Number, *, at_one_rate: bool) -> Squares:
    found: Squares = {}
    for size in dict.fromkeys(run.size for run in runs):
        of_size = [run for run in runs if run.size == size]
        x, rank = ranks([number(run) for run in of_size]), ranks([run.loss for run in of_size])
        rate = np.array([run.learning_rate for run in of_size])
        remedies = [run.remedy for run in of_size]
        for remedy in dict.fromkeys(remedies):
            held = np.array([other == remedy for other in remedies])
            errors = 0.0
            for i in np.flatnonzero(held):
                known = ~held & (rate == rate[i]) if at_one_rate else ~held
                errors += float((_nearest(x[known], rank[known], x[i], at_one_rate) - rank[i]) ** 2)
            found[size, remedy] = errors, float(((rank[held] - rank[~held].mean()) ** 2).sum())
    return found


def _nearest(x: Array, rank: Array, at: float, at_one_rate: bool) -> float:
    distance = np.abs(x - at)
    most = NEAREST_AT_ONE_RATE if at_one_rate else NEAREST
    return float(rank[distance <= np.sort(distance)[most - 1]].mean())


def _skill(found: Squares) -> Skill:
    sizes = sorted({size for size, _ in found})
    by_size = {size: np.array([pair for key, pair in found.items() if key[0] == size]) for size in sizes}
    generator, drawn = np.random.default_rng(0), np.zeros((RESAMPLES, 2))
    for pairs in by_size.values():
        drawn += pairs[generator.integers(len(pairs), size=(RESAMPLES, len(pairs)))].sum(1)
    errors, total = sum(pairs.sum(0) for pairs in by_size.values())
    low, high = np.quantile(1 - drawn[:, 0] / drawn[:, 1], [0.025, 0.975])
    each = {size: float(1 - pairs[:, 0].sum() / pairs[:, 1].sum()) for size, pairs in by_size.items()}
    return Skill(float(1 - errors / total), float(low), float(high), each)
