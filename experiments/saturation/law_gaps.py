"""How often is a run held out said to lie off a law that it follows, and how often is one found that does not?

    python experiments/saturation/law_gaps.py [--sims 400]    # results/law_gaps.json and law_gaps.md

Designs and laws are those of coverage.py, with log-normal noise of 1 %. Four small runs are held out. "One off": the third of them lies so many deviations of
the noise above the law. "All off": each does. A run is named alone after Holm over the four, and the mean has its own interval; all at 5 %.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from coverage import SMALL, TOKENS, design, fit
from scipy.stats import beta

from uncone.atomic import write_text
from uncone.saturation.law.fit import Problem, ln_loss
from uncone.saturation.law.intervals import uncertainty
from uncone.statistics.holm import holm

OUT = Path(__file__).parent / "results" / "law_gaps.json"
DESIGNS, NOISE, RESAMPLES, PLANTED = ("six Pythias, A and alpha", "16 runs, all five"), 0.01, 199, 2
CELLS = [("none off", 0), *((kind, size) for kind in ("one off", "all off") for size in (4, 8, 16))]


def upper(hits: int, n: int) -> float:
    """Clopper and Pearson's limit, one-sided, 95 %."""
    return 1.0 if hits == n else float(beta.ppf(0.95, hits + 1, n - hits))


def simulated(name: str, number: int) -> np.ndarray:
    """(cells, 3): of one simulation whether any run is named alone, whether the planted one is, and whether the mean is off."""
    law, x, known = design(name)
    random, small = np.random.default_rng((39, number)), np.log([SMALL, (TOKENS,) * 4])
    problem = Problem(x, ln_loss(law.theta[None], x)[0] + NOISE * random.standard_normal(x.shape[1]), known, 1e-3)
    found = uncertainty(problem, fit(problem, law), resamples=RESAMPLES, seed=number)
    new = ln_loss(law.theta[None], small)[0] + NOISE * random.standard_normal(4)
    hits = np.zeros((len(CELLS), 3), bool)
    for row, (kind, size) in enumerate(CELLS):
        off = np.where((np.arange(4) == PLANTED) | (kind == "all off"), size * NOISE, 0.0)
        n, t, loss = *np.exp(small), np.exp(new + off)
        alone, gap = np.array(holm(found.chances(n, t, loss))) <= 0.05, found.mean_gap(n, t, loss)
        hits[row] = alone.any(), alone[PLANTED], gap is not None and not gap[1] <= 0 <= gap[2]
    return hits


def cells(name: str, sims: int) -> list[dict[str, Any]]:
    shares = np.mean([simulated(name, number) for number in range(sims)], axis=0)
    kept = []
    for (kind, size), (any_named, planted, mean) in zip(CELLS, shares.tolist(), strict=True):
        limits = {
            "any_upper": round(upper(round(any_named * sims), sims), 4),
            "mean_upper": round(upper(round(mean * sims), sims), 4),
        }
        shown = {"any_named": any_named, "planted_named": planted, "mean_off": mean} | (
            limits if kind == "none off" else {}
        )
        kept.append({"design": name, "off": kind, "deviations": size, "sims": sims} | shown)
    return kept


def table(found: list[dict[str, Any]]) -> str:
    lines = [
        "# How often is a run held out said to lie off the law?",
        "",
        "`python experiments/saturation/law_gaps.py`",
        "",
    ]
    lines += [
        "| design | four runs held out | any named alone | the third named alone | their mean is off |",
        "|---|---|---|---|---|",
    ]
    for one in found:
        off = f"{one['off']}, {one['deviations']} deviations" if one["deviations"] else one["off"]
        ends = [f" (upper limit {one[key]:.1%})" if key in one else "" for key in ("any_upper", "mean_upper")]
        lines.append(
            f"| {one['design']} | {off} | {one['any_named']:.1%}{ends[0]} | {one['planted_named']:.1%} | {one['mean_off']:.1%}{ends[1]} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sims", type=int, default=400)
    sims = parser.parse_args().sims
    found = [cell for name in DESIGNS for cell in cells(name, sims)]
    write_text(OUT, json.dumps(found, indent=1) + "\n")
    write_text(OUT.with_suffix(".md"), table(found))


if __name__ == "__main__":
    main()
