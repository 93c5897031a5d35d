"""The cells' result files, read: runs, differences between arms and their intervals."""

import json
import lzma
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import t as student
from train import Cell

BASE = "adamw95"
FREQUENT, MEDIUM, RARE = range(3)  # the place of the group in sums by document


@dataclass(frozen=True)
class Run:
    cell: Cell
    result: dict[str, Any]

    def __getitem__(self, path: tuple[str | int, ...]) -> float:
        found: Any = self.result["measured"]
        for part in path:
            found = found[part]
        return float(found)

    def loss(self, group: int | None = None) -> float:
        """Nats a target of the validation text."""
        sums = np.array(self.result["measured"]["documents"]).sum(0)
        places = range(4) if group is None else (group,)
        return float(sum(sums[4 + g] for g in places) / sum(sums[g] for g in places))

    def groups(self, by: str) -> list[dict[str, Any]]:
        """Of the evaluation: `ids`, `mass` or `input`."""
        return [one for one in self.result["measured"]["evaluation"]["groups"] if one["by"] == by]

    def watched(self) -> list[dict[str, Any]]:
        """The monitor's records."""
        file = self.cell.result.with_name(self.result["monitor"])
        lines = [json.loads(line) for line in lzma.decompress(file.read_bytes()).splitlines()] if file.exists() else []
        return [line for line in lines if "step" in line and "warning" not in line]

    def ratio(self, group: int = RARE) -> float:
        """The log of the group's predicted over its own share."""
        sums = np.array(self.result["measured"]["documents"]).sum(0)
        return math.log(sums[8 + group] / sums[group])


Of = Callable[[Run], float]
Numbers = dict[str, Callable[[Run], str]]


@dataclass(frozen=True)
class Effect:
    """Of an arm less another over seeds, with a 95% t interval and the smallest effect that 80% of such designs find."""

    value: float
    low: float | None
    high: float | None
    smallest: float | None
    seeds: int


def effect(differences: Iterable[float]) -> Effect:
    of = np.array(list(differences))
    n = len(of)
    if n < 2:
        return Effect(float(of.mean()), None, None, None, n)
    error = float(of.std(ddof=1)) / math.sqrt(n)
    half = float(student.ppf(0.975, n - 1)) * error
    seen = (float(student.ppf(0.975, n - 1)) + float(student.ppf(0.8, n - 1))) * error
    return Effect(float(of.mean()), float(of.mean()) - half, float(of.mean()) + half, seen, n)


def runs_of(some: Iterable[Cell]) -> dict[str, Run]:
    """Measured cells by name; those that diverged are left to the list."""
    found = {}
    for cell in some:
        if cell.result.exists():
            result = json.loads(cell.result.read_text())
            if "measured" in result:
                found[cell.name] = Run(cell, result)
    return found


def paired(runs: Iterable[Run], arm: str, other: str, of: Callable[[Run], float], **like: Any) -> Effect | None:
    """Over the seeds that both have, each at its own best rate."""
    by = {(run.cell.arm, run.cell.seed): run for run in runs if _is_like(run.cell, like)}
    seeds = sorted(seed for name, seed in by if name == arm and (other, seed) in by)
    return effect(of(by[arm, seed]) - of(by[other, seed]) for seed in seeds) if seeds else None


def _is_like(cell: Cell, like: dict[str, Any]) -> bool:
    return all(getattr(cell, name) == value for name, value in like.items())


def at_best(runs: dict[str, Run], **like: Any) -> dict[str, list[Run]]:
    """By arm, the runs at the rate that has the most seeds, of equals that with the lowest loss."""
    found = {}
    for arm in dict.fromkeys(run.cell.arm for run in runs.values()):
        of_rate: dict[float, list[Run]] = {}
        for run in runs.values():
            if run.cell.arm == arm and _is_like(run.cell, like):
                of_rate.setdefault(run.cell.rate, []).append(run)
        if of_rate:
            found[arm] = min(of_rate.values(), key=lambda some: (-len(some), np.mean([one.loss() for one in some])))
    return found


def unique(run: Run) -> float:
    (rare,) = (one for one in run.groups("ids") if one["name"] == "rare")
    return float(rare["unique_predicted"])


def words(run: Run) -> float:
    """Spearman x 100 of the head's rows, the mean of the word sets."""
    found = run.result["measured"]["word_similarity"].values()
    return float(np.mean([one["original"]["spearman_cosine"] for one in found]))


def written(of: Effect | None, digits: int = 3) -> str:
    if of is None:
        return "-"
    if of.low is None or of.high is None:
        return f"{of.value:+.{digits}f}"
    return f"{of.value:+.{digits}f} ({of.low:+.{digits}f} to {of.high:+.{digits}f}; would see {of.smallest:.{digits}f})"
