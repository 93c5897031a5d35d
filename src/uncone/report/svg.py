"""Charts as SVG, styled by the page's classes, and the axes and frame they share."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from uncone.records.blocks import Chart, Curve, Intervals, Mark, Shade
from uncone.records.layout import SMALLEST_DRAWN
from uncone.records.text import NEAR_DIGITS, number, shortened, typeset
from uncone.report.markup import SVG, escape, path, tag, typeset_text

MARGIN_LEFT, MARGIN_RIGHT, MARGIN_TOP, MARGIN_BOTTOM = 46.0, 12.0, 26.0, 40.0
FEW_POINTS = 4  # so few do not show what happens between them: they are dots, without a line
_FEW_DECADES, _NO_WIDTH = 2.0, 1e-12
_FAR_FROM_ZERO = 0.75  # an axis does not begin at 0 if its nearest end is farther than this share of the other end

Point = tuple[float, float]
_ROW, _LINES = 22.0, 400.0
_LONGEST_NAME, _LETTER = 32, 6.8  # of a name next to its line


@dataclass(frozen=True)
class Axis:
    """From data in [low, high] to drawing units in [start, stop]."""

    low: float
    high: float
    start: float
    stop: float
    is_log: bool = False

    def at(self, value: float) -> float:
        low, high, place = (math.log10(x) if self.is_log else x for x in (self.low, self.high, value))
        return self.start + (place - low) / (high - low) * (self.stop - self.start)

    @property
    def is_broken(self) -> bool:
        """Whether 0, from which lengths are read, is outside the axis. A logarithmic axis is never broken."""
        return not self.is_log and not self.low <= 0 <= self.high

    def ticks(self, most: int) -> list[float]:
        """About `most` round values inside the axis."""
        if self.is_log:
            bottom, top = math.log10(self.low), math.log10(self.high)
            factors = (1, 2, 5) if top - bottom < _FEW_DECADES else (1,)
            stride = max(1, math.ceil((top - bottom) / most))
            powers = range(math.floor(bottom), math.ceil(top) + 1, stride)
            candidates = (factor * 10.0**power for power in powers for factor in factors)
            return [tick for tick in candidates if self.low * 0.999 <= tick <= self.high * 1.001]
        rough = self.high / most - self.low / most  # the difference of the ends may overflow
        power_of_ten = 10.0 ** math.floor(math.log10(rough))
        step = next(factor * power_of_ten for factor in (1, 2, 5, 10) if factor * power_of_ten >= rough)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        digits = max(0, -math.floor(math.log10(step)))  # so that 3 * 0.1 is 0.3
        return [round(index * step, digits) for index in range(first, last + 1)]


def axes(size: Point, x: Point, y: Point, *, log_x: bool = False, log_y: bool = False) -> tuple[Axis, Axis]:
    """Inside the shared margins; y grows upwards."""
    across = Axis(*x, MARGIN_LEFT, size[0] - MARGIN_RIGHT, log_x)
    return across, Axis(*y, size[1] - MARGIN_BOTTOM, MARGIN_TOP, log_y)


def equal_axes(size: Point, points: Sequence[Point]) -> tuple[Axis, Axis]:
    """Axes with the origin and with one scale, so that the page shows true angles."""
    width, height = size[0] - MARGIN_LEFT - MARGIN_RIGHT, size[1] - MARGIN_TOP - MARGIN_BOTTOM
    xs, ys = [0.0, *(x for x, _ in points)], [0.0, *(y for _, y in points)]
    unit = max((max(xs) - min(xs)) / width, (max(ys) - min(ys)) / height) * 1.08 or 1.0 / width
    middle_x, middle_y = (max(xs) + min(xs)) / 2, (max(ys) + min(ys)) / 2
    half_x, half_y = unit * width / 2, unit * height / 2
    return axes(size, (middle_x - half_x, middle_x + half_x), (middle_y - half_y, middle_y + half_y))


def widened(low: float, high: float, by: float = 0.06) -> tuple[float, float]:
    """The ends with margins. Ends too close for ticks get half their size, and at least 0.5, on each side."""
    is_wide = high - low > max(_NO_WIDTH * max(abs(low), abs(high)), SMALLEST_DRAWN)
    margin = (high - low) * by if is_wide else max(abs(high) * 0.5, 0.5)
    return low - margin, high + margin


def draw(chart: Chart | Intervals, uid: str, *, narrow: bool = False) -> str:
    """`narrow` is for three charts side by side."""
    if isinstance(chart, Intervals):
        return _draw_intervals(chart, uid)
    size = (320.0, 214.0) if narrow else (400.0, 236.0)
    x, y = axes(size, *limits(chart), log_x=chart.log_x, log_y=chart.log_y)
    bands = ([x.at(min(max(end, x.low), x.high)) for end in band] for band in chart.bands)
    body = "".join(rectangle(start, y.stop, stop, y.start, "band") for start, stop in bands)
    body += "".join(_shade(shade, x, y) for shade in chart.shades)
    body += frame(x, y, typeset(chart.x_label), typeset(chart.y_label), x_ticks=4 if narrow else 5)
    bars = ""
    for (left, right), height in zip(pairwise(chart.edges), chart.bars, strict=True):
        if height > 0:
            gap = min(0.4, (x.at(right) - x.at(left)) * 0.1)
            bars += f"M{x.at(left) + gap:.1f} {y.start:.1f}V{y.at(height):.1f}H{x.at(right) - gap:.1f}V{y.start:.1f}Z"
    body += (path("bars", bars) if bars else "") + "".join(_curve(curve, x, y) for curve in chart.curves)
    body += "".join(_mark(one, x, y) for one in chart.marks if one.axis == "y" or x.low <= one.at <= x.high)
    # ids, which have `x_limits`, are names and not amounts
    broken = path("broken", f"M{x.start} {y.stop}V{y.start - 13}l-4 2.5 8 4-4 2.5V{y.start}") * y.is_broken
    if x.is_broken and chart.x_limits is None:
        broken += path("broken", f"M{x.stop} {y.start}H{x.start + 13}l-2.5 4-4-8-2.5 4H{x.start}")
    caption = f"{chart.caption} A broken axis does not begin at 0." if broken else chart.caption
    return svg(uid, chart.title, caption, size, body + broken)


def _draw_intervals(chart: Intervals, uid: str) -> str:
    width, height = _LINES, MARGIN_TOP + MARGIN_BOTTOM + _ROW * len(chart.rows)
    ends = [chart.origin, *(end for _, _, low, high in chart.rows for end in (low, high))]
    names = [shortened(name, _LONGEST_NAME) for name, *_ in chart.rows]
    left = max(110.0, 12 + _LETTER * max(map(len, names)))
    x = Axis(*widened(min(ends), max(ends), 0.05), left, width - MARGIN_RIGHT)
    body = frame(x, Axis(0.0, 1.0, height - MARGIN_BOTTOM, MARGIN_TOP), chart.x_label, y_ticks=0)
    body += path("reference", f"M{x.at(chart.origin):.1f} {MARGIN_TOP:.1f}V{height - MARGIN_BOTTOM:.1f}")
    for place, (called, (name, value, first, last)) in enumerate(zip(names, chart.rows, strict=True)):
        down = MARGIN_TOP + _ROW * (place + 0.5)
        tip = escape(f"{name}: {number(value)} ({number(first)} to {number(last)})")
        body += label(called, left - 8, down + 3.5, anchor="end")
        body += path("line centred", f"M{x.at(first):.1f} {down:.1f}H{x.at(last):.1f}")
        body += path("dots bin", dot(x.at(value), down), tip)
    return svg(uid, chart.title, chart.caption, (width, height), body)


def limits(chart: Chart) -> tuple[Point, Point]:
    """Linear axes begin at 0, unless that would push the numbers into a far corner."""
    xs = [*chart.edges, *(x for curve in chart.curves for x in curve.x)]
    xs += [end for band in chart.bands for end in band] + [x for shade in chart.shades for x in shade.x]
    ys = [*chart.bars, *(y for curve in chart.curves for y in curve.y if y is not None)]
    ys += [end for shade in chart.shades for end in (*shade.low, *shade.high)]
    ys += [mark.at for mark in chart.marks if mark.axis == "y"] + ([0.0] if chart.bars else [])
    (left, right), (low, high) = ((min(ends), max(ends)) for ends in (xs, ys))
    if chart.log_x and right <= left * (1 + _NO_WIDTH):  # a single place
        left, right = left / 1.3, right * 1.3
    x = chart.x_limits or ((left, right) if chart.log_x else _from_zero(left, right, 0.0))
    if chart.log_y:
        return x, (low / 1.3, high * 1.3)
    if chart.bars:
        return x, (0.0, high * 1.12 if high > SMALLEST_DRAWN else 1.0)
    return x, _from_zero(low, high, 0.1)


def _from_zero(low: float, high: float, margin: float) -> Point:
    near, far = sorted((abs(low), abs(high)))
    if low <= 0 <= high or near > _FAR_FROM_ZERO * far or far < SMALLEST_DRAWN:
        return widened(low, high, margin)
    return (0.0, high + margin * far) if low > 0 else (low - margin * far, 0.0)


def is_scattered(curve: Curve) -> bool:
    """Whether the curve has no line, or too few points for a line. Steps, which repeat places, always have a line."""
    if not curve.line:
        return True
    known = [x for x, y in zip(curve.x, curve.y, strict=True) if y is not None]
    return len(known) <= FEW_POINTS and len(set(known)) == len(known)


def _curve(curve: Curve, x: Axis, y: Axis) -> str:
    drawn, scattered = "", is_scattered(curve)
    for run in () if scattered else segments(curve.x, curve.y):
        drawn += line(run if len(run) > 1 or curve.dots else [*run, *run], x, y, f"line {curve.style}")
    tips = curve.tips or tuple(f"{curve.name}: {number(up or 0.0)}" for up in curve.y if scattered)
    for place, (across, up, tip) in enumerate(zip(curve.x, curve.y, tips, strict=False)):
        if up is not None:
            css = f"dots bin {'reserved' if place in curve.marked else curve.style}"
            drawn += path(css, dot(x.at(across), y.at(up)), typeset_text(tip))
    return drawn


def _shade(shade: Shade, x: Axis, y: Axis) -> str:
    around = [*zip(shade.x, shade.high, strict=True), *zip(shade.x[::-1], shade.low[::-1], strict=True)]
    return line(around, x, y, "band", "Z")


def _mark(mark: Mark, x: Axis, y: Axis) -> str:
    if mark.axis == "y":
        return path("reference", f"M{x.start:.1f} {y.at(mark.at):.1f}H{x.stop:.1f}")
    across, up, ends = x.at(mark.at), y.stop if mark.top is None else y.at(mark.top), mark.top is not None
    shift, anchor = (-5.0, "end") if across > x.stop - 80 and not ends else (5.0, "start")
    at = min(across + shift, x.stop - 24) if ends else across + shift, up - 4 if ends else up + 10
    words = label(typeset(mark.label), *at, anchor=anchor, css="label mark") if mark.label else ""
    return path("reference", f"M{across:.1f} {up:.1f}V{y.start:.1f}") + words


def dot(across: float, down: float) -> str:
    return f"M{across:.1f} {down:.1f}h.01"


def line(points: Iterable[Point], x: Axis, y: Axis, css: str, end: str = "") -> str:
    return path(css, "M" + "L".join(f"{x.at(a):.1f} {y.at(b):.1f}" for a, b in points) + end)


def segments(xs: Sequence[float], values: Sequence[float | None]) -> list[list[Point]]:
    """The runs without a gap: an undefined value breaks a line rather than bending it."""
    runs: list[list[Point]] = [[]]
    for x, y in zip(xs, values, strict=True):
        if y is None:
            runs.append([])
        else:
            runs[-1].append((x, y))
    return [run for run in runs if run]


def rectangle(left: float, top: float, right: float, bottom: float, css: str | None = None) -> str:
    width, height = max(0.0, right - left), max(0.0, bottom - top)
    return tag("rect", "", css, x=left, y=top, width=width, height=height)


def label(text: str, x: float, y: float, *, anchor: str = "middle", css: str = "label") -> str:
    return tag("text", escape(text), css, x=float(x), y=float(y), text_anchor=anchor)


def frame(x: Axis, y: Axis, x_label: str, y_label: str = "", *, x_ticks: int = 5, y_ticks: int = 6) -> str:
    """Grid, ticks and labels. The y label is horizontal, above its axis."""
    left, right, bottom, top = x.start, x.stop, y.start, y.stop
    across = [(tick, x.at(tick)) for tick in x.ticks(x_ticks)]
    up = [(tick, y.at(tick)) for tick in y.ticks(y_ticks)] if y_ticks else []
    grid = "".join(f"M{left:.1f} {at:.1f}H{right:.1f}" for _, at in up)
    grid += "".join(f"M{at:.1f} {top:.1f}V{bottom:.1f}" for _, at in across)
    shown = "".join(_tick(tick, at, bottom + 15, "middle") for tick, at in across)
    shown += "".join(_tick(tick, left - 6, at + 3.5, "end") for tick, at in up)
    shown += label(x_label, (left + right) / 2, bottom + 33)
    return path("grid", grid) + shown + (label(y_label, 4, 13, anchor="start") if y_label else "")


def _tick(value: float, x: float, y: float, anchor: str) -> str:
    # Ticks are round, so trailing zeros add nothing. They are not readings: those near 1 must differ too.
    mantissa, mark, exponent = number(value, digits=NEAR_DIGITS).partition("e")
    text = (mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa) + mark + exponent
    return tag("text", typeset_text(text), "tick", x=x, y=y, text_anchor=anchor)


def svg(uid: str, title: str, description: str, size: Point, body: str) -> str:
    """`uid` must be unique on the page."""
    body = tag("desc", typeset_text(description), id=f"{uid}-desc") + body
    body = tag("title", escape(title), id=f"{uid}-title") + body
    box, named_by = f"0 0 {size[0]:g} {size[1]:g}", f"{uid}-title {uid}-desc"
    return tag("svg", body, "chart", viewBox=box, role="img", aria_labelledby=named_by, xmlns=SVG)
