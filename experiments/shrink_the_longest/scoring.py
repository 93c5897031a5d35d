"""Task metrics, and how far a difference between two arms would move with other seeds and other items."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
METRICS = ("accuracy", "f1", "matthews")
RESAMPLES = 4000
_FOUND = 0.8
"""Share of experiments in which the smallest detectable effect is found, at 5 % two-sided."""


def metrics(confusion: Mapping[str, float]) -> dict[str, float]:
    """Accuracy, F1 of class 1 and Matthews' correlation, of counts tp, fp, fn and tn; 0 where a quotient is undefined, as in GLUE's own scoring."""
    counts = np.array([[confusion[name]] for name in ("tp", "fp", "fn", "tn")], np.float64)
    return {name: float(value[0]) for name, value in _of_counts(counts).items()}


def _of_counts(counts: Array) -> dict[str, Array]:
    """The metrics of counts (4, ...): tp, fp, fn, tn."""
    tp, fp, fn, tn = counts
    root = np.sqrt((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn))
    return {
        "accuracy": (tp + tn) / (tp + fp + fn + tn),
        "f1": _over(2 * tp, 2 * tp + fp + fn),
        "matthews": _over(tp * tn - fp * fn, root),
    }


def _over(above: Array, below: Array) -> Array:
    return np.divide(above, below, out=np.zeros_like(above), where=below > 0)


@dataclass(frozen=True)
class Difference:
    """How much higher one arm's metric is than another's, mean over seeds that both have."""

    value: float
    low: float | None
    """Ends of the 95 % interval; None with fewer than two seeds."""
    high: float | None
    detectable: float | None
    """The smallest true difference that so many seeds and items would show in 80 % of experiments."""
    seeds: int


def compare(correct_a: Flags, correct_b: Flags, gold: Flags, *, seed: int = 0) -> dict[str, Difference]:
    """Arm b less arm a in each metric, with the standard error of a two-way bootstrap.

    Seeds decide head, order and dropout and are paired, and so are items: a draw takes both arms together. All items are drawn with replacement, and of S
    seeds S - 1, which makes the variance of a mean of few unbiased. Where seeds and items interact, drawing both gives an error that is a little too
    large (Owen 2007, "The pigeonhole bootstrap"). Percentiles of so few seeds would be too narrow, so the interval is Student's, with (S - 1) (V / V_s)^2
    degrees of freedom for a variance V of which V_s is the seeds' (Satterthwaite 1946; items are many).

    Args:
        correct_a: (S, N), whether each item was right under each seed; or (P, S, N) for P looks at a training, of whose metrics the mean is compared.
        correct_b: the same looks, seeds and items under the other arm.
        gold: (N,), whether an item is of class 1.
    """
    seeds, n = correct_a.shape[-2:]
    generator = np.random.default_rng(seed)
    point = _differences(correct_a, correct_b, gold, np.ones((n, 1)))
    if seeds < 2:
        return {name: Difference(float(value.mean()), None, None, None, seeds) for name, value in point.items()}
    items = generator.multinomial(n, np.full(n, 1 / n), RESAMPLES).T.astype(np.float64)
    shares = generator.multinomial(seeds - 1, np.full(seeds, 1 / seeds), RESAMPLES).T / (seeds - 1)
    drawn = {name: (value * shares).sum(0) for name, value in _differences(correct_a, correct_b, gold, items).items()}
    return {name: _interval(point[name][:, 0], drawn[name]) for name in METRICS}


def _interval(by_seed: Array, drawn: Array) -> Difference:
    from scipy.stats import t

    seeds, value = len(by_seed), float(by_seed.mean())
    variance, of_seeds = float(drawn.var(ddof=1)), float(by_seed.var(ddof=1)) / seeds
    freedom = (seeds - 1) * max(1.0, variance / of_seeds) ** 2 if of_seeds > 0 else math.inf
    beyond, power = t.ppf([0.975, _FOUND], min(freedom, 1e9))
    error = math.sqrt(variance)
    return Difference(
        value, value - float(beyond) * error, value + float(beyond) * error, float(beyond + power) * error, seeds
    )


def _differences(a: Flags, b: Flags, gold: Flags, weights: Array) -> dict[str, Array]:
    """Each metric of b less that of a, (S, R), mean over looks, for items weighted by `weights` (N, R)."""
    first, second = (_of_counts(_counts(correct.reshape(-1, *correct.shape[-2:]), gold, weights)) for correct in (a, b))
    return {name: (second[name] - first[name]).mean(0) for name in METRICS}


def _counts(correct: Flags, gold: Flags, weights: Array) -> Array:
    parts = (correct & gold, ~correct & ~gold, ~correct & gold, correct & ~gold)
    return np.stack([part.astype(np.float64) @ weights for part in parts])


@dataclass(frozen=True)
class Spread:
    """Mean and standard deviation over seeds."""

    mean: float
    deviation: float | None
    seeds: int


def spread(values: list[float]) -> Spread:
    """None has no place here: leave undefined values out, and say how many are left."""
    deviation = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return Spread(float(np.mean(values)), deviation, len(values))


@dataclass(frozen=True)
class Paired:
    """The mean difference over seeds, with Student's 95 % interval."""

    value: float
    low: float | None
    high: float | None
    seeds: int
    detectable: float | None = None
    """The smallest true difference that so many seeds would show in 80 % of experiments."""


def paired(a: list[float], b: list[float]) -> Paired:
    """Values of arm b less those of arm a, seed by seed."""
    from scipy.stats import t

    difference = np.asarray(b, np.float64) - np.asarray(a, np.float64)
    n, mean = len(difference), float(np.mean(difference))
    if n < 2:
        return Paired(mean, None, None, n)
    error = float(np.std(difference, ddof=1)) / math.sqrt(n)
    beyond, power = (float(found) for found in t.ppf([0.975, _FOUND], n - 1))
    return Paired(mean, mean - beyond * error, mean + beyond * error, n, (beyond + power) * error)
