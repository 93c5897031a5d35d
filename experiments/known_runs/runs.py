"""The 350 runs of the table: what each was trained with, its test loss, and the readings of its two matrices.

Source: Stollenwerk (2026), "Output Embedding Centering for Stable LLM Pretraining", https://arxiv.org/abs/2601.02031; the readings are
`loss_overview_all.csv` of https://github.com/flxst/output-embedding-centering (commit 25c6fb9). One seed a run.
"""

import csv
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

TABLE, TIED = (Path(__file__).parent / name for name in ("readings.csv", "tied.csv"))
DIVERGED_NATS = 1.0
"""A run whose test loss is more than this above the best of its size counts as diverged. Among the 35 runs without a
remedy the gap is wide: the worst that stays is 0.74 above, the best that goes 1.25."""
MEASURES = ("isotropy", "mean_shift", "largest_row", "largest_over_mean")
MATRICES, TIED_MATRICES = ("input", "head"), ("tied",)
READINGS = tuple(f"{matrix} {measure}" for measure in MEASURES for matrix in reversed(MATRICES))
TIED_READINGS = tuple(f"tied {measure}" for measure in MEASURES)
Remedy = tuple[str, str]
"""What was added to the loss or the head, and how strongly."""


@dataclass(frozen=True)
class Run:
    """One trained model. `readings` has eight numbers, four of each matrix: the two matrices are one unit, never two."""

    size: int
    """In millions of parameters."""
    remedy: Remedy
    learning_rate: float
    loss: float
    """On the test set, in nats a token."""
    readings: Mapping[str, float]
    overflowed: frozenset[str]
    """The matrices whose I(W) the source gives as nan: counted as 0.000, see README.md."""


def read(path: Path = TABLE) -> list[Run]:
    """The runs in the order of the file, each from its two lines."""
    lines: dict[tuple[int, Remedy, float], dict[str, dict[str, str]]] = {}
    with path.open(encoding="utf-8", newline="") as file:
        for line in csv.DictReader(file):
            remedy = (line["remedy"], line["remedy_strength"])
            key = (int(line["parameters"]) // 10**6, remedy, int(line["learning_rate_label"]) * 1e-4)
            if line["table"] in lines.setdefault(key, {}):
                raise ValueError(f"expected one line for each matrix of a run, got two for {key}")
            lines[key][line["table"]] = line
    return [_run(*key, by_matrix) for key, by_matrix in lines.items()]


def _run(size: int, remedy: Remedy, learning_rate: float, by_matrix: dict[str, dict[str, str]]) -> Run:
    losses = {line["test_loss_nats"] for line in by_matrix.values()}
    if set(by_matrix) not in map(set, (MATRICES, TIED_MATRICES)) or len(losses) != 1:
        got = f"got {sorted(by_matrix)} with {losses}"
        raise ValueError(f"expected an input table and a head with one loss, or one tied table, {got}")
    readings, overflowed = {}, set()
    for matrix, line in by_matrix.items():
        isotropy, largest, mean = (float(line[name]) for name in ("isotropy", "max_norm", "mean_norm"))
        if math.isnan(isotropy):
            overflowed.add(matrix)
            isotropy = 0.0
        values = (isotropy, float(line["mean_shift"]), largest, largest / mean)
        readings |= {f"{matrix} {measure}": value for measure, value in zip(MEASURES, values, strict=True)}
    return Run(size, remedy, learning_rate, float(losses.pop()), readings, frozenset(overflowed))


def best_losses(runs: Iterable[Run]) -> dict[int, float]:
    """The smallest test loss of each size."""
    best: dict[int, float] = {}
    for run in runs:
        best[run.size] = min(run.loss, best.get(run.size, math.inf))
    return best


def diverged(runs: list[Run]) -> list[Run]:
    """The runs that lie more than `DIVERGED_NATS` above the best run of their size."""
    best = best_losses(runs)
    return [run for run in runs if run.loss > best[run.size] + DIVERGED_NATS]
