"""Correlations, and paired bootstrap intervals of the difference between two systems."""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Literal, TypedDict, Unpack

import numpy as np
from numpy.typing import ArrayLike

from uncone.arguments import check_seed, finite_number, one_of, shown, whole_number
from uncone.errors import UndefinedMeasure, expect
from uncone.evaluation.record import Interval
from uncone.rows import Array
from uncone.rows.samples import as_floats

Kind = Literal["spearman", "pearson"]
Resampled = Callable[[Array], Array]  # of how often each item was drawn in each resample (N, B)
KINDS: tuple[Kind, ...] = ("pearson", "spearman")
_LEAST_VARIANCE = 1e-12  # of scores at most 1 from their mean: less is rounding
_EQUAL = 1e-14  # of the largest score: smaller differences are rounding
_BLOCK = 1 << 18  # resampled items at a time: 2 MiB of float64, the size of a cache


class Resampling(TypedDict, total=False):
    seed: int  # 0 by default; a seed gives the same interval whatever the machine's memory
    resamples: int  # 10,000 by default: seeds then move the ends of a 95% interval by 1.5% of its half-width
    level: float  # the share of resampled differences inside the interval, 0.95 by default


def paired_bootstrap(per_item_a: ArrayLike, per_item_b: ArrayLike, **options: Unpack[Resampling]) -> Interval:
    """The mean of `b` less the mean of `a` on the same items, with its percentile bootstrap interval.

    Items are drawn with replacement, both scores of an item together (Efron & Tibshirani 1993, section 13.3; for
    systems on shared test items Koehn 2004, section 4).

    Args:
        per_item_a: scores of the baseline, (N,), one per item (say nDCG@10 of each query).
        per_item_b: scores of the other system on the same items, (N,).
        options: `seed`, `resamples` and `level`, see `Resampling`.

    Returns:
        Interval: `difference` = mean(b) - mean(a); `low` and `high` in the same unit.

    Raises:
        InputError: fewer than two items, unequal numbers, scores that are not finite, or too few resamples for the
            level.

    Reads badly when items are few (below about 20) or not exchangeable (several of one document).

    Example:
        >>> interval = paired_bootstrap([0.2, 0.4, 0.6], [0.3, 0.5, 0.7])
        >>> round(interval.difference, 6), round(interval.low, 6), round(interval.high, 6)
        (0.1, 0.1, 0.1)
    """
    a, b = _scores(per_item_a, "per_item_a"), _scores(per_item_b, "per_item_b")[None]
    return paired_bootstraps(a, b, **options)[0]


def paired_bootstraps(baseline: ArrayLike, others: ArrayLike, **options: Unpack[Resampling]) -> tuple[Interval, ...]:
    """`paired_bootstrap` of `others` (S, N) against one `baseline` (N,), all on the same resampled items."""
    scores, (seed, resamples, level) = _systems(baseline, others), _checked(**options)
    differences, n = scores[1:] - scores[0], scores.shape[1]
    blocks = _resamples(n, seed=seed, resamples=resamples)
    drawn = np.concatenate([(differences / n) @ counts for counts in blocks], axis=1)
    return _intervals(differences.mean(axis=1), drawn, level)


def correlation_bootstrap(
    score_a: ArrayLike, score_b: ArrayLike, gold: ArrayLike, *, kind: Kind = "spearman", **options: Unpack[Resampling]
) -> Interval:
    """How much better `score_b` correlates with `gold` than `score_a` does; see `correlation_bootstraps`."""
    a, b = _scores(score_a, "score_a"), _scores(score_b, "score_b")[None]
    return correlation_bootstraps(a, b, gold, kind=kind, **options)[0]


def correlation_bootstraps(
    baseline: ArrayLike,
    others: ArrayLike,
    gold: ArrayLike,
    *,
    subsets: Sequence[Any] | None = None,
    kind: Kind = "spearman",
    **options: Unpack[Resampling],
) -> tuple[Interval, ...]:
    """How much better systems correlate with `gold` than the baseline, with percentile bootstrap intervals.

    Items are drawn with replacement, all their scores together, and every resample is ranked again, ties averaged. With
    `subsets` the number is the mean of the correlations within each, all of equal weight. Items are then drawn within
    their subset, so that each keeps its size (stratified: Efron & Tibshirani 1993, section 8.3).

    Args:
        baseline: scores of the baseline, (N,).
        others: scores of S other systems for the same items, (S, N).
        gold: the scores that people gave the items, (N,).
        subsets: which subset each item is of, N of them; None for one correlation over all items.
        kind: Spearman's or Pearson's correlation.
        options: as for `paired_bootstrap`.

    Returns:
        S intervals: `difference` = correlation of a system - correlation of the baseline, in [-2, 2].

    Raises:
        InputError: fewer than two items (in a subset), unequal numbers, or scores that are not finite.
        UndefinedMeasure: scores that are all equal, here or in more than one resample in twenty; fewer are left out.

    Reads badly when a subset has few items, whose ties and lost items then move the mean.
    """
    scores, truth = _systems(baseline, others), _scores(gold, "gold")
    seed, resamples, level = _checked(**options)
    n = scores.shape[1]
    expect(len(truth) == n, f"a gold score for each of the {n} items, got {len(truth)}: pair them")
    one_of(kind, "kind", KINDS)
    places: Sequence[Any] = [slice(None)] if subsets is None else _places(subsets, n)
    seeds: Sequence[Any] = [seed] if subsets is None else np.random.SeedSequence(seed).spawn(len(places))
    points, drawn = np.zeros(len(scores)), np.zeros((len(scores), resamples))
    for items, one in zip(places, seeds, strict=True):
        x, y = scores[:, items], truth[items]
        correlations, blocks = RESAMPLED[kind](x, y), _resamples(len(y), seed=one, resamples=resamples)
        points += [correlation(row, y, kind=kind) for row in x]
        drawn += np.concatenate([correlations(counts) for counts in blocks], axis=1)
    points, drawn = points / len(places), drawn / len(places)
    return _intervals(points[1:] - points[0], drawn[1:] - drawn[0], level)


def _places(subsets: Sequence[Any], n: int) -> list[list[int]]:
    fits = isinstance(subsets, Sequence | np.ndarray) and len(subsets) == n
    expect(fits, f"a subset for each of the {n} items, got {shown(subsets)}: pair them")
    places: dict[Any, list[int]] = {}
    for at, name in enumerate(subsets):
        places.setdefault(name, []).append(at)
    for name, items in places.items():
        expect(len(items) > 1, f"at least two items in every subset, got one in {name!r}: leave it out")
    return list(places.values())


def _resamples(n: int, *, seed: int | np.random.SeedSequence, resamples: int) -> Iterator[Array]:
    """How often each item is drawn, float64 (N, block), whatever the size of blocks."""
    generator = np.random.Generator(np.random.PCG64(seed))
    size = max(1, _BLOCK // n)
    for start in range(0, resamples, size):
        rows = min(size, resamples - start)
        items = generator.integers(0, n, size=(rows, n))
        items *= rows
        items += np.arange(rows)[:, None]
        yield np.bincount(items.ravel(), minlength=rows * n).reshape(n, rows).astype(np.float64)


def _intervals(points: Array, drawn: Array, level: float) -> tuple[Interval, ...]:
    """Of differences (S,) and their resamples (S, B), NaN where undefined."""
    intervals = []
    for point, row in zip(points.tolist(), drawn, strict=True):
        defined = row[~np.isnan(row)]
        if len(defined) < 0.95 * len(row):
            where = f"in {len(row) - len(defined)} of {len(row)} resamples, where all scores are equal"
            raise UndefinedMeasure(f"the correlation is undefined {where}: use more items")
        low, high = np.quantile(defined, [(1 - level) / 2, (1 + level) / 2]).tolist()
        intervals.append(Interval(point, low, high, level, len(defined)))
    return tuple(intervals)


def _systems(baseline: ArrayLike, others: ArrayLike) -> Array:
    first, rows = _scores(baseline, "baseline"), as_floats(others, "scores")
    fits = rows.ndim == 2 and rows.shape[1] == len(first)
    expect(fits, f"the same {len(first)} items of every system, got {rows.shape}: pair them")
    return np.stack([first, *(_scores(row, "scores") for row in rows)])


def _checked(seed: int = 0, resamples: int = 10_000, level: float = 0.95) -> tuple[int, int, float]:
    check_seed(seed)
    whole_number(resamples, "resamples", most=10**9)
    expect(resamples >= 100, f"at least 100 resamples, got {resamples}: 10,000 is usual")
    finite_number(level, "level")
    expect(0 < level < 1, f"a level between 0 and 1, got {level}: 0.95 is usual")
    least = f"at least {math.ceil(2 / (1 - level)):,} resamples for an interval at level {level:.6g}"
    got = f"got {resamples:,}: its ends would be the extremes of the resamples"
    expect(resamples * (1 - level) / 2 >= 1, f"{least}, {got}")
    return seed, resamples, level


def _scores(given: ArrayLike, name: str) -> Array:
    scores = as_floats(given, name)
    fits = scores.ndim == 1 and len(scores) > 1
    expect(fits, f"{name} of shape (N,) with N >= 2, got shape {scores.shape}: one per item")
    bad = int((~np.isfinite(scores)).sum())
    expect(not bad, f"finite {name}, got {bad} that are not: leave those items out of both")
    return scores


def correlation_x100(scores: Array, gold: Array, *, kind: Kind) -> float | None:
    if len(gold) < 2 or not np.isfinite(scores).all():
        return None
    try:
        return 100.0 * correlation(scores, gold, kind=kind)
    except UndefinedMeasure:
        return None


def correlation(x: ArrayLike, y: ArrayLike, *, kind: Kind) -> float:
    """Spearman's or Pearson's correlation of `x` and `y`, both (N,), in [-1, 1].

    Raises:
        InputError: unequal lengths, fewer than two items, or scores that are not finite.
        UndefinedMeasure: all scores of `x` or of `y` are equal.

    >>> round(correlation([1.0, 2.0, 4.0], [1, 3, 2], kind="spearman"), 6)
    0.5
    """
    x, y = _scores(x, "x"), _scores(y, "y")
    expect(len(x) == len(y), f"a score of both sides for each item, got {len(x)} and {len(y)}: pair them")
    one_of(kind, "kind", KINDS)
    value = float(RESAMPLED[kind](x[None], y)(np.ones((len(y), 1)))[0, 0])
    if np.isnan(value):
        raise UndefinedMeasure(f"{kind} correlation is undefined: all {len(y)} scores of one side are equal")
    return min(max(value, -1.0), 1.0)


def pearson(scores: Array, gold: Array) -> Resampled:
    # scaled, so that the differences of sums lose no digits
    x, y = _scaled(scores), _scaled(gold[None])

    def of(counts: Array) -> Array:
        n = counts.sum(axis=0)
        mean_x, mean_y = x @ counts / n, y @ counts / n
        covariance = (x * y) @ counts / n - mean_x * mean_y
        return _ratio(covariance, x**2 @ counts / n - mean_x**2, y**2 @ counts / n - mean_y**2)

    return of


def spearman(scores: Array, gold: Array) -> Resampled:
    """Spearman's correlations, with the ranks of every resample, from one sort of each score. A resample keeps the
    order of items: the rank of an item is the number of draws before its group of equal scores, plus half of (one more
    than) the draws in it."""
    ranks_of_scores, ranks_of_gold = [_ranks(row) for row in scores], _ranks(gold)
    sums = partial(np.einsum, "ib,ib->b")  # of products, over the items

    def of(counts: Array) -> Array:
        middle = (counts.sum(axis=0) + 1) / 2  # the mean rank, whatever the ties
        y = ranks_of_gold(counts)
        y -= middle
        weighted, out = counts * y, []
        variance_y = sums(weighted, y)
        for ranks in ranks_of_scores:
            x = ranks(counts)
            x -= middle
            covariance = sums(weighted, x)
            np.multiply(x, x, out=x)
            out.append(_ratio(covariance, sums(counts, x), variance_y))
        return np.stack(out)

    return of


RESAMPLED = {"spearman": spearman, "pearson": pearson}


def _ranks(score: Array) -> Resampled:
    """Ranks from 1, ties averaged, (N, B); meaningless for items that were not drawn."""
    order = np.argsort(score, kind="stable")
    ordered = score[order]
    starts = np.flatnonzero(is_first := np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    group_of_item = np.empty(len(score), np.intp)
    group_of_item[order] = np.cumsum(is_first) - 1

    def of(counts: Array) -> Array:
        in_group = counts[order]  # whole rows are gathered, as each row is an item
        if len(starts) < len(in_group):
            in_group = np.add.reduceat(in_group, starts, axis=0)
        ranks = np.cumsum(in_group, axis=0)
        in_group -= 1
        in_group /= 2
        ranks -= in_group
        return np.asarray(ranks[group_of_item])

    return of


def _scaled(scores: Array) -> Array:
    centered = scores - scores.mean(axis=1, keepdims=True)
    largest = np.abs(centered).max(axis=1, keepdims=True)
    equal = largest <= _EQUAL * np.abs(scores).max(axis=1, keepdims=True)
    return np.where(equal, 0.0, centered / np.where(equal, 1.0, largest))


def _ratio(covariance: Array, variance_x: Array, variance_y: Array) -> Array:
    known = (variance_x > _LEAST_VARIANCE) & (variance_y > _LEAST_VARIANCE)
    scale = np.sqrt(np.where(known, variance_x, 1.0)) * np.sqrt(np.where(known, variance_y, 1.0))
    return np.where(known, covariance / scale, np.nan)
