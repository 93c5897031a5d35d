"""The claims as intervals about 0, one line each, coloured by what they say: SVG without a script."""

from claims import CLAIMS, Claim, results, verdict
from runs import Group
from scoring import Difference, Paired

from uncone.report.markup import tag
from uncone.report.svg import Axis, label, svg, widened

Row = tuple[str, Difference | Paired, str]
"""What is compared, the difference, and the verdict."""
WIDTH, ROW, _TEXT, _TOP, _BELOW = 1160.0, 20.0, 680.0, 46.0, 46.0
_MARKS = {"holds": "#0f766e", "contradicted": "#c2410c", "undecided": "#6b7280"}
_STYLE = """
text { font: 12px system-ui, sans-serif; fill: #333 } .tick { font-size: 10.5px; fill: #666 } .name { font-weight: 600 }
.grid { stroke: #ddd; fill: none; stroke-width: .8 } .zero { stroke: #111; stroke-width: 1.2 } .span { stroke-width: 2.4; stroke-linecap: round }
"""


def intervals(found: list[Group], *, metric: bool) -> str | None:
    """The claims on the task metric, or all others; those of one seed, which are not judged, are left out. None without any."""
    rows = [row for claim in CLAIMS if (claim.path is None) == metric for row in _rows(claim, found)]
    if not rows:
        return None
    scale = 100 if metric else 1
    ends = [scale * end for _, result, _ in rows for end in (result.low, result.high) if end is not None]
    height = _TOP + ROW * len(rows) + _BELOW
    x = Axis(*widened(min(0.0, *ends), max(0.0, *ends)), _TEXT, WIDTH - 20)
    unit = "task metric, hundredths" if metric else "A1 or silhouette"
    body = tag("style", _STYLE) + tag("rect", width=f"{WIDTH:g}", height=f"{height:g}", fill="#fff") + _key()
    body += _scale(x, height - _BELOW, f"difference in {unit}")
    body += "".join(_row(row, x, _TOP + ROW * (place + 0.5), scale) for place, row in enumerate(rows))
    described = "Each line is a difference of two arms with its 95 % interval. Green: on the claimed side of 0. Orange: on the other. Grey: undecided."
    return svg(f"claims-{'metric' if metric else 'shape'}", f"Claims: {unit}", described, (WIDTH, height), body) + "\n"


def _rows(claim: Claim, found: list[Group]) -> list[Row]:
    return [
        (f"{claim.text} ({group.task}, {group.size}; {result.seeds} seeds)", result, verdict(result, claim.sign))
        for group, result in results(claim, found)
        if result.low is not None
    ]


def _row(row: Row, x: Axis, at: float, scale: float) -> str:
    text, result, said = row
    assert result.low is not None
    assert result.high is not None
    colour = _MARKS[said]
    span = tag(
        "path",
        class_="span",
        d=f"M{x.at(scale * result.low):.1f} {at:.1f}H{x.at(scale * result.high):.1f}",
        stroke=colour,
    )
    dot = tag("circle", cx=f"{x.at(scale * result.value):.1f}", cy=f"{at:.1f}", r="4", fill=colour)
    return label(text, _TEXT - 12, at + 4, anchor="end") + span + dot


def _scale(x: Axis, bottom: float, name: str) -> str:
    ticks = x.ticks(8)
    grid = tag("path", class_="grid", d="".join(f"M{x.at(tick):.1f} {_TOP:.1f}V{bottom:.1f}" for tick in ticks))
    zero = tag("path", class_="zero", d=f"M{x.at(0):.1f} {_TOP:.1f}V{bottom:.1f}")
    numbers = "".join(label(f"{tick:g}", x.at(tick), bottom + 15, css="tick") for tick in ticks)
    return grid + zero + numbers + label(name, (x.start + x.stop) / 2, bottom + 33)


def _key() -> str:
    parts = []
    for place, (said, colour) in enumerate(_MARKS.items()):
        left = _TEXT + 130 * place
        parts.append(
            tag("circle", cx=f"{left:g}", cy="22", r="4", fill=colour)
            + label(said, left + 10, 26, anchor="start", css="name")
        )
    return "".join(parts)
