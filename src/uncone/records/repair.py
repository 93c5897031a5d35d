"""The record of a repair: what was written, what it did to the vectors' geometry, and what it cost."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from uncone.records.blocks import Block, Bullets, Cell, Heading, Table, Text, Tone
from uncone.records.evaluation import Selection
from uncone.records.layout import moved, section, shown
from uncone.records.parts import Fitted, Measurement
from uncone.records.rebuild import expect
from uncone.records.record import Record
from uncone.records.text import better, count, counted, number, plural, title

_SHORT = 12
_GAINS: dict[bool | None, tuple[str, Tone]] = {
    True: ("BETTER", "healthy"), False: ("LEAVE IT", "warning"), None: ("NOT MEASURED", "note"),
}  # fmt: skip


@dataclass(frozen=True)
class RepairCost:
    """The cost of a repair.

    `fit_seconds` is None where the transformation was loaded. `relative_change` is the norm of all changes
    over the norm of all vectors that were measured, None where their number of columns changed. `rank_lost`
    counts directions that nothing is left of, None for what is not one linear map.
    """

    fit_seconds: float | None
    apply_seconds: float
    relative_change: float | None = None
    rank_lost: int | None = None


@dataclass(frozen=True)
class Repaired(Record):
    """The result of `repair`.

    `before` and `after` hold the same measures of the same `measured` rows, as they were read and as they
    stand in what was written; both are empty where nothing could be measured. `gains` says whether the
    geometry is clearly better; no task was asked for it. `selection` is the evidence of the task that chose
    the method, None where it was named (and in older files).
    """

    KIND: ClassVar[str] = "repair"
    SCHEMA: ClassVar[str] = "uncone.repaired/1"
    HOW: ClassVar[str] = "uncone repair SPEC OUT --json F"

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
    schema: str = SCHEMA

    def __post_init__(self) -> None:
        before, after = ([measurement.name for measurement in side] for side in (self.before, self.after))
        counts = f"{len(before)} before and {len(after)} after, or others: the file was cut or edited"
        expect(before == after, f"the same measures before and after, got {counts}")

    def blocks(self) -> tuple[Block, ...]:
        label, tone = _GAINS[self.gains]
        sides = list(zip(self.before, self.after, strict=True))
        columns = ("measure", "before", "after", "isotropic", "better")
        known = [(title(b.name), _distance(b), _distance(a)) for b, a in sides]
        caption = "Dot: after. Line: from before. Dashed: an isotropic cloud."
        return shown(
            Heading(self.verdict, 1, label, tone),
            (Text(fact, "quiet") for fact in self._facts()),
            Table(columns, tuple(_row(b, a) for b, a in sides), columns[1:4]),
            moved(
                "Before and after", "value less the isotropic value",
                [(name, b, a) for name, b, a in known if b is not None and a is not None], caption,
            ),
            Bullets(self.notes),
            section("How the repair was chosen", self._chosen(), level=2),
        )  # fmt: skip

    def to_rows(self) -> list[dict[str, Any]]:
        """One row for each measure, before and after."""
        return [
            {
                "measure": b.name,
                "before": b.value,
                "after": a.value,
                "reference": a.reference,
                "better": b.better,
            }
            for b, a in zip(self.before, self.after, strict=True)
        ]

    def _chosen(self) -> Iterator[Block]:
        """The evidence of the task that chose the repair, its verdict as a text."""
        for block in () if self.selection is None else self.selection.blocks():
            yield Text(block.text) if isinstance(block, Heading) else block

    def _facts(self) -> list[str]:
        """What was written, and what the transformation was fitted on."""
        size = f"{counted(self.n, 'row')} of {counted(self.k, 'column')}, {self.dtype}"
        facts = [f"{self.out}: {size if self.kind == 'vectors' else 'an encoder that loads without uncone'}"]
        if self.fitted is not None:
            digest = "" if self.fitted.sha256 is None else f", sha256 {self.fitted.sha256[:_SHORT]}..."
            weighted = "" if self.fitted.weights is None else ", weighted"
            size = f"{count(self.fitted.n)} x {count(self.fitted.d)}{weighted}{digest}"
            facts.append(f"{self.method}, fitted on {self.fitted.name} ({size})")
        if self.before:
            items = plural(self.measured, "row" if self.kind == "vectors" else "sentence")
            facts.append(f"measured on {count(self.measured)} {items}, before and after")
        return facts


def _row(before: Measurement, after: Measurement) -> tuple[str | Cell, ...]:
    reference = "" if after.reference is None else number(after.reference, limits=after.range)
    value = Cell(_value(after), tone="strong")
    return title(before.name), _value(before), value, reference, better(before.better)


def _value(measurement: Measurement) -> str:
    return "undefined" if measurement.value is None else number(measurement.value, limits=measurement.range)


def _distance(m: Measurement) -> float | None:
    return None if m.value is None or m.reference is None else m.value - m.reference
