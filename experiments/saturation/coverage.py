"""How often do the intervals of a scaling law hold the constants that were planted?

    python experiments/saturation/coverage.py

A cell has a design (the runs and the constants that are fitted) and log-normal noise. Its runs are simulated 1,000 times, each time fitted, and its intervals
taken from 399 resamples. A finished cell is kept in results/coverage.json, and a later call goes on behind it. Shares stand beside their Wilson limits
at 95 %.

Fits begin at the planted constants, which is quick; of 25 fits a cell the sum is compared with that of all starts, and the worst difference is kept.
"""

import argparse
import json
import math
import time
from pathlib import Path
from typing import Any

import numpy as np

from uncone.saturation.law_intervals import LEVEL, deviance, uncertainty
from uncone.saturation.scaling_law import CONSTANTS, Law, Problem, fitted, ln_loss

OUT = Path(__file__).parent / "results" / "coverage.json"
RESAMPLES, COMPARED = 399, 25
TOKENS = 143_000 * 2_097_152
PYTHIA = (405_334_016, 1_011_781_632, 1_414_647_808, 2_775_208_960, 6_857_302_016, 11_846_072_320)
SMALL = (14_067_712, 30_494_720, 70_426_624, 162_322_944)
GODEY = Law(119.09, 0.246, 410.7, 0.28, 1.69)
BESIROGLU = Law(482.01, 0.3478, 2085.43, 0.3658, 1.8172)
CELLS = [
    *(("six Pythias, A and alpha", noise) for noise in (0.003, 0.01, 0.03)),
    *(("40 runs, all five", noise) for noise in (0.003, 0.01, 0.03)),
    ("12 runs, all five", 0.01),
    ("245 runs, all five", 0.01),
]


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


def held(name: str, noise: float, number: int) -> tuple[dict[str, bool], float]:
    """One simulation: which intervals hold what was planted; and how much lower the sum of all starts is."""
    law, x, known = design(name)
    generator = np.random.default_rng((7, number))
    small = np.log([SMALL, (TOKENS,) * 4])
    y = ln_loss(law.theta[None], x)[0] + noise * generator.standard_normal(x.shape[1])
    new = np.exp(ln_loss(law.theta[None], small)[0] + noise * generator.standard_normal(4))
    problem = Problem(x, y, known, 1e-3)
    ends, sums = problem.descend(law.theta[None])
    a, alpha, b, beta, e = ends[0].tolist()
    found = Law(math.exp(a), alpha, math.exp(b), beta, math.exp(e), float(sums[0]))
    lower = 1 - fitted(problem).objective / found.objective if number < COMPARED else 0.0
    known_to = uncertainty(problem, found, resamples=RESAMPLES, seed=number)
    hits = {}
    for place in np.flatnonzero(problem.free).tolist():
        called, value = CONSTANTS[place], getattr(law, CONSTANTS[place])
        ends_of = known_to.constants()[place]
        assert ends_of is not None
        hits[f"{called}, bootstrap"] = ends_of[0] <= value <= ends_of[1]
        low, high = np.quantile(known_to.drawn[:, place], [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
        hits[f"{called}, percentiles of the same resamples"] = bool(low <= law.theta[place] <= high)
        starts = np.stack([found.theta, law.theta])
        starts[:, place] = law.theta[place]
        rise = problem.descend(starts, held=place)[1].min() - found.objective
        inside = bool(deviance(rise, np.array(known_to.noise), problem.delta) <= known_to.thresholds[place])
        hits[f"{called}, profile"] = inside
    low, high = known_to.band(*np.exp(small))
    hits["a new run of 70M, band"] = bool(low[2] <= new[2] <= high[2])
    _, low_gap, high_gap = known_to.mean_gap(*np.exp(small), new)
    hits["no gap of four small runs"] = low_gap <= 0 <= high_gap
    return hits, lower


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fits", type=int, default=1000)
    fits = parser.parse_args().fits
    kept = json.loads(OUT.read_text()) if OUT.exists() else []
    for name, noise in CELLS:
        if any((cell["design"], cell["noise"], cell["fits"]) == (name, noise, fits) for cell in kept):
            continue
        began = time.process_time()
        results = [held(name, noise, number) for number in range(fits)]
        counts = {called: sum(hits[called] for hits, _ in results) for called in results[0][0]}
        shares = {called: [round(n / fits, 4), *wilson(n, fits)] for called, n in counts.items()}
        cell = {"design": name, "noise": noise, "fits": fits, "resamples": RESAMPLES, "coverage": shares}
        cell["worst_share_above_all_starts"] = max(lower for _, lower in results)
        kept.append(cell)
        OUT.write_text(json.dumps(kept, indent=1) + "\n")
        print(name, noise, f"{time.process_time() - began:.0f} s of processor time", flush=True)
        print("\n".join(f"  {called}: {share}" for called, share in shares.items()), flush=True)


if __name__ == "__main__":
    main()
