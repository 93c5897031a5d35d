"""The interactive picture: numbers and controls for `cone.js`, and its scales in words."""

import base64
import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from string import Template

from uncone.records.parts import Picture
from uncone.records.text import count, number, plural, shortened
from uncone.records.token_text import shown_token
from uncone.report.cone import beyond, group_classes, legends, opening, outside, wedge
from uncone.report.markup import beside, escape, tag, typeset_text

_LONGEST_LABEL, _WITHIN = 80, 0.95
_RANKS = (0, 5, 4, 3, 2, 1)  # of the classes g0, g1, ...: the background is drawn first, the reserved rows last
_NARROWEST = 0.2  # cosine: a cone wider than 78 degrees is cut short, because its rim would be far away
_RIM = 48  # corners of the circle around a cone
_OUTER = 0.01  # colours cover the norms between these percentiles: one long row would give all others one colour
_STEPS = 16  # colours of a scale; 0 is no value

Point = tuple[float, float, float]
Cone = tuple[Point, float]  # a unit vector, and the half angle in radians
Shares = tuple[tuple[float, ...], tuple[float, ...]]
"""Shares of the squared length in the first two and the first three directions: raw, then centred."""


@dataclass(frozen=True)
class Scale:
    """`ends` are the values of the first and the last colour."""

    name: str
    title: str
    words: str
    values: Sequence[float | None]
    ends: tuple[float, float]
    text: Callable[[float], str]

    def shades(self) -> list[int]:
        """Colours from 1 to 16; 0 where a row has no value."""
        low, width = self.ends[0], self.ends[1] - self.ends[0] or 1.0
        places = (None if value is None else min(1.0, max(0.0, (value - low) / width)) for value in self.values)
        return [0 if place is None else 1 + round(place * (_STEPS - 1)) for place in places]


def colour_scales(picture: Picture) -> list[Scale]:
    """Row id, and norm and frequency where the record has them and rows differ."""
    ids = (min(picture.ids), max(picture.ids))
    scales = [Scale("id", "row id", "Row id, linear", picture.ids, ids, lambda value: count(round(value)))]
    norms = picture.lengths()
    if norms and max(norms) > min(norms):
        words = (
            "Norm of the row as stored, linear from the 1st to the 99th percentile; rows outside get the end colours"
        )
        ordered = sorted(norms)
        cut = int(_OUTER * (len(ordered) - 1))
        cut = cut if ordered[cut] < ordered[-1 - cut] else 0
        scales.append(Scale("norm", "norm", words, norms, (ordered[cut], ordered[-1 - cut]), number))
    if picture.counts and any(picture.counts):
        logarithms = [math.log(count) if count else None for count in picture.counts]
        seen = [value for value in logarithms if value is not None]
        words = "Occurrences, logarithmic" + "; grey: none" * (0 in picture.counts)
        ends = (min(seen), max(seen))
        scales.append(Scale("count", "frequency", words, logarithms, ends, lambda value: count(round(math.exp(value)))))
    return scales


def explorer(picture: Picture, shares: Shares, uid: str) -> str:
    """The picture and its controls, hidden where scripts are off."""
    scales, cones, far, data = _drawn(picture)
    pictured = len(picture.ids)
    rows = plural(pictured, "the one row", f"all {count(pictured)} rows")
    if pictured < picture.total:
        rows = f"{count(pictured)} of {count(picture.total)} rows, a sample"
    items = (
        tag("li", tag("i", "", f"swatch-{e.css}") + typeset_text(f"{e.name}, {count(e.pictured)}"))
        for e in legends(picture)
    )
    named = ((scale.name, scale.title) for scale in scales)
    text = "".join(line.strip() for line in beside("explorer.html").splitlines())
    return Template(text).substitute(
        uid=uid,
        colours="".join(tag("option", title, value=name) for name, title in (("group", "group"), *named)),
        sought="a row" if all(label is None for label in picture.labels) else "a token",
        named=escape(rows),
        rows=typeset_text(rows),
        legend=tag("ul", "".join(items), "legend", data_scale="group"),
        notes=_notes(cones, far, shares),
        scales="".join(map(_bar, scales)),
        data=data,
    )


@lru_cache(maxsize=1)  # a table that is tied to its head has the same picture
def _drawn(picture: Picture) -> tuple[list[Scale], dict[str, list[Cone | None]], dict[str, list[int]], str]:
    """The scales, the cones and the rows outside the view by mode, and the data of the script: JSON in which
    nothing ends the script element, for HTML and XML parsers alike."""
    scales = colour_scales(picture)
    clouds = {mode: picture.coordinates(centered=mode == "centered") for mode in ("raw", "centered")}
    cones = {mode: [_cone(points, 2), _cone(points, 3)] for mode, points in clouds.items()}
    far = {mode: beyond(points) for mode, points in clouds.items()}
    data = json.dumps(
        _data(picture, scales, clouds, cones) | {"beyond": far},
        ensure_ascii=False,
        allow_nan=False,
        separators=(",", ":"),
    )
    return scales, cones, far, re.sub("[<>&\u2028\u2029]", lambda found: f"\\u{ord(found[0]):04x}", data)


def _data(
    picture: Picture, scales: list[Scale], clouds: dict[str, list[Point]], cones: dict[str, list[Cone | None]]
) -> dict[str, object]:
    labels = [label if label is None else shown_token(label, _LONGEST_LABEL) for label in picture.labels]
    ranks = [_RANKS[int(css[1:])] for css in group_classes(picture)]
    shades = {"group": [ranks[group] for group in picture.groups]} | {one.name: one.shades() for one in scales}
    return {
        "total": picture.total,
        "steps": [after - before for before, after in pairwise((0, *picture.ids))],  # shorter than the ids
        "labels": labels if any(label is not None for label in labels) else None,
        "groups": picture.groups,
        "names": [shortened(name, _LONGEST_LABEL) for name in picture.group_names],
        "raw": picture.raw,
        "centered": picture.centered,
        "norms": picture.norms,
        "counts": picture.counts,
        "units": {"raw": picture.raw_scale, "centered": picture.centered_scale, "norm": picture.norm_scale},
        "frames": {mode: _frame(points) for mode, points in clouds.items()},
        "rims": {mode: [_rim(cone, clouds[mode]) for cone in two] for mode, two in cones.items()},
        "shades": {name: base64.b64encode(bytes(values)).decode("ascii") for name, values in shades.items()},
    }


def _frame(points: Sequence[Point]) -> dict[str, list[float]]:
    axes = list(zip(*points, strict=True))
    low, high = [min(0.0, *axis) for axis in axes], [max(0.0, *axis) for axis in axes]
    middle = [(a + b) / 2 for a, b in zip(low, high, strict=True)]
    return {"low": low, "high": high, "middle": middle, "mean": [math.fsum(axis) / len(axis) for axis in axes]}


def _cone(points: Sequence[Point], dims: int) -> Cone | None:
    """The cone that holds 95% of the points, in two directions or in three."""
    if dims == 2:
        flat = wedge([(x, y) for x, y, _ in points])
        return flat and ((math.cos(flat[0]), math.sin(flat[0]), 0.0), flat[1])
    directed = [(x / r, y / r, z / r) for x, y, z in points if (r := math.hypot(x, y, z))]
    sums = [math.fsum(axis) for axis in zip(*directed, strict=True)]
    length = math.hypot(*sums)
    if length <= 1e-9 * len(directed):
        return None
    a, b, c = (value / length for value in sums)
    cosines = sorted((a * x + b * y + c * z for x, y, z in directed), reverse=True)
    half = math.acos(max(-1.0, min(1.0, cosines[math.ceil(_WITHIN * len(cosines)) - 1])))
    return ((a, b, c), half) if half < math.pi / 2 else None


def _rim(cone: Cone | None, points: Sequence[Point]) -> list[list[float]]:
    if not cone:
        return []
    (a, b, c), half = cone
    far = max(math.hypot(*point) for point in points) / max(math.cos(half), _NARROWEST)
    flat = math.hypot(a, b)
    u = (b / flat, -a / flat, 0.0) if flat else (1.0, 0.0, 0.0)
    v = (-c * u[1], c * u[0], a * u[1] - b * u[0])
    along, across = far * math.cos(half), far * math.sin(half)
    turns = [math.tau * step / _RIM for step in range(_RIM + 1)]
    circle = [(across * math.cos(turn), across * math.sin(turn)) for turn in turns]
    return [[along * p + s * q + t * r for p, q, r in zip((a, b, c), u, v, strict=True)] for s, t in circle]


def _bar(scale: Scale) -> str:
    low, high = scale.ends
    ticks = "".join(tag("span", typeset_text(scale.text(at))) for at in (low, (low + high) / 2, high))
    bar = tag("i", "", "ramp") + tag("div", ticks, "ticks")
    bar = tag("span", scale.words) + tag("div", bar, "bar")
    return tag("div", bar, "scale", data_scale=scale.name, hidden="hidden")


def _notes(cones: dict[str, list[Cone | None]], far: dict[str, list[int]], shares: Shares) -> str:
    notes = ""
    for mode, of, held in (("raw", "squared length", shares[0]), ("centered", "variance", shares[1])):
        left_out = outside(len(far[mode]), " (“Whole picture” shows {})")
        for dims, word in enumerate(("two", "three")):
            cone = cones[mode][dims]
            text = opening(cone and cone[1], "here")
            if held:
                percent = typeset_text(number(100 * held[dims], limits=(0, 100), digits=2))
                text = f"These {word} directions hold {percent}% of the rows’ {of}. {text}"
            text += left_out
            notes += tag("p", text, "muted", data_note=f"{mode}{dims + 2}", hidden="hidden")
    return notes
