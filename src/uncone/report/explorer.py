"""The picture to explore: the numbers and the controls that `cone.js` finds on the page, and its scales in
words."""

import base64
import hashlib
import itertools
import json
import math
from collections.abc import Sequence
from functools import cache
from importlib import resources

from uncone.records import Picture
from uncone.records.text import count, number, shortened
from uncone.records.wording import plural
from uncone.report.cone import group_classes, wedge
from uncone.report.markup import element, escape, typeset_text
from uncone.report.scales import Scale, colour_scales

_LONGEST_LABEL = 80
_WITHIN = 0.95
_RANKS = (0, 5, 4, 3, 2, 1)
"""Of the classes g0, g1, ..: the background is drawn first, the reserved rows last."""
_NARROWEST = 0.2  # cosine: a cone wider than 78 degrees ends earlier, for its rim would be far away
_RIM = 48  # corners of the circle around a cone
_CDATA = "/*<![CDATA[*/\n{}/*]]>*/"  # so that the page is XML too

Point = tuple[float, float, float]
Cone = tuple[Point, float]
Shares = tuple[tuple[float, ...], tuple[float, ...]]
"""Of the squared length in the first two and three directions: raw, and centred."""


@cache
def script() -> str:
    """The text of the page's one script element; its hash is in the page's policy."""
    code = resources.files("uncone.report").joinpath("cone.js").read_text(encoding="utf-8")
    return _CDATA.format(code)


@cache
def script_source() -> str:
    """The source expression that lets a content security policy run `script()` and nothing else."""
    digest = hashlib.sha256(script().encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"


def explorer(picture: Picture, shares: Shares, uid: str) -> str:
    """The controls, the canvas, the scales, and the numbers, for `cone.js` to bring to life; hidden where
    scripts are off."""
    scales = colour_scales(picture)
    clouds = {mode: picture.coordinates(centered=mode == "centered") for mode in ("raw", "centered")}
    cones = {mode: [_cone(points, 2), _cone(points, 3)] for mode, points in clouds.items()}
    content = _controls(scales, uid) + _finder(picture, uid) + _stage(picture, uid)
    content += _legend(picture) + "".join(map(_bar, scales)) + _notes(cones, shares) + _keys(uid)
    content += f'<script type="application/json">{_json(_data(picture, scales, clouds, cones))}</script>'
    return element("div", content, class_="explorer", id=uid)


def _data(
    picture: Picture, scales: list[Scale], clouds: dict[str, list[Point]], cones: dict[str, list[Cone | None]]
) -> dict[str, object]:
    has_labels = any(label is not None for label in picture.labels)
    ranks = [_RANKS[int(css[1:])] for css in group_classes(picture)]
    shades = {"group": [ranks[group] for group in picture.groups]} | {
        scale.name: scale.shades() for scale in scales
    }
    return {
        "total": picture.total,
        "steps": [
            after - before for before, after in itertools.pairwise((0, *picture.ids))
        ],  # shorter than the ids
        "labels": [None if label is None else shortened(label, _LONGEST_LABEL) for label in picture.labels]
        if has_labels
        else None,
        "groups": picture.groups,
        "names": [shortened(name, _LONGEST_LABEL) for name in picture.group_names],
        "raw": picture.raw,
        "centered": picture.centered,
        "norms": picture.norms,
        "counts": picture.counts,
        "units": {"raw": picture.raw_scale, "centered": picture.centered_scale, "norm": picture.norm_scale},
        "frames": {mode: _frame(points) for mode, points in clouds.items()},
        "rims": {mode: [_rim(cone, clouds[mode]) for cone in found] for mode, found in cones.items()},
        "shades": {name: base64.b64encode(bytes(values)).decode("ascii") for name, values in shades.items()},
    }


def _frame(points: Sequence[Point]) -> dict[str, list[float]]:
    """What holds all points and the origin, its middle, and the mean point."""
    axes = list(zip(*points, strict=True))
    low, high = [min(0.0, *axis) for axis in axes], [max(0.0, *axis) for axis in axes]
    middle = [(a + b) / 2 for a, b in zip(low, high, strict=True)]
    return {
        "low": low,
        "high": high,
        "middle": middle,
        "mean": [math.fsum(axis) / len(axis) for axis in axes],
    }


def _json(data: object) -> str:
    """JSON for a script element: nothing in it can end the element, and HTML and XML parsers read the same
    text."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _cone(points: Sequence[Point], dims: int) -> Cone | None:
    """The axis from the origin (unit length) and the half angle in radians that holds 95 % of the points; in
    the plane of the first two directions (`dims` 2) or in all three. None where there is no cone."""
    if dims == 2:
        found = wedge([(x, y) for x, y, _ in points])
        return None if found is None else ((math.cos(found[0]), math.sin(found[0]), 0.0), found[1])
    directed = [(x / r, y / r, z / r) for x, y, z in points if (r := math.hypot(x, y, z))]
    sums = [math.fsum(axis) for axis in zip(*directed, strict=True)]
    length = math.hypot(*sums)
    if length <= 1e-9 * len(directed):
        return None
    a, b, c = (value / length for value in sums)
    cosines = sorted((a * x + b * y + c * z for x, y, z in directed), reverse=True)
    half = math.acos(max(-1.0, min(1.0, cosines[math.ceil(_WITHIN * len(cosines)) - 1])))
    return ((a, b, c), half) if half < math.pi / 2 else None


def _rim(cone: Cone | None, points: Sequence[Point]) -> list[Point]:
    """A closed circle around the cone's axis, beyond the farthest point unless the cone is nearly flat; in
    the plane, a chord."""
    if cone is None:
        return []
    (a, b, c), half = cone
    far, flat = (
        max(math.hypot(*point) for point in points) / max(math.cos(half), _NARROWEST),
        math.hypot(a, b),
    )
    u = (b / flat, -a / flat, 0.0) if flat else (1.0, 0.0, 0.0)
    v = (-c * u[1], c * u[0], a * u[1] - b * u[0])
    along, across = far * math.cos(half), far * math.sin(half)
    rim = []
    for step in range(_RIM + 1):
        s, t = across * math.cos(math.tau * step / _RIM), across * math.sin(math.tau * step / _RIM)
        rim.append(
            (
                along * a + s * u[0] + t * v[0],
                along * b + s * u[1] + t * v[1],
                along * c + s * u[2] + t * v[2],
            )
        )
    return rim


def _controls(scales: list[Scale], uid: str) -> str:
    what = _switch("Rows", f"{uid}-what", {"raw": "As stored", "centered": "Mean row subtracted"})
    dims = _switch("Directions", f"{uid}-dims", {"2": "2-D", "3": "3-D"})
    colours = {"group": "group"} | {scale.name: scale.title for scale in scales}
    return element("div", what + dims + _menu("Colour by", "colour", colours), class_="controls")


def _switch(title: str, name: str, choices: dict[str, str]) -> str:
    radios = "".join(
        f'<label><input type="radio" name="{escape(name)}" value="{value}"{checked}/><span>{text}</span></label>'
        for (value, text), checked in zip(choices.items(), (' checked="checked"', ""), strict=True)
    )
    return element("fieldset", element("legend", title) + radios, class_="switch")


def _menu(title: str, css: str, choices: dict[str, str]) -> str:
    options = "".join(element("option", text, value=value) for value, text in choices.items())
    return element("label", element("span", title) + element("select", options, class_=css), class_="menu")


def _finder(picture: Picture, uid: str) -> str:
    what = "a token" if any(label is not None for label in picture.labels) else "a row"
    box = (
        f'<input type="search" autocomplete="off" spellcheck="false" aria-describedby="{escape(uid)}-said"/>'
    )
    steps = (("back", "‹", "Previous row"), ("on", "›", "Next row"))
    content = element("label", element("span", f"Find {what}") + box, class_="menu find")
    content += "".join(
        element("button", sign, type="button", class_=css, aria_label=name) for css, sign, name in steps
    )
    content += _menu("Step in order of", "order", {"far": "distance from the mean", "id": "row id"})
    return element("div", content, class_="controls", role="search")


def _stage(picture: Picture, uid: str) -> str:
    pictured = len(picture.ids)
    rows = (
        f"{count(pictured)} of {count(picture.total)} rows, a sample"
        if pictured < picture.total
        else plural(pictured, "the one row", f"all {count(pictured)} rows")
    )
    marks = element(
        "canvas", class_="marks", tabindex="0", role="application", aria_describedby=f"{uid}-said {uid}-keys",
        aria_label=f"Picture of {rows} on their first singular directions; its keys are listed below",
    )  # fmt: skip
    tip = '<div class="tip" aria-hidden="true" hidden="hidden"><bdi></bdi><span></span></div>'
    whole = element("button", "Whole picture", type="button", class_="whole")
    stage = element(
        "div",
        element("canvas", class_="points")
        + marks
        + element("p", typeset_text(rows), class_="rows")
        + whole
        + tip,
        class_="stage",
    )
    hint = "Point at a dot, or tap it, to see which row it is. Drag to move it or, in 3-D, to turn it; click it once to zoom with the wheel."
    return stage + element("p", hint, class_="said", id=f"{uid}-said", role="status", aria_live="polite")


def _legend(picture: Picture) -> str:
    swatches = sorted(
        (css, f"{name}, {count(picture.groups.count(group))}")
        for group, (name, css) in enumerate(zip(picture.group_names, group_classes(picture), strict=True))
        if group in picture.groups
    )
    items = "".join(
        element("li", element("i", class_=f"swatch-{css}") + typeset_text(text)) for css, text in swatches
    )
    return element("ul", items, class_="legend", data_scale="group")


def _bar(scale: Scale) -> str:
    low, high = scale.ends
    ticks = "".join(element("span", scale.text(value)) for value in (low, (low + high) / 2, high))
    bar = element("div", element("i", class_="ramp") + element("div", ticks, class_="ticks"), class_="bar")
    return element(
        "div", element("span", scale.words) + bar, class_="scale", data_scale=scale.name, hidden="hidden"
    )


def _notes(cones: dict[str, list[Cone | None]], shares: Shares) -> str:
    """One sentence or two for each of the four views; the script shows one."""
    notes = ""
    for mode, found in cones.items():
        for dims, cone in zip((2, 3), found, strict=True):
            notes += element(
                "p",
                _share(mode, dims, shares) + _opening(cone),
                class_="muted",
                data_note=f"{mode}{dims}",
                hidden="hidden",
            )
    return notes


def _share(mode: str, dims: int, shares: Shares) -> str:
    held = shares[mode != "raw"]
    if not held:
        return ""
    percent = number(100 * held[dims - 2], limits=(0, 100), digits=2)
    of = "squared length" if mode == "raw" else "variance"
    return f"These {'two' if dims == 2 else 'three'} directions hold {typeset_text(percent)} % of the rows’ {of}. "


def _opening(cone: Cone | None) -> str:
    if cone is None:
        return "Seen from the origin, rows lie on all sides here: no cone."
    return f"Seen from the origin, 95 % of the rows lie within ±{math.degrees(cone[1]):.0f}° of one direction here (shaded)."


def _keys(uid: str) -> str:
    lines = (
        "Drag to move the picture (2-D) or to turn it (3-D); with Shift, or two fingers, always to move it.",
        "Click the picture, then use the wheel; or pinch; or + and −: nearer and farther. Double click or 0: the whole picture.",
        "Arrow keys move (2-D) or turn (3-D); with Shift they always move.",
        "n and p: the next and the previous row in the chosen order, read out; after a search, among the rows found. "
        "In the search, Enter and Shift with Enter do the same.",
        "/: to the search. Escape: let go of the row.",
    )
    items = "".join(element("li", line) for line in lines)
    return element(
        "details",
        element("summary", "Keys and gestures") + element("ul", items, class_="muted", id=f"{uid}-keys"),
    )
