"""The cone picture: rows on the first two singular directions, with and without the mean row."""

import heapq
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from uncone.records.parts import Picture
from uncone.records.text import count, counted, plural
from uncone.records.token_text import shown_token
from uncone.report.markup import escape, path, tag
from uncone.report.svg import Axis, Point, dot, equal_axes, frame, label, rectangle, svg

_SIZE, MOST_POINTS, _COLOURS, _WITHIN = (360.0, 372.0), 3000, 6, 0.95
_NAMED_PER_GROUP = 120  # points that show their token on hover, at about 60 bytes each
_FEWEST = 20  # among fewer points none counts as far away from the others
_FEW = 600  # up to this many points can be larger without hiding each other


@dataclass(frozen=True)
class Legend:
    name: str
    css: str  # the class that colours it
    drawn: int  # rows
    pictured: int


def cone_panels(picture: Picture, uid: str) -> list[tuple[str, str, str]]:
    return [
        _panel(picture, False, f"{uid}-raw", "As stored", "rows as stored"),
        _panel(picture, True, f"{uid}-centred", "Mean row subtracted", "rows, the mean row subtracted"),
    ]


def legends(picture: Picture) -> list[Legend]:
    drawn = [picture.groups[i] for i in sample(picture.groups, len(picture.group_names), MOST_POINTS)]
    named = enumerate(zip(picture.group_names, group_classes(picture), strict=True))
    entries = (Legend(name, css, drawn.count(group), picture.groups.count(group)) for group, (name, css) in named)
    return sorted((one for one in entries if one.pictured), key=lambda one: one.css)


def group_classes(picture: Picture) -> list[str]:
    """CSS classes: the largest group is the quiet background, reserved rows keep one colour."""
    named = range(len(picture.group_names))
    largest = max(named, key=picture.groups.count, default=0)
    others = [group for group in named if group != largest]
    others.sort(key=lambda group: not re.search("reserved|special", picture.group_names[group], re.IGNORECASE))
    classes = {group: f"g{1 + order % (_COLOURS - 1)}" for order, group in enumerate(others)}
    return [classes.get(group, "g0") for group in named]


def sample(groups: Sequence[int], n_groups: int, most: int) -> list[int]:
    """At most `most` positions, evenly spaced in each group. A group keeps all its rows or at least
    `most / (2 * n_groups)` of them; groups share the rest by size."""
    if len(groups) <= most:
        return list(range(len(groups)))
    members: list[list[int]] = [[] for _ in range(n_groups)]
    for place, group in enumerate(groups):
        members[group].append(place)
    kept = [min(len(places), most // (2 * n_groups)) for places in members]
    spare, waiting = most - sum(kept), len(groups) - sum(kept)
    chosen = list[int]()
    for least, places in zip(kept, members, strict=True):
        share = least + spare * (len(places) - least) // waiting
        chosen += [places[index * len(places) // share] for index in range(share)]
    return sorted(chosen)


def beyond(points: Sequence[Sequence[float]]) -> list[int]:
    """The places of one row in 500, or of one row, so far away that all others would share a quarter of the picture."""
    if len(points) < _FEWEST:
        return []
    middle = [sorted(axis)[len(axis) // 2] for axis in zip(*points, strict=True)]
    far = [math.dist(point, middle) for point in points]
    *_, kept = heapq.nlargest(1 + max(1, len(points) // 500), far)
    limit = 4 * max(kept, math.hypot(*middle))  # the origin is in the picture
    return [i for i, away in enumerate(far) if away > limit > 0]


def outside(rows: int, more: str = "") -> str:
    """How many rows are outside the picture, in words."""
    if not rows:
        return ""
    verb, them = plural(rows, "is", "are"), plural(rows, "it", "them")
    return f" {counted(rows, 'distant row')} {verb} outside{more.format(them)}."


def wedge(points: Sequence[Point]) -> tuple[float, float] | None:
    """The cone from the origin that holds 95% of the points: its direction and half angle in radians."""
    angles = [math.atan2(y, x) for x, y in points if x or y]
    if not angles:
        return None
    direction = math.atan2(math.fsum(map(math.sin, angles)), math.fsum(map(math.cos, angles)))
    away = sorted(abs(math.remainder(angle - direction, math.tau)) for angle in angles)
    half = away[min(len(away) - 1, math.ceil(_WITHIN * len(away)) - 1)]
    return (direction, half) if half < math.pi / 2 else None


def opening(half: float | None, where: str) -> str:
    """In words; `half` is the half angle in radians."""
    if half is None:
        return f"Seen from the origin, no cone narrower than 180° holds 95% of the rows {where}."
    angle = f"±{math.degrees(half):.0f}°"
    return f"Seen from the origin, 95% of the rows lie within {angle} of one direction {where} (shaded)."


class _View(NamedTuple):
    drawn: int  # rows
    outside: int
    x: Axis
    y: Axis
    cone: tuple[float, float] | None
    dots: str


@lru_cache(maxsize=2)  # a table that is tied to its head has the same picture
def _view(picture: Picture, centered: bool) -> _View:
    points = [(x, y) for x, y, _ in picture.coordinates(centered=centered)]
    if not centered:  # signs are arbitrary: with the mean to the upper right, reports can be compared
        flips = [-1.0 if math.fsum(point[axis] for point in points) < 0 else 1.0 for axis in (0, 1)]
        points = [(flips[0] * x, flips[1] * y) for x, y in points]
    drawn = sample(picture.groups, len(picture.group_names), MOST_POINTS)
    drawn = sorted(set(drawn).difference(left_out := beyond(points)))
    x, y = equal_axes(_SIZE, [points[i] for i in drawn])
    return _View(len(drawn), len(left_out), x, y, wedge(points), _dots(picture, points, drawn, x, y))


def _panel(picture: Picture, centered: bool, uid: str, title: str, what: str) -> tuple[str, str, str]:
    drawn, left_out, x, y, cone, dots = _view(picture, centered)
    caption = opening(cone and cone[1], "in this plane") + outside(left_out)
    body = frame(x, y, "along the first singular direction (embedding units)", "along the second")
    body += tag("clipPath", rectangle(x.start, y.stop, x.stop, y.start), id=f"{uid}-clip")
    across, down = x.at(0), y.at(0)
    if cone:
        direction, half = cone
        reach = 2 * (_SIZE[0] + _SIZE[1])  # beyond the panel, which clips it
        angles = [direction + half * step / 8 for step in range(-8, 9)]
        rim = "L".join(f"{across + reach * math.cos(a):.0f} {down - reach * math.sin(a):.0f}" for a in angles)
        origin = f"M{across:.1f} {down:.1f}"
        body += tag("path", "", "cone", clip_path=f"url(#{uid}-clip)", d=f"{origin}L{rim}Z")
    body += dots
    body += path("origin", f"M{across - 7:.1f} {down:.1f}h14M{across:.1f} {down - 7:.1f}v14")
    shift, anchor = (-8, "end") if across > x.stop - 50 else (8, "start")
    body += label("origin", across + shift, down + 13, anchor=anchor, css="label mark")
    described = f"{count(drawn)} {what}, on their first two singular directions; the origin is marked. {caption}"
    return title, svg(uid, f"{title}: rows on two singular directions", described, _SIZE, body), caption


def _dots(picture: Picture, points: list[Point], drawn: list[int], x: Axis, y: Axis) -> str:
    n = max(1, len(points))
    centre = math.fsum(x for x, _ in points) / n, math.fsum(y for _, y in points) / n
    # the background is lowest, the reserved rows on top
    layers = sorted(enumerate(group_classes(picture)), key=lambda layer: (layer[1] != "g0", layer[1] == "g1"))
    dots = {i: dot(x.at(points[i][0]), y.at(points[i][1])) for i in drawn}
    body = ""
    for group, css in layers:
        members = [i for i in drawn if picture.groups[i] == group]
        members.sort(key=lambda i: -math.dist(points[i], centre))
        if plain := members[_NAMED_PER_GROUP:]:
            body += path(f"dots {css}", "".join(dots[i] for i in plain))
        for i in members[:_NAMED_PER_GROUP]:
            name, row = picture.labels[i], f"row {picture.ids[i]}"
            body += path(f"dots {css}", dots[i], escape(row if name is None else f"{shown_token(name)} ({row})"))
    return tag("g", body, "few" if len(drawn) <= _FEW else None)
