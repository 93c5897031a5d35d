"""Does a curve over checkpoints turn, and which of two first? A plain reading: the minimum, and the rise from it in units of the jitter."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

START = 0.1
"""Share of a run in which a spectrum leaves its random start over a peak: a turn is looked for after the highest point of it."""
EVEN = 0.04
"""Share of a run from which checkpoints are evenly spaced."""
BEYOND = 4.0
"""Standard errors that a rise has to have."""
REAL = 0.01
"""And the share of the minimum that it has to have: a smooth curve has all but no jitter."""
LAST = 3
"""Checkpoints whose mean is the end."""
DOUBLED = 2.0
"""Times its minimum: the paper's spectra pass it on their way to rank one, where KL is ln D."""


@dataclass(frozen=True)
class Turn:
    """The minimum of a curve after the start, and the rise from there to the end."""

    minimum: float
    end: float
    at: float
    """Share of the run."""
    jitter: float
    inside: bool = True
    """The minimum is neither where the search began, nor one of the last checkpoints."""

    @property
    def turned(self) -> bool:
        rise = self.end - self.minimum
        return (
            self.inside
            and rise > BEYOND * self.jitter * (1 + 1 / LAST) ** 0.5
            and rise > REAL * abs(self.minimum)
        )

    @property
    def doubled(self) -> bool:
        return self.turned and self.end > DOUBLED * self.minimum


def turn(shares: np.ndarray, curve: np.ndarray) -> Turn:
    """The jitter is from second differences of the evenly spaced checkpoints: a straight piece has none."""
    even = curve[shares >= EVEN]
    jitter = float(np.median(np.abs(even[2:] - 2 * even[1:-1] + even[:-2]))) / 0.6745 / 6**0.5
    first = int(curve[shares <= START].argmax())
    least = first + int(curve[first:].argmin())
    return Turn(
        float(curve[least]),
        float(curve[-LAST:].mean()),
        float(shares[least]),
        jitter,
        bool(first < least < len(curve) - LAST),
    )


def order(loss: Turn, spectrum: Turn) -> str:
    """Which minimum comes first, of those that turned."""
    if not (loss.turned and spectrum.turned):
        return "loss alone" if loss.turned else "spectrum alone" if spectrum.turned else "neither"
    if loss.at == spectrum.at:
        return "together"
    return "loss first" if loss.at < spectrum.at else "spectrum first"


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

    def turn(self, *names: str) -> Turn:
        steps = self.of("step")
        return turn(steps / steps[-1], self.of(*names))


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
