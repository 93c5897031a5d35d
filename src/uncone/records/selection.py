"""The record of a selection: which repair a development split chose, and what the test split said of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from uncone.records.blocks import Block, Bullets, Cell, Figure, Heading, Intervals, Table, Text
from uncone.records.evaluation import ORIGINAL, Interval
from uncone.records.record import Record
from uncone.records.text import count, number, signed


@dataclass(frozen=True)
class Selection(Record):
    """The decision of `select_repair`. `chosen` is "original" where the vectors are better left as they are.

    `development` holds for each repair its difference to the original, in the unit of `measure`, with an
    interval at a level raised for their number (Bonferroni); `test` that of the one candidate, at 95 %, None
    where there was none.
    """

    KIND: ClassVar[str] = "selection"
    SCHEMA: ClassVar[str] = "uncone.selection/1"
    HOW: ClassVar[str] = "uncone repair SPEC OUT --method auto --json F"

    verdict: str
    name: str
    task: str
    measure: str
    chosen: str
    candidate: str | None
    development_original: float
    development: Mapping[str, Interval]
    development_n: int
    test_original: float | None = None
    test: Interval | None = None
    test_n: int = 0
    splits: str = ""
    """Which items each split holds, and what the repairs were fitted on."""
    notes: tuple[str, ...] = ()
    provenance: Mapping[str, Any] = field(default_factory=dict)
    schema: str = SCHEMA

    @property
    def leaves_it(self) -> bool:
        """Whether no repair is recommended."""
        return self.chosen == ORIGINAL

    def blocks(self) -> tuple[Block, ...]:
        """The verdict, and what each repair did on the development split."""
        label, tone = ("LEAVE IT", "warning") if self.leaves_it else ("REPAIR IT", "healthy")
        original = f"{self.task}, {self.measure}: {number(self.development_original)} as it is"
        order = sorted(self.development, key=lambda name: -self.development[name].difference)
        blocks: list[Block] = [
            Heading(self.verdict, 1, label, tone),  # type: ignore[arg-type]
            Text(f"{original}, over {count(self.development_n)} items", "quiet"),
        ]
        blocks += [Text(self.splits, "quiet")] if self.splits else []
        rows = [
            _row(f"{name} *" if name == self.candidate else name, self.development[name]) for name in order
        ]
        blocks.append(
            Table(("development split", "difference", "interval"), tuple(rows), ("difference", "interval"))
        )
        if self.test is not None:
            columns = (f"test split, {count(self.test_n)} items", "difference", "interval")
            blocks.append(Table(columns, (_row(str(self.candidate), self.test),), columns[1:]))
        drawn = tuple(
            (name, i.difference, i.low, i.high) for name in order if (i := self.development[name]) is not None
        )
        if drawn:
            chart = Intervals("differences", "Development split", f"difference of {self.measure}", drawn)
            blocks.append(Figure("What each repair changes", (chart,)))
        return (*blocks, Bullets(self.notes)) if self.notes else tuple(blocks)

    def to_rows(self) -> list[dict[str, Any]]:
        """One row for each repair on the development split, and the candidate's on the test split."""
        splits = [("development", name, interval) for name, interval in self.development.items()]
        splits += [("test", str(self.candidate), self.test)] if self.test is not None else []
        return [
            {
                "split": split,
                "repair": name,
                "difference": i.difference,
                "low": i.low,
                "high": i.high,
                "level": i.level,
            }
            for split, name, i in splits
        ]


def _row(name: str, interval: Interval) -> tuple[str | Cell, ...]:
    return (
        name,
        Cell(signed(interval.difference), tone="strong"),
        f"{signed(interval.low)} to {signed(interval.high)}",
    )
