"""A heat map as SVG: one hue in twelve shades, which differ without colour too, and a tip for each column."""

from itertools import pairwise

from uncone.records.blocks import HeatMap
from uncone.records.text import number, typeset
from uncone.report.markup import escape, tag, typeset_text
from uncone.report.svg import Axis, axes, frame, svg

_SIZE, _SHADES, _LIGHTEST = (400.0, 236.0), 12, 0.08
_SCALE, _NAMED = 7.0, 5  # the width of a shade in the scale; the numbers of a column in its tip


def draw_heat(chart: HeatMap, uid: str) -> str:
    """All cells of one shade are one path, which takes few bytes."""
    if not chart.x or not chart.y:
        return svg(uid, chart.title, chart.caption, _SIZE, "")
    across, up = chart.edges(chart.x, log=chart.log_x), chart.edges(chart.y, log=chart.log_y)
    x, y = axes(_SIZE, (across[0], across[-1]), (up[0], up[-1]), log_x=chart.log_x, log_y=chart.log_y)
    low, high = chart.limits()
    shades = [""] * _SHADES
    for row, (bottom, top) in zip(chart.values, pairwise(up), strict=True):
        foot, height = y.at(bottom), y.at(bottom) - y.at(top)
        for value, (left, right) in zip(row, pairwise(across), strict=True):
            if value is not None:
                share = (value - low) / (high - low) if high > low else 1.0
                start, width = x.at(left), x.at(right) - x.at(left)
                shade = min(int(share * _SHADES), _SHADES - 1)
                shades[shade] += f"M{start:.1f} {foot:.1f}h{width:.1f}v{-height:.1f}h{-width:.1f}z"
    body = "".join(_shade(place, d) for place, d in enumerate(shades) if d)
    body += "".join(_column(chart, place, x, y) for place in range(len(chart.x)))
    body = frame(x, y, typeset(chart.x_label), typeset(chart.y_label)) + body + _scale(chart, x, low, high)
    return svg(uid, chart.title, chart.caption, _SIZE, body)


def _shade(place: int, d: str) -> str:
    opacity = _LIGHTEST + (1 - _LIGHTEST) * place / (_SHADES - 1)
    return tag("path", "", "heat", d=d, fill_opacity=f"{opacity:.2f}")


def _column(chart: HeatMap, place: int, x: Axis, y: Axis) -> str:
    edges = chart.edges(chart.x, log=chart.log_x)
    left, right = x.at(edges[place]), x.at(edges[place + 1])
    last = len(chart.y) - 1
    picked = sorted({round(last * part / (_NAMED - 1)) for part in range(_NAMED)})
    known = ((chart.y[i], chart.values[i][place]) for i in picked)
    values = ", ".join(f"{number(y)}: {number(value)}" for y, value in known if value is not None)
    tip = tag("title", typeset_text(f"{chart.x_label} {number(chart.x[place])}; {values or 'no values'}"))
    width = max(0.0, right - left)
    return tag("rect", tip, "column", x=left, y=y.stop, width=width, height=y.start - y.stop)


def _scale(chart: HeatMap, x: Axis, low: float, high: float) -> str:
    right = x.stop - 34
    left = right - _SCALE * _SHADES
    drawn = ""
    for place in range(_SHADES):
        drawn += _shade(place, f"M{left + _SCALE * place:.1f} 4h{_SCALE:.1f}v9h-{_SCALE:.1f}z")
    least, most = (escape(typeset(number(end))) for end in (low, high))
    words = f"{escape(typeset(chart.value_label))} {least}"
    drawn += tag("text", words, "tick", x=left - 4, y=12.5, text_anchor="end")
    return drawn + tag("text", most, "tick", x=right + 4, y=12.5, text_anchor="start")
