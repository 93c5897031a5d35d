"""The record of a comparison: several diagnoses of the same matrices, and how each differs from the first."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from uncone.errors import InputError
from uncone.records.blocks import Block, Bullets, Folded, Heading, Table, Text, named
from uncone.records.compared import LETTERS, LITTLE, PARTS, ComparedSubject
from uncone.records.record import Record
from uncone.records.text import shortened
from uncone.records.wording import counted

MOST_COMPARED = 6
"""More would not be told apart in one drawing."""
_LONGEST_NAME = 40


@dataclass(frozen=True)
class ComparedDiagnosis:
    """One of the diagnoses: its name here, its own verdict, and what made it."""

    name: str
    verdict: str
    versions: Mapping[str, str] = field(default_factory=dict)
    schema: str = ""


@dataclass(frozen=True)
class Comparison(Record):
    """The result of `compare`: a verdict in one sentence, the diagnoses (the first is the baseline), and the
    matrices."""

    KIND: ClassVar[str] = "comparison"
    SCHEMA: ClassVar[str] = "uncone.comparison/1"
    HOW: ClassVar[str] = "uncone compare A.json B.json --json F"
    READING: ClassVar[str] = (
        "Distances are values less what an isotropic cloud of the same number of rows and columns gives. "
        f"{LITTLE} Numbers are never rounded onto a limit they did not reach."
    )

    verdict: str
    diagnoses: tuple[ComparedDiagnosis, ...]
    subjects: tuple[ComparedSubject, ...]
    notes: tuple[str, ...] = ()
    intervals: str = ""
    """How the interval of a difference was made."""
    schema: str = SCHEMA

    def __post_init__(self) -> None:
        if not 2 <= len(self.diagnoses) <= MOST_COMPARED:
            raise InputError(f"expected 2 to {MOST_COMPARED} diagnoses to compare, got {len(self.diagnoses)}")
        if any(len(subject.sides) != len(self.diagnoses) for subject in self.subjects):
            raise InputError(
                f"expected {len(self.diagnoses)} sides of each subject, got another number: edited?"
            )

    @property
    def title(self) -> str:
        """The first two diagnoses, and how many more."""
        names = [shortened(diagnosis.name, _LONGEST_NAME) for diagnosis in self.diagnoses]
        return " and ".join(names[:2]) + (f" and {len(names) - 2} more" if len(names) > 2 else "")

    def to_rows(self) -> list[dict[str, Any]]:
        """One row for each measure and diagnosis."""
        return [
            {
                "subject": subject.name, "measure": measure.name, "part": part, "diagnosis": self.diagnoses[place].name,
                "value": measure.values[place], "distance": measure.distances[place],
                "difference": change and change.difference, "direction": change and change.direction,
                "low": change and change.interval and change.interval[0], "high": change and change.interval and change.interval[1],
            }
            for subject in self.subjects
            for part in PARTS
            for measure in getattr(subject, part)
            for place, change in enumerate(measure.changes)
        ]  # fmt: skip

    def blocks(self) -> tuple[Block, ...]:
        """The verdict, the diagnoses by their letters, then each matrix."""
        names = tuple(shortened(diagnosis.name, _LONGEST_NAME) for diagnosis in self.diagnoses)
        rows = []
        for place, (letter, name) in enumerate(zip(LETTERS, names, strict=False)):
            rows.append((letter, name, "baseline" if place == 0 else self._tally(place)))
        blocks: list[Block] = [Heading(self.verdict, 1), Table(("", "diagnosis", "measures"), tuple(rows))]
        verdicts = tuple(
            (letter, diagnosis.verdict) for letter, diagnosis in zip(LETTERS, self.diagnoses, strict=False)
        )
        versions = tuple(
            f"{letter}: {', '.join(f'{name} {version}' for name, version in diagnosis.versions.items()) or 'unknown'}"
            for letter, diagnosis in zip(LETTERS, self.diagnoses, strict=False)
        )
        blocks += [
            Folded(
                "Their own verdicts, and what made them",
                (Table(("", "verdict"), verdicts), Bullets(versions)),
            )
        ]
        for place, subject in enumerate(self.subjects):
            blocks += [named(block, subject.name if place else "") for block in subject.blocks(names)]
        blocks += [Heading("Notes", 2), Bullets(self.notes)] if self.notes else []
        changes = (
            change for s in self.subjects for part in PARTS for m in getattr(s, part) for change in m.changes
        )
        if any(change is not None and change.interval is not None for change in changes):
            blocks.append(Text(self.intervals, "quiet"))
        return tuple(blocks)

    def _tally(self, place: int) -> str:
        """How many measures of one diagnosis went which way beyond little; empty where none has a
        direction."""
        changes = [
            m.changes[place] for subject in self.subjects for m in subject.measures if m.better != "neither"
        ]
        there = [change for change in changes if change is not None]
        if not there:
            return ""
        ways = [change.direction for change in there if change.meaningful]
        little = len(there) - len(ways)
        rest = f", {little} little changed or under a caution" if little else ""
        return f"{ways.count('worse')} worse, {ways.count('better')} better of {counted(len(there), 'measure')}{rest}"
