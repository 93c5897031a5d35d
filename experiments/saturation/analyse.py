"""What turned in the runs, and which first. Writes RUNS.md from the files of results/.

python experiments/saturation/analyse.py
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from uncone import atomic

HERE = Path(__file__).parent
SETTLED = 0.05
"""Share of a run before which a spectrum only leaves its random start: no turn is looked for there."""
BEYOND = 4.0
"""Standard errors that a rise has to have, where the jitter is taken from second differences."""
REAL = 0.01
"""And the share of the minimum that it has to have: jitter of a smooth curve can be all but nothing."""


@dataclass(frozen=True)
class Turn:
    """The minimum of a curve after the start, and the rise from there to the end (the mean of the last three)."""

    minimum: float
    end: float
    at: float
    jitter: float

    @property
    def turned(self) -> bool:
        rise = self.end - self.minimum
        return (
            self.at < 1 and rise > BEYOND * self.jitter * (4 / 3) ** 0.5 and rise > REAL * abs(self.minimum)
        )


@dataclass(frozen=True)
class Run:
    """One result file: its settings and its curves."""

    about: dict[str, Any]
    lines: list[dict[str, Any]]

    def of(self, *names: str) -> np.ndarray:
        def read(line: Any) -> Any:
            for name in names:
                line = line[name]
            return line

        return np.array([read(line) for line in self.lines], dtype=float)

    @property
    def shares(self) -> np.ndarray:
        steps = self.of("step")
        return steps / steps[-1]

    def turn(self, *names: str) -> Turn:
        late = self.shares >= SETTLED
        return turn(self.shares[late], self.of(*names)[late])


def turn(shares: np.ndarray, curve: np.ndarray) -> Turn:
    """Jitter is from second differences of evenly spaced points: a straight piece has none."""
    second = curve[2:] - 2 * curve[1:-1] + curve[:-2]
    jitter = float(np.median(np.abs(second))) / 0.6745 / 6**0.5
    least = int(curve.argmin())
    return Turn(float(curve[least]), float(curve[-3:].mean()), float(shares[least]), jitter)


def read(folder: Path) -> list[Run]:
    """The finished runs of a folder."""
    found = []
    for path in sorted(folder.glob("*.jsonl")):
        about, *lines = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())
        found.append(Run(about, lines))
    return found


def order(loss: Turn, spectrum: Turn) -> str:
    """Which minimum comes first, of those that turned."""
    if not (loss.turned and spectrum.turned):
        return "loss alone" if loss.turned else "spectrum alone" if spectrum.turned else "neither"
    if loss.at == spectrum.at:
        return "together"
    return "loss first" if loss.at < spectrum.at else "spectrum first"


def groups(runs: Sequence[Run], *keys: str) -> Iterator[tuple[tuple[Any, ...], list[Run]]]:
    """Runs that agree in these settings, in order."""

    def key(run: Run) -> tuple[Any, ...]:
        settings = run.about["training"] | run.about["training"]["shape"]
        return tuple(settings[one] for one in keys)

    for found in sorted({key(run) for run in runs}):
        yield found, [run for run in runs if key(run) == found]


def turns(runs: list[Run]) -> str:
    """Of each cell, over its seeds: the loss, the spectrum raw and centred, and which turned."""
    loss = "excess" if "excess" in runs[0].lines[0] else "loss"
    head = f"| D | batch | decay | seeds | tokens a parameter | {loss} at the end | turned |"
    head += "".join(f" {kind} KL: least, at | end | turned |" for kind in ("raw", "centred"))
    head += " raw and loss | centred and loss |"
    rows = [head, "|" + " --- |" * (head.count("|") - 1)]
    for (width, batch, decay), some in groups(runs, "width", "batch", "decay"):
        settings = some[0].about["training"]
        cells = [
            str(width),
            str(batch),
            f"{decay:g}",
            str(len(some)),
            f"{settings['tokens'] / settings['parameters']:,.0f}",
        ]
        of = [[run.turn(loss) for run in some]]
        of += [[run.turn("head", "singular_entropy" + kind) for run in some] for kind in ("", "_centred")]
        cells += [spread([run.of(loss)[-1] for run in some], 4), share(of[0])]
        for one in of[1:]:
            least, at = np.mean([turn.minimum for turn in one]), np.mean([turn.at for turn in one])
            cells += [f"{least:.3f}, {at:.0%}", spread([turn.end for turn in one], 3), share(one)]
        for one in of[1:]:
            cells.append(counted([order(a, b) for a, b in zip(of[0], one, strict=True)]))
        rows.append("| " + " | ".join(cells) + " |")
    return "\n".join(rows)


def geometry(runs: list[Run]) -> str:
    """The last checkpoint of each cell, over its seeds."""
    of = {
        "head: mean cosine": ("head", "mean_cosine"), "head: partition isotropy": ("head", "partition_isotropy"),
        "head: mean norm": ("head", "mean_norm"), "table: mean cosine": ("table", "mean_cosine"),
        "table: partition isotropy": ("table", "partition_isotropy"), "states: mean cosine": ("state_anisotropy",),
    }  # fmt: skip
    rows = ["| D | batch | decay | " + " | ".join(of) + " |", "|" + " --- |" * (len(of) + 3)]
    for (width, batch, decay), some in groups(runs, "width", "batch", "decay"):
        cells = [spread([run.of(*names)[-1] for run in some], 3) for names in of.values()]
        rows.append(f"| {width} | {batch} | {decay:g} | " + " | ".join(cells) + " |")
    return "\n".join(rows)


def effects(runs: list[Run]) -> str:
    """What a larger batch and a decay change at the end, between runs of one seed that differ in nothing else."""
    of = {
        "excess": ("excess",),
        "raw KL": ("head", "singular_entropy"),
        "centred KL": ("head", "singular_entropy_centred"),
        "head: mean cosine": ("head", "mean_cosine"),
    }
    rows = ["| D | change | pairs | " + " | ".join(of) + " |", "|" + " --- |" * (len(of) + 3)]
    for (width,), some in groups(runs, "width"):
        for what, key, rest in (
            ("batch 2048 to 32768", "batch", "decay"),
            ("decay 0 to 0.1", "decay", "batch"),
        ):
            pairs = [
                pair
                for _, pair in (
                    (k, sorted(two, key=lambda run: run.about["training"][key]))
                    for k, two in groups(some, rest, "seed")
                )
                if len(pair) == 2
            ]
            if pairs:
                cells = [
                    spread([b.of(*names)[-1] - a.of(*names)[-1] for a, b in pairs], 3, sign="+")
                    for names in of.values()
                ]
                rows.append(f"| {width} | {what} | {len(pairs)} | " + " | ".join(cells) + " |")
    return "\n".join(rows)


def spread(values: Sequence[float], digits: int, sign: str = "") -> str:
    """The mean, and the standard deviation where there is one."""
    mean = f"{np.mean(values):{sign}.{digits}f}"
    return mean if len(values) < 2 else f"{mean} ± {np.std(values, ddof=1):.{digits}f}"


def share(of: Sequence[Turn]) -> str:
    return f"{sum(one.turned for one in of)} of {len(of)}"


def counted(words: Sequence[str]) -> str:
    return ", ".join(
        word if len(set(words)) == 1 else f"{words.count(word)} {word}" for word in sorted(set(words))
    )


def in_short(runs: list[Run]) -> str:
    """The counts over all cells."""
    loss = [run.turn("excess") for run in runs]
    raw, centred = (
        [run.turn("head", "singular_entropy" + kind) for run in runs] for kind in ("", "_centred")
    )
    return (
        f"{len(runs)} runs. The loss turned in {share(loss)}, the raw spectrum of the head in {share(raw)}, the centred one in {share(centred)}. "
        f"Raw spectrum and loss: {counted([order(a, b) for a, b in zip(loss, raw, strict=True)])}. "
        f"Centred spectrum and loss: {counted([order(a, b) for a, b in zip(loss, centred, strict=True)])}."
    )


def main() -> None:
    """Write RUNS.md."""
    runs, wiki = read(HERE / "results" / "runs"), read(HERE / "results" / "wiki")
    parts = [
        "# Runs on an endless stream",
        in_short(runs),
        "## What turned",
        turns(runs),
        "## At the end",
        geometry(runs),
        "## Batch size and weight decay",
        effects(runs),
    ]
    if wiki:
        parts += ["## One reading of Wikipedia", turns(wiki), geometry(wiki)]
    atomic.write_text(HERE / "RUNS.md", "\n\n".join(parts) + "\n")


if __name__ == "__main__":
    main()
