"""What turned in the runs, and which first. Writes RUNS.md from the files of results/.

python experiments/saturation/analyse.py
"""

import json
from collections.abc import Callable, Iterable, Sequence
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
    if not loss.turned and not spectrum.turned:
        return "neither"
    if not (loss.turned and spectrum.turned):
        return "the loss alone" if loss.turned else "the spectrum alone"
    if loss.at == spectrum.at:
        return "together"
    return "the loss first" if loss.at < spectrum.at else "the spectrum first"
