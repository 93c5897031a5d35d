"""Scores of pairs, and correlations with ties averaged, also of many resamples at once."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from uncone.errors import UndefinedMeasure
from uncone.tasks.pairs import PairSet

Array = npt.NDArray[np.float64]
Kind = Literal["spearman", "pearson"]
Resampled = Callable[[Array], Array]
"""Of how often each of N items was drawn in each of B resamples (N, B); NaN where one side is constant."""
KINDS: tuple[Kind, ...] = ("pearson", "spearman")
_LEAST_VARIANCE = 1e-12
"""Of scores at most 1 from their mean: a smaller variance of a resample is rounding."""
_EQUAL = 1e-14
"""Of the largest score: scores that differ by less are equal but for rounding."""


@dataclass(frozen=True)
class PairScores:
    """The scores of one set under one repair, one a scored pair. All repairs of a set have the same pairs."""

    gold: Array
    """(n,) what people said."""
    cosine: Array
    """(n,) cosine of the two vectors; NaN where a vector is zero."""
    inner: Array
    """(n,) inner product of the two vectors."""
    pairs: int
    """Pairs in the set, scored or not."""

    def numbers(self) -> dict[str, float | int | None]:
        """Correlations x 100, n and pairs; None where undefined (one pair, equal or not finite scores)."""
        numbers: dict[str, float | int | None] = {
            f"{kind}_{name}": correlation_x100(scores, self.gold, kind=kind)
            for kind in KINDS
            for name, scores in (("cosine", self.cosine), ("inner", self.inner))
        }
        return numbers | {"n": len(self.gold), "pairs": self.pairs}


def pair_scores(
    pairs: PairSet,
    place: Mapping[str, int],
    cosine_of: npt.NDArray[Any],
    inner_of: npt.NDArray[Any],
    *,
    total: int,
) -> PairScores:
    """The cosine of every pair by one matrix, its inner product by another; `place` says the row of a text."""
    sides = np.array([(place[a], place[b]) for a, b in pairs.pairs], np.intp).reshape(-1, 2).T
    x, y = (np.asarray(cosine_of[rows], np.float64) for rows in sides)
    lengths = np.linalg.norm(x, axis=1) * np.linalg.norm(y, axis=1)
    cosine = np.divide(np.einsum("ij,ij->i", x, y), lengths, out=np.full(len(x), np.nan), where=lengths > 0)
    x, y = (np.asarray(inner_of[rows], np.float64) for rows in sides)
    return PairScores(np.array(pairs.gold, np.float64), cosine, np.einsum("ij,ij->i", x, y), total)


def correlation_x100(scores: Array, gold: Array, *, kind: Kind) -> float | None:
    """`correlation` x 100; None where it is undefined."""
    if len(gold) < 2 or not np.isfinite(scores).all():
        return None
    try:
        return 100.0 * correlation(scores, gold, kind=kind)
    except UndefinedMeasure:
        return None


def correlation(x: Array, y: Array, *, kind: Kind) -> float:
    """Spearman's or Pearson's correlation of `x` and `y`, both (N,), in [-1, 1].

    Raises:
        UndefinedMeasure: all scores of `x` or of `y` are equal.
    """
    value = float(RESAMPLED[kind](x[None], y)(np.ones((len(y), 1)))[0, 0])
    if np.isnan(value):
        raise UndefinedMeasure(
            f"{kind}'s correlation is undefined: all {len(y)} scores of one side are equal"
        )
    return min(max(value, -1.0), 1.0)


def pearson(scores: Array, gold: Array) -> Resampled:
    """Pearson's correlations of S rows of scores with one gold score, by weighted sums of all at once."""
    # About their means and of unit size, so that the differences of sums below lose no digits.
    x, y = _scaled(scores), _scaled(gold[None])

    def of(counts: Array) -> Array:
        n = counts.sum(axis=0)
        mean_x, mean_y = x @ counts / n, y @ counts / n
        covariance = (x * y) @ counts / n - mean_x * mean_y
        return _ratio(covariance, x**2 @ counts / n - mean_x**2, y**2 @ counts / n - mean_y**2)

    return of


def spearman(scores: Array, gold: Array) -> Resampled:
    """Spearman's correlations, with the ranks of every resample, from one sort of each score.

    A resample has the items in the order of the whole, each as often as it was drawn. So the rank of an item
    is the number of draws before its group of equal scores plus half of (one more than) the draws in it: a
    cumulative sum takes the sort's place.
    """
    ranks_of_scores, ranks_of_gold = [_ranks(row) for row in scores], _ranks(gold)

    def of(counts: Array) -> Array:
        middle = (counts.sum(axis=0) + 1) / 2  # the mean rank, whatever the ties
        y = ranks_of_gold(counts)
        y -= middle
        weighted = counts * y
        variance_y = _sums(weighted, y)
        out = np.empty((len(ranks_of_scores), counts.shape[1]))
        for row, ranks in enumerate(ranks_of_scores):
            x = ranks(counts)
            x -= middle
            covariance = _sums(weighted, x)
            np.multiply(x, x, out=x)
            out[row] = _ratio(covariance, _sums(counts, x), variance_y)
        return out

    return of


RESAMPLED = {"spearman": spearman, "pearson": pearson}


def _ranks(score: Array) -> Resampled:
    """Ranks from 1, ties averaged, of each item in each resample, (N, B); of no meaning if not drawn."""
    order = np.argsort(score, kind="stable")
    ordered = score[order]
    is_first = np.concatenate([[True], ordered[1:] != ordered[:-1]])
    starts = np.flatnonzero(is_first)
    group_of_item = np.empty(len(score), np.intp)
    group_of_item[order] = np.cumsum(is_first) - 1

    def of(counts: Array) -> Array:
        in_group = counts[order]  # items lie in rows, so that what is gathered is whole rows
        if len(starts) < len(in_group):
            in_group = np.add.reduceat(in_group, starts, axis=0)
        ranks = np.cumsum(in_group, axis=0)
        in_group -= 1
        in_group /= 2
        ranks -= in_group
        return np.asarray(ranks[group_of_item])

    return of


def _sums(x: Array, y: Array) -> Array:
    """Of the products, over the items: (N, B) and (N, B) give (B,)."""
    return np.asarray(np.einsum("ib,ib->b", x, y))


def _scaled(scores: Array) -> Array:
    centered = scores - scores.mean(axis=1, keepdims=True)
    largest = np.abs(centered).max(axis=1, keepdims=True)
    equal = largest <= _EQUAL * np.abs(scores).max(axis=1, keepdims=True)
    return np.where(equal, 0.0, centered / np.where(equal, 1.0, largest))


def _ratio(covariance: Array, variance_x: Array, variance_y: Array) -> Array:
    """Covariance over both standard deviations, NaN where one side is constant."""
    is_defined = (variance_x > _LEAST_VARIANCE) & (variance_y > _LEAST_VARIANCE)
    scale = np.sqrt(np.where(is_defined, variance_x, 1.0)) * np.sqrt(np.where(is_defined, variance_y, 1.0))
    return np.where(is_defined, covariance / scale, np.nan)
