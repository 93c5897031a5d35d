"""What a task hands to the record: numbers, differences, prices, and what is to be said of them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
import numpy.typing as npt

from uncone.errors import UndefinedMeasure
from uncone.records import ORIGINAL, Interval, Price
from uncone.tasks import correlation_bootstraps, paired_bootstraps
from uncone.tasks.bootstrap import check_seed
from uncone.tasks.correlation import PairScores

_PACKAGES = (
    "uncone",
    "torch",
    "numpy",
    "transformers",
    "sentence-transformers",
    "faiss-cpu",
    "ir-measures",
    "scikit-learn",
)
Numbers = Mapping[str, Any]
Scores = npt.NDArray[np.float64]
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Settings:
    """How intervals are made, and who is told of progress."""

    seed: int = 0
    resamples: int = 2000
    level: float = 0.95
    progress: Progress | None = None

    def __post_init__(self) -> None:
        check_seed(self.seed)

    def tell(self, what: str) -> Callable[[int, int], None] | None:
        """Progress of one step called `what`."""
        tell = self.progress
        return None if tell is None else lambda done, total: tell(what, done, total)


@dataclass
class Found:
    """`results[set][repair]`, `differences[set][repair][measure]`, `prices[set][repair]`, filled set by set."""

    results: dict[str, dict[str, Numbers]] = field(default_factory=dict)
    differences: dict[str, dict[str, dict[str, Interval]]] = field(default_factory=dict)
    prices: dict[str, dict[str, Price]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    provenance: dict[str, Any] = field(default_factory=dict)

    def note(self, *notes: str) -> None:
        """Say something once."""
        self.notes += [note for note in notes if note not in self.notes]


def correlation_differences(
    scores: Mapping[str, PairScores], settings: Settings
) -> dict[str, dict[str, Interval]]:
    """For every repair and measure the correlation x 100 less the original's, paired; none where one is undefined."""
    found: dict[str, dict[str, Interval]] = {name: {} for name in scores if name != ORIGINAL}
    gold = scores[ORIGINAL].gold
    for way in ("cosine", "inner"):
        columns = {name: getattr(pair, way) for name, pair in scores.items()}
        usable = [name for name in found if varies(columns[name])]
        if not varies(columns[ORIGINAL]) or not varies(gold) or not usable:
            continue
        for kind in ("pearson", "spearman"):
            try:
                intervals = correlation_bootstraps(
                    columns[ORIGINAL], np.stack([columns[name] for name in usable]), gold,
                    kind=kind, seed=settings.seed, resamples=settings.resamples, level=settings.level,
                )  # fmt: skip
            except UndefinedMeasure:
                continue  # too few pairs: nearly every resample repeats a few
            for name, interval in zip(usable, intervals, strict=True):
                found[name][f"{kind}_{way}"] = interval.scaled(100)
    return found


def mean_differences(
    per_item: Mapping[str, Mapping[str, Scores]], settings: Settings
) -> dict[str, dict[str, Interval]]:
    """For every repair and measure the mean less the original's, paired. `per_item[repair][measure]` is (items,)."""
    found: dict[str, dict[str, Interval]] = {name: {} for name in per_item if name != ORIGINAL}
    original = per_item[ORIGINAL]
    for measure, baseline in original.items():
        having: Sequence[str] = [name for name in found if measure in per_item[name]]
        if len(baseline) < 2 or not having:
            continue
        intervals = paired_bootstraps(
            baseline, np.stack([per_item[name][measure] for name in having]),
            seed=settings.seed, resamples=settings.resamples, level=settings.level,
        )  # fmt: skip
        for name, interval in zip(having, intervals, strict=True):
            found[name][measure] = interval
    return found


def versions() -> dict[str, str]:
    """Of the packages that numbers may depend on, those that are installed."""
    found = {}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def varies(scores: Scores) -> bool:
    """Whether the scores are finite and not all equal, so that a correlation is defined."""
    return len(scores) >= 2 and bool(np.isfinite(scores).all()) and float(np.ptp(scores)) > 0
