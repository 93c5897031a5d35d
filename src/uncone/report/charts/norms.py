"""The distribution of the rows' lengths."""

from uncone.records import Norms
from uncone.report.charts.frame import Chart, axes, frame, histogram_path, label, svg
from uncone.report.markup import element
from uncone.report.text import count, number, typeset

SIZE = (360.0, 270.0)


def norms_chart(norms: Norms, uid: str) -> Chart | None:
    """A histogram of Euclidean norms with their mean marked; None where there is no row to draw."""
    if not norms.counts or not any(norms.counts) or norms.edges[-1] <= norms.edges[0]:
        return None
    x, y = axes(SIZE, (norms.edges[0], norms.edges[-1]), (0.0, max(5.0, max(norms.counts) * 1.12)))
    body = frame(x, y, x_label="Euclidean norm (embedding units)", y_label="rows")
    body += histogram_path(norms.edges, norms.counts, x, y) + _mean(norms, x.at(norms.mean), y.stop, y.start, x.stop)
    caption = (
        f"{count(sum(norms.counts))} rows, norms from {typeset(number(norms.smallest))} to {typeset(number(norms.largest))}, "
        f"mean {typeset(number(norms.mean))}."
    )
    return Chart("Norms", svg(uid, "Histogram of row norms", caption, SIZE, body), caption)


def _mean(norms: Norms, across: float, top: float, bottom: float, right: float) -> str:
    near_right = across > right - 80
    text = label(
        f"mean {typeset(number(norms.mean))}",
        across - 5 if near_right else across + 5,
        top + 10,
        anchor="end" if near_right else "start",
        css="label mark",
    )
    return element("path", class_="reference", d=f"M{across:.1f} {top:.1f}V{bottom:.1f}") + text
