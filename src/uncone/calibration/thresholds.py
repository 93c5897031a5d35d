"""What scores mean, thresholds for rates, and labelled pairs, all in words."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from uncone.calibration.record import Calibration, LabelledPairs, ScoreMeaning, ScoreThreshold, knots_pasted, one_in
from uncone.calibration.scores.counting import Curve, Grid, clustered, count_pairs, curve_of, hoeffding
from uncone.calibration.scores.record import Knot, ScoreHistogram, Share
from uncone.calibration.sides import Floor, Labels, Sides, alignment, check_pairs, draw, how_many
from uncone.records.text import counted, percent
from uncone.roles import Progress

_FEWEST = 10  # pairs that must reach a threshold
_BINS = 20_000
_KNOTS = (0.999, 0.99, 0.95, 0.85, 0.7, 0.5, 0.3, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002)
_LEVELS = {0.5: "below the median", 0.1: "ordinary", 0.01: "somewhat high", 1e-4: "high", 0.0: "very high"}
_NAMES = {"cosine": "a cosine", "inner_product": "an inner product"}
_FEW = 100  # rows, below which intervals rest on little data


@dataclass(frozen=True)
class Counted:
    """`free` is a distribution-free half-width; `drawn` holds the numbers of rows and queries drawn."""

    curve: Curve
    histogram: ScoreHistogram
    free: float
    drawn: tuple[int, int | None]

    def meaning(self, score: float) -> ScoreMeaning:
        value, near = self.histogram.reached(score), self.curve.at(score)
        return ScoreMeaning(score, 100 * (1 - value), Share(value, min(near.low, value), max(near.high, value)))

    def threshold(self, rate: float) -> ScoreThreshold:
        pairs = self.histogram.pairs
        if rate * pairs < _FEWEST:
            counted = f"{pairs:,} were counted. Calibrate with more rows"
            return ScoreThreshold(
                rate, None, reason=f"this rate needs at least {_FEWEST / rate:,.0f} pairs, and {counted}"
            )
        score = self.histogram.score_at(rate)
        low, high = self.curve.span(rate)
        return ScoreThreshold(rate, score, min(low, score), max(high, score), self.curve.at(score))

    def knots(self) -> tuple[Knot, ...]:
        """Knots from the lowest bin to where `_FEWEST` pairs are left, then to where none are left."""
        histogram, rates, rate = self.histogram, list(_KNOTS), 0.001
        while rate * histogram.pairs >= _FEWEST:
            rates += [rate, rate / 2, rate / 5]
            rate /= 10
        scores = {histogram.score_at(rate) for rate in rates if rate * histogram.pairs >= _FEWEST}
        scores |= {histogram.low, histogram.edge(len(histogram.counts))}
        return tuple(Knot(score, self.curve.at(score)) for score in sorted(scores))


def count_scores(sides: Sides, floor: Floor, most: int, seed: int, progress: Progress | None) -> Counted:
    """Count the scores of at most `most` random pairs, for which rows are drawn."""
    side, other, (n, d) = sides.rows, sides.queries, sides.rows.rows.shape
    rows, queries = how_many(n, None if other is None else other.rows.shape[0], most, d)
    x, numbers = draw(side, rows, seed)
    q, of_first = (None, numbers) if other is None or queries is None else draw(other, queries, seed + 1)
    grid = _grid(sides, floor)
    left_out = None
    if sides.labels is not None:
        firsts, seconds = ({one: at for at, one in enumerate(drawn.tolist())} for drawn in (of_first, numbers))
        wanted = zip(*(places.tolist() for places in sides.labels.matching()), strict=True)
        places = [(firsts[a], seconds[b]) for a, b in wanted if a in firsts and b in seconds]
        first, second = np.array(places, np.int64).reshape(-1, 2).T
        left_out = (first, second)
    counts = count_pairs(x, q, grid, left_out=left_out, progress=progress)
    total = counts.total()
    check_pairs(int(total.sum()))
    start, stop = np.flatnonzero(total)[[0, -1]].tolist()
    histogram = ScoreHistogram(grid.edge(start), grid.width, tuple(total[start : stop + 1].tolist()))
    free = hoeffding(len(x) // 2 if q is None else min(len(x), len(q)))
    return Counted(curve_of(counts), histogram, free, (len(x), None if q is None else len(q)))


def _grid(sides: Sides, floor: Floor) -> Grid:
    """Cosines from -1 to 1; inner products as norms allow, within 40 standard deviations of the mean."""
    if sides.rows.metric == "cosine":
        return Grid(-1.0, 2 / _BINS, _BINS)
    largest = sides.rows.moments.norm_max * (sides.queries or sides.rows).moments.norm_max
    reach = 40 * floor.variance**0.5
    low, high = max(-largest, floor.mean - reach), min(largest, floor.mean + reach)
    smallest = 1e-6 * max(abs(floor.mean), largest, 1e-30)
    if high - low < smallest:
        low, high = floor.mean - smallest / 2, floor.mean + smallest / 2
    return Grid(low, (high - low) / _BINS, _BINS)


def with_labels(record: Calibration, labels: Labels, prior: float) -> Calibration:
    """`record` with how well scores separate matches, the share `prior` of pairs, from other pairs, and the shares of
    labelled pairs that reach each threshold."""
    is_match, groups = labels.matches, labels.first[labels.matches]
    matching, others = labels.scores[is_match], np.sort(labels.scores[~is_match])
    reached, width = record.histogram.reached, record.histogram.width
    below = np.array([1 - (reached(score) + reached(score + width)) / 2 for score in matching.tolist()])
    area, area_others = clustered(below.clip(0, 1), groups), None
    if len(others):
        below_or_at = np.searchsorted(others, matching) + np.searchsorted(others, matching, side="right")
        area_others = clustered(below_or_at / 2 / len(others), groups)
    counts = (len(matching), len(others), len(np.unique(labels.first)))
    known = LabelledPairs(labels.source, *counts, float(matching.mean()), area, area_others, prior)
    thresholds = tuple(_labelled(one, labels, prior) for one in record.thresholds)
    return replace(record, labelled=known, thresholds=thresholds)


def _labelled(threshold: ScoreThreshold, labels: Labels, prior: float) -> ScoreThreshold:
    if threshold.score is None or threshold.false_match_rate is None:
        return threshold
    groups, is_match = labels.first, labels.matches
    reaches = (labels.scores >= threshold.score).astype(np.float64)
    true = clustered(reaches[is_match], groups[is_match])
    others = clustered(reaches[~is_match], groups[~is_match]) if not is_match.all() else None
    reaching = prior * true.value + (1 - prior) * threshold.false_match_rate.value
    precision = prior * true.value / reaching if reaching > 0 else None
    return replace(threshold, true_match_rate=true, non_match_rate=others, precision=precision)


def verdict(
    metric: str, meanings: tuple[ScoreMeaning, ...], thresholds: tuple[ScoreThreshold, ...], histogram: ScoreHistogram
) -> str:
    """The meaning of the first score to explain, and a threshold, in one or two sentences."""
    said = []
    if meanings:
        one = meanings[0]
        level = next(word for bar, word in _LEVELS.items() if one.false_match_rate.value >= bar)
        reached = _reached_by(one, histogram)
        said.append(f"For these vectors {_NAMES[metric]} of {one.score:.4g} is {level}: {reached}.")
    if usable := [one for one in thresholds if one.score is not None]:
        best = min(usable, key=lambda one: abs(math.log(one.wanted / 0.01)))
        start = "" if meanings else "For these vectors, "
        said.append(f"{start}1 in {one_in(best.wanted)} random pairs reaches {best.score:.4g}.")
    return " ".join(said) or "There are too few pairs for a threshold."


def _reached_by(one: ScoreMeaning, histogram: ScoreHistogram) -> str:
    rate = one.false_match_rate.value
    if rate == 0:
        end = f"the 95% interval ends at 1 in {one_in(one.false_match_rate.high)}"
        return f"none of {histogram.pairs:,} random pairs reaches it ({end})"
    if rate == 1:
        return "every random pair reaches it"
    if rate >= 0.1:
        return f"{percent(rate, precise=True)} of random pairs reach it"
    return f"1 in {one_in(rate)} random pairs reaches it"


def function_of(knots: tuple[Knot, ...], histogram: ScoreHistogram) -> str:
    """Python text of a function from a score to its false-match rate, log-linear between knots."""
    used = knots_pasted(knots, histogram)
    if len(used) < 2:
        return ""
    scores = tuple(float(f"{knot.score:.6g}") for knot in used)
    logs = tuple(round(math.log10(knot.false_match_rate.value), 4) for knot in used)
    deepest, error = used[-1].false_match_rate.value, _largest_error(scores, logs, histogram)
    share = "Share of random pairs that score at least this"
    return (
        "from bisect import bisect\n\n\n"
        "def false_match_rate(score):\n"
        f'    """{share}, to within {100 * error:.2g}%, down to {deepest:.1e}."""\n'
        f"    s = {scores}\n"
        f"    r = {logs}\n"
        "    i = min(max(bisect(s, score), 1), len(s) - 1)\n"
        "    return 10 ** (r[i - 1] + (r[i] - r[i - 1]) * min(max((score - s[i - 1]) / (s[i] - s[i - 1]), "
        "0), 1))\n"
    )


def _largest_error(scores: Sequence[float], logs: Sequence[float], histogram: ScoreHistogram) -> float:
    """The largest relative error of the interpolated rate over the edges between the knots; rounded up."""
    worst = 0.0
    for left, right, start, stop in zip(scores, scores[1:], logs, logs[1:], strict=False):
        steps = max(1, min(200, round((right - left) / histogram.width)))
        for step in range(steps + 1):
            rate = histogram.reached(left + (right - left) * step / steps)
            if rate > 0:
                worst = max(worst, abs(10 ** (start + (stop - start) * step / steps) / rate - 1))
    return float(f"{worst * 1.05:.2g}") + 1e-4


def remarks(sides: Sides, found: Counted, floor: Floor, equal: int) -> tuple[str, ...]:
    """What was left out, drawn or counted in a way that a reader may not expect."""
    notes, side, other, labels = list[str](), sides.rows, sides.queries, sides.labels
    both = [("rows", side)] if other is None else [("rows", side), ("queries", other)]
    for what, one in both:
        left_out = {"all zero and left out, because zero rows have no cosine": one.moments.n - one.n}
        left_out["not finite and left out, as requested"] = len(one.rows.left_out)
        singular = {"rows": "row is", "queries": "query is"}[what]
        notes += [f"{counted(n, singular, f'{what} are')} {why}." for why, n in left_out.items() if n]
    if labels is not None:
        is_match = counted(int(labels.matches.sum()), "pair is", "pairs are")
        notes.append(f"{is_match} labelled as a match and not counted as random.")
        if labels.dropped:
            dropped = counted(labels.dropped, "labelled pair was", "labelled pairs were")
            notes.append(f"{dropped} left out because a row is all zero.")
    if found.histogram.pairs < floor.pairs:
        rows, queries = found.drawn
        of = f"{rows:,} rows" + ("" if queries is None else f" and {queries:,} queries")
        counts = f"{found.histogram.pairs:,} pairs of {of} drawn at random"
        notes.append(f"Shares are of the {counts}; mean and variance are of all pairs.")
    if equal:
        high = "can reach any threshold" if side.metric == "cosine" else "score as high as a row with itself"
        pairs = f"{counted(equal, 'pair is', 'pairs are')} of two equal rows ({equal / floor.pairs:.2g} of all)"
        notes.append(f"{pairs}. Such pairs {high}. Remove repeated texts if such pairs are not mistakes.")
    if other is not None:
        aligned = alignment(side, other)
        if min(side.n, other.n) > side.rows.shape[1] and aligned < 0.1:
            common = f"no preferred directions (alignment {aligned:.2f} of 1)"
            notes.append(f"Queries and rows share {common}. Are they from the same model?")
        length = side.moments.mean_norm()
        ratio = other.moments.mean_norm() / length if length else 1.0
        if side.metric == "inner_product" and not 1 / 3 < ratio < 3:
            notes.append(f"Queries are {ratio:.2g} times as long as rows. Are they from the same model?")
    if min(one.n for _, one in both) < _FEW:
        notes.append(f"There are fewer than {_FEW} rows or queries, so the intervals rest on little data.")
    return tuple(notes)
