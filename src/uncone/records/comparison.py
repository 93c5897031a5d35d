"""The record of a comparison: what several diagnoses say of the same matrices, and how each differs from the first."""

import dataclasses
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from uncone import atomic
from uncone.errors import InputError
from uncone.records.diagnosis import Subject
from uncone.records.parts import Measurement
from uncone.records.rebuild import from_json, read_text
from uncone.records.token_measurements import token_measurements

COMPARISON_SCHEMA = "uncone.comparison/1"
MOST_COMPARED = 6
"""More would not be told apart in one drawing."""
Table = Literal["measures", "without_effect", "tokens"]
TABLES: tuple[Table, ...] = ("measures", "tokens", "without_effect")
_HOW = "uncone compare A.json B.json --json F"


@dataclass(frozen=True)
class Change:
    """How one reading differs from the baseline's.

    `difference` is the reading less the baseline's. `direction` follows the measure's `better`; it is `equal` where the
    difference is no more than rounding, `unclear` where its interval holds 0, `neither` where neither end is better. `size` is the
    difference without its sign as a share of the measure's range, or of the larger reading where the range has no end.
    `meaningful` tells a better or worse that is not little and is under no caution. `interval` is that of the
    difference, None unless both readings have one.
    """

    difference: float
    direction: Literal["better", "worse", "equal", "unclear", "neither"]
    size: float
    meaningful: bool
    interval: tuple[float, float] | None = None


@dataclass(frozen=True)
class ComparedMeasure:
    """One measure over all diagnoses, in their order.

    `values` are None where the measure is undefined or was not taken. `distances` are value less isotropic reference.
    `changes` are None for the baseline and where there is nothing to subtract. `cautions` holds, for each diagnosis, what
    else than the rows may have moved the number, or why it was not subtracted.
    """

    name: str
    better: Literal["higher", "lower", "neither"]
    values: tuple[float | None, ...]
    distances: tuple[float | None, ...]
    changes: tuple[Change | None, ...]
    cautions: tuple[tuple[str, ...], ...]

    def __post_init__(self) -> None:
        if not len(self.values) == len(self.distances) == len(self.changes) == len(self.cautions):
            raise InputError(
                f"expected as many changes and cautions as values of {self.name!r}, got another number: edited?"
            )


@dataclass(frozen=True)
class ComparedFinding:
    """One cause over all diagnoses: its level in each, None where it was not found."""

    cause: str
    levels: tuple[Literal["healthy", "note", "warning", "severe"] | None, ...]


@dataclass(frozen=True)
class ComparedSubject:
    """One matrix over all diagnoses. `sides` holds what each read from it, without the picture; None where it has none."""

    name: str
    sides: tuple[Subject | None, ...]
    measures: tuple[ComparedMeasure, ...]
    findings: tuple[ComparedFinding, ...] = ()
    without_effect: tuple[ComparedMeasure, ...] = ()
    tokens: tuple[ComparedMeasure, ...] = ()
    """Readings of groups of tokens by frequency, called GROUP.READING, and the share that looks untrained."""
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        parts = [measure.values for measure in (*self.measures, *self.without_effect, *self.tokens)]
        if any(
            len(part) != len(self.sides) for part in [*parts, *(finding.levels for finding in self.findings)]
        ):
            raise InputError(
                f"expected {len(self.sides)} values of each measure of {self.name!r}, got another number: edited?"
            )

    def readings(self, name: str, *, table: Table = "measures") -> tuple[Measurement | None, ...]:
        """The measurement called `name` of each side, with its interval, reference and warnings; None where not taken."""
        return tuple(None if side is None else _taken(side, name, table) for side in self.sides)


@dataclass(frozen=True)
class ComparedDiagnosis:
    """One of the diagnoses: its name here, its own verdict, and what made it."""

    name: str
    verdict: str
    versions: Mapping[str, str] = field(default_factory=dict)
    schema: str = ""


@dataclass(frozen=True)
class Comparison:
    """What `compare` found: a verdict in one sentence, the diagnoses (the first is the baseline), and the matrices."""

    verdict: str
    diagnoses: tuple[ComparedDiagnosis, ...]
    subjects: tuple[ComparedSubject, ...]
    notes: tuple[str, ...] = ()
    intervals: str = ""
    """How the interval of a difference was made."""
    schema: str = COMPARISON_SCHEMA

    def __post_init__(self) -> None:
        if not 2 <= len(self.diagnoses) <= MOST_COMPARED:
            raise InputError(f"expected 2 to {MOST_COMPARED} diagnoses to compare, got {len(self.diagnoses)}")
        if any(len(subject.sides) != len(self.diagnoses) for subject in self.subjects):
            raise InputError(
                f"expected {len(self.diagnoses)} sides of each subject, got another number: edited?"
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
    def from_json(cls, text: str) -> "Comparison":
        """Read what `to_json` wrote.

        Raises:
            InputError: not JSON, another schema, or a field that is missing, unknown or of the wrong type.
        """
        return from_json(cls, text, schema=COMPARISON_SCHEMA, what="comparison", how=_HOW)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Comparison":
        """Read a comparison from the file that `save` wrote."""
        return cls.from_json(read_text(path, _HOW))


def taken_in(side: Subject, table: Table) -> tuple[Measurement, ...]:
    """The measurements of a subject that belong to one table of its comparison."""
    if table == "tokens":
        return token_measurements(side)
    return side.without_effect if table == "without_effect" else side.measurements


def _taken(side: Subject, name: str, table: Table) -> Measurement | None:
    return next((measurement for measurement in taken_in(side, table) if measurement.name == name), None)
