"""`calibrate`: the scores of random pairs, and what a score means among them."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from uncone import __version__
from uncone.calibration.counting import Grid, count_pairs
from uncone.calibration.drift import drift
from uncone.calibration.floor import Floor, floor_of
from uncone.calibration.intervals import Curve, curve_of, hoeffding
from uncone.calibration.labels import Labels, places_of, read_labels
from uncone.calibration.matches import labelled, pair_scores, with_labels
from uncone.calibration.remarks import remarks
from uncone.calibration.sides import METRICS, Drawn, Metric, Side, draw, equal_pairs, how_many, open_side
from uncone.calibration.words import function_of, verdict
from uncone.errors import InputError
from uncone.evaluate.bootstrap import check_seed
from uncone.records import Calibration, Knot, ScoreHistogram, ScoreMeaning, ScoreThreshold, Share

ALL_PAIRS = 1_000_000_000
"""Up to so many pairs every one is counted; of more, those of as many rows as make so many."""
RATES = (0.05, 0.01, 0.001, 0.0001, 0.00001)
FEWEST = 10
"""Pairs that must reach a threshold: fewer say little of how many would in other rows."""
_BINS = 20_000
_DEVIATIONS = 40.0
_KNOTS = (0.999, 0.99, 0.95, 0.85, 0.7, 0.5, 0.3, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002)
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class PairTable:
    """Pairs with a label: the table at `path`, and how it is read.

    The table has columns separated by tabs: the id of a query (or first row), the id of a row, and a label. Ids are the rows'
    own labels or their numbers from 0, or the lines of the files `ids` and `query_ids`. A pair with a label of at least
    `match_at` (by default above 0) matches. `prior` is the share of matches among the pairs that will be compared.
    """

    path: str | os.PathLike[str]
    ids: str | os.PathLike[str] | None = None
    query_ids: str | os.PathLike[str] | None = None
    match_at: float | None = None
    prior: float = 0.01


def calibrate(
    vectors: Any,
    *,
    queries: Any = None,
    pairs: PairTable | str | os.PathLike[str] | None = None,
    metric: Metric = "cosine",
    scores: Sequence[float] | None = None,
    rates: Sequence[float] = RATES,
    against: Calibration | None = None,
    most_pairs: int = ALL_PAIRS,
    seed: int = 0,
    skip_nonfinite: bool = False,
    progress: Progress | None = None,
) -> Calibration:
    """Say what a similarity score of these vectors means: how often random pairs reach it.

    A random pair is a query with a row, or two different rows where there are no queries. Mean and variance are exact over all
    pairs, from sums (E[s] and E[s^2] in closed form). Shares are counted in bins, over all pairs up to `most_pairs`, beyond over all
    pairs of rows drawn without replacement. Intervals (95 %) say where a share would lie for other rows drawn alike; they
    respect that pairs which share a row are not independent. Vectors are never changed.

    Args:
        vectors: what `open_rows` opens: the documents, (N, D).
        queries: the same for queries, (M, D); None pairs `vectors` with themselves.
        pairs: a table of labelled pairs (`PairTable`, or its path). Matches do not count as random pairs, and each threshold
            gets the share of matches that reach it.
        metric: "cosine" or "inner_product".
        scores: what is asked about; 0.8 for the cosine by default.
        rates: false-match rates, each in (0, 1), to find thresholds for.
        against: a saved calibration, to say whether it still holds.
        most_pairs: how many pairs are counted at most; at least 1000.
        seed: of the draw of rows and of their random groups.
        skip_nonfinite: leave out rows with NaN or inf instead of refusing them.
        progress: called with (what is done, how much, of how much).

    Returns:
        `Calibration`, whose `false_match_rate(score)`, `percentile(score)` and `threshold(rate)` need nothing but the record.

    Raises:
        InputError: what cannot be opened; queries of another width; fewer than two rows with a direction; a rate or score that
            makes no sense; labelled pairs that name no row.

    Reads badly when rows are few (the intervals say so), when many rows are equal, or when the rows are of other texts
    than those that will be compared.

    Example:
        >>> import numpy, uncone
        >>> found = uncone.calibrate(numpy.random.default_rng(0).normal(size=(500, 64)))
        >>> 0.25 < found.threshold(0.01) < 0.35, found.false_match_rate(0.8)
        (True, 0.0)
    """
    _check(metric, scores, rates, most_pairs, pairs)
    check_seed(seed)
    side = open_side(vectors, metric, skip_nonfinite=skip_nonfinite, what="rows", progress=progress)
    other = None
    if queries is not None:
        other = open_side(queries, metric, skip_nonfinite=skip_nonfinite, what="queries", progress=progress)
        _check_width(side, other)
    table = PairTable(pairs) if isinstance(pairs, str | os.PathLike) else pairs
    labels = None if table is None else _labels(side, other, table)
    values = None
    if labels is not None:
        values = pair_scores(side, other, labels)
        labels, values = labels.only(~np.isnan(values)), values[~np.isnan(values)]
    floor = floor_of(side, other, left_out=None if labels is None or values is None else _matches(labels, values))
    curve, histogram, free, drawn = _count(side, other, labels, floor, most_pairs, seed, progress)
    equal = equal_pairs(side, other, None if labels is None else labels.matching())
    wanted = (0.8,) if scores is None and metric == "cosine" else tuple(scores or ())
    meanings = tuple(_meaning(float(score), curve, histogram) for score in wanted)
    thresholds = tuple(_threshold(float(rate), curve, histogram) for rate in sorted(rates, reverse=True))
    knots = _knots(curve, histogram)
    found = Calibration(
        side.fitted.name, verdict(metric, meanings, thresholds, histogram), metric,
        side.fitted, None if other is None else other.fitted,
        floor.pairs, floor.mean, floor.variance, histogram, knots, free, meanings, thresholds,
        function_of(knots, histogram), equal_pairs=equal, seed=seed,
        notes=remarks(side, other, labels, histogram, floor, drawn, equal),
        versions={"uncone": __version__, "torch": str(torch.__version__)},
    )  # fmt: skip
    if labels is not None and values is not None and table is not None:
        told = tuple(with_labels(one, labels, values, table.prior) for one in thresholds)
        found = replace(found, labelled=labelled(labels, values, histogram, table.prior), thresholds=told)
    return found if against is None else replace(found, drift=drift(against, found))


def _check(metric: str, scores: Sequence[float] | None, rates: Sequence[float], most_pairs: int, pairs: Any) -> None:
    if metric not in METRICS:
        raise InputError(f"expected a metric of {' or '.join(METRICS)}, got {metric!r}: the cosine is the default")
    for score in scores or ():
        if not np.isfinite(score) or (metric == "cosine" and abs(score) > 1):
            raise InputError(f"expected a score {'from -1 to 1' if metric == 'cosine' else 'that is finite'}, got {score}")
    for rate in rates:
        if not 0 < rate < 1:
            raise InputError(f"expected a false-match rate above 0 and below 1, got {rate}: 1 % is 0.01")
    if most_pairs < 1000:
        raise InputError(f"expected at least 1000 pairs to count, got {most_pairs}: a distribution needs more, best millions")
    if isinstance(pairs, PairTable) and not 0 < pairs.prior < 1:
        raise InputError(f"expected a prior above 0 and below 1, got {pairs.prior}: 1 match in 100 pairs compared is 0.01")


def _check_width(side: Side, other: Side) -> None:
    if side.rows.shape[1] != other.rows.shape[1]:
        raise InputError(
            f"expected queries of {side.rows.shape[1]} features like {side.rows.name}, got {other.rows.shape[1]} in "
            f"{other.rows.name}: encode both with the same model"
        )


def _labels(side: Side, other: Side | None, table: PairTable) -> Labels:
    if other is None and table.query_ids is not None:
        raise InputError("expected queries with ids of queries, got none: give the queries too, or only the ids of the rows")
    places = places_of(side.rows, table.ids)
    if other is None:
        return read_labels(table.path, places, None, match_at=table.match_at)
    return read_labels(table.path, places_of(other.rows, table.query_ids), places, match_at=table.match_at)


def _matches(labels: Labels, values: npt.NDArray[np.float64]) -> torch.Tensor:
    """The scores of the matches, each pair once whatever its order."""
    return torch.from_numpy(values[labels.matches])


def _count(
    side: Side, other: Side | None, labels: Labels | None, floor: Floor, most: int, seed: int, progress: Progress | None
) -> tuple[Curve, ScoreHistogram, float, tuple[int, int | None]]:
    """The curve of shares, the histogram, the distribution-free half-width, and how many rows and queries were drawn."""
    rows, queries = how_many(side.rows.shape[0], None if other is None else other.rows.shape[0], most, side.rows.shape[1])
    x = draw(side, rows, seed)
    q = None if other is None or queries is None else draw(other, queries, seed + 1)
    if len(x.x) < 2 or (q is not None and len(q.x) < 2):
        raise InputError("expected two rows with a direction among those drawn, got fewer: most rows are zero, leave them out")
    grid = _grid(side, other, floor)
    left_out = None if labels is None else _places(labels, x, q)
    counts = count_pairs(x.x, None if q is None else q.x, grid, left_out=left_out, progress=progress)
    total = counts.total()
    if not total.any():
        raise InputError("expected random pairs beside the labelled matches, got none: give the whole collection as vectors")
    occupied = np.flatnonzero(total)
    kept = total[occupied[0] : occupied[-1] + 1]
    histogram = ScoreHistogram(round(grid.low + grid.width * int(occupied[0]), 12), grid.width, tuple(kept.tolist()))
    free = hoeffding(len(x.x) // 2 if q is None else min(len(x.x), len(q.x)))
    return curve_of(counts), histogram, free, (len(x.x), None if q is None else len(q.x))


def _grid(side: Side, other: Side | None, floor: Floor) -> Grid:
    """For the cosine -1 to 1; for the inner product what norms allow, but no further than 40 standard deviations from the mean."""
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
    found = torch.tensor(places, dtype=torch.int64).reshape(-1, 2).T
    return found[0], found[1]


def _meaning(score: float, curve: Curve, histogram: ScoreHistogram) -> ScoreMeaning:
    value, near = histogram.reached(score), curve.at(score)
    return ScoreMeaning(score, 100 * (1 - value), Share(value, min(near.low, value), max(near.high, value)))


def _threshold(rate: float, curve: Curve, histogram: ScoreHistogram) -> ScoreThreshold:
    """The lowest edge that at most the share `rate` of the counted pairs reaches."""
    if rate * histogram.pairs < FEWEST:
        reason = f"needs at least {FEWEST / rate:,.0f} pairs, {histogram.pairs:,} were counted: calibrate with more rows"
        return ScoreThreshold(rate, None, reason=reason)
    score = histogram.score_at(rate)
    low, high = curve.span(rate)
    return ScoreThreshold(rate, score, min(low, score), max(high, score), curve.at(score))


def _knots(curve: Curve, histogram: ScoreHistogram) -> tuple[Knot, ...]:
    """Scores with their shares, from the lowest bin to where `FEWEST` pairs are left; the last one where none is."""
    rates, rate = list(_KNOTS), 0.001
    while rate * histogram.pairs >= FEWEST:
        rates += [rate, rate / 2, rate / 5]
        rate /= 10
    scores = {histogram.score_at(rate) for rate in rates if rate * histogram.pairs >= FEWEST}
    scores |= {histogram.low, histogram.edge(len(histogram.counts))}
    return tuple(Knot(score, curve.at(score)) for score in sorted(scores))
