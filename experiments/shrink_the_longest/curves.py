"""A1, and task metrics, over the steps, one line an arm, one panel a kind: SVG without a script."""

from collections.abc import Iterator

import numpy as np
from runs import Group, judged

from uncone.report.markup import tag
from uncone.report.svg import Axis, Point, axes, frame, label, line, rectangle, segments, svg, widened

KINDS = {"raw": "raw", "centred": "centred", "within_class": "within each class"}
SIZE, GAP = (360.0, 250.0), 14.0
_HEAD = 44.0
_COLOURS = ("#1b1f24", "#c2410c", "#1d63b8", "#0f766e", "#7c3aed", "#be185d")
_DASHES = ("", "", "7 3", "2 3", "9 3 2 3", "5 2 1 2")
_STYLE = """
text { font: 12px system-ui, sans-serif; fill: #444 } .tick { font-size: 10.5px; fill: #666 } .name { font-size: 13px; fill: #111; font-weight: 600 }
.grid { stroke: #ddd; fill: none; stroke-width: .8 } .line { fill: none; stroke-width: 2; stroke-linejoin: round } .batch { stroke-width: 1; opacity: .38 }
"""
_BANDS = ".band { stroke: none; opacity: .13 } .last { fill: #f1f1f1 } "


def curves(group: Group) -> str:
    """A1 of the fixed held-out cloud (bold) and of the training batch (thin), mean over seeds, against the step."""
    title = f"A1 over the steps: {group.task}, {group.size} training examples"
    described = "Bold: 64 fixed held-out items without dropout. Thin: the training batch of 64 with dropout, mean of nine steps. Means over seeds."
    panels = [_panel(group, kind, name) for kind, name in KINDS.items()]
    return _drawn(group, panels, f"a1-{group.task}-{group.size}", title, described, _STYLE)


def metric_curves(group: Group, names: tuple[str, ...]) -> str:
    """Metrics of all held-out items, or their loss, against the step: mean over seeds, and one standard deviation either side."""
    title = f"The task metric over the steps: {group.task}, {group.size} training examples"
    described = "Line: mean over seeds. Band: one standard deviation over seeds on either side. Grey: the last steps, which the paper averages over."
    panels = [_metric_panel(group, name) for name in names]
    fills = "".join(f".band.arm{place} {{ fill: {colour} }} " for place, colour in enumerate(_COLOURS))
    return _drawn(group, panels, f"metric-{group.task}-{group.size}", title, described, _STYLE + _BANDS + fills)


def _drawn(group: Group, panels: list[str], uid: str, title: str, described: str, style: str) -> str:
    arms = list(group.arms)
    size = (len(panels) * SIZE[0] + (len(panels) - 1) * GAP, SIZE[1] + _HEAD)
    rules = "".join(
        f".arm{place % len(_COLOURS)} {{ stroke: {_COLOURS[place % len(_COLOURS)]}; stroke-dasharray: {_DASHES[place % len(_DASHES)] or 'none'} }} "
        for place in range(len(arms))
    )
    body = tag("style", style + rules) + tag("rect", width=f"{size[0]:g}", height=f"{size[1]:g}", fill="#fff")
    body += "".join(_key(arm, len(group.arms[arm]), place) for place, arm in enumerate(arms))
    for place, panel in enumerate(panels):
        body += tag("g", panel, transform=f"translate({place * (SIZE[0] + GAP):g} {_HEAD:g})")
    return svg(uid, title, described, size, body) + "\n"


def _key(arm: str, seeds: int, place: int) -> str:
    left = 50 + 190 * place
    mark = tag("path", class_=f"line arm{place % len(_COLOURS)}", d=f"M{left} 16H{left + 28}")
    return mark + label(
        f"{arm}, {seeds} {'seed' if seeds == 1 else 'seeds'}", left + 34, 20, anchor="start", css="name"
    )


def _panel(group: Group, kind: str, name: str) -> str:
    held_out = [_mean_curve(list(_probes(group, arm, kind))) for arm in group.arms]
    batches = [_smoothed(_mean_curve(list(_batches(group, arm, kind)))) for arm in group.arms]
    values = [value for curve in held_out + batches for _, value in curve if value is not None]
    last = max(step for curve in batches for step, _ in curve)
    x, y = axes(SIZE, (0.0, float(last)), (0.0, min(1.0, 1.08 * max(values, default=1.0))))
    body = frame(x, y, x_label="step", y_label=f"A1, {name}, 64 points")
    body += "".join(
        _lines(curve, x, y, f"line batch arm{place % len(_COLOURS)}") for place, curve in enumerate(batches)
    )
    return body + "".join(
        _lines(curve, x, y, f"line arm{place % len(_COLOURS)}") for place, curve in enumerate(held_out)
    )


def _metric_panel(group: Group, name: str) -> str:
    scale, unit = (1, "") if name == "loss" else (100, " in hundredths")
    training = next(iter(next(iter(group.arms.values())).values()))["training"]
    steps, first = [float(one["step"]) for one in training["probes"]], float(training["last_steps"]["from_step"])
    values = {
        arm: scale
        * np.array([[judged(one["judged"], name) for one in run["training"]["probes"]] for run in seeds.values()])
        for arm, seeds in group.arms.items()
    }
    around = {arm: each.std(0, ddof=1) if len(each) > 1 else 0 * each[0] for arm, each in values.items()}
    ends = [(each.mean(0) - around[arm], each.mean(0) + around[arm]) for arm, each in values.items()]
    x, y = axes(SIZE, (0.0, steps[-1]), widened(min(low.min() for low, _ in ends), max(high.max() for _, high in ends)))
    body = rectangle(x.at(first), y.stop, x.at(steps[-1]), y.start, "last")
    body += frame(x, y, x_label="step", y_label=f"{name}{unit}, {len(group.gold):,} held-out items")
    for place, (low, high) in enumerate(ends):
        outline = [*zip(steps, high, strict=True), *zip(steps[::-1], low[::-1], strict=True)]
        body += line(outline, x, y, f"band arm{place % len(_COLOURS)}", "Z")
    for place, each in enumerate(values.values()):
        body += line(zip(steps, each.mean(0), strict=True), x, y, f"line arm{place % len(_COLOURS)}")
    return body


def _lines(curve: list[tuple[float, float | None]], x: Axis, y: Axis, css: str) -> str:
    runs: list[list[Point]] = segments([step for step, _ in curve], [value for _, value in curve])
    return "".join(line(run, x, y, css) for run in runs)


def _probes(group: Group, arm: str, kind: str) -> Iterator[list[tuple[float, float | None]]]:
    for run in group.arms[arm].values():
        start = None if group.before is None else group.before["probe"][kind]
        curve = [(0.0, None if start is None else float(start[0]))]
        yield curve + [
            (float(one["step"]), None if one[kind] is None else float(one[kind][0]))
            for one in run["training"]["probes"]
        ]


def _batches(group: Group, arm: str, kind: str) -> Iterator[list[tuple[float, float | None]]]:
    for run in group.arms[arm].values():
        yield [(float(step), value) for step, value in enumerate(run["training"]["a1_of_batch"][kind], 1)]


def _mean_curve(each: list[list[tuple[float, float | None]]]) -> list[tuple[float, float | None]]:
    """The mean over seeds at each step; undefined where any of them is."""
    found = list[tuple[float, float | None]]()
    for points in zip(*each, strict=True):
        values = [value for _, value in points if value is not None]
        found.append((points[0][0], sum(values) / len(values) if len(values) == len(points) else None))
    return found


def _smoothed(curve: list[tuple[float, float | None]], width: int = 9) -> list[tuple[float, float | None]]:
    smooth = list[tuple[float, float | None]]()
    for place, (step, _) in enumerate(curve):
        near = [value for _, value in curve[max(0, place - width // 2) : place + width // 2 + 1] if value is not None]
        smooth.append((step, sum(near) / len(near) if near else None))
    return smooth
