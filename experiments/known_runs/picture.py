"""The answer as one picture: tau-b of each reading with the loss, over learning rates and at a fixed one."""

import io
from typing import Any

from tables import NAMES

_PANELS = (
    ("over_learning_rates", "Over learning rates, remedy fixed", "each dot: one remedy and strength"),
    ("at_fixed_learning_rate", "Over remedies, learning rate fixed", "each dot: one learning rate"),
)
_COLOUR, _DOT = "#0f766e", "#9aa5b1"


def draw(found: dict[str, Any]) -> str:
    """An SVG: the value pooled over all cells with its 95 % interval, and beside it each remedy's or learning rate's."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    style = {"svg.fonttype": "none", "svg.hashsalt": "known_runs", "font.family": "sans-serif", "font.size": 10}
    with plt.rc_context(style):
        figure, axes = plt.subplots(1, 2, figsize=(10, 4.6), sharey=True, layout="constrained")
        for panel, (kind, title, below) in zip(axes, _PANELS, strict=True):
            _draw(panel, found[kind])
            panel.set_title(title, fontsize=11)
            panel.set_xlabel(
                f"better loss  \N{LEFTWARDS ARROW}  a higher reading  \N{RIGHTWARDS ARROW}  worse loss\n({below})"
            )
            panel.set_xticks([-1, -0.5, 0, 0.5, 1])
        figure.supxlabel("Kendall's tau-b with the test loss; bar: mean over all, 95 % interval", fontsize=10)
        axes[0].set_yticks(range(len(NAMES)), NAMES.values())
        axes[0].invert_yaxis()
        written = io.StringIO()
        figure.savefig(written, format="svg", metadata={"Date": None, "Creator": None})
        plt.close(figure)
    return "\n".join(line.rstrip() for line in written.getvalue().splitlines()) + "\n"


def _draw(panel: Any, groups: dict[str, Any]) -> None:
    for place, name in enumerate(NAMES):
        dots = [of[name]["tau"] for group, of in groups.items() if group != "all" and of[name] is not None]
        panel.plot(dots, [place + 0.22] * len(dots), "o", color=_DOT, markersize=4)
        one = groups["all"][name]
        panel.plot([one["low"], one["high"]], [place - 0.1] * 2, "-", color=_COLOUR, linewidth=3)
        panel.plot([one["tau"]], [place - 0.1], "o", color=_COLOUR, markersize=6)
    panel.axvline(0, color="#333333", linewidth=0.9)
    panel.set_xlim(-1, 1)
    panel.grid(axis="x", color="#e5e7eb", linewidth=0.7)
    panel.set_axisbelow(True)
    for side in ("top", "right"):
        panel.spines[side].set_visible(False)
