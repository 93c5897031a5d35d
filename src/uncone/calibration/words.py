"""The answer in words, and as a function to paste."""

import math

from uncone.records import Knot, ScoreHistogram, ScoreMeaning, ScoreThreshold
from uncone.records.calibration import one_in
from uncone.records.wording import percent

_LEVELS = (
    (0.5, "below the middle"),
    (0.1, "nothing special"),
    (0.01, "somewhat high"),
    (1e-4, "high"),
    (0.0, "very high"),
)
"""From which false-match rate on a score is called what."""
_NAMES = {"cosine": "a cosine", "inner_product": "an inner product"}
_FEWEST = 100
"""Pairs above the last knot of the function: what fewer say is no curve."""


def verdict(
    metric: str,
    meanings: tuple[ScoreMeaning, ...],
    thresholds: tuple[ScoreThreshold, ...],
    histogram: ScoreHistogram,
) -> str:
    """The answer in one or two sentences: what the first score asked for means, and a threshold that can be used."""
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
        return f"none of {histogram.pairs:,} random pairs reaches it (the 95 % interval ends at 1 in {one_in(bound)})"
    if rate == 1:
        return "every random pair reaches it"
    if rate >= 0.1:
        return f"{percent(rate, precise=True)} of random pairs reach it"
    return f"1 in {one_in(rate)} random pairs reaches it"


def function_of(knots: tuple[Knot, ...], histogram: ScoreHistogram) -> str:
    """Python text of a function that gives the false-match rate of a score: the knots, linear in the logarithm of the rate."""
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
        "    return 10 ** (r[i - 1] + (r[i] - r[i - 1]) * min(max((score - s[i - 1]) / (s[i] - s[i - 1]), 0), 1))\n"
    )


def _tuple(values: list[float]) -> str:
    return f"({', '.join(map(repr, values))})"


def _largest_error(scores: list[float], logs: list[float], histogram: ScoreHistogram) -> float:
    """The largest error of the interpolated rate relative to the counted one, over the edges between the knots; rounded up."""
    worst = 0.0
    for left, right, start, stop in zip(scores, scores[1:], logs, logs[1:], strict=False):
        steps = max(1, min(200, round((right - left) / histogram.width)))
        for step in range(steps + 1):
            rate = histogram.reached(left + (right - left) * step / steps)
            if rate > 0:
                worst = max(worst, abs(10 ** (start + (stop - start) * step / steps) / rate - 1))
    return float(f"{worst * 1.05:.2g}") + 1e-4
