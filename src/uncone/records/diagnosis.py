"""The record of a diagnosis."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from uncone.records.blocks import Block, Bullets, Heading, Text, named
from uncone.records.record import Record, made_with
from uncone.records.subject import Subject, worst_level


@dataclass(frozen=True)
class Diagnosis(Record):
    """The result of `diagnose`: a verdict in one sentence, and the subjects with the evidence."""

    KIND: ClassVar[str] = "diagnosis"
    SCHEMA: ClassVar[str] = "uncone.diagnosis/1"
    HOW: ClassVar[str] = "uncone diagnose SPEC --json F"
    READING: ClassVar[str] = (
        "“Isotropic” is what a cloud with no preferred direction gives at the same number of rows and columns. "
        "Numbers are never rounded onto a limit they did not reach."
    )

    name: str
    verdict: str
    subjects: tuple[Subject, ...]
    notes: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    schema: str = SCHEMA

    def blocks(self) -> tuple[Block, ...]:
        """The verdict, three headline numbers, then each subject."""
        findings = [finding for subject in self.subjects for finding in subject.findings]
        level = worst_level(findings) if findings else ""
        blocks: list[Block] = [Heading(self.verdict, 1, tone=level), Text(self.name, "quiet")]  # type: ignore[arg-type]
        blocks += [self.subjects[0].gauges()] if self.subjects else []
        for place, subject in enumerate(self.subjects):
            blocks += [named(block, subject.name if place else "") for block in subject.blocks()]
        blocks += [Heading("Notes", 2), Bullets(self.notes)] if self.notes else []
        blocks += [Text(made_with(self.versions), "quiet")] if self.versions else []
        return tuple(blocks)

    def to_rows(self) -> list[dict[str, Any]]:
        """One row for each measurement."""
        return [
            {
                "subject": subject.name, "measure": m.name, "value": m.value, "reference": m.reference, "better": m.better,
                "low": m.interval and m.interval[0], "high": m.interval and m.interval[1], "n": m.n, "d": m.d,
                "has_effect": of is subject.measurements, "reason": m.reason,
            }
            for subject in self.subjects
            for of in (subject.measurements, subject.without_effect)
            for m in of
        ]  # fmt: skip
