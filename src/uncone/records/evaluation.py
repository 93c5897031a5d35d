"""The record of an evaluation: what tasks say of a model with and without each repair."""

import dataclasses
import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from uncone import atomic
from uncone.errors import InputError
from uncone.records.rebuild import from_json, read_text

EVALUATION_SCHEMA = "uncone.evaluation/1"
ORIGINAL = "original"
"""The name of the vectors as they are, among the repairs."""
Task = Literal["wordsim", "sts", "retrieval", "ann"]
_HOW = "uncone evaluate SPEC --task TASK --data DIR --json F"


@dataclass(frozen=True)
class Interval:
    """A difference and its bootstrap interval, all in the unit of what was subtracted."""

    difference: float
    low: float
    high: float
    level: float = 0.95
    resamples: int = 0

    def __post_init__(self) -> None:
        if not self.low <= self.high:
            raise InputError(
                f"expected an interval from low to high, got {self.low} to {self.high}: the file was edited"
            )

    def scaled(self, factor: float) -> "Interval":
        """The same in another unit, `factor` (positive) of which make one of this."""
        return dataclasses.replace(
            self, difference=self.difference * factor, low=self.low * factor, high=self.high * factor
        )  # fmt: skip


@dataclass(frozen=True)
class Price:
    """What a repair took: seconds to fit and to apply, and how many vectors each; `fitted_on` says which."""

    fit_s: float
    apply_s: float
    fitted_n: int
    applied_n: int
    fitted_on: str = ""


Results = Mapping[str, Mapping[str, Mapping[str, Mapping[str, Any]]]]
"""task -> set -> repair -> name of a number -> the number."""
Differences = Mapping[str, Mapping[str, Mapping[str, Mapping[str, Interval]]]]


@dataclass(frozen=True)
class Evaluation:
    """What `evaluate` found.

    `results[task][set][repair]` holds numbers by their names: correlations times 100 (`spearman_cosine`, `spearman_inner`,
    `pearson_cosine`, `pearson_inner`), shares from 0 to 1 (`ndcg10`, `recall100`, `recall10`), and `n`, how many pairs or queries;
    None where a number is undefined. `differences` has the same shape for every repair but the original: repair less
    original, paired, with an interval, in the same unit; not of `n`, nor of what is undefined.
    `prices[set][repair]` says what each repair took.
    """

    verdict: str
    name: str
    task: Task
    protocol: str
    results: Results
    differences: Differences = field(default_factory=dict)
    prices: Mapping[str, Mapping[str, Price]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    intervals: str = ""
    """How the intervals were made."""
    provenance: Mapping[str, Any] = field(default_factory=dict)
    """Versions, the encoder's kind and digest (of rows theirs), digests of the data, the seed, the `measure` of the verdict."""
    schema: str = EVALUATION_SCHEMA

    def __post_init__(self) -> None:
        for task, set_name, repair, numbers in self._cells():
            for key, value in numbers.items():
                if not _is_number(value):
                    raise InputError(
                        f"expected a finite number or null at results.{task}.{set_name}.{repair}.{key}, "
                        f"got {repr(value)[:40]}: the file was cut or edited"
                    )

    def sets(self) -> tuple[str, ...]:
        """The names of the sets, in their order."""
        return tuple(name for sets in self.results.values() for name in sets)

    def repairs(self) -> tuple[str, ...]:
        """The names of the repairs, the original among them, in their order."""
        return tuple(dict.fromkeys(repair for _, _, repair, _ in self._cells()))

    def to_json(self) -> str:
        """This record as JSON text (strict: no NaN, no Infinity)."""
        return (
            json.dumps(dataclasses.asdict(self), ensure_ascii=True, allow_nan=False, separators=(",", ":"))
            + "\n"
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write `to_json()` to `path`, atomically."""
        atomic.write_text(path, self.to_json())

    @classmethod
    def from_json(cls, text: str) -> "Evaluation":
        """Read what `to_json` wrote.

        Raises:
            InputError: not JSON, another schema, or a field that is missing, unknown or of the wrong type.
        """
        return from_json(cls, text, schema=EVALUATION_SCHEMA, what="evaluation", how=_HOW)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Evaluation":
        """Read an evaluation from the file that `save` wrote."""
        return cls.from_json(read_text(path, _HOW))

    def _cells(self) -> list[tuple[str, str, str, Mapping[str, Any]]]:
        return [
            (task, name, repair, numbers)
            for task, sets in self.results.items()
            for name, repairs in sets.items()
            for repair, numbers in repairs.items()
        ]


def _is_number(value: Any) -> bool:
    if value is None:
        return True
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
