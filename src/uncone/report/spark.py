"""A curve as one line of characters, for terminals and Markdown."""

import math
from collections.abc import Sequence

from uncone.records.blocks import Chart, Curve, Figure
from uncone.records.text import number

BARS, ASCII_BARS = "▁▂▃▄▅▆▇█", "_.-=+*%#"
_WIDEST = 40


def spark_lines(figure: Figure, bars: str = BARS) -> list[str]:
    """One line for each curve (or the bars) of the charts that have a place in a terminal."""
    lines = []
    for chart in figure.charts:
        if isinstance(chart, Chart) and chart.spark:
            lines += _lines(chart, bars)
    return lines


def _lines(chart: Chart, bars: str) -> list[str]:
    curves = chart.curves or (Curve("", chart.edges[:-1], chart.bars),)
    values = [
        [None if y is None else math.log10(y) if chart.log_y else y for y in curve.y] for curve in curves
    ]
    known = [value for line in values for value in line if value is not None]
    label, lines = chart.spark, []
    for curve, line in zip(curves, values, strict=True):
        ends = [value for value in curve.y if value is not None]
        if not ends:
            continue
        letter = f"{curve.name}  " if len(curves) > 1 else ""
        limits = (0.0, max(known)) if chart.bars else (min(known), max(known))
        drawn = sparkline(line, bars, limits)
        lines.append(f"{label:<20}{letter}{drawn}  {number(min(ends))} to {number(max(ends))}")
        label = ""
    return lines


def sparkline(
    values: Sequence[float | None], bars: str = BARS, limits: tuple[float, float] | None = None
) -> str:
    """The values as one line of bars, lowest to highest; neighbours are averaged to fit 40 characters, gaps
    stay blank.

    `limits` are the ends of the scale, so that several lines can share one; by default the lowest and the
    highest bar.
    """
    stride = math.ceil(len(values) / _WIDEST) if values else 1
    means = [_mean(values[start : start + stride]) for start in range(0, len(values), stride)]
    known = [mean for mean in means if mean is not None]
    if not known:
        return " " * len(means)
    low, high = limits or (min(known), max(known))
    width, top = high - low, len(bars) - 1
    heights = (None if mean is None else round((mean - low) / width * top) if width else 0 for mean in means)
    return "".join(" " if height is None else bars[min(max(height, 0), top)] for height in heights)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known else None
