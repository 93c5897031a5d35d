"""Did geometry turn before the loss in the figures of Godey et al. (2024)? Writes `results/digitised.json` and `.md`.

python experiments/saturation/digitised.py     # about a minute

Read off the figures: the loss on the Pile (Fig. 1a, every 5,000 steps), the word perplexity of WikiText with the anisotropy of
the last layer (Fig. 3), and the singular entropy of the head (Fig. 5), of Pythia from 14M to 410M parameters.
"""

import csv
import json
import math
from collections import defaultdict
from pathlib import Path
from typing import Any

from uncone import atomic
from uncone.saturation.checkpoints.order import find_turns
from uncone.saturation.checkpoints.record import SeriesTurn
from uncone.saturation.checkpoints.turns import Turn

HERE = Path(__file__).parent
SOURCE = HERE.parents[1] / "../shared/data/pythia/godey2024_digitised.csv"
MODELS = ("14m", "31m", "70m", "160m", "410m")
NAMES = {"loss": "loss", "text_loss": "WikiText", "states_anisotropy": "anisotropy", "head_entropy": "singular entropy"}
ANISOTROPIC, COLLAPSED = 0.5, 2.0
"""The note's events: anisotropy above, and a singular entropy of so many times its minimum, after it."""
Points = list[tuple[float, float]]


def read() -> dict[str, dict[str, Points]]:
    """The series of each model, (thousands of steps, value)."""
    series: dict[str, dict[str, Points]] = defaultdict(lambda: defaultdict(list))
    with open(SOURCE, newline="") as file:
        for row in csv.DictReader(file):
            model, x, y = row["model"], float(row["x"]), float(row["y"])
            if model not in MODELS:
                continue
            if row["figure"] == "fig1a_pile_loss":
                series[model]["loss"].append((x, y))
            elif row["figure"] == "fig3_wikitext_word_ppl":
                series[model]["text_loss"].append((x, math.log(y)))
                if row["aux"]:
                    series[model]["states_anisotropy"].append((x, float(row["aux"])))
            elif row["figure"] == "fig5_singular_entropy_KL_nats":
                series[model]["head_entropy"].append((x, y))
    return {model: {name: sorted(points) for name, points in series[model].items()} for model in MODELS}


def events(series: dict[str, Points]) -> dict[str, float | None]:
    """The note's order: both minima as read, and the first crossing of either bar."""
    least = {name: min(series[name], key=lambda point: point[1]) for name in ("loss", "text_loss", "head_entropy")}
    turned = least["head_entropy"]
    return {
        "loss_minimum": least["loss"][0],
        "wikitext_minimum": least["text_loss"][0],
        "anisotropic": next((x for x, y in series["states_anisotropy"] if y > ANISOTROPIC), None),
        "collapsed": next((x for x, y in series["head_entropy"] if x > turned[0] and y > COLLAPSED * turned[1]), None),
    }


def earlier(turn: Turn | None, event: float | None) -> float | None:
    """The share of draws in which the loss turned before an event of the geometry, which is sharp beside it."""
    return None if turn is None or event is None else float((turn.draws < event).mean())


def measure() -> dict[str, Any]:
    """Events, turns and orders of every model."""
    found = {}
    for model, series in read().items():
        rows, turns = find_turns(series)
        known = events(series)
        found[model] = {
            "events": known,
            "turns": {row.name: {k: v for k, v in vars(row).items() if k != "name"} for row in rows},
            "loss_before": {name: earlier(turns.get("loss"), known[name]) for name in ("anisotropic", "collapsed")},
        }
    return found


def tables(found: dict[str, Any]) -> str:
    """Both tables as Markdown, in thousands of steps."""
    lines = [
        "# The digitised figures of Godey et al. (2024)",
        "",
        "`python experiments/saturation/digitised.py`; thousands of steps.",
        "",
        "The events as read. P is the share of draws in which the loss turned before the event.",
        "",
        "| model | loss least | WikiText least | anisotropy > .5 | entropy > 2 x least | P before anisotropy | P before collapse |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for model, one in found.items():
        cells = [*one["events"].values(), *one["loss_before"].values()]
        lines.append(f"| {model} | {' | '.join('-' if c is None else f'{c:.3g}' for c in cells)} |")
    lines += [
        "",
        "The turns with their 95 % intervals; p is corrected for the series of a model. The order is beside the loss.",
        "",
        "| model | series | points | turned at | interval | p | correlation | P(before the loss) | order |",
        "|---|---|---:|---:|---:|---:|---:|---:|---|",
    ]
    for model, one in found.items():
        lines += [_line(model, SeriesTurn(name, **row)) for name, row in one["turns"].items()]
    return "\n".join(lines) + "\n"


def _line(model: str, row: SeriesTurn) -> str:
    p = "-" if row.p is None else f"{row.p:.3f}"
    start = f"| {model} | {NAMES[row.name]} | {row.n} |"
    phi = "-" if row.correlation is None else f"{row.correlation:.2f}"
    if not row.turned:
        return f"{start} no turn detected | | {p} | {phi} | | |"
    before = "" if row.before_loss is None else f"{row.before_loss:.2f}"
    return f"{start} {row.at:.1f} | {row.low:.1f} to {row.high:.1f} | {p} | {phi} | {before} | {row.order} |"


if __name__ == "__main__":
    results = measure()
    (HERE / "results").mkdir(exist_ok=True)
    atomic.write_text(HERE / "results/digitised.json", json.dumps(results, indent=1) + "\n")
    atomic.write_text(HERE / "results/digitised.md", tables(results))
    print(tables(results))
