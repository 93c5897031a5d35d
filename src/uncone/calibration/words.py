"""The answer in words, as a function to paste, and remarks beside its numbers."""

import math

from uncone.calibration.labels import Labels
from uncone.calibration.sides import Floor, Side, alignment
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
            f"For these vectors {_NAMES[metric]} of {one.score:.4g} is {level}: {reached_by(one, histogram)}."
        )
    usable = [one for one in thresholds if one.score is not None]
    if usable:
        best = min(usable, key=lambda one: abs(math.log(one.wanted / 0.01)))
        start = "" if meanings else "For these vectors, "
        said.append(f"{start}1 in {one_in(best.wanted)} random pairs reaches {best.score:.4g}.")
    return " ".join(said) or "There are too few pairs for a threshold."


def reached_by(one: ScoreMeaning, histogram: ScoreHistogram) -> str:
    """How many random pairs reach the score, in words."""
    rate = one.false_match_rate.value
    if rate == 0:
        bound = one.false_match_rate.high
        end = f"the 95 % interval ends at 1 in {one_in(bound)}"
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
    scores = [float(f"{knot.score:.6g}") for knot in used]
    logs = [round(math.log10(knot.false_match_rate.value), 4) for knot in used]
    deepest = used[-1].false_match_rate.value
    error = _largest_error(scores, logs, histogram)
    return (
        "from bisect import bisect\n\n\n"
        "def false_match_rate(score):\n"
        f'    """Share of random pairs that score at least this: within {100 * error:.2g} % of itself, down to {deepest:.1e}."""\n'
        f"    s = {_tuple(scores)}\n"
        f"    r = {_tuple(logs)}\n"
        "    i = min(max(bisect(s, score), 1), len(s) - 1)\n"
        "    return 10 ** (r[i - 1] + (r[i] - r[i - 1]) * min(max((score - s[i - 1]) / (s[i] - s[i - 1]), "
        "0), 1))\n"
    )


def _tuple(values: list[float]) -> str:
    return f"({', '.join(map(repr, values))})"


def _largest_error(scores: list[float], logs: list[float], histogram: ScoreHistogram) -> float:
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
    side: Side, other: Side | None, labels: Labels | None, histogram: ScoreHistogram, floor: Floor,
    drawn: tuple[int, int | None], equal: int,
) -> tuple[str, ...]:  # fmt: skip
    """Sentences on what was left out, drawn or counted otherwise than a reader may think."""
    notes = []
    sides = [("rows", side)] if other is None else [("rows", side), ("queries", other)]
    for what, one in sides:
        if one.n < one.moments.n:
            notes.append(f"{_counted(one.moments.n - one.n, what)} all zero: no cosine, left out.")
        if one.rows.left_out:
            notes.append(f"{_counted(len(one.rows.left_out), what)} not finite: left out, as asked.")
    if labels is not None:
        notes.append(
            f"{counted(int(labels.matches.sum()), 'pair')} labelled as a match: not counted as random."
        )
        if labels.dropped:
            notes.append(f"{counted(labels.dropped, 'labelled pair')} with a row that is all zero: left out.")
    if histogram.pairs < floor.pairs:
        of = f"{drawn[0]:,} rows" + ("" if drawn[1] is None else f" and {drawn[1]:,} queries")
        notes.append(
            f"Shares are of the {histogram.pairs:,} pairs of {of} drawn at random; mean and variance are of "
            "all pairs."
        )
    if equal:
        high = "can reach any threshold" if side.metric == "cosine" else "score what a row does with itself"
        notes.append(
            f"{counted(equal, 'pair is', 'pairs are')} of two equal rows ({equal / floor.pairs:.2g} of all) "
            f"and {high}: take repeated texts out if such pairs are no mistakes."
        )
    if other is not None:
        notes += _notes_on_queries(side, other)
    if min(one.n for _, one in sides) < _FEW:
        notes.append(f"There are fewer than {_FEW} rows or queries: the intervals rest on little.")
    return tuple(notes)


def _counted(n: int, what: str) -> str:
    return counted(n, {"rows": "row is", "queries": "query is"}[what], f"{what} are")


def _notes_on_queries(side: Side, other: Side) -> list[str]:
    notes, d = [], side.rows.shape[1]
    aligned = alignment(side, other)
    if min(side.n, other.n) > d and aligned < _UNRELATED:
        notes.append(
            f"Queries and rows prefer no common directions (alignment {aligned:.2f} of 1): are they from "
            "the same model?"
        )
    ratio = other.moments.mean_norm() / side.moments.mean_norm() if side.moments.mean_norm() else 1.0
    if side.metric == "inner_product" and not 1 / 3 < ratio < 3:
        notes.append(f"Queries are {ratio:.2g} times as long as rows: are they from the same model?")
    return notes
