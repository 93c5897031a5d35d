"""The record of a diagnosis."""

import dataclasses
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from uncone import atomic
from uncone.records.parts import Finding, Groups, Measurement, Norms, Spectrum
from uncone.records.picture import Picture
from uncone.records.rebuild import from_json, read_text
from uncone.records.tokens import FrequencyGroups, UnderTrained

SCHEMA = "uncone.diagnosis/1"
_HOW = "uncone diagnose SPEC --json F"


@dataclass(frozen=True)
class Subject:
    """One matrix of a model (`input`, `head`) or a plain collection (`rows`), and all that was read from it."""

    name: str
    source: str
    n: int
    d: int
    dtype: str
    measurements: tuple[Measurement, ...]
    findings: tuple[Finding, ...]
    groups: Groups | None
    spectrum: Spectrum | None
    norms: Norms | None
    picture: Picture | None
    without_effect: tuple[Measurement, ...] = ()
    """Raw readings of a head that no probability depends on (a vector added to all rows changes none)."""
    left_out: int = 0
    """Rows that are not finite and were left out on request."""
    notes: tuple[str, ...] = ()
    frequency_groups: FrequencyGroups | None = None
    under_trained: UnderTrained | None = None

    def measurement(self, name: str) -> Measurement:
        """The measurement called `name`; KeyError where it was not taken."""
        for measurement in self.measurements:
            if measurement.name == name:
                return measurement
        raise KeyError(name)


@dataclass(frozen=True)
class Diagnosis:
    """What `diagnose` found: a verdict in one sentence, and the subjects with the evidence."""

    name: str
    verdict: str
    subjects: tuple[Subject, ...]
    notes: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    schema: str = SCHEMA

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
    def from_json(cls, text: str) -> "Diagnosis":
        """Read what `to_json` wrote.

        Raises:
            InputError: not JSON, another schema, or a field that is missing, unknown or of the wrong type.
        """
        return from_json(cls, text, schema=SCHEMA, what="diagnosis", how=_HOW)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Diagnosis":
        """Read a diagnosis from the file that `save` wrote."""
        return cls.from_json(read_text(path, _HOW))
