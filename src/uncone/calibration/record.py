"""The record of a calibration, whose answers need only the standard library."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from uncone.calibration.scores.record import Knot, ScoreHistogram, Share, interval_at
from uncone.records.blocks import (
    Blocks,
    Bullets,
    Cell,
    Chart,
    Code,
    Curve,
    Figure,
    Heading,
    Mark,
    Row,
    Table,
    Text,
    Tone,
)
from uncone.records.brief import part
from uncone.records.layout import caution, section, shown
from uncone.records.parts import Fitted
from uncone.records.rebuild import expect
from uncone.records.record import Record, made_with
from uncone.records.text import NEAR_DIGITS, count, counted, number, percent, plural, shortened

_DRIFTS: dict[str, tuple[str, Tone, str]] = {
    "none": ("NO DRIFT DETECTED", "healthy", "No drift was detected from {}."),
    "small": ("SMALL DRIFT", "warning", "The scores drifted a little from {}."),
    "large": ("LARGE DRIFT", "severe", "The scores drifted far from {}."),
    "unclear": ("DRIFT UNCLEAR", "note", "It is unclear whether the scores drifted from {}."),
}
_BARS, _POINTS = 60, 240


@part
class ScoreMeaning:
    score: float  # the score explained
    percentile: float  # the percentage of random pairs below this score
    false_match_rate: Share  # the share of random pairs at or above this score


@part
class ScoreThreshold:
    wanted: float  # the requested false-match rate
    score: float | None  # the threshold; `null` where pairs are too few
    low: float | None = None  # lower end of its 95% interval
    high: float | None = None  # upper end
    false_match_rate: Share | None = None  # the rate at `score`, with its interval for other rows
    true_match_rate: Share | None = None  # the share of labelled matches that reach `score`
    non_match_rate: Share | None = None  # the share of pairs labelled as no match that reach `score`
    precision: float | None = None  # the precision at the prior
    reason: str = ""  # why there is no threshold


@part
class LabelledPairs:
    """Ties count half in the areas (AUC)."""

    source: str  # name of the table
    matches: int  # pairs that match
    non_matches: int  # pairs labelled as no match
    groups: int  # different queries, or first rows
    mean_match: float  # mean score of the matches
    area: Share  # probability that a match scores above a random pair
    area_non_matches: Share | None  # probability that a match scores above a pair labelled as no match
    prior: float  # share of matches among pairs compared, for the precision


@part
class DriftedThreshold:
    score: float  # the saved threshold
    before: Share  # its rate when it was saved
    now: Share  # its rate now
    ratio: float | None  # the rate now divided by the rate before
    low: float | None  # lower end of its 95% interval; where a rate is 0, from the two rates' intervals, divided
    high: float | None  # upper end; `null` where the interval of the saved rate reaches 0


@part
class Drift:
    """`largest_difference` is the Kolmogorov-Smirnov statistic."""

    against: str  # name in the saved calibration
    level: Literal["none", "small", "large", "unclear"]  # `none`, `small`, `large` or `unclear`
    summary: str  # one sentence
    largest_difference: float  # largest difference between the two shares of pairs below a score
    at: float  # the score of the largest difference
    mean_shift: float  # change of the mean score
    mean_shift_in_deviations: float | None  # this change in standard deviations of the saved scores
    deviation_ratio: float | None  # the standard deviation now divided by the saved standard deviation
    thresholds: tuple[DriftedThreshold, ...]  # the saved thresholds
    notes: tuple[str, ...] = ()  # what makes the two hard to compare

    @property
    def found(self) -> bool:
        """Whether the rate of the judged threshold changed."""
        return self.level in ("small", "large")

    def verdict(self) -> str:
        return _DRIFTS[self.level][2].format(f"the saved calibration of {shortened(self.against)}")


@dataclass(frozen=True)
class Calibration(Record):
    """What a similarity means, from scores of random pairs (of `queries` and `rows`, or of two different `rows`)."""

    READING: ClassVar[str] = (
        "A false match is a random pair that reaches the threshold. Intervals (95%) show where a share would be for "
        "other rows drawn in the same way. They allow for pairs that share a row. No vector was changed."
    )

    name: str  # name of the vectors; for a path, its last two parts
    verdict: str  # the answer
    metric: Literal["cosine", "inner_product"]  # `cosine` or `inner_product`
    rows: Fitted  # name, number, width and sha256 of the rows
    queries: Fitted | None  # the same for the queries; `null` for pairs within the rows
    pairs: int  # all random pairs, without the labelled matches
    mean: float  # mean score of these pairs, exact
    variance: float  # variance of these scores, exact
    histogram: ScoreHistogram  # the counted pairs
    knots: tuple[Knot, ...]  # shares with intervals, by rising score
    distribution_free: float  # half the width of an interval of any share that holds whatever the distribution
    meanings: tuple[ScoreMeaning, ...]  # the scores explained
    thresholds: tuple[ScoreThreshold, ...]  # by falling rate
    function: str  # Python text to paste
    labelled: LabelledPairs | None = None  # what labelled pairs show
    drift: Drift | None = None  # the comparison with a saved calibration
    equal_pairs: int = 0  # pairs of two equal rows
    seed: int = 0  # seed for drawing rows and groups
    notes: tuple[str, ...] = ()  # what a reader should know
    versions: Mapping[str, str] = field(default_factory=dict)  # versions of the software that made it
    caution: str = ""  # why scores may mean little: only queries or only rows seem repaired

    def __post_init__(self) -> None:
        edited, bins, scores = "the file was cut or edited", self.histogram, [knot.score for knot in self.knots]
        expect(bool(scores) and scores == sorted(set(scores)), f"knots of rising scores: {edited}")
        expect(self.variance >= 0, f"a variance of at least 0, got {self.variance}: {edited}")
        low, second, high = (bins.edge(place) for place in (0, 1, len(bins.counts)))
        got = f"got {low} to {high}: {edited}"
        expect(low < second <= high < math.inf, f"bins of rising, finite scores in the histogram, {got}")

    def false_match_rate(self, score: float) -> float:
        """The share of random pairs that score at least `score`, in [0, 1]."""
        return self.histogram.reached(score)

    def false_match_interval(self, score: float) -> tuple[float, float]:
        """The 95% interval of `false_match_rate(score)` for other rows drawn in the same way."""
        return interval_at(self.knots, score, self.false_match_rate(score))

    def percentile(self, score: float) -> float:
        """The percentage of random pairs that score below `score`."""
        return 100 * (1 - self.false_match_rate(score))

    def threshold(self, rate: float) -> float:
        """The lowest score on the histogram's grid that at most the share `rate` of random pairs reaches; InputError
        where `rate` is not in (0, 1), or the counted pairs are too few."""
        pairs = self.histogram.pairs
        enough = not 0 < rate < 1 or rate * pairs >= 1
        expect(enough, f"a rate of at least 1 in {pairs} counted pairs, got {rate:g}: calibrate with more rows")
        return self.histogram.score_at(rate)

    def to_rows(self) -> list[dict[str, Any]]:
        """One row for each threshold."""
        rates = ("false_match_rate", "true_match_rate", "non_match_rate")
        return [
            {"wanted": one.wanted, "threshold": one.score}
            | {name: getattr(one, name) for name in ("low", "high", "precision")}
            | {name: share and share.value for name in rates for share in [getattr(one, name)]}
            for one in self.thresholds
        ]

    def blocks(self) -> Blocks:
        columns = ("score", "percentile", "random pairs that reach it", "95% interval")
        low, high = number(self.histogram.low), number(self.histogram.edge(len(self.histogram.counts)))
        missing = (one for one in self.thresholds if one.score is None)
        return shown(
            Heading(self.verdict, 1),
            caution(self.caution),
            () if self.drift is None else _drift_blocks(self.drift),
            (Text(fact, "quiet") for fact in self._facts()),
            section("What a score means", Table(columns, tuple(map(_meaning, self.meanings)), columns[:2])),
            Heading("Thresholds"),
            self._thresholds(),
            (Text(f"No threshold for {100 * one.wanted:.6g}%: {one.reason}.") for one in missing),
            Text(_one_a_query(self.rows.n), "quiet"),
            () if self.labelled is None else _labelled(self.labelled, self.pairs),
            Figure("Random pairs", self._charts(), spark=f"Random pairs by score, {low} to {high}:"),
            section("Notes", Bullets(self.notes)),
            section("To paste", Code(self.function), Text(self._end_of_function())),
            Text(made_with(self.versions), "quiet"),
        )

    def _facts(self) -> tuple[str, ...]:
        sides = f"{self.rows.name}, {counted(self.rows.n, 'row')} of {counted(self.rows.d, 'feature')}"
        if self.queries is not None:
            sides = f"{self.queries.name}, {count(self.queries.n)} queries, with {sides}"
        pairs = self.histogram.pairs
        read = "all counted" if pairs == self.pairs else f"{count(pairs)} of them counted"
        return (
            f"{sides}, compared by {self.metric.replace('_', ' ')}. {count(self.pairs)} random pairs, {read}.",
            f"Random pairs: mean {number(self.mean)}, standard deviation {number(math.sqrt(self.variance))}.",
            *["The rows are compared with each other. For a search, give its queries too (--queries)."]
            * (self.queries is None),
        )

    def _end_of_function(self) -> str:
        used = knots_pasted(self.knots, self.histogram)
        if not (self.function and used):
            return ""
        gives = f"From {used[-1].score:.6g} on, the function gives {used[-1].false_match_rate.value:.1e}"
        return f"{gives}, because few pairs score higher. For smaller rates, use the tables above."

    def _thresholds(self) -> Table:
        labelled, said = self.labelled, ["false matches in other rows"]
        if labelled is not None:
            said = ["matches", *["non-matches"] * (labelled.non_matches > 0), "precision"]
        digits = min(12, max(0, -math.floor(math.log10(self.histogram.width) + 1e-9)))
        rows = (_threshold(one, labelled, digits) for one in self.thresholds if one.score is not None)
        numbers = ("false matches", "threshold", "matches", "non-matches", "precision")
        return Table((*numbers[:2], "95% interval", *said), tuple(rows), numbers, in_brief=True)

    def _charts(self) -> tuple[Chart, ...]:
        bins, n = self.histogram, len(self.histogram.counts)
        if n < 2:
            return ()
        size = -(-n // _BARS)
        shares = tuple(100 * sum(bins.counts[start : start + size]) / bins.pairs for start in range(0, n, size))
        edges = tuple(bins.edge(size * place) for place in range(len(shares) + 1))
        scores = [bins.edge(place) for place in range(0, n, max(1, n // _POINTS))]
        reached = [(score, share) for score in scores if (share := bins.reached(score)) > 0]
        x, y = zip(*reached, strict=True)
        marks = tuple(
            Mark(one.score, label=number(one.score), top=one.wanted)
            for one in self.thresholds
            if one.score is not None and reached[-1][1] <= one.wanted <= 1
        )
        titles = ("scores", "Scores of random pairs", "score", "% of random pairs")
        bars = f"{count(bins.pairs)} pairs in bins of {number(bins.width * size)}."
        line = "Dashed lines are thresholds. The curve ends at the last counted pair."
        rates: Any = {"marks": marks, "log_y": True, "caption": line, "spark": "logarithm of share"}
        reach = "share of random pairs at or above, logarithmic"
        return (
            Chart(*titles, (), edges, shares, caption=bars, spark="pairs"),
            Chart("false matches", "False-match rate", "score", reach, (Curve("share of pairs", x, y),), **rates),
        )


def knots_pasted(knots: tuple[Knot, ...], histogram: ScoreHistogram) -> list[Knot]:
    """The knots of the pasted function: up to where 100 pairs are left."""
    return [knot for knot in knots if knot.false_match_rate.value * histogram.pairs >= 100]


def one_in(rate: float) -> str:
    """The number N of "1 in N": two digits from 10 on."""
    value = 1 / rate
    if value >= 1e18:  # rounding to digits before the point takes a finite number
        return f"{value:.2g}" if math.isfinite(value) else "1e308 or more"
    rounded = int(round(value, -max(0, math.floor(math.log10(value)) - 1)))
    return count(rounded) if value >= 10 else f"{value:.2g}"


def _meaning(one: ScoreMeaning) -> Row:
    rate = one.false_match_rate
    shown = "none" if rate.value == 0 else "all" if rate.value == 1 else f"1 in {one_in(rate.value)}"
    return number(one.score), number(one.percentile, limits=(0, 100), digits=5), shown, rate.interval_words()


def _one_a_query(n: int) -> str:
    if n < 2:
        return ""
    share = f"With {count(n)} rows, a share of {100 / n:.3g}% of random pairs is one false match for each query."
    return f"{share} For that threshold, run again with --rates {1 / n:.3g}."


def _threshold(one: ScoreThreshold, labelled: LabelledPairs | None, digits: int) -> Row:
    score, low, high = ("" if v is None else f"{v:.{digits}f}" for v in (one.score, one.low, one.high))
    cells = f"{100 * one.wanted:.6g}%", Cell(score, tone="strong"), f"{low} to {high}"
    if labelled is None:
        return *cells, "" if one.false_match_rate is None else one.false_match_rate.interval_words()
    shares = (one.true_match_rate, *([one.non_match_rate] if labelled.non_matches else []))
    rates = (*(None if share is None else share.value for share in shares), one.precision)
    return *cells, *("" if rate is None else percent(rate, precise=True) for rate in rates)


def _labelled(labelled: LabelledPairs, pairs: int) -> Blocks:
    """`pairs`: all others that can be compared."""
    assumed, given = labelled.prior * (pairs + labelled.matches), ""
    if not assumed < 2 * labelled.matches < 4 * assumed and labelled.matches:
        share = percent(labelled.matches / (pairs + labelled.matches), precise=True)
        given = f" The matches given are {share} of all pairs."
    known, other = labelled.area, labelled.area_non_matches
    ends = (known.value, known.low, known.high)
    area, low, high = (number(v, limits=(0, 1), digits=4, most=NEAR_DIGITS) for v in ends)
    matches = f"{counted(labelled.matches, 'match', 'matches')} of {labelled.source}"
    sentences = [
        f"{matches} {plural(labelled.matches, 'has', 'have')} a mean score of {number(labelled.mean_match)}. "
        f"A match scores above a random pair with probability {area} (95% interval {low} to {high}). "
        f"Precision assumes that {100 * labelled.prior:.6g}% of the pairs compared match.{given} Set --prior to your own share: "
        "the relevant rows of a query, divided by all rows."
    ]
    if other is not None:
        others = counted(labelled.non_matches, "pair is", "pairs are")
        chance = number(other.value, limits=(0, 1), digits=4)
        sentences.append(f"{others} labelled as no match. A match scores above such a pair with probability {chance}.")
    return tuple(map(Text, sentences))


def _drift_blocks(drift: Drift) -> Blocks:
    shift = f"The mean moved by {drift.mean_shift:+.3g}"
    if drift.mean_shift_in_deviations is not None and drift.deviation_ratio is not None:
        shift += f" ({drift.mean_shift_in_deviations:+.2g} standard deviations)"
        shift += f", and the spread is {drift.deviation_ratio:.3g} times what it was"
    largest = percent(drift.largest_difference, precise=True)
    differ = f"The shares of pairs below a score differ by at most {largest}, at a score of {number(drift.at)}"
    rows = list[tuple[str, ...]]()
    for one in drift.thresholds:
        then, now = (percent(share.value, precise=True) for share in (one.before, one.now))
        ratio = "" if one.ratio is None else f"{one.ratio:.2f}"
        rows.append((number(one.score), then, now, one.now.interval_words(), ratio))
    columns = ("saved threshold", "then", "now", "95% interval", "ratio")
    return shown(
        Heading(f"against {shortened(drift.against)}", 4, *_DRIFTS[drift.level][:2]),
        map(Text, (drift.summary, f"{shift}. {differ}.", *drift.notes)),
        Table(columns, tuple(rows), (*columns[:3], "ratio")),
    )
