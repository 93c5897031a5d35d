"""The record of a comparison: several diagnoses of the same matrices, and how each differs from the first."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from uncone.records.blocks import Block, Bullets, Folded, Heading, Table, Text, named, section, shown
from uncone.records.compared import LETTERS, LITTLE, PARTS, ComparedSubject
from uncone.records.rebuild import expect
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
    """The result of `compare`: a verdict in one sentence, the diagnoses (the baseline first), the matrices."""

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
        n = len(self.diagnoses)
        expect(2 <= n <= MOST_COMPARED, f"2 to {MOST_COMPARED} diagnoses to compare, got {n}")
        fit = all(len(subject.sides) == n for subject in self.subjects)
        expect(fit, f"{n} sides of each subject, got another number: edited?")

    @property
    def title(self) -> str:
        """The first two diagnoses, and how many more."""
        names = self._names()
        return " and ".join([*names[:2], *([f"{len(names) - 2} more"] if len(names) > 2 else [])])

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
        names = self._names()
        tallies = ("baseline", *map(self._tally, range(1, len(names))))
        rows = tuple(zip(LETTERS, names, tallies, strict=False))
        verdicts = tuple(zip(LETTERS, (diagnosis.verdict for diagnosis in self.diagnoses), strict=False))
        made = (
            ", ".join(f"{name} {version}" for name, version in d.versions.items()) for d in self.diagnoses
        )
        versions = Bullets(
            tuple(f"{letter}: {by or 'unknown'}" for letter, by in zip(LETTERS, made, strict=False))
        )
        has_interval = any(
            change.interval is not None
            for part in PARTS
            for subject in self.subjects
            for measure in getattr(subject, part)
            for change in measure.changes
            if change is not None
        )
        return shown(
            Heading(self.verdict, 1),
            Table(("", "diagnosis", "measures"), rows),
            Folded("Their own verdicts, and what made them", (Table(("", "verdict"), verdicts), versions)),
            *(named(one.blocks(names), one.name if place else "") for place, one in enumerate(self.subjects)),
            section("Notes", Bullets(self.notes), level=2),
            Text(self.intervals if has_interval else "", "quiet"),
        )

    def _names(self) -> tuple[str, ...]:
        return tuple(shortened(diagnosis.name, _LONGEST_NAME) for diagnosis in self.diagnoses)

    def _tally(self, place: int) -> str:
        """How many measures of one diagnosis went which way beyond little; empty where none has a direction."""
        measures = [m for subject in self.subjects for m in subject.measures if m.better != "neither"]
        there = [change for m in measures if (change := m.changes[place]) is not None]
        if not there:
            return ""
        ways = [change.direction for change in there if change.meaningful]
        little = len(there) - len(ways)
        rest = f", {little} little changed or under a caution" if little else ""
        return f"{ways.count('worse')} worse, {ways.count('better')} better of {counted(len(there), 'measure')}{rest}"
