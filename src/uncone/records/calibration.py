"""The record of a calibration: what a similarity of this model means. Its answers need the standard library alone."""

import dataclasses
import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from uncone import atomic
from uncone.errors import InputError
from uncone.records.fitted import Fitted
from uncone.records.rebuild import from_json, read_text
from uncone.records.scores import Knot, ScoreHistogram, Share, interval_at

CALIBRATION_SCHEMA = "uncone.calibration/1"
_HOW = "uncone calibrate VECTORS --json F"


@dataclass(frozen=True)
class ScoreMeaning:
    """What one score means: `percentile` of the random pairs, in percent, score below it."""

    score: float
    percentile: float
    false_match_rate: Share


@dataclass(frozen=True)
class ScoreThreshold:
    """The score that the share `wanted` of random pairs reaches, with its 95 % interval, and what labelled pairs say of it.

    `score` is None where there are too few pairs for so small a rate; `reason` then says how many it takes.
    """

    wanted: float
    score: float | None
    low: float | None = None
    high: float | None = None
    false_match_rate: Share | None = None
    true_match_rate: Share | None = None
    non_match_rate: Share | None = None
    precision: float | None = None
    reason: str = ""


@dataclass(frozen=True)
class LabelledPairs:
    """What pairs with a label say: `area` is the chance that a match scores above a random pair (AUC), a half for ties."""

    source: str
    matches: int
    non_matches: int
    groups: int
    mean_match: float
    area: Share
    area_non_matches: Share | None
    prior: float


@dataclass(frozen=True)
class DriftedThreshold:
    """A saved threshold: its rate when it was saved, its rate now, and the ratio of the two with its 95 % interval.

    Where a rate is 0, the ends are those of the two rates' intervals, divided; one is None where that is no number.
    """

    score: float
    before: Share
    now: Share
    ratio: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Drift:
    """Whether a saved calibration still describes these vectors.

    `largest_difference` is the largest difference of the two shares of pairs below one score (Kolmogorov-Smirnov), at `at`;
    `mean_shift` is in units of the score, `mean_shift_in_deviations` in standard deviations of the saved scores.
    """

    against: str
    level: Literal["none", "small", "large", "unclear"]
    summary: str
    largest_difference: float
    at: float
    mean_shift: float
    mean_shift_in_deviations: float | None
    deviation_ratio: float | None
    thresholds: tuple[DriftedThreshold, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Calibration:
    """What a similarity means: the scores of random pairs, thresholds, and what was asked.

    A pair is of one of `queries` and one of `rows`, or of two different `rows`. `mean` and `variance` are over all `pairs`, from
    sums; the histogram counts `histogram.pairs` of them. `distribution_free` is half the width of a 95 % interval of a share,
    whatever the distribution. `function` is Python text that anyone can paste.
    """

    name: str
    verdict: str
    metric: Literal["cosine", "inner_product"]
    rows: Fitted
    queries: Fitted | None
    pairs: int
    mean: float
    variance: float
    histogram: ScoreHistogram
    knots: tuple[Knot, ...]
    distribution_free: float
    meanings: tuple[ScoreMeaning, ...]
    thresholds: tuple[ScoreThreshold, ...]
    function: str
    labelled: LabelledPairs | None = None
    drift: Drift | None = None
    equal_pairs: int = 0
    seed: int = 0
    notes: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    schema: str = CALIBRATION_SCHEMA

    def __post_init__(self) -> None:
        scores = [knot.score for knot in self.knots]
        if not scores or scores != sorted(set(scores)):
            raise InputError("expected knots of rising scores: the file was cut or edited")
        if not self.variance >= 0:
            raise InputError(
                f"expected a variance of at least 0, got {self.variance}: the file was cut or edited"
            )
        bins = self.histogram
        ends = (bins.low, bins.edge(1), bins.edge(len(bins.counts)))
        if not ends[0] < ends[1] <= ends[2] < math.inf:
            raise InputError(
                f"expected bins of rising, finite scores in the histogram, got {ends[0]} to {ends[2]}: the file was cut or edited"
            )

    def false_match_rate(self, score: float) -> float:
        """The share of random pairs that score at least `score`, in [0, 1]."""
        return self.histogram.reached(score)

    def false_match_interval(self, score: float) -> tuple[float, float]:
        """The 95 % interval of `false_match_rate(score)` for other rows drawn alike."""
        return interval_at(self.knots, score, self.false_match_rate(score))

    def percentile(self, score: float) -> float:
        """The percentage of random pairs that score below `score`, in [0, 100]."""
        return 100 * (1 - self.false_match_rate(score))

    def threshold(self, rate: float) -> float:
        """The lowest score (on the grid of the histogram) that at most the share `rate` of random pairs reaches.

        Raises:
            InputError: `rate` is not in (0, 1), or the counted pairs are too few for it.
        """
        if 0 < rate < 1 and rate * self.histogram.pairs < 1:
            raise InputError(
                f"expected a rate of at least 1 in {self.histogram.pairs} counted pairs, got {rate:g}: calibrate with more rows"
            )
        return self.histogram.score_at(rate)

    def to_json(self) -> str:
        """This record as JSON text (strict: no NaN, no Infinity)."""
        return (
            json.dumps(dataclasses.asdict(self), ensure_ascii=True, allow_nan=False, separators=(",", ":"))
            + "\n"
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write `to_json()` to `path`, atomically."""
        atomic.write_text(path, self.to_json())

    @classmethod
    def from_json(cls, text: str) -> "Calibration":
        """Read what `to_json` wrote.

        Raises:
            InputError: not JSON, another schema, or a field that is missing, unknown or of the wrong type.
        """
        return from_json(cls, text, schema=CALIBRATION_SCHEMA, what="calibration", how=_HOW)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Calibration":
        """Read a calibration from the file that `save` wrote."""
        return cls.from_json(read_text(path, _HOW))
