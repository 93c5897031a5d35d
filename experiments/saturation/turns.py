"""How often does a series that never turns look as if it did, and how often does the interval hold a planted turn?

nice python experiments/saturation/turns.py [--sims 500]    # results/turns.json, cell by cell, and turns.md

Thirty checkpoints. Noise is white or AR(1), of 0.015; the planted valley falls by 0.2 and rises by 0.1 or by 0.3.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import beta

from uncone.atomic import write_text
from uncone.saturation.turns import LEVEL, find_turn

OUT = Path(__file__).parent / "results" / "turns.json"
X, TURN, NOISE, DRAWS = np.linspace(0.0, 29.0, 30), 12.0, 0.015, 199
SHAPES = {
    "level": 0 * X,
    "power law": 2 / np.sqrt(1 + X),
    "rise": 0.02 * X,
    "valley of 0.1": np.where(X < TURN, 0.2 * (1 - X / TURN), 0.1 * (X - TURN) / (29 - TURN)),
    "valley of 0.3": np.where(X < TURN, 0.2 * (1 - X / TURN), 0.3 * (X - TURN) / (29 - TURN)),
}
CORRELATIONS = (0.0, 0.5, 0.8)


def noise(correlation: float, generator: np.random.Generator) -> np.ndarray:
    lag = np.abs(np.subtract.outer(X, X))
    return NOISE * np.linalg.cholesky(correlation**lag) @ generator.standard_normal(len(X))


def simulated(shape: str, correlation: float, sims: int) -> dict[str, Any]:
    """The share of series that turned, and the share of intervals that hold the planted turn."""
    turned, held = np.zeros(sims, bool), np.zeros(sims, bool)
    for i in range(sims):
        generator = np.random.default_rng([7, i])
        y = SHAPES[shape] + noise(correlation, generator)
        found = find_turn(X, y, generator.standard_normal((2, DRAWS, len(X))), generator)
        assert found is not None
        turned[i], held[i] = found.p <= LEVEL, found.low <= TURN <= found.high
    told = {"turned": float(turned.mean()), "upper_95": round(upper(int(turned.sum()), sims), 4)}
    if "valley" in shape:
        told |= {"held": float(held.mean()), "held_of_turned": round(float(held[turned].mean()), 4)}
    return {"sims": sims, **told}


def upper(hits: int, n: int) -> float:
    """Clopper and Pearson's 95% limit."""
    return 1.0 if hits == n else float(beta.ppf(0.975, hits + 1, n - hits))


def table(found: dict[str, dict[str, Any]]) -> str:
    rows = [
        "| series | AR(1) | turned (upper 95 % limit) | the interval holds the turn | of those that turned |"
    ]
    rows += ["|---|---|---|---|---|"]
    for name, one in found.items():
        shape, correlation = name.rsplit(", ", 1)
        held = (f"{one[key]:.1%}" if key in one else "" for key in ("held", "held_of_turned"))
        rows.append(
            f"| {shape} | {correlation} | {one['turned']:.1%} ({one['upper_95']:.1%}) | {' | '.join(held)} |"
        )
    return "\n".join(rows) + f"\n\n{one['sims']} series a cell, {len(X)} checkpoints, level {LEVEL}.\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sims", type=int, default=500)
    sims = parser.parse_args().sims
    found = json.loads(OUT.read_text()) if OUT.exists() else {}
    for correlation in CORRELATIONS:
        for shape in SHAPES:
            name = f"{shape}, {correlation}"
            if name not in found:
                found[name] = simulated(shape, correlation, sims)
                write_text(OUT, json.dumps(found, indent=1) + "\n")
                print(name, found[name], flush=True)
    write_text(OUT.with_suffix(".md"), table(found))


if __name__ == "__main__":
    main()
