"""Do the known readings of 350 runs track their test loss? Writes `results/` and the paragraph in short of README.md.

python experiments/known_runs/run.py     # about a minute
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from correlations import holm, pool
from picture import draw
from prediction import skills
from runs import READINGS, TIED, TIED_READINGS, Run, best_losses, diverged, read
from tables import all_tables, in_short

from uncone import atomic

HERE = Path(__file__).parent
RESULTS, README = HERE / "results", HERE / "README.md"
BEGIN, END = "<!-- in short: written by run.py -->", "<!-- end of in short -->"
ALL = "all"
Groups = dict[str, list[list[Run]]]
"""What the cells of one pooled value have in common, and the cells."""


def main() -> None:
    """Compute everything anew and write it."""
    runs = in_order(read())
    found = {
        "runs": summary(runs),
        "over_learning_rates": pooled(over_learning_rates(runs)),
        "at_fixed_learning_rate": pooled(at_fixed_learning_rate(runs)),
        "by_size": pooled(by_size(runs)),
        "sensitivity": sensitivity(runs),
        "prediction": {name: vars(skill) for name, skill in skills(runs, numbers()).items()},
        "chosen_by_reading": chosen(runs),
    }
    found["multiplicity"] = correct(found)
    found["tied"] = of_tied(in_order(read(TIED)))
    # As the kept file gives it: its keys are texts.
    found = json.loads(json.dumps(rounded(found), allow_nan=False))
    RESULTS.mkdir(exist_ok=True)
    atomic.write_text(RESULTS / "results.json", json.dumps(found, separators=(",", ":")).replace("},", "},\n") + "\n")
    atomic.write_text(RESULTS / "picture.svg", draw(found))
    atomic.write_text(RESULTS / "tables.md", all_tables(found))
    before, _, rest = README.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    atomic.write_text(README, f"{before}{BEGIN}\n{in_short(found)}\n{END}{after}")


def in_order(runs: list[Run]) -> list[Run]:
    """By size, remedy, strength and learning rate, so that tables come out in this order."""
    kinds = ("baseline", "muloss", "zloss", "mucentering", "softcapping")
    return sorted(runs, key=lambda run: (run.size, kinds.index(run.remedy[0]), float(run.remedy[1]), run.learning_rate))


def rounded(value: Any) -> Any:
    """Numbers to five decimals, and without the value of each cell, which `pool` gives again."""
    if isinstance(value, dict):
        return {key: rounded(one) for key, one in value.items() if key not in ("by_cell", "p_by_cell")}
    if isinstance(value, (list, tuple)):
        return [rounded(one) for one in value]
    return round(value, 5) if isinstance(value, float) else value


def over_learning_rates(runs: Sequence[Run]) -> Groups:
    """Cells of one size and remedy, by remedy and pooled over all."""
    return _by(runs, lambda run: name_of(run.remedy), lambda run: run.size)


def at_fixed_learning_rate(runs: Sequence[Run]) -> Groups:
    """Cells of one size and learning rate, by learning rate and pooled over all."""
    return _by(runs, lambda run: f"{run.learning_rate:.0e}".replace("e-0", "e-"), lambda run: run.size)


def by_size(runs: Sequence[Run]) -> Groups:
    """Both kinds of cells, pooled within a size."""
    over = _by(runs, lambda run: f"{run.size} M, over learning rates", lambda run: run.remedy)
    fixed = _by(runs, lambda run: f"{run.size} M, at a fixed rate", lambda run: run.learning_rate)
    return {name: cells for name, cells in (over | fixed).items() if name != ALL}


def _by(runs: Sequence[Run], group: Callable[[Run], str], cell: Callable[[Run], Any]) -> Groups:
    cells: dict[str, dict[Any, list[Run]]] = {}
    for run in runs:
        cells.setdefault(group(run), {}).setdefault(cell(run), []).append(run)
    found = {name: list(of.values()) for name, of in cells.items()}
    return found | {ALL: [one for of in found.values() for one in of]}


def name_of(remedy: tuple[str, str]) -> str:
    """A remedy in words."""
    kind, strength = remedy
    plain = {"baseline": "no remedy", "mucentering": "mu-centring", "softcapping": f"soft cap {float(strength):g}"}
    return plain.get(kind) or f"{kind.replace('loss', '-loss')} {float(strength):g}"


def pooled(groups: Groups, readings: Sequence[str] = READINGS) -> dict[str, dict[str, Any]]:
    """Of each group and reading, the pooled tau-b; None where it is undefined in every cell."""
    return {name: {reading: _one(cells, reading) for reading in readings} for name, cells in groups.items()}


def of_tied(runs: Sequence[Run]) -> dict[str, Any]:
    """The same question of the runs with a tied table, with Holm over their own pooled values."""
    found: dict[str, Any] = {
        "over_learning_rates": pooled(over_learning_rates(runs), TIED_READINGS),
        "at_fixed_learning_rate": pooled(at_fixed_learning_rate(runs), TIED_READINGS),
    }
    tests = [one for of in found.values() for group, by in of.items() if group != ALL for one in by.values() if one]
    for one, corrected in zip(tests, holm([one["p"] for one in tests]), strict=True):
        one["holm"] = corrected
    return found | {"runs": len(runs), "diverged": len(diverged(list(runs))), "tests": len(tests)}


def _one(cells: list[list[Run]], reading: str) -> dict[str, Any] | None:
    found = pool([([run.readings[reading] for run in cell], [run.loss for run in cell]) for cell in cells])
    return None if found is None else vars(found)


def sensitivity(runs: Sequence[Run]) -> dict[str, Any]:
    """The values pooled over all cells, with runs left out whose place in the table can be doubted."""
    gone = diverged(list(runs))
    ways = {
        "all runs": list(runs),
        "without the 15 runs whose I(W) is nan": [run for run in runs if not run.overflowed],
        "without diverged runs": [run for run in runs if run not in gone],
        "without z-loss 100": [run for run in runs if name_of(run.remedy) != "z-loss 100"],
        "learning rates up to 3e-2": [run for run in runs if run.learning_rate < 0.05],
    }
    return {
        name: {
            "runs": len(kept),
            "over_learning_rates": pooled({ALL: over_learning_rates(kept)[ALL]})[ALL],
            "at_fixed_learning_rate": pooled({ALL: at_fixed_learning_rate(kept)[ALL]})[ALL],
        }
        for name, kept in ways.items()
    }


def numbers() -> dict[str, Callable[[Run], float]]:
    """What a loss is predicted from."""
    given: dict[str, Callable[[Run], float]] = {"learning rate": lambda run: run.learning_rate}
    return given | {reading: (lambda run, name=reading: run.readings[name]) for reading in READINGS}


def chosen(runs: Sequence[Run]) -> dict[str, Any]:
    """The price, in nats above the best run of its size, of the run with the most isotropic matrix (of ties, their mean)."""
    best, prices = best_losses(runs), dict[str, Any]()
    for matrix in ("head", "input"):
        name = f"{matrix} isotropy"
        for size, least in best.items():
            of_size = [run for run in runs if run.size == size]
            most = max(run.readings[name] for run in of_size)
            losses = [run.loss for run in of_size if run.readings[name] == most]
            prices.setdefault(name, {})[size] = round(float(np.mean(losses)) - least, 4)
    prices["the median run"] = {
        size: round(float(np.median([run.loss for run in runs if run.size == size])) - least, 4)
        for size, least in best.items()
    }
    return prices


def correct(found: dict[str, Any]) -> dict[str, Any]:
    """Holm over every pooled p by remedy and by learning rate, written beside each; and what chance alone would give."""
    families = [found[name] for name in ("over_learning_rates", "at_fixed_learning_rate")]
    single = [of for family in families for group, of in family.items() if group != ALL]
    tests = [one for of in single for one in of.values() if one]
    for one, corrected in zip(tests, holm([one["p"] for one in tests]), strict=True):
        one["holm"] = corrected
    cells = [p for one in tests for p in one["p_by_cell"]]
    return {
        "tests": len(tests),
        "without_a_value": sum(one is None for of in single for one in of.values()),
        "below_0.05": sum(one["p"] < 0.05 for one in tests),
        "expected_below_0.05": round(0.05 * len(tests), 1),
        "holm_below_0.05": sum(one["holm"] < 0.05 for one in tests),
        "holm_of_z_loss_100": sum(one["holm"] < 0.05 for one in families[0]["z-loss 100"].values() if one),
        "holm_positive": sum(one["holm"] < 0.05 and one["tau"] > 0 for one in tests),
        "cells": len(cells),
        "cells_below_0.05": sum(p < 0.05 for p in cells),
        "expected_cells_below_0.05": round(0.05 * len(cells), 1),
    }


def summary(runs: Sequence[Run]) -> dict[str, Any]:
    """What the table holds: runs, ties, runs without I(W), and what I(W) has to do with the learning rate."""
    gone, best = diverged(list(runs)), best_losses(runs)
    without = [run for run in runs if run.overflowed]
    with_rate = {}
    for reading in READINGS:
        cells = over_learning_rates(runs)[ALL]
        found = pool([([run.readings[reading] for run in cell], [run.learning_rate for run in cell]) for cell in cells])
        with_rate[reading] = None if found is None else {"tau": found.tau, "low": found.low, "high": found.high}
    above = sorted(round(run.loss - best[run.size], 3) for run in without)
    return {
        "runs": len(runs),
        "readings": 2 * len(runs),
        "diverged": len(gone),
        "isotropy_0.000": {m: sum(run.readings[f"{m} isotropy"] == 0 for run in runs) for m in ("input", "head")},
        "isotropy_nan": len(without),
        "of_them_diverged": sum(run in gone for run in without),
        "their_losses_above_the_best": above,
        "correlation_with_the_learning_rate": with_rate,
    }


if __name__ == "__main__":
    main()
