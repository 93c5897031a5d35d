"""Scores of random pairs in bins: the meaning of a score, the threshold of a rate, and labelled pairs."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch

from uncone.calibration.counting import Grid, count_pairs
from uncone.calibration.intervals import Curve, clustered, curve_of, hoeffding
from uncone.calibration.labels import Labels
from uncone.calibration.sides import Drawn, Floor, Side, draw, how_many
from uncone.errors import InputError
from uncone.records import Knot, LabelledPairs, ScoreHistogram, ScoreMeaning, ScoreThreshold, Share
from uncone.records.scores import edge_of

FEWEST = 10
"""Pairs that must reach a threshold: fewer say little of how many would in other rows."""
_BINS = 20_000
_DEVIATIONS = 40.0
_KNOTS = (0.999, 0.99, 0.95, 0.85, 0.7, 0.5, 0.3, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002)
_BLOCK = 8192
Floats = npt.NDArray[np.float64]
Progress = Callable[[str, int, int], None]


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
        if rate * pairs < FEWEST:
            reason = (
                f"needs at least {FEWEST / rate:,.0f} pairs, {pairs:,} were counted: calibrate with more rows"
            )
            return ScoreThreshold(rate, None, reason=reason)
        score = self.histogram.score_at(rate)
        low, high = self.curve.span(rate)
        return ScoreThreshold(rate, score, min(low, score), max(high, score), self.curve.at(score))

    def knots(self) -> tuple[Knot, ...]:
        """Scores with their shares, from the lowest bin to where `FEWEST` pairs are left, then none."""
        histogram, rates, rate = self.histogram, list(_KNOTS), 0.001
        while rate * histogram.pairs >= FEWEST:
            rates += [rate, rate / 2, rate / 5]
            rate /= 10
        scores = {histogram.score_at(rate) for rate in rates if rate * histogram.pairs >= FEWEST}
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
    """Count the scores of random pairs of rows, or of queries with rows, in bins, without labelled matches.

    Args:
        side: the rows.
        other: the queries, or None for pairs within `side`.
        labels: pairs that are known to match, which are left out.
        floor: mean and variance over all pairs, for the bins of inner products.
        most: pairs at most; of more, rows are drawn that make so many.
        seed: of the draw.
        progress: as `calibrate`.

    Raises:
        InputError: fewer than two rows with a direction among those drawn, or no pair beside the matches.
    """
    rows, queries = how_many(
        side.rows.shape[0], None if other is None else other.rows.shape[0], most, side.rows.shape[1]
    )
    x = draw(side, rows, seed)
    q = None if other is None or queries is None else draw(other, queries, seed + 1)
    if len(x.x) < 2 or (q is not None and len(q.x) < 2):
        raise InputError(
            "expected two rows with a direction among those drawn, got fewer: leave out zero rows"
        )
    grid = _grid(side, other, floor)
    left_out = None if labels is None else _places(labels, x, q)
    counts = count_pairs(x.x, None if q is None else q.x, grid, left_out=left_out, progress=progress)
    total = counts.total()
    if not total.any():
        raise InputError(
            "expected random pairs beside the labelled matches, got none: give the whole collection"
        )
    occupied = np.flatnonzero(total)
    kept = total[occupied[0] : occupied[-1] + 1]
    histogram = ScoreHistogram(
        edge_of(grid.low, grid.width, int(occupied[0])), grid.width, tuple(kept.tolist())
    )
    free = hoeffding(len(x.x) // 2 if q is None else min(len(x.x), len(q.x)))
    return Counted(curve_of(counts), histogram, free, (len(x.x), None if q is None else len(q.x)))


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


def _places(labels: Labels, x: Drawn, q: Drawn | None) -> tuple[torch.Tensor, torch.Tensor]:
    """The matches among the drawn rows, as their places in them."""
    at = {number: place for place, number in enumerate(x.numbers.tolist())}
    of_first = at if q is None else {number: place for place, number in enumerate(q.numbers.tolist())}
    wanted = zip(*(places.tolist() for places in labels.matching()), strict=True)
    places = [(of_first[a], at[b]) for a, b in wanted if a in of_first and b in at]
    first, second = torch.tensor(places, dtype=torch.int64).reshape(-1, 2).T
    return first, second


def pair_scores(side: Side, queries: Side | None, labels: Labels) -> Floats:
    """The score of each pair, (K,), in float64; NaN where a row is all zero and has no cosine."""
    parts = []
    for start in range(0, len(labels.first), _BLOCK):
        cut = slice(start, start + _BLOCK)
        a, b = (side if queries is None else queries).take(labels.first[cut]), side.take(labels.second[cut])
        scores = (a.double() * b.double()).sum(dim=1)
        if side.metric == "cosine":
            scores[~(a.any(dim=1) & b.any(dim=1))] = torch.nan
        parts.append(scores)
    return np.asarray(torch.cat(parts).numpy())


def labelled(labels: Labels, scores: Floats, histogram: ScoreHistogram, prior: float) -> LabelledPairs:
    """How well scores tell matches from random pairs and from pairs that are labelled as no match."""
    groups, is_match = labels.first.numpy(), labels.matches
    matching, others = scores[is_match], scores[~is_match]
    below = np.array(
        [1 - (histogram.reached(s) + histogram.reached(s + histogram.width)) / 2 for s in matching.tolist()]
    )
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
    """The threshold with the shares of labelled pairs that reach it, and its precision at the prior."""
    if threshold.score is None or threshold.false_match_rate is None:
        return threshold
    groups, is_match = labels.first.numpy(), labels.matches
    reaches = (scores >= threshold.score).astype(np.float64)
    true = clustered(reaches[is_match], groups[is_match])
    others = clustered(reaches[~is_match], groups[~is_match]) if not is_match.all() else None
    return replace(
        threshold, true_match_rate=true, non_match_rate=others,
        precision=precision_at(prior, true, threshold.false_match_rate),
    )  # fmt: skip


def precision_at(prior: float, true: Share, false: Share) -> float | None:
    """The share of matches among the pairs that reach a threshold, if the share `prior` of all matches."""
    reaching = prior * true.value + (1 - prior) * false.value
    return prior * true.value / reaching if reaching > 0 else None
