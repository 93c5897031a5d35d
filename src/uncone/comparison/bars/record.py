"""The record of a check."""

from dataclasses import dataclass
from typing import Any, Literal

from uncone.records.blocks import Blocks, Cell, Heading, Row, Table, Text
from uncone.records.brief import part
from uncone.records.layout import moved, shown
from uncone.records.parts import DEFECTS, Level
from uncone.records.record import Record
from uncone.records.text import number


@part
class Bar:
    name: str  # the whole name of the number
    value: float  # as it was read, not rounded
    kind: Literal["max", "min"]  # `max` or `min`
    bar: float  # the largest or smallest value within it
    ok: bool  # whether the value is within it


@dataclass(frozen=True)
class Check(Record):
    """The result of `check`."""

    name: str  # of the diagnosis or evaluation
    ok: bool  # no number is beyond its bar, and no defect is as bad as `fail_on`
    bars: tuple[Bar, ...]  # maxima first, in the order in which they were given
    verdict: str = ""  # of the diagnosis or evaluation
    level: Level | None = None  # of the worst finding of a diagnosis
    # `severe` or `warning`, the mildest defect that fails; `null` if only bars were checked
    fail_on: Literal["severe", "warning"] | None = None

    @property
    def summary(self) -> str:
        """The result in one sentence."""
        beyond = [bar.name for bar in self.bars if not bar.ok]
        total, said = len(self.bars), list[str]()
        every = "its bar" if total == 1 else f"all {total} bars"
        if beyond:
            of = f"{len(beyond)} of {total} bars" if len(beyond) < total else every
            said.append(f"is beyond {of}: {', '.join(dict.fromkeys(beyond))}")
        elif self.bars:
            said.append(f"is within {every}")
        if self.fail_on is not None:
            bad = "severe defect" if self.fail_on == "severe" else "defect"
            said.append(f"has a {bad}" if self.is_defective else f"has no {bad}")
        return f"{self.name} {' and '.join(said)}."

    @property
    def is_defective(self) -> bool:
        """Whether a finding is at least as bad as `fail_on`."""
        failing = DEFECTS[: DEFECTS.index(self.fail_on) + 1] if self.fail_on else ()
        return self.level in failing

    def blocks(self) -> Blocks:
        beyond = "beyond the bar, as a share of the larger of the two"
        caption = "Dashed: the bar. Dot: the number. A dot to the right of its bar is beyond the bar."
        return shown(
            Heading(self.summary, 1, "OK" if self.ok else "FAILED", "healthy" if self.ok else "severe"),
            Text(self.verdict, "quiet"),
            Table(("", "number", "value", "bar"), tuple(map(_row, self.bars)), ("value",)),
            moved("Numbers and their bars", beyond, ((bar.name, 0.0, _beyond(bar)) for bar in self.bars), caption),
        )

    def to_rows(self) -> list[dict[str, Any]]:
        """One row for each bar."""
        return [vars(bar) | {} for bar in self.bars]


def _beyond(bar: Bar) -> float:
    """As a share of the larger, so that numbers of any unit compare; below 0 within the bar."""
    largest = max(abs(bar.value), abs(bar.bar)) or 1.0
    return (bar.value / largest - bar.bar / largest) * (1 if bar.kind == "max" else -1)


def _row(bar: Bar) -> Row:
    state = Cell("ok", tone="better") if bar.ok else Cell("BEYOND", tone="severe")
    value = number(bar.value, limits=(bar.bar, None)).replace(",", "")
    limit = f"{'at most' if bar.kind == 'max' else 'at least'} {bar.bar!r}"
    return state, bar.name, Cell(value, tone="strong"), limit
