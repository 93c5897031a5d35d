"""What turned in the runs, and which first. Writes RUNS.md from the files of results/, however many runs have finished.

python experiments/saturation/analyse.py
"""

import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from turning import BEYOND, REAL, Run, Turn, groups, order, read

from uncone import atomic

HERE = Path(__file__).parent
RAW, CENTRED = ("head", "singular_entropy"), ("head", "singular_entropy_centred")
LAST = {
    "head: mean cosine": ("head", "mean_cosine"), "head: partition isotropy": ("head", "partition_isotropy"),
    "head: mean norm": ("head", "mean_norm"), "table: mean cosine": ("table", "mean_cosine"),
    "table: partition isotropy": ("table", "partition_isotropy"), "states: mean cosine": ("state_anisotropy",),
}  # fmt: skip
CHANGED = {
    "excess": ("excess",),
    "raw KL": RAW,
    "centred KL": CENTRED,
    "head: mean cosine": LAST["head: mean cosine"],
}
READING = f"""\
"Least, at" is the minimum after the highest point of the first tenth of a run, where spectra leave their random start, and the share of the run at
which it lies. A curve turned if it falls to that minimum and ends (mean of the last three checkpoints) more than {BEYOND:g} standard errors and {REAL:.0%}
above it; the error is from second differences between checkpoints. It doubled if it ends above twice its minimum. KL is the divergence of the head's
squared singular values from uniform, in nats; a head of rank one has ln D. ± is the standard deviation over seeds.

The mean row of a head changes no probability. Nor does it change a gradient, its own included, which is zero. Only AdamW's scaling by element moves
it. So a run whose mean row were taken off at each step would be the same run, and where the raw spectrum alone turns, nothing about the model does."""


def turns(runs: list[Run]) -> str:
    """Of each cell, over its seeds: the loss, the spectrum raw and centred, and which turned."""
    head = [
        "D",
        "ln D",
        "batch",
        "decay",
        "seeds",
        "tokens a parameter",
        f"{runs[0].loss} at the end",
        "turned",
    ]
    for kind in ("raw", "centred"):
        head += [f"{kind} KL: least, at", "end", "turned", "doubled"]
    rows = []
    for (width, batch, decay), some in groups(runs, "width", "batch", "decay"):
        of = some[0].settings
        cells = [width, f"{math.log(width):.2f}", batch, f"{decay:g}", len(some)]
        cells += [f"{of['tokens'] / of['parameters']:,.0f}"]
        cells += [
            spread([run.of(run.loss)[-1] for run in some], "4f"),
            count(run.turn(run.loss).turned for run in some),
        ]
        for names in (RAW, CENTRED):
            found = [run.turn(*names) for run in some]
            least, at = (np.mean([getattr(one, name) for one in found]) for name in ("minimum", "at"))
            cells += [f"{least:.3f}, {at:.0%}", spread([one.end for one in found], "3f")]
            cells += [count(one.turned for one in found), count(one.doubled for one in found)]
        rows.append(cells)
    return table(head, rows)


def geometry(runs: list[Run]) -> str:
    """The last checkpoint of each cell, over its seeds."""
    rows = []
    for (width, batch, decay), some in groups(runs, "width", "batch", "decay"):
        cells = [spread([run.of(*names)[-1] for run in some], "2g") for names in LAST.values()]
        rows.append([width, batch, f"{decay:g}", *cells])
    return table(["D", "batch", "decay", *LAST], rows)


def effects(runs: list[Run]) -> str:
    """What a larger batch and a decay change at the end, between two runs of one seed that differ in nothing else."""
    rows = []
    for changed, fixed in (("batch", "decay"), ("decay", "batch")):
        for (width, value), some in groups(runs, "width", fixed):
            pairs = [
                sorted(two, key=lambda run: run.settings[changed])
                for _, two in groups(some, "seed")
                if len(two) == 2
            ]
            if not pairs:
                continue
            low, high = (f"{run.settings[changed]:g}" for run in pairs[0])
            cells = [[b.of(*names)[-1] - a.of(*names)[-1] for a, b in pairs] for names in CHANGED.values()]
            what = [f"{changed} {low} to {high}", f"{fixed} {value:g}", width, len(pairs)]
            rows.append(what + [spread(one, "3f", sign="+") for one in cells])
    return table(["change", "at", "D", "pairs", *CHANGED], rows)


def sweep(path: Path) -> str:
    """The excess of the short runs of sweep.py, by learning rate."""
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    peaks = sorted({one["peak"] for one in lines})
    found = {(one["width"], one["batch"], one["peak"]): f"{one['excess']:.4f}" for one in lines}
    cells = sorted({key[:2] for key in found})
    return table(
        ["D", "batch", *map(str, peaks)],
        [[*key, *(found.get((*key, peak), "") for peak in peaks)] for key in cells],
    )


def in_short(runs: list[Run]) -> str:
    """The counts over all runs."""
    loss = [run.turn(run.loss) for run in runs]
    text = f"{len(runs)} runs. The loss turned in {count(one.turned for one in loss)}."
    for name, names in (("raw", RAW), ("centred", CENTRED)):
        found = [run.turn(*names) for run in runs]
        most = max(one.end / math.log(run.settings["width"]) for one, run in zip(found, runs, strict=True))
        text += (
            f" The {name} spectrum of the head turned in {count(one.turned for one in found)} and doubled in {count(one.doubled for one in found)}; "
            f"the highest KL at an end is {most:.0%} of ln D. Loss and {name} spectrum: {first(loss, found)}."
        )
    return text


def first(loss: Sequence[Turn], spectrum: Sequence[Turn]) -> str:
    """How often each order came."""
    words = [order(a, b) for a, b in zip(loss, spectrum, strict=True)]
    return ", ".join(
        f"{word} {words.count(word)}" for word in sorted(set(words), key=words.count, reverse=True)
    )


def spread(values: Sequence[float], digits: str, sign: str = "") -> str:
    """The mean, and the standard deviation where there is one."""
    mean = f"{np.mean(values):{sign}.{digits}}"
    return mean if len(values) < 2 else f"{mean} ± {np.std(values, ddof=1):.{digits}}"


def count(flags: Iterable[bool]) -> str:
    flags = list(flags)
    return f"{sum(flags)} of {len(flags)}"


def table(head: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    return "\n".join("| " + " | ".join(map(str, row)) + " |" for row in (head, ["---"] * len(head), *rows))


def main() -> None:
    """Write RUNS.md."""
    runs, wiki, swept = (
        read(HERE / "results" / "runs"),
        read(HERE / "results" / "wiki"),
        HERE / "results" / "sweep.jsonl",
    )
    parts = ["# Runs on an endless stream", in_short(runs), READING, "## What turned", turns(runs)]
    parts += ["## At the end", geometry(runs), "## Batch size and weight decay", effects(runs)]
    if swept.exists():
        parts += ["## Learning rates", "Excess loss of short runs without decay (`sweep.py`).", sweep(swept)]
    if wiki:
        parts += [
            "## One reading of Wikipedia",
            "It claims nothing about saturation.",
            in_short(wiki),
            turns(wiki),
            geometry(wiki),
        ]
    atomic.write_text(HERE / "RUNS.md", "\n\n".join(parts) + "\n")


if __name__ == "__main__":
    main()
