"""Fit a chart to its axes: values without a place are counted, and an empty chart becomes a sentence."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import singledispatch
from itertools import pairwise
from typing import Any, TypeVar

from uncone.errors import first_line
from uncone.records.blocks import Chart, Cloud, Curve, HeatMap, Intervals, Shade
from uncone.records.layout import LARGEST_DRAWN, SMALLEST_DRAWN
from uncone.records.text import counted

AnyChart = Chart | Intervals | HeatMap | Cloud
Drawing = TypeVar("Drawing")
_NOT_ABOVE, _FAR = "of 0 or less, which a logarithmic axis cannot show", "beyond what an axis can show"


class NotDrawnError(ValueError):
    """No value has a place on the axes."""


def drawn_or_said(chart: AnyChart, draw: Callable[[Any, str], Drawing], instead: Callable[[str], Drawing]) -> Drawing:
    """`draw` of the chart and a note on what is not drawn. If that fails, `instead` of the reason: one chart must not
    cost a reader the rest of a result."""
    try:
        lost = Counter[str]()
        fitted = _fitted(chart, lost)
        return draw(fitted, f"Not drawn: {_words(lost)}." if lost else "")
    except Exception as error:
        why = str(error) if isinstance(error, NotDrawnError) else f"drawing it failed ({first_line(error)})"
        return instead(f"{chart.title or 'This chart'} cannot be drawn: {why}.")


@singledispatch
def _fitted(chart: AnyChart, lost: Counter[str]) -> AnyChart:
    """`lost` counts the values that have no place."""
    raise TypeError(f"not a chart: {type(chart).__name__}")


@_fitted.register
def _(chart: Chart, lost: Counter[str]) -> Chart:
    def on_x(value: float) -> bool:
        return not _missed(value, chart.log_x)

    def on_y(value: float) -> bool:
        return not _missed(value, chart.log_y)

    curves = tuple(_curve(curve, chart, lost) for curve in chart.curves)
    has_bars = bool(chart.bars) and all(map(on_x, chart.edges)) and all(map(on_y, chart.bars))
    lost.update([_FAR] * (0 if has_bars else len(chart.bars)))
    if not has_bars and all(y is None for curve in curves for y in curve.y):
        raise NotDrawnError(_nothing(lost))
    there = (mark for mark in chart.marks if (on_x if mark.axis == "x" else on_y)(mark.at))
    marks = tuple(replace(mark, top=mark.top if mark.top is None or on_y(mark.top) else None) for mark in there)
    bands = tuple(band for band in chart.bands if all(map(on_x, band)))
    shades = tuple(kept for shade in chart.shades if (kept := _shade(shade, on_x, on_y)).x)
    ends = chart.x_limits
    ends = ends if ends and all(map(on_x, ends)) and ends[0] < ends[1] else None
    chart = replace(chart, curves=curves, marks=marks, bands=bands, shades=shades, x_limits=ends)
    return chart if has_bars else replace(chart, bars=(), edges=())


@_fitted.register
def _(chart: Intervals, lost: Counter[str]) -> Intervals:
    rows = tuple(row for row in chart.rows if not any(_missed(value, False) for value in row[1:]))
    lost.update([_FAR] * (len(chart.rows) - len(rows)))
    if not rows or _missed(chart.origin, False):
        raise NotDrawnError(_nothing(lost))
    return replace(chart, rows=rows)


@_fitted.register
def _(chart: HeatMap, lost: Counter[str]) -> HeatMap:
    sides = ((chart.x, chart.log_x), (chart.y, chart.log_y))
    across, up = ([i for i, value in enumerate(side) if not _missed(value, log)] for side, log in sides)
    kept = tuple(tuple(_value(chart.values[j][i], False, lost) for i in across) for j in up)
    lost.update([_FAR] * sum(map(len, () if across else chart.values)))
    if all(value is None for row in kept for value in row):
        raise NotDrawnError(_nothing(lost))
    x, y = tuple(chart.x[i] for i in across), tuple(chart.y[j] for j in up)
    if any(a >= b for places in (x, y) for a, b in pairwise(places)):
        raise NotDrawnError("the values of its axis do not increase")
    return replace(chart, x=x, y=y, values=kept)


@_fitted.register
def _(chart: Cloud, lost: Counter[str]) -> Cloud:
    if any(_missed(scale, True) for scale in (chart.picture.raw_scale, chart.picture.centered_scale)):
        raise NotDrawnError(f"its coordinates are {_FAR}")
    return chart


def _missed(value: float, log: bool) -> str:
    if not abs(value) <= LARGEST_DRAWN:  # true for NaN too
        return _FAR
    return "" if not log or value >= SMALLEST_DRAWN else _NOT_ABOVE if value <= 0 else _FAR


def _value(value: float | None, log: bool, lost: Counter[str]) -> float | None:
    missed = "" if value is None else _missed(value, log)
    lost.update([missed] if missed else [])
    return None if missed else value


def _curve(curve: Curve, chart: Chart, lost: Counter[str]) -> Curve:
    """A point without a place becomes a gap at the first known place."""
    there = [x for x in curve.x if not _missed(x, chart.log_x)]
    heights = list[float | None]()
    for x, y in zip(curve.x, curve.y, strict=True):
        known = None if y is None else _value(x, chart.log_x, lost)
        heights.append(None if known is None else _value(y, chart.log_y, lost))
    places = tuple(there[0] if _missed(x, chart.log_x) else x for x in curve.x if there)
    return replace(curve, x=places, y=tuple(heights) if there else ())


def _shade(shade: Shade, on_x: Callable[[float], bool], on_y: Callable[[float], bool]) -> Shade:
    points = zip(shade.x, shade.low, shade.high, strict=True)
    kept = [(x, low, high) for x, low, high in points if on_x(x) and on_y(low) and on_y(high)]
    return Shade(*(zip(*kept, strict=True) if kept else ((), (), ())))


def _nothing(lost: Counter[str]) -> str:
    return f"it has only {_words(lost)}" if lost else "it has no values"


def _words(lost: Counter[str]) -> str:
    return " and ".join(f"{counted(n, 'value')} {why}" for why, n in lost.items())
