"""Write papers.md, one row for each claim of three papers, from the results of `rare_tokens` and `translation`.

python experiments/papers.py
"""

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
Claims that these runs do not touch: the uniformly negative direction of Gao et al. is in
[representation_degeneration](representation_degeneration/README.md), the tables of Bis et al. in
[too_much_in_common](too_much_in_common/README.md), and which part of the gradient pushes which rows in
[gradients](gradients/README.md).
"""


def bests(name: str) -> dict[str, list[Run]]:
    """By arm, runs at the size's own batch, untied."""
    config = read_config(fill.path_of(name))
    return at_best(runs_of(fill.cells(config)), tied=False, batch=config["training"]["batch"])


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
    return TEXT + "\n".join(lines) + "\n" + ELSEWHERE


if __name__ == "__main__":
    write_text(HERE / "papers.md", report())
