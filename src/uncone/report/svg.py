"""Charts as SVG text, styled by the page's classes, without a script; and the axes and the frame that they
share."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from uncone.records.blocks import Chart, Curve, Intervals, Mark
from uncone.records.text import number, typeset
from uncone.report.markup import SVG, element, escape, typeset_text

MARGIN_LEFT, MARGIN_RIGHT, MARGIN_TOP, MARGIN_BOTTOM = 46.0, 12.0, 26.0, 40.0
_FEW_DECADES = 2.0

Point = tuple[float, float]
_WIDE, _NARROW = (360.0, 270.0), (300.0, 240.0)
_ROW = 22.0


@dataclass(frozen=True)
class Axis:
    """A map from data in [low, high] to drawing units in [start, stop]."""

    low: float
    high: float
    start: float
    stop: float
    is_log: bool = False

    def at(self, value: float) -> float:
        """The position of `value` in drawing units."""
        low, high = (math.log10(self.low), math.log10(self.high)) if self.is_log else (self.low, self.high)
        place = math.log10(value) if self.is_log else value
        return self.start + (place - low) / (high - low) * (self.stop - self.start)

    def ticks(self, most: int) -> list[float]:
        """About `most` round values inside the axis."""
        return (
            _log_ticks(self.low, self.high, most) if self.is_log else _linear_ticks(self.low, self.high, most)
        )


def _linear_ticks(low: float, high: float, most: int) -> list[float]:
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    digits = max(0, -math.floor(math.log10(step)))  # so that 3 * 0.1 is 0.3
    return [round(index * step, digits) for index in range(first, last + 1)]


def _log_ticks(low: float, high: float, most: int) -> list[float]:
    bottom, top = math.log10(low), math.log10(high)
    factors = (1, 2, 5) if top - bottom < _FEW_DECADES else (1,)
    stride = max(1, math.ceil((top - bottom) / most))
    candidates = (
        factor * 10.0**power
        for power in range(math.floor(bottom), math.ceil(top) + 1, stride)
        for factor in factors
    )
    return [tick for tick in candidates if low * 0.999 <= tick <= high * 1.001]


def widened(low: float, high: float, by: float = 0.06) -> tuple[float, float]:
    """The interval with a margin on both sides; one of no width becomes one unit in the scale of its
    value."""
    margin = (high - low) * by if high > low else max(abs(high) * 0.5, 0.5)
    return low - margin, high + margin


def draw(chart: Chart, uid: str, *, narrow: bool = False) -> str:
    """The chart; `narrow` where three stand side by side."""
    size = _NARROW if narrow else _WIDE
    x, y = axes(size, *_limits(chart), log_x=chart.log_x, log_y=chart.log_y)
    body = "".join(rectangle(x.at(start), y.stop, x.at(stop), y.start, "band") for start, stop in chart.bands)
    body += frame(
        x, y, x_label=typeset(chart.x_label), y_label=typeset(chart.y_label), x_ticks=4 if narrow else 5
    )
    body += _bars(chart, x, y) + "".join(_curve(curve, x, y) for curve in chart.curves)
    body += "".join(_mark(mark, x, y) for mark in chart.marks)
    return svg(uid, chart.title, chart.caption, size, body)


def draw_intervals(chart: Intervals, uid: str) -> str:
    """A line for each row, with its value as a dot, beside the line at the origin."""
    width = _WIDE[0] + 60
    height = MARGIN_TOP + MARGIN_BOTTOM + _ROW * len(chart.rows)
    ends = [chart.origin, *(end for _, _, low, high in chart.rows for end in (low, high))]
    left = 150.0  # for the names
    low, high = widened(min(ends), max(ends), 0.05)
    x, y = Axis(low, high, left, width - MARGIN_RIGHT), Axis(0.0, 1.0, height - MARGIN_BOTTOM, MARGIN_TOP)
    ticks = x.ticks(5)
    body = element(
        "path", class_="grid", d="".join(f"M{x.at(tick):.1f} {y.stop:.1f}V{y.start:.1f}" for tick in ticks)
    )
    body += "".join(_tick(tick, x.at(tick), y.start + 15, "middle") for tick in ticks)
    body += label(chart.x_label, (x.start + x.stop) / 2, y.start + 33) + _mark(Mark(chart.origin), x, y)
    for place, (name, value, first, last) in enumerate(chart.rows):
        down = MARGIN_TOP + _ROW * (place + 0.5)
        body += label(name, left - 8, down + 3.5, anchor="end")
        body += element("path", class_="line centred", d=f"M{x.at(first):.1f} {down:.1f}H{x.at(last):.1f}")
        tip = element("title", escape(f"{name}: {number(value)} ({number(first)} to {number(last)})"))
        body += element("path", tip, class_="dots bin", d=f"M{x.at(value):.1f} {down:.1f}h.01")
    return svg(uid, chart.title, chart.caption, (width, height), body)


def _limits(chart: Chart) -> tuple[Point, Point]:
    xs = [
        *chart.edges,
        *(x for curve in chart.curves for x in curve.x),
        *(end for band in chart.bands for end in band),
    ]
    ys = [*chart.bars, *(y for curve in chart.curves for y in curve.y if y is not None)]
    ys += [mark.at for mark in chart.marks if mark.axis == "y"] + ([0.0] if chart.bars else [])
    low, high = min(ys), max(ys)
    x = chart.x_limits or (min(xs), max(xs))
    if chart.log_y:
        return x, (low / 1.3, high * 1.3)
    return x, (0.0, high * 1.12 or 1.0) if chart.bars else widened(low, high, 0.1)


def _bars(chart: Chart, x: Axis, y: Axis) -> str:
    bars = ""
    for (left, right), height in zip(pairwise(chart.edges), chart.bars, strict=True):
        if height > 0:
            gap = min(0.4, (x.at(right) - x.at(left)) * 0.1)
            bars += f"M{x.at(left) + gap:.1f} {y.start:.1f}V{y.at(height):.1f}H{x.at(right) - gap:.1f}V{y.start:.1f}Z"
    return element("path", class_="bars", d=bars) if bars else ""


def _curve(curve: Curve, x: Axis, y: Axis) -> str:
    drawn = "".join(
        line(run if len(run) > 1 or curve.dots else [*run, *run], x, y, f"line {curve.style}")
        for run in segments(curve.x, curve.y)
    )
    for place, tip in enumerate(curve.tips):
        value = curve.y[place]
        if value is not None:
            css = "dots bin reserved" if place in curve.marked else "dots bin"
            path = f"M{x.at(curve.x[place]):.1f} {y.at(value):.1f}h.01"
            drawn += element("path", element("title", typeset_text(tip)), class_=css, d=path)
    return drawn


def _mark(mark: Mark, x: Axis, y: Axis) -> str:
    if mark.axis == "y":
        return element("path", class_="reference", d=f"M{x.start:.1f} {y.at(mark.at):.1f}H{x.stop:.1f}")
    across, up = x.at(mark.at), y.stop if mark.top is None else y.at(mark.top)
    shift, anchor = (-5.0, "end") if across > x.stop - 80 and mark.top is None else (5.0, "start")
    text_x = min(across + shift, x.stop - 24) if mark.top is not None else across + shift
    down = up + 10 if mark.top is None else up - 4
    words = label(typeset(mark.label), text_x, down, anchor=anchor, css="label mark") if mark.label else ""
    return element("path", class_="reference", d=f"M{across:.1f} {up:.1f}V{y.start:.1f}") + words


def axes(size: Point, x: Point, y: Point, *, log_x: bool = False, log_y: bool = False) -> tuple[Axis, Axis]:
    """The two axes of a chart of the given size inside the shared margins; y grows upwards."""
    return (
        Axis(x[0], x[1], MARGIN_LEFT, size[0] - MARGIN_RIGHT, log_x),
        Axis(y[0], y[1], size[1] - MARGIN_BOTTOM, MARGIN_TOP, log_y),
    )


def line(points: Iterable[Point], x: Axis, y: Axis, css: str) -> str:
    """A polyline through data points."""
    return element("path", class_=css, d="M" + "L".join(f"{x.at(a):.1f} {y.at(b):.1f}" for a, b in points))


def segments(xs: Sequence[float], values: Sequence[float | None]) -> list[list[Point]]:
    """The runs of points without a gap, so that an undefined value breaks a line rather than bending it."""
    runs: list[list[Point]] = [[]]
    for position, value in zip(xs, values, strict=True):
        if value is None:
            runs.append([])
        else:
            runs[-1].append((position, value))
    return [run for run in runs if run]


def rectangle(left: float, top: float, right: float, bottom: float, css: str | None = None) -> str:
    """A rectangle in drawing units."""
    width, height = max(0.0, right - left), max(0.0, bottom - top)
    return element(
        "rect", class_=css, x=f"{left:.1f}", y=f"{top:.1f}", width=f"{width:.1f}", height=f"{height:.1f}"
    )


def label(text: str, x: float, y: float, *, anchor: str = "middle", css: str = "label") -> str:
    """Text in drawing units; `text` is plain and gets escaped."""
    return element("text", escape(text), class_=css, x=f"{x:.1f}", y=f"{y:.1f}", text_anchor=anchor)


def frame(x: Axis, y: Axis, *, x_label: str, y_label: str, x_ticks: int = 5, y_ticks: int = 6) -> str:
    """Grid lines, tick labels and axis labels. The y label stands level above its axis: it reads without
    turning."""
    left, right, bottom, top = x.start, x.stop, y.start, y.stop
    verticals, horizontals = x.ticks(x_ticks), y.ticks(y_ticks)
    grid = "".join(f"M{left:.1f} {y.at(tick):.1f}H{right:.1f}" for tick in horizontals)
    grid += "".join(f"M{x.at(tick):.1f} {top:.1f}V{bottom:.1f}" for tick in verticals)
    shown = [_tick(tick, x.at(tick), bottom + 15, "middle") for tick in verticals]
    shown += [_tick(tick, left - 6, y.at(tick) + 3.5, "end") for tick in horizontals]
    names = label(x_label, (left + right) / 2, bottom + 33) + label(y_label, 4, 13, anchor="start")
    return element("path", class_="grid", d=grid) + "".join(shown) + names


def _tick(value: float, x: float, y: float, anchor: str) -> str:
    return element(
        "text",
        typeset_text(_tick_text(value)),
        class_="tick",
        x=f"{x:.1f}",
        y=f"{y:.1f}",
        text_anchor=anchor,
    )


def _tick_text(value: float) -> str:
    # Ticks are round by construction, so trailing zeros say nothing and cost width on a phone.
    mantissa, mark, exponent = number(value, digits=6).partition("e")
    return (mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa) + mark + exponent


def svg(uid: str, title: str, description: str, size: Point, body: str) -> str:
    """The drawing with its accessible name and description; `uid` must be unique on the page."""
    names = element("title", escape(title), id=f"{uid}-title")
    names += element("desc", typeset_text(description), id=f"{uid}-desc")
    return element(
        "svg",
        names + body,
        class_="chart",
        viewBox=f"0 0 {size[0]:g} {size[1]:g}",
        role="img",
        aria_labelledby=f"{uid}-title {uid}-desc",
        xmlns=SVG,
    )
