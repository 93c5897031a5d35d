"""What turned in the runs, and which first, by uncone's own test. Writes RUNS.md from the files of results/, however many runs have finished.

python experiments/saturation/analyse.py
"""

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from uncone import atomic
from uncone.saturation.checkpoints.order import find_turns
from uncone.saturation.checkpoints.record import SeriesTurn
from uncone.saturation.checkpoints.turns import LEVEL

HERE = Path(__file__).parent
RAW, CENTRED = ("head", "singular_entropy"), ("head", "singular_entropy_centred")
SPECTRA = {"raw": ("head_entropy", RAW), "centred": ("head_entropy_centered", CENTRED)}
ENDS = 3
"""Checkpoints whose mean is the end."""
DOUBLED = 2.0
"""Times its minimum: the paper's spectra pass it on their way to rank one, where KL is ln D."""
LAST = {
    "head: mean cosine": ("head", "mean_cosine"),
    "head: partition isotropy": ("head", "partition_isotropy"),
    "head: mean norm": ("head", "mean_norm"),
    "table: mean cosine": ("table", "mean_cosine"),
    "table: partition isotropy": ("table", "partition_isotropy"),
    "states: mean cosine": ("state_anisotropy",),
}
CHANGED = {"excess": ("excess",), "raw KL": RAW, "centred KL": CENTRED, "head: mean cosine": LAST["head: mean cosine"]}
READING = f"""\
Turns are those of `uncone saturation checkpoints`: isotonic parts, AR(1) noise, a level of {LEVEL:g} after Holm's correction over the loss and the two
spectra of a run; the share of the run is the mean over the runs that turned. A spectrum doubled if it turned and ends (mean of the last {ENDS} checkpoints)
above {DOUBLED:g} times its least value after the start. KL is the divergence of the head's squared singular values from uniform, in nats; a head of rank
one has ln D. ± is the standard deviation over seeds.

The mean row of a head changes no probability. Nor does it change a gradient, its own included, which is zero. Only AdamW's scaling by element moves
it. So a run whose mean row were taken off at each step would be the same run, and where the raw spectrum alone turns, nothing about the model does."""


@dataclass(frozen=True)
class Run:
    """One result file: its settings and its checkpoints."""

    settings: dict[str, Any]
    lines: list[dict[str, Any]]

    @cached_property
    def loss(self) -> str:
        """The exact excess where the source is known."""
        return "excess" if "excess" in self.lines[0] else "loss"

    def of(self, *names: str) -> np.ndarray:
        """The curve of a number: of the names of its group and of itself."""
        found: list[Any] = self.lines
        for name in names:
            found = [one[name] for one in found]
        return np.array(found, dtype=float)

    @cached_property
    def turns(self) -> dict[str, SeriesTurn]:
        """Of the loss and of both spectra."""
        names = {"loss": (self.loss,)} | dict(SPECTRA.values())
        steps = self.of("step")
        rows, _ = find_turns({one: list(zip(steps, self.of(*path), strict=True)) for one, path in names.items()})
        return {row.name: row for row in rows}

    def end(self, names: Sequence[str]) -> float:
        return float(self.of(*names)[-ENDS:].mean())

    def doubled(self, kind: str) -> bool:
        name, path = SPECTRA[kind]
        turn = self.turns[name]
        after = self.of("step") >= (turn.start or 0)
        return bool(turn.turned) and self.end(path) > DOUBLED * float(self.of(*path)[after].min())

    def order(self, kind: str) -> str:
        """Which turned, and which first."""
        spectrum, loss = self.turns[SPECTRA[kind][0]], self.turns["loss"]
        if spectrum.turned and loss.turned:
            return {"before": "spectrum first", "after": "loss first"}.get(spectrum.order, spectrum.order)
        return "loss alone" if loss.turned else "spectrum alone" if spectrum.turned else "neither"


def read(folder: Path) -> list[Run]:
    """The finished runs of a folder."""
    found = []
    for path in sorted(folder.glob("*.jsonl")):
        about, *lines = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())
        found.append(Run(about["training"] | about["training"]["shape"], lines))
    return found


def groups(runs: Sequence[Run], *keys: str) -> Iterator[tuple[tuple[Any, ...], list[Run]]]:
    """Runs that agree in these settings, in order."""

    def key(run: Run) -> tuple[Any, ...]:
        return tuple(run.settings[one] for one in keys)

    for found in sorted({key(run) for run in runs}):
        yield found, [run for run in runs if key(run) == found]


def turns(runs: list[Run]) -> str:
    """Of each cell, over its seeds: the loss, the spectrum raw and centred, and which turned."""
    head = ["D", "ln D", "batch", "decay", "seeds", "tokens a parameter"]
    head += [f"{runs[0].loss} at the end", "turned"]
    for kind in SPECTRA:
        head += [f"{kind} KL at the end", "turned", "at", "doubled"]
    rows = []
    for (width, batch, decay), some in groups(runs, "width", "batch", "decay"):
        of = some[0].settings
        cells = [width, f"{math.log(width):.2f}", batch, f"{decay:g}", len(some)]
        cells += [f"{of['tokens'] / of['parameters']:,.0f}"]
        cells += [spread([run.of(run.loss)[-1] for run in some], "4f")]
        cells += [count(bool(run.turns["loss"].turned) for run in some)]
        for kind, (name, path) in SPECTRA.items():
            at = [
                turn.at / run.settings["steps"]
                for run in some
                if (turn := run.turns[name]).turned and turn.at is not None
            ]
            cells += [spread([run.end(path) for run in some], "3f"), f"{len(at)} of {len(some)}"]
            cells += [f"{np.mean(at):.0%}" if at else "", count(run.doubled(kind) for run in some)]
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
                sorted(two, key=lambda run: run.settings[changed]) for _, two in groups(some, "seed") if len(two) == 2
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
        ["D", "batch", *map(str, peaks)], [[*key, *(found.get((*key, peak), "") for peak in peaks)] for key in cells]
    )


def in_short(runs: list[Run]) -> str:
    """The counts over all runs."""
    text = f"{len(runs)} runs. The loss turned in {count(bool(run.turns['loss'].turned) for run in runs)}."
    for kind, (name, path) in SPECTRA.items():
        turned = count(bool(run.turns[name].turned) for run in runs)
        most = max(run.end(path) / math.log(run.settings["width"]) for run in runs)
        words = [run.order(kind) for run in runs]
        often = sorted(set(words), key=words.count, reverse=True)
        text += (
            f" The {kind} spectrum of the head turned in {turned} and doubled in {count(run.doubled(kind) for run in runs)}; "
            f"the highest KL at an end is {most:.0%} of ln D. Loss and {kind} spectrum: "
            f"{', '.join(f'{word} {words.count(word)}' for word in often)}."
        )
    return text


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
