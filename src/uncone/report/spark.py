"""A curve as one line of characters, for terminals and Markdown."""

import math
from collections.abc import Iterator, Sequence
from functools import partial
from statistics import fmean

from uncone.records.blocks import Chart, Curve, Figure, HeatMap
from uncone.records.text import NEAR_DIGITS, number
from uncone.report.drawable import drawn_or_said

BARS, ASCII_BARS = "▁▂▃▄▅▆▇█", "_.-=+*%#"
SHADES, ASCII_SHADES = "░▒▓█", ".:*#"
WIDEST, NARROWEST, _HIGHEST = 40, 8, 8
_LABEL = 20  # characters, or more where a label is longer


def spark_lines(figure: Figure, bars: str = BARS, widest: int = WIDEST) -> list[str]:
    """A line for each curve (or for the bars) of the charts that a terminal shows, at most `widest` bars wide."""
    lines: list[str] = []
    drawn = [one for one in figure.charts if isinstance(one, Chart | HeatMap) and one.spark]
    room = max([_LABEL, *(1 + len(one.spark) for one in drawn)])
    over_time = [one for one in figure.charts if isinstance(one, Chart) and _is_over_time(one)]
    most = min(widest, max((len(curve.x) for one in over_time for curve in one.curves), default=1))
    for chart in drawn:
        lines += drawn_or_said(chart, partial(_with_the_rest, bars, widest, most, room), lambda why: [why])
    return lines


def _is_over_time(chart: Chart) -> bool:
    """Whether the axis is steps, so that such charts line up below each other."""
    return chart.x_limits is not None and chart.x_label == "step" and bool(chart.curves)


def _with_the_rest(bars: str, widest: int, most: int, room: int, chart: Chart | HeatMap, left: str) -> list[str]:
    shades = SHADES if bars == BARS else ASCII_SHADES
    lines = _lines(chart, bars, widest, most, room) if isinstance(chart, Chart) else _shaded(chart, shades, room)
    return [*lines, *filter(None, [left])]


def _shaded(chart: HeatMap, shades: str, room: int) -> Iterator[str]:
    """At most eight lines, the first of `y` at the bottom, and a line that explains the shades."""
    limits, label = chart.limits(), chart.spark
    for place in reversed(range(0, len(chart.y), math.ceil(len(chart.y) / _HIGHEST) or 1)):
        yield f"{label:<{room}}{number(chart.y[place]):>6}  {sparkline(chart.values[place], shades, limits)}"
        label = ""
    low, high = (number(end, most=NEAR_DIGITS) for end in limits)
    yield f"{'':<{room + 8}}{shades[0]} {low} to {shades[-1]} {high}"


def _lines(chart: Chart, bars: str, widest: int, most: int, room: int) -> Iterator[str]:
    drawn = chart.curves or (Curve("", chart.edges[:-1], chart.bars),)
    curves = [curve for curve in drawn if any(y is not None for y in curve.y)]
    scaled = [[math.log10(y) if y is not None and chart.log_y else y for y in curve.y] for curve in curves]
    known = [value for values in scaled for value in values if value is not None]
    label, high = chart.spark, max(known, default=0.0)
    every = [value for curve in curves for value in curve.y if value is not None]
    # equal in three digits
    is_flat = f"{min(every, default=0.0):.3g}" == f"{max(every, default=0.0):.3g}"
    for curve, values in zip(curves, scaled, strict=True):
        if chart.x_limits is not None and _is_over_time(chart):
            values = _over_time(curve.x, values, chart.x_limits, most)
        ends = [value for value in curve.y if value is not None]
        line = sparkline(values, bars, (0.0 if chart.bars else high if is_flat else min(known), high), widest)
        low, top = (number(end, most=NEAR_DIGITS) for end in (min(ends), max(ends)))
        yield f"{label:<{room}}{f'{curve.name}  ' * (len(drawn) > 1)}{line}  {low} to {top}"
        label = ""


def _over_time(
    x: Sequence[float], values: Sequence[float | None], limits: tuple[float, float], n: int
) -> list[float | None]:
    """Means over `n` equal parts of the axis. A value holds until the next one; after the last there is none."""
    parts: list[list[float]] = [[] for _ in range(n)]
    for at, value in zip(x, values, strict=True):
        if value is not None:
            parts[min(max(int((at - limits[0]) / ((limits[1] - limits[0]) or 1) * n), 0), n - 1)].append(value)
    last = max((i for i, part in enumerate(parts) if part), default=-1)
    held, found = None, list[float | None]()
    for part in parts[: last + 1]:
        held = fmean(part) if part else held
        found.append(held)
    return [*found, *[None] * (n - 1 - last)]


def sparkline(
    values: Sequence[float | None], bars: str = BARS, limits: tuple[float, float] | None = None, widest: int = WIDEST
) -> str:
    """Neighbours are averaged to fit `widest` characters, and gaps stay blank."""
    stride = math.ceil(len(values) / widest) or 1
    parts = (values[start : start + stride] for start in range(0, len(values), stride))
    held = ([value for value in part if value is not None] for part in parts)
    means = [fmean(part) if part else None for part in held]
    known = [mean for mean in means if mean is not None]
    if not known:
        return " " * len(means)
    low, high = limits or (min(known), max(known))
    width, top = high - low, len(bars) - 1
    heights = (None if mean is None else round((mean - low) / width * top) if width else 0 for mean in means)
    return "".join(" " if height is None else bars[min(max(height, 0), top)] for height in heights)
