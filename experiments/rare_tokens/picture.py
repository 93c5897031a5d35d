"""The head's rows in two dimensions over a training, a row of panels an arm (Gao et al. 2019, figure 1)."""

from itertools import product
from typing import Any

from arms import ARMS
from runs import Run, at_best

from uncone.report.markup import tag

SIDE, GAP, TOP, LEFT = 170, 10, 40, 150
GROUPS = (("frequent", "#1d63b8"), ("medium", "#0f766e"), ("rare", "#c2410c"))


def picture(config: dict[str, Any], runs: dict[str, Run]) -> str | None:
    """SVG of seed 0 of each arm at its best rate; None where no cell kept its heads."""
    best = at_best(runs, tied=False, batch=config["training"]["batch"])
    found = {arm: run for arm in config["picture"]["arms"] for run in best.get(arm, []) if run.cell.seed == 0}
    planes = {arm: kept for arm, run in found.items() if (kept := run.result["measured"].get("plane"))}
    if not planes:
        return None
    steps = [str(step) for step in config["picture"]["steps"]]
    width, height = LEFT + len(steps) * (SIDE + GAP), TOP + len(planes) * (SIDE + GAP)
    body = tag("rect", width=width, height=height, fill="#fff")
    for place, (name, colour) in enumerate(GROUPS):
        body += tag("text", name, x=10, y=TOP + 110 + 18 * place, fill=colour)
    for column, step in enumerate(steps):
        body += tag("text", f"step {int(step):,}", x=LEFT + column * (SIDE + GAP), y=TOP - 12)
    for row, arm in enumerate(planes):
        body += tag("text", ARMS[arm].text, x=10, y=TOP + row * (SIDE + GAP) + 20, font_weight="600")
    for (row, plane), (column, step) in product(enumerate(planes.values()), enumerate(steps)):
        if step in plane["steps"]:
            at = LEFT + column * (SIDE + GAP), TOP + row * (SIDE + GAP)
            body += tag("g", _panel(plane, step), transform=f"translate({at[0]} {at[1]})")
    said = "Rows of the head in their first two principal directions, the mean row not taken off; the cross is 0."
    size = {"width": width, "height": height, "viewBox": f"0 0 {width} {height}", "font_family": "sans-serif"}
    return (
        tag("svg", tag("title", said) + body, xmlns="http://www.w3.org/2000/svg", font_size=12, role="img", **size)
        + "\n"
    )


def _panel(plane: dict[str, Any], step: str) -> str:
    most = 1.05 * max(abs(x) for row in plane["steps"][step] for x in row)
    half = SIDE / 2
    body = tag("rect", width=SIDE, height=SIDE, fill="none", stroke="#ccc")
    body += tag("path", d=f"M{half} 0V{SIDE}M0 {half}H{SIDE}", stroke="#ddd")
    for group, (_, colour) in enumerate(GROUPS):
        rows = [row for row, of in zip(plane["steps"][step], plane["groups"], strict=True) if of == group]
        dots = "".join(f"M{half + half * x / most:.1f} {half - half * y / most:.1f}h0" for x, y in rows)
        body += tag("path", d=dots, stroke=colour, stroke_width=2.4, stroke_linecap="round", stroke_opacity=0.6)
    return body
