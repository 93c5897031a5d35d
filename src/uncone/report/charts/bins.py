"""By id: mean norm, mean cosine within the bin, and mean cosine to the reserved rows, one panel each.

The last panel is Figure 3 of Bis et al., "Too Much in Common" (2021): x = id, y = cosine to the reserved rows.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from uncone.records import Group, Groups
from uncone.records.text import count, number, typeset
from uncone.report.charts.frame import Axis, Chart, axes, frame, line, rectangle, segments, svg, widened
from uncone.report.markup import element, escape

SIZE = (300.0, 240.0)
_MOST_DOTS = 140


@dataclass(frozen=True)
class _Reading:
    title: str
    y_label: str
    of: Callable[[Group], float | None]
    reference: float | None


_READINGS = (
    _Reading("Cosine to reserved rows", "mean cosine", lambda group: group.cosine_to_reserved, 0.0),
    _Reading("Cosine within the bin", "mean cosine", lambda group: group.mean_cosine, 0.0),
    _Reading("Norm", "mean norm (embedding units)", lambda group: group.norm_mean, None),
)


def bin_charts(groups: Groups, uid: str) -> list[Chart]:
    """One panel for every reading that at least one bin has."""
    panels = [_panel(groups, reading, f"{uid}-{order}") for order, reading in enumerate(_READINGS)]
    return [panel for panel in panels if panel is not None]


def _panel(groups: Groups, reading: _Reading, uid: str) -> Chart | None:
    values = [reading.of(group) for group in groups.bins]
    known = [(value, group) for value, group in zip(values, groups.bins, strict=True) if value is not None]
    if not known:
        return None
    numbers = [value for value, _ in known] + ([reading.reference] if reading.reference is not None else [])
    ids = (
        min(group.start for group in groups.bins),
        max(group.stop for group in groups.bins),
    )  # in an edited file in any order
    x, y = axes(SIZE, ids, widened(min(numbers), max(numbers), 0.1))
    middles = [(group.start + group.stop) / 2 for group in groups.bins]
    body = _reserved_bands(groups, x, y) + frame(x, y, x_label="row id", y_label=reading.y_label, x_ticks=4)
    body += _reference(reading, x, y)
    body += "".join(line(run, x, y, "line bins") for run in segments(middles, values))
    body += _dots(groups.bins, middles, values, x, y)
    caption = _extremes(known)
    return Chart(reading.title, svg(uid, f"{reading.title}, by row id", caption, SIZE, body), caption)


def _extremes(known: Sequence[tuple[float, Group]]) -> str:
    low, high = min(known, key=lambda pair: pair[0]), max(known, key=lambda pair: pair[0])
    return f"From {_reading(low)} to {_reading(high)}."


def _reading(pair: tuple[float, Group]) -> str:
    value, group = pair
    return f"{typeset(number(value))} (ids {_ids(group)})"


def _ids(group: Group) -> str:
    return f"{count(group.start)} to {count(group.stop - 1)}"


def _reserved_bands(groups: Groups, x: Axis, y: Axis) -> str:
    held = (group for group in groups.bins if group.reserved_rows > 0)
    return "".join(rectangle(x.at(group.start), y.stop, x.at(group.stop), y.start, "band") for group in held)


def _reference(reading: _Reading, x: Axis, y: Axis) -> str:
    if reading.reference is None:
        return ""
    return element("path", class_="reference", d=f"M{x.start:.1f} {y.at(reading.reference):.1f}H{x.stop:.1f}")


def _dots(
    bins: Sequence[Group], middles: Sequence[float], values: Sequence[float | None], x: Axis, y: Axis
) -> str:
    if len(bins) > _MOST_DOTS:
        return ""
    return "".join(
        _dot(group, f"M{x.at(middle):.1f} {y.at(value):.1f}h.01", value)
        for group, middle, value in zip(bins, middles, values, strict=True)
        if value is not None
    )


def _dot(group: Group, path: str, value: float) -> str:
    tip = f"ids {_ids(group)}: {typeset(number(value))}"
    css = "dots bin reserved" if group.reserved_rows > 0 else "dots bin"
    return element("path", element("title", escape(tip)), class_=css, d=path)
