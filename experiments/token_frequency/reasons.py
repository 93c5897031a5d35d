"""How often do two sentences of the reasons come where nothing is there, and how often where something is?

    python experiments/token_frequency/reasons.py [--sims 400]    # results/reasons.json and reasons.md

"Turn": a reading that goes with the count of a token, log-normal counts, noise of 1. It never turns (independent of the count, a line, a plateau from
a count of 4 on, a late rise), or it rises with ln(count) up to 100 and falls from there. "Push": targets drawn from a model's own softmax, where the text
pushes and pulls each group of rows alike, or from one that gives rare tokens half as much again.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from uncone.atomic import write_text
from uncone.diagnosis.bins.frequency import bin_edges
from uncone.diagnosis.bins.shape import find_turn
from uncone.diagnosis.why.gradients.gradients import gradient_ledger
from uncone.model.last_states import States

OUT = Path(__file__).parent / "results" / "reasons.json"
SHAPES = ("independent", "line", "plateau", "late", "turn")
ROWS, TARGETS, V, D = (400, 4_000), (500, 5_000), 60, 8


def turned(shape: str, n: int, seed: int) -> bool:
    random = np.random.default_rng([39, n, seed, *map(ord, shape)])
    counts = np.ceil(np.exp(random.normal(3, 2, n))).astype(np.int64)
    logs = np.log(counts)
    reading = {
        "independent": 0 * logs,
        "line": logs,
        "plateau": 2 * np.minimum(logs, np.log(4)),
        "late": 2 * np.maximum(logs - np.log(8), 0),
        "turn": -np.abs(logs - np.log(100)),
    }[shape]
    return find_turn(counts, reading + random.normal(size=n), bin_edges(counts)) is not None


def is_out_of_balance(n: int, more: float, seed: int) -> bool:
    """Whether a text that has `more` times the rare targets pushes or pulls the rows of rare tokens more."""
    random = torch.Generator().manual_seed(seed)
    head, states = (torch.randn(k, D, generator=random) for k in (V, n))
    counts = 10_000 // np.arange(1, V + 1)
    p = torch.softmax(states @ head.T + torch.log(torch.from_numpy(counts).float()), 1)
    rare = torch.arange(V) >= round(0.8 * V)
    labels = torch.multinomial(torch.where(rare, more * p, p), 1, generator=random)[:, 0]
    bias = torch.log(torch.from_numpy(counts).float())
    text = States(states, labels, head, bias, None, 1.0, "made", torch.arange(n) * 20 // n)
    low, high = gradient_ledger(text, counts=counts, micro_batches=1).group("rare").net.interval
    return low > 0 or high < 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sims", type=int, default=400)
    sims = parser.parse_args().sims
    torch.set_num_threads(1)
    found = list[dict[str, Any]]()
    for n in ROWS:
        for shape in SHAPES:
            said = sum(turned(shape, n, seed) for seed in range(sims))
            found.append({"sentence": "turn", "truth": shape, "n": n, "sims": sims, "said": said / sims})
    for n in TARGETS:
        for more in (1.0, 1.5):
            said = sum(is_out_of_balance(n, more, seed) for seed in range(sims))
            found.append({"sentence": "push", "truth": f"{more:g} times", "n": n, "sims": sims, "said": said / sims})
    write_text(OUT, json.dumps(found, indent=1) + "\n")
    lines = [
        "# Sentences of the reasons where the truth is known",
        "",
        f"`python experiments/token_frequency/reasons.py`, {sims} samples a cell.",
        "",
    ]
    lines += ["| sentence | truth | rows or targets | said |", "|---|---|---|---|"]
    lines += [f"| {one['sentence']} | {one['truth']} | {one['n']:,} | {one['said']:.1%} |" for one in found]
    write_text(OUT.with_suffix(".md"), "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
