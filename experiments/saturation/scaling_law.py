"""Do the small Pythias lie above the scaling law of the larger ones (Godey et al. 2024, section 3)?

    python experiments/saturation/scaling_law.py [godey2024_digitised.csv]

The losses are read from the paper's figures 1a and 1b, 50,000 tokens of the Pile at 143,000 steps of 2,097,152 tokens. B, beta and E are those of Hoffmann
et al. 2022, as in the paper. Writes results/scaling_law.json and results/scaling_law.md.
"""

import argparse
import csv
import json
from pathlib import Path
from typing import Any

import numpy as np

import uncone
from uncone.saturation.law.fit import Law, fitted, problem_of
from uncone.saturation.law.record import ScalingLaw

HERE = Path(__file__).parent
DATA = HERE / "../../../shared/data/pythia/godey2024_digitised.csv"
STEPS, BATCH = 143, 2_097_152_000  # thousands of steps, and tokens in a thousand
FIXED = {"B": 410.7, "beta": 0.28, "E": 1.69}
PAPER = Law(119.09, 0.246, **FIXED)
SMALLEST = 4e8
FAMILY = {  # model: layers, width; its vocabulary is padded
    "14m": (6, 128, 50_304),
    "31m": (6, 256, 50_304),
    "70m": (6, 512, 50_304),
    "160m": (12, 768, 50_304),
    "410m": (24, 1024, 50_304),
    "1b": (16, 2048, 50_304),
    "1.4b": (24, 2048, 50_304),
    "2.8b": (32, 2560, 50_304),
    "6.9b": (32, 4096, 50_432),
    "12b": (36, 5120, 50_688),
}


def parameters(model: str, *, total: bool) -> int:
    """Of a GPT-NeoX: 12 d^2 + 13 d a layer, a last normalisation, and a table and a head of the same size."""
    layers, d, vocabulary = FAMILY[model]
    return layers * (12 * d * d + 13 * d) + 2 * d + (2 * vocabulary * d if total else 0)


def losses(path: Path) -> tuple[dict[str, float], dict[str, tuple[int, float]]]:
    """The final loss of each model; the step (thousands) and the loss of the best checkpoint of each small one."""
    rows = list(csv.DictReader(path.read_text().splitlines()))
    final = {row["model"]: float(row["y"]) for row in rows if row["figure"] == "fig1b_final_pile_loss"}
    best = dict[str, tuple[int, float]]()
    for row in rows:
        if row["figure"] == "fig1a_pile_loss" and row["model"] != "410m":
            here = (int(row["x"]), float(row["y"]))
            best[row["model"]] = min(best.get(row["model"], here), here, key=lambda at: at[1])
    return final, best


def table(
    final: dict[str, float], best: dict[str, tuple[int, float]], *, total: bool, at_best: bool
) -> dict[str, list[Any]]:
    """The runs; with `at_best` the small ones at the checkpoint of least loss."""
    at = {model: best[model] if at_best and model in best else (STEPS, loss) for model, loss in final.items()}
    return {
        "model": list(at),
        "n": [parameters(model, total=total) for model in at],
        "t": [step * BATCH for step, _ in at.values()],
        "loss": [loss for _, loss in at.values()],
    }


def mean_gap(law: Law, runs: dict[str, list[Any]], smallest: float) -> tuple[float, list[float]]:
    small = np.array(runs["n"]) < smallest
    gaps = law.gap(*(np.array(runs[name], float)[small] for name in ("n", "t", "loss")))
    return float(gaps.mean()), gaps.tolist()


def leave_one_out(runs: dict[str, list[Any]], smallest: float) -> list[dict[str, Any]]:
    """The law without each of the fitted runs, and the mean gap of the small ones."""
    n, t, loss = (np.array(runs[name], float) for name in ("n", "t", "loss"))
    out = []
    for place in np.flatnonzero(n >= smallest):
        kept = (n >= smallest) & (np.arange(len(n)) != place)
        law = fitted(problem_of(n[kept], t[kept], loss[kept], fixed=FIXED))
        out.append(
            {"without": runs["model"][place], "A": law.A, "alpha": law.alpha, "gap": mean_gap(law, runs, smallest)[0]}
        )
    return out


def study(path: Path) -> tuple[dict[str, Any], list[ScalingLaw]]:
    """All numbers, and the records of the four fits."""
    final, best = losses(path)
    results, records = dict[str, Any](), []
    for at_best in (False, True):
        named = "best" if at_best else "final"
        runs = table(final, best, total=True, at_best=at_best)
        results[f"paper's law, {named}"] = dict(zip(("gap", "gaps"), mean_gap(PAPER, runs, SMALLEST), strict=True))
        for total in (True, False):
            runs = table(final, best, total=total, at_best=at_best)
            smallest = SMALLEST if total else parameters("410m", total=False)
            kind = "total" if total else "non-embedding"
            record = uncone.fit_scaling_law(runs, smallest=smallest, fixed=FIXED, parameters=kind)
            records.append(record)
            assert record.gap is not None
            results[f"{kind}, {named}"] = {
                "constants": {c.name: [c.value, *(c.profile or ())] for c in record.constants if not c.given},
                "gap": [record.gap.value, record.gap.low, record.gap.high],
                "gaps": [run.gap for run in record.runs if not run.fitted],
                "verdict": record.verdict,
            }
            if not at_best:
                results[f"{kind}, leave one out"] = leave_one_out(runs, smallest)
    return results, records


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", nargs="?", type=Path, default=DATA)
    results, records = study(parser.parse_args().data)
    (HERE / "results").mkdir(exist_ok=True)
    (HERE / "results/scaling_law.json").write_text(json.dumps(results, indent=1) + "\n")
    lines = ["| law | A | alpha | mean gap of the four small models | 14M, 31M, 70M, 160M |", "|---|---|---|---|---|"]
    for name, found in results.items():
        if isinstance(found, list):
            low, high = ([pick(one[key] for one in found) for key in ("A", "alpha", "gap")] for pick in (min, max))
            ends = [f"{a:.4g} to {b:.4g}" for a, b in zip(low[:2], high[:2], strict=True)]
            lines.append(f"| {name} | {ends[0]} | {ends[1]} | {low[2]:+.2%} to {high[2]:+.2%} | |")
            continue
        constants = found.get("constants", {"A": [PAPER.A], "alpha": [PAPER.alpha]})
        cells = [f"{c[0]:.5g}" + (f" ({c[1]:.3g} to {c[2]:.3g})" if len(c) > 1 else "") for c in constants.values()]
        gap = found["gap"] if isinstance(found["gap"], list) else [found["gap"]]
        told = f"{gap[0]:+.2%}" + (f" ({gap[1]:+.1%} to {gap[2]:+.1%})" if len(gap) > 1 else "")
        lines.append(f"| {name} | {' | '.join(cells)} | {told} | {', '.join(f'{one:+.1%}' for one in found['gaps'])} |")
    text = "\n".join(lines) + "\n"
    (HERE / "results/scaling_law.md").write_text(text)
    print(text)
    for record in records:
        print(record.verdict)


if __name__ == "__main__":
    main()
