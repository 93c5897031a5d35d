"""The distribution of scores of random pairs, read with the standard library alone."""

import math
from bisect import bisect_left
from dataclasses import field
from functools import cached_property
from itertools import accumulate

from uncone.records.brief import part
from uncone.records.rebuild import expect
from uncone.records.text import percent


@part
class Share:
    """A share in [0, 1] with its 95% interval for other rows drawn in the same way."""

    value: float  # a share from 0 to 1
    low: float  # lower end of its 95% interval
    high: float  # upper end

    def __post_init__(self) -> None:
        inside = 0 <= self.low <= self.value <= self.high <= 1
        came = f"{self.value} in {self.low} to {self.high}"
        expect(inside, f"a share in [0, 1] inside its interval, got {came}: the file was edited")

    def interval_words(self) -> str:
        """The interval in percent, to three digits."""
        return f"{percent(self.low, precise=True)[:-1]} to {percent(self.high, precise=True)}"


def edge_of(low: float, width: float, number: int) -> float:
    """low + number * width to 12 places, or 4 beyond the first of a smaller width: adding makes no digits."""
    return round(low + number * width, max(12, 4 - math.floor(math.log10(width))))


@part
class Knot:
    score: float  # an edge of the histogram
    false_match_rate: Share  # the share of random pairs at or above this score


@part
class ScoreHistogram:
    """How many pairs score in each of the bins [low + i width, low + (i + 1) width); the last bin holds its upper end.
    Counts are exact up to the rounding of the scores (about 1e-7 for cosines of float32 rows)."""

    low: float  # lower end of the first bin
    width: float  # width of every bin
    counts: tuple[int, ...] = field(repr=False)  # pairs by bin

    def __post_init__(self) -> None:
        fits = any(self.counts) and min(self.counts) >= 0 and self.width > 0
        expect(fits, "counts of at least one pair in bins of a width above 0: the file was cut or edited")

    @cached_property
    def pairs(self) -> int:
        return sum(self.counts)

    @cached_property
    def _reaching(self) -> tuple[int, ...]:
        return (*reversed(tuple(accumulate(reversed(self.counts)))), 0)

    def edge(self, number: int) -> float:
        return edge_of(self.low, self.width, number)

    def reached(self, score: float) -> float:
        """The share of pairs at or above `score`: exact at edges, linear between; the last bin is whole."""
        expect(math.isfinite(score), f"a finite score, got {score}: give one such as 0.8")
        at, last = (score - self.low) / self.width, len(self.counts)
        if at <= 0 or at > last + 1e-6:  # before it is rounded: a damaged file may make it infinite
            return 1.0 if at <= 0 else 0.0
        if abs(at - round(at)) < 1e-6:  # an edge, but for the rounding of the division
            at = round(at)
        at = min(at, last - 1)
        number = math.floor(at)
        reaching = self._reaching[number] - (at - number) * self.counts[number]
        return reaching / self.pairs

    def score_at(self, rate: float) -> float:
        """The lowest edge that at most the share `rate` of pairs reaches; InputError unless 0 < rate < 1."""
        expect(0 < rate < 1, f"a rate above 0 and below 1, got {rate}: give one such as 0.01")
        most = math.floor(rate * self.pairs * (1 + 1e-12))
        return self.edge(bisect_left(self._reaching, -most, key=lambda reaching: -reaching))

    def merge(self, other: "ScoreHistogram") -> "ScoreHistogram":
        """The histogram of both sets of pairs; InputError where their bins do not lie on one grid."""
        offset = (other.low - self.low) / self.width
        same = math.isclose(self.width, other.width, rel_tol=1e-9) and abs(offset - round(offset)) <= 1e-3
        expect(same, f"bins on one grid, got widths {self.width} and {other.width}: count both on one grid")
        first, second = (self, other) if offset >= 0 else (other, self)
        gap = abs(round(offset))
        counts = [0] * max(len(first.counts), gap + len(second.counts))
        counts[: len(first.counts)] = first.counts
        for number, count in enumerate(second.counts, start=gap):
            counts[number] += count
        return ScoreHistogram(first.low, first.width, tuple(counts))


def interval_at(knots: tuple[Knot, ...], score: float, share: float) -> tuple[float, float]:
    """The interval of `share`, the pairs at or above `score`, interpolated in logits between the nearest knots."""
    if share <= 0:
        return 0.0, knots[-1].false_match_rate.high
    if share >= 1:
        return knots[0].false_match_rate.low, 1.0
    ends = (_logit_offset(knots, score, "low"), _logit_offset(knots, score, "high"))
    low, high = (1 / (1 + math.exp(-(_logit(share) + offset))) for offset in ends)
    return min(low, share), max(high, share)


def _logit_offset(knots: tuple[Knot, ...], score: float, end: str) -> float:
    """How far an end of the interval is from the share, between knots where both have a logit."""
    pairs = ((knot.score, knot.false_match_rate.value, getattr(knot.false_match_rate, end)) for knot in knots)
    known = [(at, _logit(bound) - _logit(rate)) for at, rate, bound in pairs if 0 < bound < 1 and 0 < rate < 1]
    if not known:
        return -700.0 if end == "low" else 700.0
    at = min(max(bisect_left(known, score, key=lambda pair: pair[0]), 1), max(len(known) - 1, 1))
    (left, before), (right, after) = known[at - 1], known[min(at, len(known) - 1)]
    part = min(max((score - left) / (right - left), 0.0), 1.0) if right > left else 0.0
    return before + part * (after - before)


def _logit(share: float) -> float:
    return math.log(share / (1 - share))
