"""A curve as one line of characters, for terminals and Markdown."""

import math
from collections.abc import Iterator, Sequence
from statistics import fmean

from uncone.records.blocks import Chart, Curve, Figure
from uncone.records.text import NEAR_DIGITS, number

BARS, ASCII_BARS = "▁▂▃▄▅▆▇█", "_.-=+*%#"
_WIDEST = 40


def spark_lines(figure: Figure, bars: str = BARS) -> list[str]:
    """One line for each curve (or the bars) of the charts that have a place in a terminal."""
    charts = (chart for chart in figure.charts if isinstance(chart, Chart) and chart.spark)
    return [line for chart in charts for line in _lines(chart, bars)]


def _lines(chart: Chart, bars: str) -> Iterator[str]:
    drawn = chart.curves or (Curve("", chart.edges[:-1], chart.bars),)
    curves = [curve for curve in drawn if any(y is not None for y in curve.y)]
    scaled = [[math.log10(y) if y is not None and chart.log_y else y for y in curve.y] for curve in curves]
    known = [value for values in scaled for value in values if value is not None]
    label, high = chart.spark, max(known, default=0.0)
    every = [value for curve in curves for value in curve.y if value is not None]
    # what three digits do not tell apart is no shape
    is_flat = len({f"{end:.3g}" for end in (min(every, default=0.0), max(every, default=0.0))}) == 1
    for curve, values in zip(curves, scaled, strict=True):
        ends = [value for value in curve.y if value is not None]
        letter = f"{curve.name}  " if len(drawn) > 1 else ""
        line = sparkline(values, bars, (0.0 if chart.bars else high if is_flat else min(known), high))
        low, top = (number(end, most=NEAR_DIGITS) for end in (min(ends), max(ends)))
        yield f"{label:<20}{letter}{line}  {low} to {top}"
        label = ""


def sparkline(
    values: Sequence[float | None], bars: str = BARS, limits: tuple[float, float] | None = None
) -> str:
    """The values as one line of bars: neighbours are averaged to fit 40 characters, and gaps stay blank."""
    stride = math.ceil(len(values) / _WIDEST) if values else 1
    parts = [values[start : start + stride] for start in range(0, len(values), stride)]
    held = [[value for value in part if value is not None] for part in parts]
    means = [fmean(part) if part else None for part in held]
    known = [mean for mean in means if mean is not None]
    if not known:
        return " " * len(means)
    low, high = limits or (min(known), max(known))
    width, top = high - low, len(bars) - 1
    heights = (None if mean is None else round((mean - low) / width * top) if width else 0 for mean in means)
    return "".join(" " if height is None else bars[min(max(height, 0), top)] for height in heights)
