"""Write papers.md, one row for each claim of three papers, from the results of `rare_tokens` and `translation`.

python experiments/papers.py
"""

import re
import sys
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parent / "rare_tokens"))
sys.path.append(str(Path(__file__).parent / "translation"))
import fill
import mt_fill
import mt_tables
from claims import CLAIMS, read
from runs import Run, at_best, runs_of, written
from train import read_config

from uncone.atomic import write_text

HERE = Path(__file__).parent
CORE, LARGER = "core", ("v16k-d128", "v16k-d256")
HEADS = ("claim", "paper", "ours", "control", "verdict", *LARGER)
TEXT = """# What three papers claim of training, and what our runs say

`python experiments/papers.py`, from the result files of [rare_tokens](rare_tokens/README.md) and
[translation](translation/README.md). An effect is an arm less plain training, paired over seeds, with a 95% interval
and the smallest effect that 80% of such designs find; "ours" is the smallest model of the bench, with 1,024 targets a
step. "Weakened": a simpler change does at least as much, `adamw999` (AdamW with a beta2 of .999) or `column` (one second
moment for each column). Numbers that were not checked against the paper are marked "recalled". The last two columns have the effect
at two larger sizes, of two seeds each: their intervals are wide. The loss after a rare token may be low because many of
them begin a longer word; no run separates that.

"""
ELSEWHERE = """
## Claims that need no such run

As the pages of their experiments have them: the theorems of Gao et al. 2019 in
[representation_degeneration](representation_degeneration/README.md), and which part of the gradient pushes which rows
(Bis et al. 2021, Yu et al. 2022) in [gradients](gradients/README.md). The tables of Bis et al. are in
[too_much_in_common](too_much_in_common/README.md).

| claim | held | evidence |
|---|---|---|
"""
PAGES = ("representation_degeneration", "gradients")


def bests(name: str) -> dict[str, list[Run]]:
    """By arm, runs at the size's own batch, untied."""
    config = read_config(fill.path_of(name))
    return at_best(runs_of(fill.cells(config)), tied=False, batch=config["training"]["batch"])


def of_page(folder: str) -> list[str]:
    """The rows of the table of claims on an experiment's page, with links from here."""
    rows = [line for line in (HERE / folder / "README.md").read_text().split("\n\n") if line.startswith("| claim")]
    return [re.sub(r"\]\((?!http)", f"]({folder}/", line) for line in rows[0].splitlines()[2:]]


def report() -> str:
    core, larger = bests(CORE), [bests(name) for name in LARGER]
    rows = list[list[str]]()
    for claim in CLAIMS:
        found: list[Any] = [[run for some in best.values() for run in some] for best in larger]
        rows.append(
            [*mt_tables.row(claim, core), *(written(read(runs, claim, claim.arm, claim.base)) for runs in found)]
        )
    config = read_config(mt_tables.HERE / "multi30k.toml")
    best = at_best(runs_of(mt_fill.cells(config)))
    rows += [[*mt_tables.claim_row(claim, best), "-", "-"] for claim in mt_tables.CLAIMS]
    lines = ["| " + " | ".join(HEADS) + " |", "|" + "---|" * len(HEADS)]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    return TEXT + "\n".join(lines) + "\n" + ELSEWHERE + "\n".join(row for page in PAGES for row in of_page(page)) + "\n"


if __name__ == "__main__":
    write_text(HERE / "papers.md", report())
