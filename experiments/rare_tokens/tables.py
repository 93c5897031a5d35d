"""Write results.md and plots from the cells' result files; every number comes from them.

python experiments/rare_tokens/tables.py core.toml
python experiments/rare_tokens/tables.py core.toml --recompute NAME --work FOLDER   # train and measure one cell anew, and compare
"""

import json
import math
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from arms import ARMS
from fill import cells, path_of
from scipy.stats import t as student
from text import Text
from train import RESULTS, Cell, parser, read_config, train

from measure import SETS, measure
from uncone.atomic import write_text
from uncone.errors import InputError

BASE = "adamw95"
RARE = 2  # the place of the group in sums by document
Path_ = tuple[str | int, ...]


@dataclass(frozen=True)
class Run:
    cell: Cell
    result: dict[str, Any]

    def __getitem__(self, path: Path_) -> float:
        found: Any = self.result["measured"]
        for part in path:
            found = found[part]
        return float(found)

    def loss(self, group: int | None = None) -> float:
        """Nats a target of the validation text."""
        sums = np.array(self.result["measured"]["documents"]).sum(0)
        places = range(4) if group is None else (group,)
        return float(sum(sums[4 + g] for g in places) / sum(sums[g] for g in places))

    def ratio(self, group: int = RARE) -> float:
        """The log of the group's predicted over its own share."""
        sums = np.array(self.result["measured"]["documents"]).sum(0)
        return math.log(sums[8 + group] / sums[group])


Of = Callable[[Run], float]
Numbers = dict[str, Callable[[Run], str]]


@dataclass(frozen=True)
class Effect:
    """Of an arm less another over seeds, with a 95% t interval and the smallest effect that 80% of such designs find."""

    value: float
    low: float | None
    high: float | None
    smallest: float | None
    seeds: int


def effect(differences: Iterable[float]) -> Effect:
    of = np.array(list(differences))
    n = len(of)
    if n < 2:
        return Effect(float(of.mean()), None, None, None, n)
    error = float(of.std(ddof=1)) / math.sqrt(n)
    half = float(student.ppf(0.975, n - 1)) * error
    seen = (float(student.ppf(0.975, n - 1)) + float(student.ppf(0.8, n - 1))) * error
    return Effect(float(of.mean()), float(of.mean()) - half, float(of.mean()) + half, seen, n)


def runs_of(some: Iterable[Cell]) -> dict[str, Run]:
    """Measured cells by name; those that diverged are left to the list."""
    found = {}
    for cell in some:
        if cell.result.exists():
            result = json.loads(cell.result.read_text())
            if "measured" in result:
                found[cell.name] = Run(cell, result)
    return found


def paired(runs: Iterable[Run], arm: str, other: str, of: Callable[[Run], float], **like: Any) -> Effect | None:
    """Over the seeds that both have, each at its own best rate."""
    by = {(run.cell.arm, run.cell.seed): run for run in runs if _is_like(run.cell, like)}
    seeds = sorted(seed for name, seed in by if name == arm and (other, seed) in by)
    return effect(of(by[arm, seed]) - of(by[other, seed]) for seed in seeds) if seeds else None


def _is_like(cell: Cell, like: dict[str, Any]) -> bool:
    return all(getattr(cell, name) == value for name, value in like.items())


def at_best(runs: dict[str, Run], **like: Any) -> dict[str, list[Run]]:
    """By arm, the runs at the rate that has the most seeds, of equals that with the lowest loss."""
    found = {}
    for arm in dict.fromkeys(run.cell.arm for run in runs.values()):
        of_rate: dict[float, list[Run]] = {}
        for run in runs.values():
            if run.cell.arm == arm and _is_like(run.cell, like):
                of_rate.setdefault(run.cell.rate, []).append(run)
        if of_rate:
            found[arm] = min(of_rate.values(), key=lambda some: (-len(some), np.mean([one.loss() for one in some])))
    return found


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


def written(of: Effect | None, digits: int = 3) -> str:
    if of is None:
        return "-"
    if of.low is None or of.high is None:
        return f"{of.value:+.{digits}f}"
    low, high, seen = (f"{x:{sign}.{digits}f}" for x, sign in ((of.low, "+"), (of.high, "+"), (of.smallest, "")))
    return f"{of.value:+.{digits}f} ({low} to {high}; would see {seen})"


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
    numbers: Numbers = {
        "loss": lambda run: f"{run.loss():.4f}",
        "rare perplexity": lambda run: f"{math.exp(run.loss(RARE)):,.0f}",
        "log ratio of rare": lambda run: f"{run.ratio():+.3f}",
    }
    return "\n".join([*parts, *every_cell(every, runs, numbers)]) + "\n"


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


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        sys.exit(str(error))
