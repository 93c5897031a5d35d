"""Whether a saved calibration still describes a model and its texts."""

import math
from typing import Literal

from uncone.arguments import shown
from uncone.calibration.record import Calibration, Drift, DriftedThreshold, ScoreThreshold
from uncone.calibration.scores.record import Share
from uncone.errors import InputError
from uncone.records.text import counted, percent

_LARGE, _WIDE = 1.5, 2.0  # factors of a rate that drifted far, and of an interval too wide to show anything


def drift(saved: Calibration, now: Calibration) -> Drift:
    """How the scores of random pairs differ from a saved calibration, and what its thresholds let pass now.

    If `now` has no labels, and so counts every pair, the matches of labelled pairs are put back into the saved rates.

    Args:
        saved: the calibration whose thresholds are in use.
        now: a calibration of today's vectors, with the same metric.

    Returns:
        `Drift`: `level` is judged by the saved threshold nearest to a rate of 1%. "large": its rate changed by a factor
        of more than 1.5 across the 95% interval; "small": the rate changed, perhaps by less; "none": no change was
        detected, and the interval is within a factor of 2; "unclear": the interval is wider.

    Raises:
        InputError: different metrics, no saved threshold, or only `now` leaves out labelled matches.
    """
    for given in (saved, now):
        if not isinstance(given, Calibration):
            raise InputError(f"expected a calibration, got {shown(given)}: read one with Calibration.load(path)")
    if saved.metric != now.metric:
        raise InputError(f"expected a calibration by {now.metric}, got one by {saved.metric}: use the same metric")
    if now.labelled is not None and saved.labelled is None:
        counts = f"because the saved calibration of {saved.name} has none and counts their matches"
        got = f"those of {now.labelled.source}: leave --pairs out, or use it for the saved calibration too"
        raise InputError(f"expected no labelled pairs, {counts}, got {got}")
    known = [(one.score, _rate_of(one, saved, now)) for one in saved.thresholds]
    thresholds = tuple(_threshold(score, rate, now) for score, rate in known if score is not None and rate is not None)
    if not thresholds:
        raise InputError(f"expected a calibration with thresholds, got {saved.name} without any: use more rows")
    judged = min(thresholds, key=lambda one: abs(math.log(max(one.before.value, 1e-12) / 0.01)))
    before, after = (percent(share.value, precise=True) for share in (judged.before, judged.now))
    now_words = f"{after} reach it now (95% interval {judged.now.interval_words()})"
    summary = f"{before} of random pairs reached the saved threshold {judged.score:.4g} before, and {now_words}."
    bins = (saved.histogram, now.histogram)
    low, high = min(one.low for one in bins), max(one.edge(len(one.counts)) for one in bins)
    scores = (low + (high - low) * number / 2000 for number in range(2001))
    differences = ((abs(saved.false_match_rate(score) - now.false_match_rate(score)), score) for score in scores)
    largest, at = max(differences, key=lambda pair: pair[0])
    deviation, shift = math.sqrt(saved.variance), now.mean - saved.mean
    ratios = (_quotient(shift, deviation), _quotient(math.sqrt(now.variance), deviation))
    are_same = saved.rows.sha256 == now.rows.sha256 and saved.queries == now.queries
    level = "none" if are_same and math.isclose(judged.ratio or 0, 1) else _level(judged)
    notes = _notes(saved, now, are_same)
    return Drift(saved.name, level, summary, largest, at, shift, *ratios, thresholds, notes)


def _rate_of(one: ScoreThreshold, saved: Calibration, now: Calibration) -> Share | None:
    """The rate of the pairs that `now` counts too."""
    rate, matched, labelled = one.false_match_rate, one.true_match_rate, saved.labelled
    if rate is None or matched is None or labelled is None or now.labelled is not None:
        return rate
    matches, pairs = labelled.matches, saved.pairs + labelled.matches
    ends = ((value * saved.pairs + matched.value * matches) / pairs for value in (rate.value, rate.low, rate.high))
    return Share(*ends)


def _threshold(score: float, before: Share, now: Calibration) -> DriftedThreshold:
    share = Share(now.false_match_rate(score), *now.false_match_interval(score))
    ratio = _quotient(share.value, before.value)
    if not ratio or share.low <= 0 or before.low <= 0:  # no logarithm: the intervals, divided, hold the ratio
        bounds = (_quotient(share.low, before.high), _quotient(share.high, before.low))
        return DriftedThreshold(score, before, share, ratio, *bounds)
    half = math.hypot(*(math.log(one.high / one.low) / 2 for one in (before, share)))
    return DriftedThreshold(score, before, share, ratio, ratio * math.exp(-half), ratio * math.exp(half))


def _quotient(part: float, whole: float) -> float | None:
    """`part` over `whole`; None where the quotient is not finite."""
    return part / whole if whole and math.isfinite(part / whole) else None


def _level(one: DriftedThreshold) -> Literal["none", "small", "large", "unclear"]:
    low, high = 0.0 if one.low is None else one.low, math.inf if one.high is None else one.high
    if low > _LARGE or high < 1 / _LARGE:
        return "large"
    if low > 1 or high < 1:
        return "small"
    return "none" if low >= 1 / _WIDE and high <= _WIDE else "unclear"


def _notes(saved: Calibration, now: Calibration, are_same: bool) -> tuple[str, ...]:
    notes = list[str]()
    if saved.rows.d != now.rows.d:
        widths = f"of {saved.rows.d} features, and these vectors have {now.rows.d}"
        notes.append(f"The saved calibration is {widths}: they come from another model.")
    if (saved.queries is None) != (now.queries is None):
        notes.append("Only one of the two calibrations has queries, so they count different kinds of pairs.")
    if saved.labelled is not None and now.labelled is None:
        matches = counted(saved.labelled.matches, "match", "matches")
        left_out = f"leaves out {matches} (--pairs), and this one counts every pair"
        rest = "The mean, the spread and the shares do not"
        notes.append(f"The saved calibration {left_out}. The saved rates below include the matches. {rest}.")
    return (*notes, *["Both calibrations are of the same vectors."] * are_same)
