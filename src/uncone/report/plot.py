"""Charts with matplotlib, for papers."""

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from uncone.errors import UnsupportedModel, needed
from uncone.records.blocks import Block, Chart, Cloud, Figure, HeatMap, Intervals
from uncone.records.text import visible
from uncone.report.drawable import AnyChart, drawn_or_said

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

_DASHES = {"isotropic": "--", "even": ":", "d1": "--", "d2": ":", "d3": "-."}


def charts_of(blocks: Iterable[Block]) -> dict[str, AnyChart]:
    charts = dict[str, AnyChart]()
    for chart in (chart for block in blocks if isinstance(block, Figure) for chart in block.charts):
        charts.setdefault(chart.name, chart)
        if isinstance(chart, Cloud):
            charts.setdefault(f"{chart.name} centred", chart)
    return charts


def draw(chart: AnyChart, ax: "Axes | None", *, centered: bool = False) -> "tuple[Drawing, Axes]":
    """Draw the chart on `ax`, by default on new axes; `Record.plot` documents the rest."""
    if ax is None:
        message = "expected the package matplotlib for a plot, got none: pip install 'uncone[plot]'"
        _, ax = needed("matplotlib.pyplot", message, UnsupportedModel).subplots(layout="constrained")
    drawn_or_said(chart, partial(_on, ax, centered), partial(_say, ax, chart.title))
    figure = ax.get_figure(root=True)
    assert figure is not None
    return figure, ax


def _on(ax: "Axes", centered: bool, chart: AnyChart, left: str) -> None:
    if isinstance(chart, Cloud):
        _cloud(chart, ax, centered)
    elif isinstance(chart, Intervals):
        _intervals(chart, ax)
    elif isinstance(chart, HeatMap):
        _heat(chart, ax)
    else:
        _chart(chart, ax)
    if left:
        ax.set_title(f"{ax.get_title()}\n{left}", wrap=True)


def _say(ax: "Axes", title: str, why: str) -> None:
    ax.clear()
    ax.set_axis_off()
    ax.set_title(_plain(title))
    ax.text(0.5, 0.5, _plain(why), transform=ax.transAxes, ha="center", va="center", wrap=True)


def _plain(text: str) -> str:
    """Keeps dollars from starting a formula, and a leading underscore from hiding an entry of a legend."""
    shown = visible(text).replace("$", r"\$")
    return f" {shown}" if shown.startswith("_") else shown


def _label(chart: Chart | HeatMap, ax: "Axes") -> None:
    if chart.log_x:
        ax.set_xscale("log")
    if chart.log_y:
        ax.set_yscale("log")
    ax.set(xlabel=_plain(chart.x_label), ylabel=_plain(chart.y_label), title=_plain(chart.title))


def _chart(chart: Chart, ax: "Axes") -> None:
    for start, stop in chart.bands:
        ax.axvspan(start, stop, alpha=0.12, linewidth=0)
    for shade in chart.shades:
        ax.fill_between(shade.x, shade.low, shade.high, alpha=0.12, linewidth=0)
    if chart.bars:
        ax.stairs(chart.bars, chart.edges, fill=True)
    for curve in chart.curves:
        dashes, marker = _DASHES.get(curve.style, "-"), "." if curve.dots else None
        if not curve.line:
            dashes, marker = "none", "o"
        ax.plot(curve.x, _known(curve.y), linestyle=dashes, marker=marker, label=_plain(curve.name))
    for mark in chart.marks:
        line = ax.axvline if mark.axis == "x" else ax.axhline
        line(mark.at, color="black", linestyle="--", linewidth=0.8, label=_plain(mark.label) or None)
    _label(chart, ax)
    if len(chart.curves) > 1:
        ax.legend()


def _known(values: Iterable[float | None]) -> list[float]:
    return [float("nan") if value is None else value for value in values]


def _intervals(chart: Intervals, ax: "Axes") -> None:
    names, values = [_plain(row[0]) for row in chart.rows], [row[1] for row in chart.rows]
    below, above = zip(*((value - low, high - value) for _, value, low, high in chart.rows), strict=True)
    ax.errorbar(values, range(len(names)), xerr=(below, above), fmt="o", capsize=2)
    ax.axvline(chart.origin, color="black", linestyle="--", linewidth=0.8)
    ax.set_yticks(range(len(names)), names)
    ax.invert_yaxis()
    ax.set(xlabel=_plain(chart.x_label), title=_plain(chart.title))


def _heat(chart: HeatMap, ax: "Axes") -> None:
    values = list(map(_known, chart.values))
    edges = chart.edges(chart.x, log=chart.log_x), chart.edges(chart.y, log=chart.log_y)
    drawn = ax.pcolormesh(*edges, values, cmap="cividis")
    ax.get_figure(root=True).colorbar(drawn, ax=ax, label=_plain(chart.value_label))  # type: ignore[union-attr]
    _label(chart, ax)


def _cloud(chart: Cloud, ax: "Axes", centered: bool) -> None:
    picture = chart.picture
    points = picture.coordinates(centered=centered)
    for group, name in enumerate(picture.group_names):
        members = [points[i] for i, of in enumerate(picture.groups) if of == group]
        if members:
            ax.scatter([x for x, _, _ in members], [y for _, y, _ in members], s=4.0, label=_plain(name))
    ax.plot(0, 0, "k+", markersize=10)
    ax.set_aspect("equal", adjustable="datalim")
    title = f"{_plain(chart.title)}, {'mean row subtracted' if centered else 'rows as stored'}"
    ax.set(xlabel="first singular direction", ylabel="second singular direction", title=title)
    ax.legend(markerscale=2)
