"""How often are texts without structure said to take more or fewer dimensions than their shuffled tokens, and texts with some?

nice python experiments/saturation/context_claims.py [--sims 200]    # results/context_claims.json, cell by cell

A text has 20 parts of 1,000 tokens of 200 kinds, by Zipf's law. In a text with structure a share of the tokens is drawn from the fifth of the kinds
that the token before names.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

import uncone
from uncone.atomic import write_text

OUT = Path(__file__).parent / "results" / "context_claims.json"
KINDS, PARTS, LENGTH, GROUPS = 200, 20, 1000, 5
SHARES = (0.0, 0.2, 0.4)  # of tokens that follow the one before


def text(share: float, random: np.random.Generator) -> list[np.ndarray]:
    p = 1 / np.arange(1, KINDS + 1)
    kinds, parts = np.arange(KINDS), []
    cumulative = np.cumsum(p / p.sum())
    of_group = [np.cumsum(np.where(kinds % GROUPS == g, p, 0.0) / p[kinds % GROUPS == g].sum()) for g in range(GROUPS)]
    next_group = np.random.default_rng(0).integers(GROUPS, size=KINDS)
    for _ in range(PARTS):
        follows, uniform = random.random(LENGTH) < share, random.random(LENGTH)
        ids = [0]
        for i in range(1, LENGTH):
            law = of_group[next_group[ids[-1]]] if follows[i] else cumulative
            ids.append(min(int(np.searchsorted(law, uniform[i])), KINDS - 1))
        parts.append(np.array(ids))
    return parts


def compute(share: float, sims: int) -> dict[str, Any]:
    language, often = 0, 0
    for i in range(sims):
        said = uncone.context_rank(text(share, np.random.default_rng([11, i])), order=2, dimensions=50, seed=i).verdict
        language += "No difference from shuffled tokens was detected" not in said
        often += "with their followers shuffled" in said
    return {"share": share, "sims": sims, "language": language / sims, "often": often / sims}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sims", type=int, default=200)
    sims = parser.parse_args().sims
    done = json.loads(OUT.read_text()) if OUT.exists() else []
    for share in SHARES:
        if share not in [one["share"] for one in done]:
            done.append(compute(share, sims))
            write_text(OUT, json.dumps(done, indent=1) + "\n")
            print(done[-1], flush=True)


if __name__ == "__main__":
    main()
