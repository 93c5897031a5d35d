"""The answer in words, as a function to paste, and remarks beside its numbers."""

import math
from collections.abc import Sequence

from uncone.calibration.labels import Labels
from uncone.calibration.sides import Floor, Side, alignment
from uncone.calibration.thresholds import Counted
from uncone.records import Knot, ScoreHistogram, ScoreMeaning, ScoreThreshold
from uncone.records.calibration import one_in
from uncone.records.wording import counted, percent

_LEVELS = (
    (0.5, "below the middle"),
    (0.1, "nothing special"),
    (0.01, "somewhat high"),
    (1e-4, "high"),
    (0.0, "very high"),
)
"""From which false-match rate on a score is called what."""
_NAMES = {"cosine": "a cosine", "inner_product": "an inner product"}
_UNRELATED = 0.1
_FEW = 100
_FEWEST = 100
"""Pairs above the last knot of the function: what fewer say is no curve."""


def verdict(
    metric: str,
    meanings: tuple[ScoreMeaning, ...],
    thresholds: tuple[ScoreThreshold, ...],
    histogram: ScoreHistogram,
) -> str:
    """The answer in one or two sentences: the meaning of the first score asked for, and a threshold."""
    said = []
    if meanings:
        one = meanings[0]
        level = next(word for bar, word in _LEVELS if one.false_match_rate.value >= bar)
        said.append(
            f"For these vectors {_NAMES[metric]} of {one.score:.4g} is {level}: {_reached_by(one, histogram)}."
        )
    usable = [one for one in thresholds if one.score is not None]
    if usable:
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
    used = [knot for knot in knots if knot.false_match_rate.value * histogram.pairs >= _FEWEST]
    if len(used) < 2:
        return ""
    scores = tuple(float(f"{knot.score:.6g}") for knot in used)
    logs = tuple(round(math.log10(knot.false_match_rate.value), 4) for knot in used)
    deepest = used[-1].false_match_rate.value
    error = _largest_error(scores, logs, histogram)
    return (
        "from bisect import bisect\n\n\n"
        "def false_match_rate(score):\n"
        f'    """Share of random pairs that score at least this: within {100 * error:.2g}% of itself, down to {deepest:.1e}."""\n'
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


def remarks(
    side: Side, other: Side | None, labels: Labels | None, told: Counted, floor: Floor, equal: int
) -> tuple[str, ...]:
    """Sentences on what was left out, drawn or counted otherwise than a reader may think."""
    notes = []
    sides = [("rows", side)] if other is None else [("rows", side), ("queries", other)]
    for what, one in sides:
        left_out = {
            "all zero: no cosine, left out": one.moments.n - one.n,
            "not finite: left out, as asked": len(one.rows.left_out),
        }
        singular = {"rows": "row is", "queries": "query is"}[what]
        notes += [f"{counted(n, singular, f'{what} are')} {why}." for why, n in left_out.items() if n]
    if labels is not None:
        notes.append(
            f"{counted(int(labels.matches.sum()), 'pair')} labelled as a match: not counted as random."
        )
        if labels.dropped:
            notes.append(f"{counted(labels.dropped, 'labelled pair')} with a row that is all zero: left out.")
    if told.histogram.pairs < floor.pairs:
        drawn = told.drawn
        of = f"{drawn[0]:,} rows" + ("" if drawn[1] is None else f" and {drawn[1]:,} queries")
        notes.append(
            f"Shares are of the {told.histogram.pairs:,} pairs of {of} drawn at random; mean and variance are of "
            "all pairs."
        )
    if equal:
        high = "can reach any threshold" if side.metric == "cosine" else "score what a row does with itself"
        notes.append(
            f"{counted(equal, 'pair is', 'pairs are')} of two equal rows ({equal / floor.pairs:.2g} of all) "
            f"and {high}: take repeated texts out if such pairs are no mistakes."
        )
    if other is not None:
        aligned = alignment(side, other)
        if min(side.n, other.n) > side.rows.shape[1] and aligned < _UNRELATED:
            notes.append(
                f"Queries and rows prefer no common directions (alignment {aligned:.2f} of 1): are they from "
                "the same model?"
            )
        length = side.moments.mean_norm()
        ratio = other.moments.mean_norm() / length if length else 1.0
        if side.metric == "inner_product" and not 1 / 3 < ratio < 3:
            notes.append(f"Queries are {ratio:.2g} times as long as rows: are they from the same model?")
    if min(one.n for _, one in sides) < _FEW:
        notes.append(f"There are fewer than {_FEW} rows or queries: the intervals rest on little.")
    return tuple(notes)
