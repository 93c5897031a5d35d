"""The cone picture: rows on the first two singular directions, as they are and with the mean row
subtracted."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from uncone.records import Picture
from uncone.records.text import count, shortened
from uncone.report.markup import element, escape
from uncone.report.svg import (
    MARGIN_BOTTOM,
    MARGIN_LEFT,
    MARGIN_RIGHT,
    MARGIN_TOP,
    Axis,
    Point,
    axes,
    frame,
    label,
    rectangle,
    svg,
)

_SIZE = (360.0, 372.0)
MOST_POINTS = 3000
_NAMED_PER_GROUP = 120  # points that tell their token on hover; each costs some 60 bytes
_WITHIN = 0.95
_COLOURS = 6
_FEW = 600  # so few points can be drawn larger without hiding each other


@dataclass(frozen=True)
class Panel:
    """What one panel draws: every point of the picture, and which of them are drawn."""

    points: list[Point]
    drawn: list[int]


@dataclass(frozen=True)
class Legend:
    """One group of rows: its name, the CSS class that colours it, and how many of its rows are drawn of how
    many."""

    name: str
    css: str
    drawn: int
    pictured: int


def cone_panels(picture: Picture, uid: str) -> list[tuple[str, str, str]]:
    """The raw and the centred panel: title, drawing and caption."""
    drawn = sample(picture.groups, len(picture.group_names), MOST_POINTS)
    raw = Panel(_pointing_right([(x, y) for x, y, _ in picture.coordinates(centered=False)]), drawn)
    centered = Panel([(x, y) for x, y, _ in picture.coordinates(centered=True)], drawn)
    return [
        _panel(picture, raw, f"{uid}-raw", "As stored", "rows as stored"),
        _panel(picture, centered, f"{uid}-centred", "Mean row subtracted", "rows, the mean row subtracted"),
    ]


def legends(picture: Picture) -> list[Legend]:
    """The groups that have rows in the picture, in the order of their colours."""
    drawn = sample(picture.groups, len(picture.group_names), MOST_POINTS)
    classes = group_classes(picture)
    entries = [
        Legend(
            name, classes[index], sum(picture.groups[i] == index for i in drawn), picture.groups.count(index)
        )
        for index, name in enumerate(picture.group_names)
    ]
    return sorted((entry for entry in entries if entry.pictured), key=lambda entry: entry.css)


def group_classes(picture: Picture) -> list[str]:
    """A CSS class for each group: the largest is the quiet background, the reserved rows always have the same
    colour."""
    sizes = [picture.groups.count(index) for index in range(len(picture.group_names))]
    largest = max(range(len(sizes)), key=lambda index: sizes[index], default=0)
    others = [index for index in range(len(sizes)) if index != largest]
    others.sort(key=lambda index: "reserved" not in picture.group_names[index].lower())
    classes = dict(
        zip(others, (f"g{1 + order % (_COLOURS - 1)}" for order in range(len(others))), strict=True)
    )
    return [classes.get(index, "g0") for index in range(len(sizes))]


def sample(groups: Sequence[int], n_groups: int, most: int) -> list[int]:
    """Positions of at most `most` points, evenly spaced within each group, so the choice depends on the
    record alone.

    Every group keeps all its points or at least `most / (2 * n_groups)` of them; the rest is shared by size.
    Small groups are thus drawn more densely than they are, which the caption says.
    """
    if len(groups) <= most:
        return list(range(len(groups)))
    members: list[list[int]] = [[] for _ in range(n_groups)]
    for position, group in enumerate(groups):
        members[group].append(position)
    kept = [min(len(positions), most // (2 * n_groups)) for positions in members]
    spare, waiting = most - sum(kept), len(groups) - sum(kept)
    shares = [
        least + spare * (len(positions) - least) // waiting
        for least, positions in zip(kept, members, strict=True)
    ]
    shared = zip(shares, members, strict=True)
    return sorted(
        positions[index * len(positions) // share] for share, positions in shared for index in range(share)
    )


def wedge(points: Sequence[Point]) -> tuple[float, float] | None:
    """The narrowest-looking cone from the origin: (direction, half angle) in radians holding 95 % of the
    points.

    The direction is that of the mean unit vector. None where half the angle reaches a right angle: no cone
    there.
    """
    angles = [math.atan2(y, x) for x, y in points if x or y]
    if not angles:
        return None
    direction = math.atan2(math.fsum(map(math.sin, angles)), math.fsum(map(math.cos, angles)))
    away = sorted(abs(math.remainder(angle - direction, math.tau)) for angle in angles)
    half = away[min(len(away) - 1, math.ceil(_WITHIN * len(away)) - 1)]
    return (direction, half) if half < math.pi / 2 else None


def _pointing_right(points: list[Point]) -> list[Point]:
    # The sign of a singular direction is arbitrary; the mean to the upper right makes reports comparable.
    flip_x = -1.0 if math.fsum(x for x, _ in points) < 0 else 1.0
    flip_y = -1.0 if math.fsum(y for _, y in points) < 0 else 1.0
    return [(flip_x * x, flip_y * y) for x, y in points]


def _panel(picture: Picture, cloud: Panel, uid: str, title: str, what: str) -> tuple[str, str, str]:
    x, y = _equal_axes([cloud.points[i] for i in cloud.drawn])
    found = wedge(cloud.points)
    caption = _caption(found)
    body = frame(
        x, y, x_label="along the first singular direction (embedding units)", y_label="along the second"
    )
    body += _clip(uid, x, y) + _cone(found, uid, x, y) + _dots(picture, cloud, x, y) + _origin(x, y)
    described = f"{count(len(cloud.drawn))} {what}, on their first two singular directions; the origin is marked. {caption}"
    return title, svg(uid, f"{title}: rows on two singular directions", described, _SIZE, body), caption


def _caption(found: tuple[float, float] | None) -> str:
    if found is None:
        return "No cone in this plane: seen from the origin, rows lie on all sides."
    angle = math.degrees(found[1])
    return f"Seen from the origin, 95 % of the rows lie within ±{angle:.0f}° of one direction in this plane (shaded)."


def _equal_axes(points: Sequence[Point]) -> tuple[Axis, Axis]:
    """Axes with one scale for both directions, so that angles on the page are angles in the plane."""
    width, height = _SIZE[0] - MARGIN_LEFT - MARGIN_RIGHT, _SIZE[1] - MARGIN_TOP - MARGIN_BOTTOM
    xs, ys = [0.0, *(x for x, _ in points)], [0.0, *(y for _, y in points)]
    unit = max((max(xs) - min(xs)) / width, (max(ys) - min(ys)) / height) * 1.08 or 1.0 / width
    middle_x, middle_y = (max(xs) + min(xs)) / 2, (max(ys) + min(ys)) / 2
    half_x, half_y = unit * width / 2, unit * height / 2
    return axes(_SIZE, (middle_x - half_x, middle_x + half_x), (middle_y - half_y, middle_y + half_y))


def _clip(uid: str, x: Axis, y: Axis) -> str:
    return element("clipPath", rectangle(x.start, y.stop, x.stop, y.start), id=f"{uid}-clip")


def _cone(found: tuple[float, float] | None, uid: str, x: Axis, y: Axis) -> str:
    if found is None:
        return ""
    direction, half = found
    reach = 2 * (_SIZE[0] + _SIZE[1])  # beyond the panel in every direction; the clip cuts it
    steps = [direction + half * step / 8 for step in range(-8, 9)]
    rim = "L".join(
        f"{x.at(0) + reach * math.cos(angle):.0f} {y.at(0) - reach * math.sin(angle):.0f}" for angle in steps
    )
    return element(
        "path", class_="cone", clip_path=f"url(#{uid}-clip)", d=f"M{x.at(0):.1f} {y.at(0):.1f}L{rim}Z"
    )


def _origin(x: Axis, y: Axis) -> str:
    across, down = x.at(0), y.at(0)
    cross = element(
        "path", class_="origin", d=f"M{across - 7:.1f} {down:.1f}h14M{across:.1f} {down - 7:.1f}v14"
    )
    near_right = across > x.stop - 50
    return cross + label(
        "origin",
        across - 8 if near_right else across + 8,
        down + 13,
        anchor="end" if near_right else "start",
        css="label mark",
    )


def _dots(picture: Picture, cloud: Panel, x: Axis, y: Axis) -> str:
    """The quiet group first, so that the others lie on top of it; the outermost points of each group carry
    their token."""
    classes = group_classes(picture)
    centre = _centre(cloud.points)
    layers = []
    for css, group in sorted(((css, group) for group, css in enumerate(classes)), key=_depth):
        members = [i for i in cloud.drawn if picture.groups[i] == group]
        members.sort(key=lambda i: -math.dist(cloud.points[i], centre))
        named, plain = members[:_NAMED_PER_GROUP], members[_NAMED_PER_GROUP:]
        if plain:
            layers.append(
                element("path", class_=f"dots {css}", d="".join(_dot(cloud.points[i], x, y) for i in plain))
            )
        layers += [_named_dot(picture, i, css, _dot(cloud.points[i], x, y)) for i in named]
    return element("g", "".join(layers), class_="few" if len(cloud.drawn) <= _FEW else None)


def _depth(layer: tuple[str, int]) -> tuple[bool, bool]:
    return layer[0] != "g0", layer[0] == "g1"  # the background lowest, the reserved rows on top of all


def _centre(points: Sequence[Point]) -> Point:
    n = max(1, len(points))
    return math.fsum(x for x, _ in points) / n, math.fsum(y for _, y in points) / n


def _dot(point: Point, x: Axis, y: Axis) -> str:
    return f"M{x.at(point[0]):.1f} {y.at(point[1]):.1f}h.01"  # a stroke of no length whose ends make the dot: few bytes


def _named_dot(picture: Picture, position: int, css: str, dot: str) -> str:
    name = picture.labels[position]
    tip = (
        f"row {picture.ids[position]}" if name is None else f"{shortened(name)} (row {picture.ids[position]})"
    )
    return element("path", element("title", escape(tip)), class_=f"dots {css}", d=dot)
