"""The scores of random pairs: how many lie where, and the share that reaches each score."""

from collections.abc import Sequence

from uncone.records import Calibration, ScoreHistogram
from uncone.records.text import count, number, typeset
from uncone.report.charts.frame import Axis, Chart, Point, axes, frame, label, line, svg
from uncone.report.markup import element

SIZE = (360.0, 270.0)
_BARS, _POINTS = 60, 240


def score_charts(calibration: Calibration, uid: str) -> list[Chart]:
    """The histogram, and the share of pairs at or above each score with the thresholds marked."""
    bins = calibration.histogram
    if len(bins.counts) < 2:
        return []
    return [_histogram(bins, f"{uid}-histogram"), _reaching(calibration, f"{uid}-reaching")]


def _histogram(bins: ScoreHistogram, uid: str) -> Chart:
    size = -(-len(bins.counts) // _BARS)
    heights = [sum(bins.counts[start : start + size]) for start in range(0, len(bins.counts), size)]
    low, high = bins.low, bins.edge(size * len(heights))
    x, y = axes(SIZE, (low, high), (0.0, max(heights) / bins.pairs * 112))
    body = frame(x, y, x_label="score", y_label="% of random pairs")
    body += _bars([100 * height / bins.pairs for height in heights], low, (high - low) / len(heights), x, y)
    caption = f"{count(bins.pairs)} pairs in bins of {typeset(number(bins.width * size))}."
    return Chart(
        "Scores of random pairs",
        svg(uid, "Histogram of scores of random pairs", caption, SIZE, body),
        caption,
    )


def _bars(heights: Sequence[float], low: float, width: float, x: Axis, y: Axis) -> str:
    bars = []
    for number_, height in enumerate(heights):
        if height > 0:
            left, right = x.at(low + number_ * width), x.at(low + (number_ + 1) * width)
            bars.append(f"M{left:.1f} {y.start:.1f}V{y.at(height):.1f}H{right:.1f}V{y.start:.1f}Z")
    return element("path", class_="bars", d="".join(bars))


def _reaching(calibration: Calibration, uid: str) -> Chart:
    bins = calibration.histogram
    step = max(1, len(bins.counts) // _POINTS)
    scores = [bins.edge(number_) for number_ in range(0, len(bins.counts), step)]
    points: list[Point] = [(score, bins.reached(score)) for score in scores if bins.reached(score) > 0]
    x, y = axes(SIZE, (bins.low, bins.edge(len(bins.counts))), (points[-1][1] / 1.5, 1.5), log_y=True)
    body = frame(x, y, x_label="score", y_label="share of random pairs at or above, logarithmic")
    body += line(points, x, y, "line raw")
    for one in calibration.thresholds:
        if one.score is not None and y.low < one.wanted < y.high:
            across, up = x.at(one.score), y.at(one.wanted)
            body += element("path", class_="reference", d=f"M{across:.1f} {up:.1f}V{y.start:.1f}")
            body += label(
                typeset(number(one.score)),
                min(across + 4, x.stop - 30),
                up - 4,
                anchor="start",
                css="label mark",
            )
    caption = "Dashed: thresholds. The curve ends where the last counted pair is."
    return Chart("False-match rate", svg(uid, "Share of random pairs by score", caption, SIZE, body), caption)
