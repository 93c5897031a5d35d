"""The distribution of the rows' lengths."""

import statistics
from itertools import pairwise

from uncone.records import Norms
from uncone.records.text import count, number, typeset
from uncone.records.wording import plural
from uncone.report.charts.frame import Axis, Chart, axes, frame, label, svg
from uncone.report.markup import element

SIZE = (360.0, 270.0)


def norms_chart(norms: Norms, uid: str) -> Chart | None:
    """A histogram of Euclidean norms with their mean marked; None where there is no row to draw."""
    if not any(norms.counts) or norms.edges[-1] <= norms.edges[0]:
        return None
    widths = [right - left for left, right in pairwise(norms.edges)]
    unit = statistics.median(widths)
    # The area of a bar is its rows: a bin of another width must not look as if more rows had one norm.
    heights = [
        rows * unit / width if width > 0 else 0.0 for rows, width in zip(norms.counts, widths, strict=True)
    ]
    x, y = axes(SIZE, (norms.edges[0], norms.edges[-1]), (0.0, max(5.0, max(heights) * 1.12)))
    y_label = f"rows per {typeset(number(unit, digits=2))} of norm"
    body = frame(x, y, x_label="Euclidean norm (embedding units)", y_label=y_label)
    body += _bars(norms.edges, heights, x, y) + _mean(norms, x.at(norms.mean), y, x.stop)
    caption = (
        f"{count(sum(norms.counts))} {plural(sum(norms.counts), 'row')}, norms from {typeset(number(norms.smallest))} to {typeset(number(norms.largest))}, "
        f"mean {typeset(number(norms.mean))}."
    )
    return Chart("Norms", svg(uid, "Histogram of row norms", caption, SIZE, body), caption)


def _bars(edges: tuple[float, ...], heights: list[float], x: Axis, y: Axis) -> str:
    bars = []
    for (left, right), height in zip(pairwise(edges), heights, strict=True):
        if height > 0:
            gap = min(0.4, (x.at(right) - x.at(left)) * 0.1)
            bars.append(
                f"M{x.at(left) + gap:.1f} {y.start:.1f}V{y.at(height):.1f}H{x.at(right) - gap:.1f}V{y.start:.1f}Z"
            )
    return element("path", class_="bars", d="".join(bars))


def _mean(norms: Norms, across: float, y: Axis, right: float) -> str:
    near_right = across > right - 80
    shift, anchor = (-5.0, "end") if near_right else (5.0, "start")
    text = label(
        f"mean {typeset(number(norms.mean))}", across + shift, y.stop + 10, anchor=anchor, css="label mark"
    )
    return element("path", class_="reference", d=f"M{across:.1f} {y.stop:.1f}V{y.start:.1f}") + text
