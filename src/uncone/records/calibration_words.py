"""The sentences and tables of a calibration, as plain text, that the terminal and the page share."""

import math
from dataclasses import dataclass

from uncone.records import Calibration, Drift, LabelledPairs, ScoreMeaning, ScoreThreshold, Share
from uncone.records.text import count, number
from uncone.records.wording import plural

METRICS = {"cosine": "cosine", "inner_product": "inner product"}
DRIFTS = {"none": "No drift seen", "small": "Small drift", "large": "Large drift", "unclear": "Drift unclear"}


@dataclass(frozen=True)
class Cells:
    """A table: headings, those of the columns that hold numbers, and the rows."""

    columns: tuple[str, ...]
    numbers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def facts(calibration: Calibration) -> tuple[str, str]:
    """What was compared, and where random pairs lie."""
    c = calibration
    sides = f"{c.rows.name}, {_count(c.rows.n)} rows of {_count(c.rows.d)} features"
    if c.queries is not None:
        sides = f"{c.queries.name}, {_count(c.queries.n)} queries, with {sides}"
    counted = (
        "all counted" if c.histogram.pairs == c.pairs else f"{_count(c.histogram.pairs)} of them counted"
    )
    return (
        f"{sides}; {METRICS[c.metric]}; {_count(c.pairs)} random pairs, {counted}.",
        f"Random pairs have mean {number(c.mean)} and standard deviation {number(math.sqrt(c.variance))}.",
    )


def one_in(rate: float) -> str:
    """The number N of "1 in N": two digits from 10 on."""
    value = 1 / rate
    return _count(round(value, -max(0, math.floor(math.log10(value)) - 1))) if value >= 10 else f"{value:.2g}"


def percent(share: float) -> str:
    """A share in percent, to three digits, never rounded onto 0 or 100."""
    return f"{_rounded(share)} %"


def percent_span(share: Share) -> str:
    """An interval in percent."""
    return f"{_rounded(share.low)} to {_rounded(share.high)} %"


def _rounded(share: float) -> str:
    shown = f"{100 * share:.3g}"
    return number(100 * share, limits=(0, 100)) if shown in ("0", "100") else shown


def meanings_table(calibration: Calibration) -> Cells:
    """What each score that was asked about means."""
    columns = ("score", "percentile", "random pairs that reach it", "95 % interval")
    return Cells(columns, columns[:2], tuple(map(_meaning, calibration.meanings)))


def _meaning(one: ScoreMeaning) -> tuple[str, ...]:
    rate = one.false_match_rate
    shown = "none" if rate.value == 0 else "all" if rate.value == 1 else f"1 in {one_in(rate.value)}"
    return number(one.score), number(one.percentile, limits=(0, 100), digits=5), shown, percent_span(rate)


def thresholds_table(calibration: Calibration) -> Cells:
    """The thresholds that there are pairs enough for, with what labelled pairs say of them."""
    labelled = calibration.labelled
    columns = ["false matches", "threshold", "95 % interval"]
    if labelled is None:
        columns.append("rate in other rows")
    else:
        columns += ["matches", *(["non-matches"] if labelled.non_matches else []), "precision"]
    width = calibration.histogram.width
    digits = min(12, max(0, -math.floor(math.log10(width) + 1e-9)))
    rows = [_threshold(one, labelled, digits) for one in calibration.thresholds if one.score is not None]
    rights = ("false matches", "threshold", "matches", "non-matches", "precision")
    return Cells(tuple(columns), rights, tuple(rows))


def _threshold(one: ScoreThreshold, labelled: LabelledPairs | None, digits: int) -> tuple[str, ...]:
    score, low, high = (
        f"{value:.{digits}f}" if value is not None else "" for value in (one.score, one.low, one.high)
    )
    cells = [f"{100 * one.wanted:.6g} %", score, f"{low} to {high}"]
    if labelled is None:
        cells.append("" if one.false_match_rate is None else percent_span(one.false_match_rate))
    else:
        cells.append(_found(one.true_match_rate))
        cells += [_found(one.non_match_rate)] if labelled.non_matches else []
        cells.append("" if one.precision is None else percent(one.precision))
    return tuple(cells)


def _found(share: Share | None) -> str:
    return "" if share is None else percent(share.value)


def reasons(calibration: Calibration) -> tuple[str, ...]:
    """Why there is no threshold for some rates."""
    return tuple(
        f"No threshold for {100 * one.wanted:.6g} %: {one.reason}."
        for one in calibration.thresholds
        if one.score is None
    )


def labelled_lines(labelled: LabelledPairs) -> tuple[str, ...]:
    """How well scores tell matches from other pairs."""
    area = [
        number(value, limits=(0, 1), digits=4)
        for value in (labelled.area.value, labelled.area.low, labelled.area.high)
    ]
    lines = [
        f"{_count(labelled.matches)} {plural(labelled.matches, 'match', 'matches')} of {labelled.source} "
        f"{plural(labelled.matches, 'has', 'have')} mean score {number(labelled.mean_match)}. "
        f"A match scores above a random pair with probability {area[0]} (95 % interval {area[1]} to {area[2]}). "
        f"Precision is where {100 * labelled.prior:.6g} % of the pairs compared match."
    ]
    if labelled.area_non_matches is not None:
        other = number(labelled.area_non_matches.value, limits=(0, 1), digits=4)
        lines.append(
            f"{_count(labelled.non_matches)} {plural(labelled.non_matches, 'pair is', 'pairs are')} labelled as no match: a match scores above such a "
            f"pair with probability {other}."
        )
    return tuple(lines)


def drift_lines(drift: Drift) -> tuple[str, ...]:
    """What changed since the saved calibration."""
    shift = f"The mean moved by {drift.mean_shift:+.3g}"
    if drift.mean_shift_in_deviations is not None and drift.deviation_ratio is not None:
        shift += f" ({drift.mean_shift_in_deviations:+.2g} standard deviations), the spread is {drift.deviation_ratio:.3g} times what it was"
    differ = f"the shares of pairs below a score differ by at most {percent(drift.largest_difference)}, at {number(drift.at)}"
    return drift.summary, f"{shift}; {differ}.", *drift.notes


def drift_table(drift: Drift) -> Cells:
    """The rate of each saved threshold, then and now."""
    rows = tuple(
        (number(one.score), percent(one.before.value), percent(one.now.value), percent_span(one.now),
         "" if one.ratio is None else f"{one.ratio:.2f}")
        for one in drift.thresholds
    )  # fmt: skip
    columns = ("saved threshold", "then", "now", "95 % interval", "ratio")
    return Cells(columns, ("saved threshold", "then", "now", "ratio"), rows)


def _count(value: float) -> str:
    return count(int(value), separator=",")
