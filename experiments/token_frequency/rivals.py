"""How often is a text said to follow Zipf's law, or not to, where the law of its counts is known?

    python experiments/token_frequency/rivals.py [--sims 500]    # results/rivals.json, cell by cell, and rivals.md

Twice as many types as ranks are fitted. The type of middle rank is expected 200 times, and each count is drawn about its expectation: Poisson, or
in bursts (nine times that variance). "Ranks": expectations fall by rank as the law says. "Types": each type draws its own expectation from the law of
counts. A law of bend b has an exponent that differs by b between the ends of the ranks: 0.5 is the most that "roughly" allows.
"""

import argparse
import json
import math
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import beta

from uncone.atomic import write_text
from uncone.tokens.zipf import fit_zipf

OUT = Path(__file__).parent / "results" / "rivals.json"
SIZES = (200, 2_000, 20_000)
ZIPF = (
    "ranks, exponent 1",
    "ranks, exponent 1, in bursts",
    "ranks, exponent 0.7",
    "ranks, exponent 1.5",
    "types, exponent 1",
)
OTHERS = ("uniform", "linear", "log-normal, deviation 1", "log-normal, deviation 3", "exponential", "types, bend 0.5")
SHARED = Path(__file__).parents[2] / "../shared/data/frequency"
SHIPPED = {
    "news, WordPiece (one billion words)": "bert-base-uncased_lm1b_token_counts.tsv",
    "books, WordPiece (PG-19)": "bert-base-uncased_pg19_token_counts.tsv",
    "Wikipedia, words": "wiki-en-2018_word_counts_100k.tsv",
}
ANSWERS = ("closely", "roughly", "undecided", "no")


def expected(law: str, ranks: int, random: np.random.Generator) -> np.ndarray:
    """(2 ranks,): how often each type is expected, about 200 times in the middle."""
    kind, _, value = law.partition(", ")
    number = float(value.split(",")[0].split()[-1]) if value else 0.0
    part = np.arange(1, 2 * ranks + 1) / ranks  # 1 in the middle
    if kind == "ranks":
        return 200 * part**-number
    if kind == "types":
        y = drawn(share_of(number, ranks), ranks, random) if "bend" in law else number * random.exponential(size=ranks)
        return 200 * np.exp(np.concatenate([y, -random.random(ranks)]))
    if kind == "log-normal":
        return 200 * np.exp(number * random.standard_normal(2 * ranks))
    if kind == "exponential":
        return 290 * random.exponential(size=2 * ranks)
    return np.full(2 * ranks, 200.0) if kind == "uniform" else 200 * (2 - part) + 1


@lru_cache
def share_of(bend: float, ranks: int) -> float:
    """b of the density exp(-y - b y^2) whose bend is so large over these ranks."""
    y = (np.arange(400_000) + 0.5) / 10_000

    def bend_of(share: float) -> float:
        p = np.exp(-y - share * y**2)
        return float(2 - (p @ y**2) * p.sum() / (p @ y) ** 2) / 2 * math.log(ranks)

    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if bend_of(middle) < bend else (low, middle)
    return low


def drawn(share: float, n: int, random: np.random.Generator) -> np.ndarray:
    """(n,) of the density exp(-y - share y^2), y > 0, from the exponential one by rejection."""
    kept = np.empty(0)
    while len(kept) < n:
        y = random.exponential(size=2 * n)
        kept = np.concatenate([kept, y[random.random(2 * n) < np.exp(-share * y**2)]])
    return kept[:n]


def cell(law: str, ranks: int, sims: int) -> dict[str, Any]:
    answers, compared = list[str](), list[int]()
    for i in range(sims):
        random = np.random.default_rng([39, ranks, i, *map(ord, law)])
        mean = expected(law, ranks, random)
        counts = random.negative_binomial(mean / 8, 1 / 9) if "bursts" in law else random.poisson(mean)
        found = fit_zipf(counts)
        answers.append(found.follows)
        compared.append(found.ranks)
    shares = {answer: answers.count(answer) / sims for answer in ANSWERS}
    return {"law": law, "ranks": ranks, "sims": sims, "compared": int(np.median(compared)), **shares}


def upper(hits: int, n: int) -> float:
    """Clopper and Pearson's limit, one-sided, 95 %."""
    return 1.0 if hits == n else float(beta.ppf(0.95, hits + 1, n - hits))


def table(cells: list[dict[str, Any]]) -> str:
    lines = ["# Is Zipf's law found where it holds, and where it does not?", ""]
    lines += ["`python experiments/token_frequency/rivals.py`", ""]
    lines += [f"| counts | ranks | texts | {' | '.join(ANSWERS)} |", "|---|---|---" + "|---" * len(ANSWERS) + "|"]
    for one in cells:
        shares = " | ".join(f"{one[answer]:.1%}" for answer in ANSWERS)
        lines.append(f"| {one['law']} | {one['compared']:,} | {one['sims']} | {shares} |")
    return "\n".join(lines) + "\n"


def of_texts() -> str:
    """The same question about counts of real texts."""
    lines = [
        "",
        "## Counts of real texts",
        "",
        "| counts | answer | a log-normal gains, nats | P | a cut gains, nats | P | change of the exponent, 95 % | gap |",
    ]
    lines.append("|---" * 8 + "|")
    for name, file in SHIPPED.items():
        rows = (SHARED / file).read_text(encoding="utf-8").split("\n")[1:]
        law = fit_zipf(np.array([int(row.rpartition("\t")[2]) for row in rows if row]))
        of = {rival.name: f"{rival.gain:.0f} | {rival.p:.0e}" for rival in law.rivals}
        low, high = law.bend.interval or (0.0, 0.0)
        gains = " | ".join(of[rival] for rival in sorted(of))
        lines.append(f"| {name} | {law.follows} | {gains} | {low:.0%} to {high:.0%} | {law.gap:.1%} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sims", type=int, default=500)
    sims = parser.parse_args().sims
    cells = json.loads(OUT.read_text()) if OUT.exists() else []
    for ranks in SIZES:
        for law in (*ZIPF, *OTHERS):
            if not any((one["law"], one["ranks"]) == (law, ranks) for one in cells):
                cells.append(cell(law, ranks, sims if law.startswith("types") else sims // 2))
                print(cells[-1], flush=True)
                write_text(OUT, json.dumps(cells, indent=1) + "\n")
    write_text(OUT.with_suffix(".md"), table(cells) + of_texts())


if __name__ == "__main__":
    main()
