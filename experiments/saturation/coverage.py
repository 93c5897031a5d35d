"""How often do the intervals of a scaling law hold the constants that were planted?

    python experiments/saturation/coverage.py [--fits 200]

A cell has a design (the runs and the constants that are fitted) and log-normal noise. Its runs are simulated, each time fitted, and its intervals taken from
199 resamples. What is counted is the interval as it is printed: an open end holds every value on its side. Simulations are numbered, and counts are kept in
results/coverage.json after every 25, so that a later call goes on behind them, also with more `--fits`. The table goes to results/coverage.md. Shares stand
next to their Wilson limits at 95 %.

Fits begin at the planted constants and at 300 of the 4,500 starts, which is quick; of 10 fits a cell the sum is compared with that of all starts, and the
worst difference is kept.
"""

import argparse
import itertools
import json
import math
import time
from pathlib import Path
from typing import Any

import numpy as np

from uncone.saturation.law.fit import CONSTANTS, GRID, Law, Problem, fitted, ln_loss
from uncone.saturation.law.intervals import uncertainty

OUT = Path(__file__).parent / "results" / "coverage.json"
RESAMPLES, COMPARED, STARTS, AT_ONCE = 199, 10, 300, 25
TOKENS = 143_000 * 2_097_152
PYTHIA = (405_334_016, 1_011_781_632, 1_414_647_808, 2_775_208_960, 6_857_302_016, 11_846_072_320)
SMALL = (14_067_712, 30_494_720, 70_426_624, 162_322_944)
GODEY = Law(119.09, 0.246, 410.7, 0.28, 1.69)
BESIROGLU = Law(482.01, 0.3478, 2085.43, 0.3658, 1.8172)
CELLS = [
    *((f"{runs} runs, all five", noise) for noise in (0.05, 0.1) for runs in (16, 12)),
    *((f"{runs} runs, all five", 0.01) for runs in (16, 12)),
    *(("six Pythias, A and alpha", noise) for noise in (0.003, 0.01, 0.03)),
    *(("40 runs, all five", noise) for noise in (0.003, 0.01, 0.03)),
    ("245 runs, all five", 0.01),
]
LEAST, CONSERVATIVE = 0.93, 0.97


def design(name: str) -> tuple[Law, Any, dict[int, float]]:
    """The law, ln N and ln T (2, R), and the constants that are given."""
    if name.startswith("six"):
        theta = GODEY.theta
        return GODEY, np.log([PYTHIA, (TOKENS,) * 6]), {place: float(theta[place]) for place in (2, 3, 4)}
    generator = np.random.default_rng(0)
    runs = int(name.split()[0])
    x = np.stack([generator.uniform(7.6, 10.2, runs), generator.uniform(9.3, 12, runs)])
    return BESIROGLU, x * math.log(10), {}


def wilson(hits: int, of: int) -> list[float]:
    z, p = 1.959964, hits / of
    middle, half = p + z * z / (2 * of), z * math.sqrt(p * (1 - p) / of + z * z / (4 * of * of))
    return [round((middle + sign * half) / (1 + z * z / of), 4) for sign in (-1, 1)]


def fit(problem: Problem, law: Law) -> Law:
    """The best from the planted constants and a share of the usual starts."""
    axes = [(problem.known[place],) if place in problem.known else GRID[place] for place in range(5)]
    every = np.array(list(itertools.product(*axes)), float)
    some = np.random.default_rng(0).permutation(len(every))[:STARTS]
    ends, sums = problem.descend(np.concatenate([law.theta[None], every[some]]), steps=40, done=1e-8)
    ends, sums = problem.descend(ends[np.argsort(sums)[:20]])
    a, alpha, b, beta, e = ends[np.argmin(sums)].tolist()
    return Law(math.exp(a), alpha, math.exp(b), beta, math.exp(e), float(sums.min()))


def holds(ends: Any, value: float) -> bool:
    low, high = ends
    return bool((low is None or low <= value) and (high is None or value <= high))


def held(name: str, noise: float, number: int) -> tuple[dict[str, bool], float]:
    """One simulation: which of the intervals that there are hold what was planted, and which are open; and how much lower the sum of all starts is."""
    law, x, known = design(name)
    generator = np.random.default_rng((7, number))
    small = np.log([SMALL, (TOKENS,) * 4])
    y = ln_loss(law.theta[None], x)[0] + noise * generator.standard_normal(x.shape[1])
    new = np.exp(ln_loss(law.theta[None], small)[0] + noise * generator.standard_normal(4))
    problem = Problem(x, y, known, 1e-3)
    found = fit(problem, law)
    lower = 1 - fitted(problem).objective / found.objective if number < COMPARED else 0.0
    known_to = uncertainty(problem, found, resamples=RESAMPLES, seed=number)
    hits = {}
    for kind, intervals in (("profile", known_to.profiles()), ("bootstrap", known_to.constants())):
        for place, ends in intervals.items():
            hits[f"{CONSTANTS[place]}, {kind}"] = holds(ends, getattr(law, CONSTANTS[place]))
            hits[f"{CONSTANTS[place]}, {kind} open"] = None in ends
    band, gap = known_to.band(*np.exp(small[:, 2:3])), known_to.mean_gap(*np.exp(small), new)
    if band is not None:
        hits["a new run of 70M, band"] = holds((band[0][0], band[1][0]), new[2])
    if gap is not None:
        hits["no gap of four small runs"] = holds(gap[1:], 0.0)
    return hits, lower


def table(cells: list[dict[str, Any]]) -> str:
    """One row for each cell and interval."""
    lines = [
        "# How often do the intervals of a scaling law hold the planted constants?",
        "",
        f'`python experiments/saturation/coverage.py`. {RESAMPLES} resamples a fit. "Held" is a share of the fits that have the interval, '
        f'with Wilson\'s 95 % limits. Below {LEAST:.0%} a row is marked "too rarely", above {CONSERVATIVE:.0%} "conservative".',
        "",
        "| design | noise | interval | fits | have it | open on a side | held | 95 % limits | |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for cell in cells:
        for called, (hits, of) in cell["counts"].items():
            if called.endswith(" open"):
                continue
            low, high = wilson(hits, of)
            share = hits / of
            remark = "too rarely" if share < LEAST else "conservative" if share > CONSERVATIVE else ""
            is_open = cell["counts"].get(f"{called} open")
            opened = "" if is_open is None else f"{is_open[0] / of:.0%}"
            lines.append(
                f"| {cell['design']} | {cell['noise']:.1%} | {called} | {cell['fits']} | {of} | {opened} | {share:.1%} | {low:.1%} to {high:.1%} | {remark} |"
            )
    return "\n".join(lines) + "\n"


def extend(cell: dict[str, Any], fits: int) -> None:
    """Simulate up to the next `AT_ONCE`, and count."""
    last = min(fits, cell["fits"] + AT_ONCE)
    for number in range(cell["fits"], last):
        hits, lower = held(cell["design"], cell["noise"], number)
        cell["worst_share_above_all_starts"] = max(lower, cell["worst_share_above_all_starts"])
        for called, hit in hits.items():
            counted = cell["counts"].setdefault(called, [0, 0])
            counted[0], counted[1] = counted[0] + hit, counted[1] + 1
    cell["fits"] = last


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fits", type=int, default=200)
    fits = parser.parse_args().fits
    kept = json.loads(OUT.read_text()) if OUT.exists() else []
    for name, noise in CELLS:
        cell = next((c for c in kept if (c["design"], c["noise"]) == (name, noise)), None)
        if cell is None:
            cell = {"design": name, "noise": noise, "resamples": RESAMPLES, "fits": 0}
            cell |= {"worst_share_above_all_starts": 0.0, "counts": {}}
            kept.append(cell)
        while cell["fits"] < fits:
            extend(cell, fits)
            OUT.write_text(json.dumps(kept, indent=1) + "\n")
            OUT.with_suffix(".md").write_text(table(kept))
            print(name, noise, cell["fits"], f"{time.process_time():.0f} s of processor time", flush=True)


if __name__ == "__main__":
    main()
