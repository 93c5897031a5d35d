"""Scores of random pairs in bins: the meaning of a score, the threshold of a rate, and labelled pairs."""

from dataclasses import dataclass, replace

import numpy as np
import torch

from uncone.calibration.counting import (
    Curve,
    Floats,
    Grid,
    Progress,
    clustered,
    count_pairs,
    curve_of,
    hoeffding,
)
from uncone.calibration.labels import Labels
from uncone.calibration.sides import Floor, Side, check_pairs, draw, how_many
from uncone.records import Knot, LabelledPairs, ScoreHistogram, ScoreMeaning, ScoreThreshold, Share
from uncone.records.scores import edge_of
from uncone.rows import GRID

_FEWEST = 10
"""Pairs that must reach a threshold: fewer say little of how many would in other rows."""
_BINS = 20_000
_DEVIATIONS = 40.0
_KNOTS = (0.999, 0.99, 0.95, 0.85, 0.7, 0.5, 0.3, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002)


@dataclass(frozen=True)
class Counted:
    """Shares with intervals at every edge, counts, a distribution-free half-width, and the rows drawn."""

    curve: Curve
    histogram: ScoreHistogram
    free: float
    drawn: tuple[int, int | None]

    def meaning(self, score: float) -> ScoreMeaning:
        """The percentile of a score, and the share of pairs that reach it."""
        value, near = self.histogram.reached(score), self.curve.at(score)
        return ScoreMeaning(
            score, 100 * (1 - value), Share(value, min(near.low, value), max(near.high, value))
        )

    def threshold(self, rate: float) -> ScoreThreshold:
        """The lowest edge that at most the share `rate` of the counted pairs reaches."""
        pairs = self.histogram.pairs
        if rate * pairs < _FEWEST:
            reason = f"needs at least {_FEWEST / rate:,.0f} pairs, {pairs:,} were counted: calibrate with more rows"
            return ScoreThreshold(rate, None, reason=reason)
        score = self.histogram.score_at(rate)
        low, high = self.curve.span(rate)
        return ScoreThreshold(rate, score, min(low, score), max(high, score), self.curve.at(score))

    def knots(self) -> tuple[Knot, ...]:
        """Scores with their shares, from the lowest bin to where `_FEWEST` pairs are left, then none."""
        histogram, rates, rate = self.histogram, list(_KNOTS), 0.001
        while rate * histogram.pairs >= _FEWEST:
            rates += [rate, rate / 2, rate / 5]
            rate /= 10
        scores = {histogram.score_at(rate) for rate in rates if rate * histogram.pairs >= _FEWEST}
        scores |= {histogram.low, histogram.edge(len(histogram.counts))}
        return tuple(Knot(score, self.curve.at(score)) for score in sorted(scores))


def count_scores(
    side: Side,
    other: Side | None,
    labels: Labels | None,
    floor: Floor,
    most: int,
    seed: int,
    progress: Progress | None,
) -> Counted:
    """Count the scores of random pairs of rows, or of `other` (the queries) with rows, in bins, without labelled
    matches: of at most `most` pairs, for which rows are drawn. The bins of inner products need the floor."""
    n, d = side.rows.shape
    rows, queries = how_many(n, None if other is None else other.rows.shape[0], most, d)
    x, numbers = draw(side, rows, seed)
    q, of_first = (None, numbers) if other is None or queries is None else draw(other, queries, seed + 1)
    grid = _grid(side, other, floor)
    left_out = None if labels is None else _places(labels, of_first, numbers)
    counts = count_pairs(x, q, grid, left_out=left_out, progress=progress)
    total = counts.total()
    check_pairs(int(total.sum()))
    first, last = np.flatnonzero(total)[[0, -1]].tolist()
    low = edge_of(grid.low, grid.width, first)
    histogram = ScoreHistogram(low, grid.width, tuple(total[first : last + 1].tolist()))
    free = hoeffding(len(x) // 2 if q is None else min(len(x), len(q)))
    return Counted(curve_of(counts), histogram, free, (len(x), None if q is None else len(q)))


def _grid(side: Side, other: Side | None, floor: Floor) -> Grid:
    """Cosines from -1 to 1; inner products as norms allow, within 40 standard deviations of the mean."""
    if side.metric == "cosine":
        return Grid(-1.0, 2 / _BINS, _BINS)
    largest = side.moments.norm_max * (side if other is None else other).moments.norm_max
    reach = _DEVIATIONS * floor.variance**0.5
    low, high = max(-largest, floor.mean - reach), min(largest, floor.mean + reach)
    smallest = 1e-6 * max(abs(floor.mean), largest, 1e-30)
    if high - low < smallest:
        low, high = floor.mean - smallest / 2, floor.mean + smallest / 2
    return Grid(low, (high - low) / _BINS, _BINS)


def _places(labels: Labels, *drawn: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The matches among the drawn rows on either side, as their places in them."""
    firsts, seconds = ({number: at for at, number in enumerate(numbers.tolist())} for numbers in drawn)
    wanted = zip(*(places.tolist() for places in labels.matching()), strict=True)
    places = [(firsts[a], seconds[b]) for a, b in wanted if a in firsts and b in seconds]
    first, second = torch.tensor(places, dtype=torch.int64).reshape(-1, 2).T
    return first, second


def pair_scores(side: Side, queries: Side | None, labels: Labels) -> Floats:
    """The score of each pair, (K,), in float64; NaN where a row is all zero and has no cosine."""
    parts = []
    for firsts, seconds in zip(
        torch.split(labels.first, GRID), torch.split(labels.second, GRID), strict=True
    ):
        a, b = (queries or side).take(firsts), side.take(seconds)
        scores = (a.double() * b.double()).sum(dim=1)
        if side.metric == "cosine":
            scores[~(a.any(dim=1) & b.any(dim=1))] = torch.nan
        parts.append(scores)
    return np.asarray(torch.cat(parts).numpy())


def labelled(labels: Labels, scores: Floats, histogram: ScoreHistogram, prior: float) -> LabelledPairs:
    """How well scores tell matches from random pairs and from pairs that are labelled as no match."""
    groups, is_match = labels.first.numpy(), labels.matches
    matching, others = scores[is_match], scores[~is_match]
    reached, width = histogram.reached, histogram.width
    below = np.array([1 - (reached(score) + reached(score + width)) / 2 for score in matching.tolist()])
    area_others = None
    if len(others):
        ordered = np.sort(others)
        below_or_at = np.searchsorted(ordered, matching) + np.searchsorted(ordered, matching, side="right")
        area_others = clustered(below_or_at / 2 / len(others), groups[is_match])
    return LabelledPairs(
        labels.source, len(matching), len(others), len(np.unique(groups)), float(matching.mean()),
        clustered(below.clip(0, 1), groups[is_match]), area_others, prior,
    )  # fmt: skip


def with_labels(threshold: ScoreThreshold, labels: Labels, scores: Floats, prior: float) -> ScoreThreshold:
    """The threshold with the shares of labelled pairs that reach it, and its precision: the share of matches among
    the pairs that reach it, if the share `prior` of all matches."""
    if threshold.score is None or threshold.false_match_rate is None:
        return threshold
    groups, is_match = labels.first.numpy(), labels.matches
    reaches = (scores >= threshold.score).astype(np.float64)
    true = clustered(reaches[is_match], groups[is_match])
    others = clustered(reaches[~is_match], groups[~is_match]) if not is_match.all() else None
    reaching = prior * true.value + (1 - prior) * threshold.false_match_rate.value
    precision = prior * true.value / reaching if reaching > 0 else None
    return replace(threshold, true_match_rate=true, non_match_rate=others, precision=precision)
