"""The record of a repair: what was written, what it did to the vectors' geometry, and what it cost."""

import dataclasses
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from uncone import atomic
from uncone.errors import InputError
from uncone.records.fitted import Fitted
from uncone.records.parts import Measurement
from uncone.records.rebuild import from_json, read_text
from uncone.records.selection import Selection

REPAIRED_SCHEMA = "uncone.repaired/1"
_HOW = "uncone repair SPEC OUT --json F"


@dataclass(frozen=True)
class RepairCost:
    """What a repair took.

    `fit_seconds` is None where the transformation was loaded. `relative_change` is the norm of all changes over the norm of all
    vectors that were measured, None where their number of columns changed. `rank_lost` counts directions that nothing is left of, None for what is
    not one linear map.
    """

    fit_seconds: float | None
    apply_seconds: float
    relative_change: float | None = None
    rank_lost: int | None = None


@dataclass(frozen=True)
class Repaired:
    """What `repair` wrote.

    `before` and `after` hold the same measures of the same `measured` rows, as they were read and as they stand in what was written;
    both are empty where nothing could be measured. `gains` says whether the geometry is clearly better; no task was asked for it.
    `selection` is the evidence of the task that chose the method, None where it was named (and in older files).
    """

    verdict: str
    name: str
    out: str
    kind: Literal["vectors", "encoder"]
    method: str
    gains: bool | None
    n: int
    d: int
    k: int
    dtype: str
    fitted: Fitted | None
    cost: RepairCost
    measured: int = 0
    before: tuple[Measurement, ...] = ()
    after: tuple[Measurement, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    selection: Selection | None = None
    schema: str = REPAIRED_SCHEMA

    def __post_init__(self) -> None:
        names = [tuple(measurement.name for measurement in side) for side in (self.before, self.after)]
        if names[0] != names[1]:
            raise InputError(
                f"expected the same measures before and after, got {len(names[0])} before and {len(names[1])} after, or others: "
                "the file was cut or edited"
            )

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
    def from_json(cls, text: str) -> "Repaired":
        """Read what `to_json` wrote.

        Raises:
            InputError: not JSON, another schema, or a field that is missing, unknown or of the wrong type.
        """
        return from_json(cls, text, schema=REPAIRED_SCHEMA, what="repair", how=_HOW)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Repaired":
        """Read the record in the file that `save` wrote."""
        return cls.from_json(read_text(path, _HOW))
