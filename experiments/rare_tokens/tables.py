"""Write results/NAME.md and a picture from the cells' result files; every number comes from them.

python experiments/rare_tokens/tables.py core.toml
python experiments/rare_tokens/tables.py core.toml --recompute NAME --work FOLDER   # train and measure one cell anew, and compare
"""

import json
import math
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np
from arms import ARMS
from claims import claims_table
from fill import cells, path_of
from picture import picture
from runs import BASE, RARE, Effect, Numbers, Of, Run, at_best, effect, paired, runs_of, unique, words, written
from text import Text
from train import RESULTS, Cell, parser, read_config, train

from measure import SETS, measure
from uncone.atomic import write_text
from uncone.errors import InputError


def main_table(best: dict[str, list[Run]], asked: list[str]) -> list[str]:
    heads = ["arm", "rate", "seeds", "loss", "less plain", "frequent", "medium", "rare", "rare with a bias"]
    heads += ["log ratio of rare", "cosine", "centred", "I(W)", "word similarity"]
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    for arm in asked:
        if arm not in best:
            lines.append(f"| {ARMS[arm].text} | not run |" + " |" * (len(heads) - 2))
            continue
        some = best[arm]

        def mean(of: Callable[[Run], float], some: list[Run] = some) -> float:
            return float(np.mean([of(run) for run in some]))

        against = paired([*some, *best.get(BASE, [])], arm, BASE, Run.loss) if arm != BASE else None
        words = [mean(lambda run, one=one: run["word_similarity", one, "original", "spearman_cosine"]) for one in SETS]  # type: ignore[misc]
        cells_ = [f"{some[0].cell.rate:g}", str(len(some)), f"{mean(Run.loss):.3f}", written(against)]
        cells_ += [f"{math.exp(mean(lambda run, g=g: run.loss(g))):,.0f}" for g in range(3)]  # type: ignore[misc]
        cells_ += [f"{math.exp(mean(lambda run: run['shifted', 'rare_loss'])):,.0f}", f"{mean(Run.ratio):+.2f}"]
        cells_ += [
            f"{mean(lambda run, key=key: run['head', key]):.3f}" for key in ("mean_cosine", "mean_cosine_centred")
        ]  # type: ignore[misc]
        cells_ += [f"{mean(lambda run: run['head', 'partition_isotropy']):.3f}", f"{np.mean(words):.1f}"]
        lines.append(f"| {ARMS[arm].text} | " + " | ".join(cells_) + " |")
    return lines


def bars_table(best: dict[str, list[Run]]) -> list[str]:
    """What a remedy has to reach, against plain training with one bias on all rare logits."""
    head = [
        "arm",
        "loss less plain",
        "rare perplexity against the bias",
        "rare ids predicted, times",
        "word similarity",
    ]
    lines, base = ["| " + " | ".join(head) + " |", "|---|---|---|---|---|"], best.get(BASE, [])
    for arm, some in best.items():
        runs = [*some, *base] if arm != BASE else base
        pairs = [(run, other) for run in some for other in base if run.cell.seed == other.cell.seed]
        if arm != BASE and pairs:
            rare = effect(run.loss(RARE) - other["shifted", "rare_loss"] for run, other in pairs)
            times = np.mean([unique(run) / max(1, unique(other)) for run, other in pairs])
            cells_ = [written(paired(runs, arm, BASE, Run.loss)), percent(rare), f"{times:.2f}"]
            lines.append(
                f"| {ARMS[arm].text} | " + " | ".join([*cells_, written(paired(runs, arm, BASE, words), 1)]) + " |"
            )
    return lines


def percent(of: Effect) -> str:
    """A difference of logs as a change."""
    change = [None if x is None else 100 * math.expm1(x) for x in (of.value, of.low, of.high)]
    return f"{change[0]:+.0f}%" + ("" if change[1] is None else f" ({change[1]:+.0f} to {change[2]:+.0f}%)")


def kappa_table(best: dict[str, list[Run]]) -> list[str]:
    """What kappa foretells beside what was measured, of arms whose second moment is Adam's."""
    lines = ["| arm | group | foretold | measured |", "|---|---|---|---|"]
    for arm, beta2 in (("adamw95", "0.95"), ("adamw999", "0.999")):
        for g, name in enumerate(("frequent", "medium", "rare")):
            if arm in best:
                foretold = np.mean([run["predicted", beta2, g] for run in best[arm]])
                lines.append(
                    f"| {ARMS[arm].text} | {name} | {foretold:+.3f} | {np.mean([run.ratio(g) for run in best[arm]]):+.3f} |"
                )
    return lines


COURSE = {
    "head.mean_share": "mean row",
    "gradient.mean_state_share": "mean state",
    "gradient.state_to_minus_row": "cosine",
}


def course_table(best: dict[str, list[Run]]) -> list[str]:
    """The mean row and the mean state over a training, and how far they point away from each other (seed 0)."""
    steps = [0.02, 0.1, 0.3, 1.0]
    lines = ["| arm | reading | " + " | ".join(f"{100 * part:.0f}%" for part in steps) + " |", "|---|---|" + "---|" * 4]
    for arm, some in best.items():
        records = next((run.watched() for run in some if run.cell.seed == 0), [])
        for name, said in COURSE.items() if records else ():
            last = records[-1]["step"]
            near = [min(records, key=lambda one, at=part * last: abs(one["step"] - at)) for part in steps]  # type: ignore[misc]
            found = [one.get(name) for one in near]
            lines.append(
                f"| {ARMS[arm].text} | {said} | " + " | ".join("-" if x is None else f"{x:.2f}" for x in found) + " |"
            )
    return lines


def text_table(best: dict[str, list[Run]]) -> list[str]:
    """What seed 0 draws after the same beginnings (nucleus .9)."""
    lines = ["| beginning | arm | goes on |", "|---|---|---|"]
    for arm in ("adamw95", "adamw999", "cosreg", "agg"):
        for run in best.get(arm, []):
            if run.cell.seed == 0:
                lines += [
                    f"| {cell_(a)} | {ARMS[arm].text} | {cell_(b)} |" for a, b in run.result["measured"]["generated"]
                ]
    return [*lines[:2], *sorted(lines[2:])]


def cell_(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def report(config: dict[str, Any]) -> str:
    runs, parts = runs_of(cells(config)), list[str]()
    order = list(dict.fromkeys(arm for block in config["cells"] for arm in block["arms"]))
    of, every = config["training"], list(cells(config))
    done = sum(cell.result.exists() for cell in every)
    parts.append(f"# Rare tokens: {config['name']}\n")
    parts.append(
        f"V {config['text']['vocabulary']:,}, D {config['model']['width']}, {config['model']['layers']} layers, "
        f"{of['batch'] * config['model']['length']:,} targets a step, {of['steps']:,} steps. "
        f"{done} of {len(every)} cells whose rate is known are done, {len(runs)} are measured.\n"
    )
    shapes = sorted({(cell.tied, cell.batch) for cell in every})
    for tied, batch in shapes:
        best = at_best(runs, tied=tied, batch=batch)
        if best:
            title = f"{'Tied' if tied else 'Untied'}, {batch * config['model']['length']:,} targets a step"
            asked = [arm for arm in order if any((c.arm, c.tied, c.batch) == (arm, tied, batch) for c in every)]
            parts += [f"\n## {title}\n", *main_table(best, asked)]
    best = at_best(runs, tied=False, batch=of["batch"])
    more = {
        "What the papers claim": claims_table(best),
        "The same cell on a processor and on a GPU": again_table(runs),
        "Against the bars": bars_table(best),
        "What kappa foretells": kappa_table(best),
        "Mean row and mean state over the training": course_table(best),
        "What the models write": text_table(best),
    }
    for title, table in more.items():
        parts += [f"\n## {title}\n", *(table if len(table) > 2 else ["Not run."])]
    numbers: Numbers = {
        "loss": lambda run: f"{run.loss():.4f}",
        "rare perplexity": lambda run: f"{math.exp(run.loss(RARE)):,.0f}",
        "log ratio of rare": lambda run: f"{run.ratio():+.3f}",
    }
    return "\n".join([*parts, *every_cell(every, runs, numbers)]) + "\n"


def again_table(runs: dict[str, Run]) -> list[str]:
    """Cells that were trained on a second device too."""
    lines = ["| cell | device | " + " | ".join(NUMBERS) + " | seconds |", "|---|---|" + "---|" * (len(NUMBERS) + 1)]
    for name, kept in runs.items():
        second = RESULTS / "again" / f"{name}.json"
        if second.exists():
            for run in (kept, Run(kept.cell, json.loads(second.read_text()))):
                numbers = [f"{of(run):.4f}" for of in NUMBERS.values()]
                lines.append(
                    f"| {name} | {run.result['device']} | {' | '.join(numbers)} | {run.result['seconds']:.0f} |"
                )
    return lines


def every_cell(every: list[Cell], runs: dict[str, Run], numbers: Numbers) -> list[str]:
    """A table with a row a cell; those without numbers say why."""
    heads = ["cell", *numbers, "seconds"]
    lines = ["\n## Every cell\n", "| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    for cell in every:
        if cell.name in runs:
            run = runs[cell.name]
            row = [*(of(run) for of in numbers.values()), f"{run.result['seconds']:.0f}"]
        else:
            state = "not run" if not cell.result.exists() else "not measured"
            if cell.result.exists() and json.loads(cell.result.read_text())["diverged"]:
                state = "diverged"
            row = [state, *[""] * len(numbers)]
        lines.append(f"| {cell.name} | " + " | ".join(row) + " |")
    return lines


def recompute(name: str, every: Iterable[Cell], made: Callable[[Cell], dict[str, Any]], numbers: dict[str, Of]) -> str:
    """Kept numbers of a cell beside those of a new run, whose result `made` gives; InputError where none are kept."""
    cell = next((one for one in every if one.name == name), None)
    if cell is None or name not in (kept := runs_of([cell])):
        raise InputError(f"expected the name of a measured cell, got {name!r}: see results.md")
    again = replace(cell, config=f"again-{cell.config}")
    new = Run(again, made(again))
    return "\n".join(f"{what}: kept {of(kept[name]):.5f}, again {of(new):.5f}" for what, of in numbers.items())


NUMBERS: dict[str, Of] = {
    "loss": Run.loss,
    "rare loss": lambda run: run.loss(RARE),
    "log ratio of rare": Run.ratio,
    "mean cosine": lambda run: run["head", "mean_cosine"],
}


def main(arguments: list[str] | None = None) -> None:
    made = parser()
    made.add_argument("--recompute", metavar="NAME", help="a cell, in a work folder of its own")
    asked = made.parse_args(arguments)
    config = read_config(asked.config if asked.config.exists() else path_of(asked.config.stem))
    if asked.recompute:
        text = Text(asked.data, asked.work, config["text"]["vocabulary"], config["text"]["tokenizer_shards"])

        def made_again(cell: Cell) -> dict[str, Any]:
            result = train(cell, config, text, asked.work)
            return result | {"measured": measure(cell, config, text, asked.work)}

        print(recompute(asked.recompute, cells(config), made_again, NUMBERS))
        return
    write_text(RESULTS / f"{config['name']}.md", report(config))
    if "picture" in config and (drawn := picture(config, runs_of(cells(config)))):
        write_text(RESULTS / f"{config['name']}.svg", drawn)


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        sys.exit(str(error))
