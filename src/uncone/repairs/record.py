"""The record of a repair."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

from uncone.evaluation.record import Selection
from uncone.records.blocks import Block, Blocks, Bullets, Cell, Code, Heading, Row, Table, Text
from uncone.records.brief import part
from uncone.records.layout import moved, section, shown
from uncone.records.parts import Fitted, Measurement
from uncone.records.rebuild import expect
from uncone.records.record import Record
from uncone.records.text import count, counted, number, plural, title

NOT_KNOWN = "Only a task can show whether the repair helps: run `uncone evaluate`."  # unless a task chose it
_LABELS = {True: "ROUNDER", False: "NOT ROUNDER", None: "NOT MEASURED"}  # notes: only a task shows whether that is good
_NOT_DRAWN = ("effective_rank", "partition_isotropy")  # a number of dimensions, and what depends on length
NEAR_ZERO = 0.05  # a mean cosine below this is no common direction to speak of
CLEARLY_MORE = 0.05  # of IsoScore, the mean cosine and the share of dimensions: nobody would act on a smaller step


@part
class RepairCost:
    fit_seconds: float | None  # none where the repair was loaded
    apply_seconds: float
    # how far the measured vectors moved: the norm of the repaired vectors minus the best multiple of the old ones, over
    # the norm of the repaired vectors, from 0 (only the scale changed) to 1; none where the number of columns changed
    relative_change: float | None = None
    rank_lost: int | None = None  # directions that the repair removes; none where it is not affine
    scale: float | None = None  # norm of all measured vectors after the repair over their norm before it


@part
class Lengths:
    """Norms of rows."""

    mean: float  # of the norms of the measured rows; zero rows are left out
    smallest: float
    largest: float

    @property
    def is_unit(self) -> bool:
        return 1 - self.smallest <= 1e-3 and self.largest - 1 <= 1e-3


@dataclass(frozen=True)
class Repaired(Record):
    """The result of `repair`: `before` and `after` hold the same measures of the same rows; both may be empty."""

    KIND: ClassVar[str] = "repair"

    verdict: str  # whether the rows are rounder, the numbers, what can show whether the repair helps, and the cost
    name: str  # of the source, at most two parts of its path
    out: str  # of the output, likewise
    kind: Literal["vectors", "encoder"]  # `vectors` or `encoder`
    method: str  # the repair; the class of one that was loaded
    # whether the rows are clearly rounder by a measure that does not depend on their length, and clearly less round by
    # no such measure; none where nothing was measured
    gains: bool | None
    n: int  # rows written; of an encoder, sentences it was fitted on
    d: int  # columns read
    k: int  # columns written
    dtype: str  # as stored
    fitted: Fitted | None  # what it was fitted on: `name`, `n`, `d`, `sha256` of the numbers and of `weights`
    cost: RepairCost
    measured: int = 0  # rows or sentences in `before` and `after`
    before: tuple[Measurement, ...] = ()  # mean cosine, IsoScore, effective rank, I(W)
    after: tuple[Measurement, ...] = ()  # the same of what was written
    options: Mapping[str, Any] = field(default_factory=dict)  # of the repair
    notes: tuple[str, ...] = ()  # what could not be kept, and whether the fit used other rows
    versions: Mapping[str, str] = field(default_factory=dict)  # of uncone and torch
    selection: Selection | None = None  # the evidence of the task that chose the repair; none where it was named
    normalized: bool = False  # each row was divided by its norm after the repair
    lengths_before: Lengths | None = None  # of the rows as they were read
    lengths_after: Lengths | None = None  # of the same rows as they were written
    index: tuple[str, ...] = ()  # how to use the written rows in an index
    next_step: str = ""  # the command that tries the repair on a task; empty where a task chose it

    def __post_init__(self) -> None:
        before, after = ([one.name for one in side] for side in (self.before, self.after))
        counts = f"{len(before)} before and {len(after)} after, or different ones: the file was cut or edited"
        expect(before == after, f"the same measures before and after, got {counts}")

    def blocks(self) -> Blocks:
        sides = list(zip(self.before, self.after, strict=True))
        columns = ("measure", "before", "after", "isotropic", "rounder is")
        known = [(title(b.name), b.distance, a.distance) for b, a in sides if b.name not in _NOT_DRAWN]
        drawn = [(name, b, a) for name, b, a in known if b is not None and a is not None]
        caption = "Dot: after the repair. Line: from the value before. Dashed: an isotropic cloud."
        return shown(
            Heading(
                self.verdict,
                1,
                "MEASURES DISAGREE" if all(ways(self.before, self.after)[:2]) else _LABELS[self.gains],
                "note",
            ),
            Code(self.next_step),
            Text(self._shortened(), "caution"),
            (Text(fact, "quiet") for fact in self._facts()),
            Table(columns, (*(_row(b, a) for b, a in sides), *self._length()), columns[1:4]),
            moved("Before and after", "value less the isotropic value", drawn, caption),
            Bullets(self.notes),
            section("Using these vectors in an index", Bullets(self.index)),
            section("How the repair was chosen", self._chosen(), level=2),
        )

    @property
    def label(self) -> str:
        """The method, with the power of a whitening and the division by norms, which its name leaves open."""
        power = self.options.get("power")
        more = [*([] if power is None else [f"power {power:g}"]), *["normalised"] * self.normalized]
        return f"{self.method} ({', '.join(more)})" if more else self.method

    @property
    def lost_unit_length(self) -> bool:
        before, after = self.lengths_before, self.lengths_after
        return before is not None and before.is_unit and after is not None and not after.is_unit

    def chosen_by(self, selection: Selection, *notes: str) -> "Repaired":
        """The same repair with the evidence of the task that chose it."""
        verdict = self.verdict.replace(
            NOT_KNOWN, f"The task {selection.task} chose the repair, by {selection.measure}."
        )
        return replace(self, selection=selection, verdict=verdict, next_step="", notes=(*self.notes, *notes))

    def to_rows(self) -> list[dict[str, Any]]:
        return [
            {"measure": b.name, "before": b.value, "after": a.value, "reference": a.reference, "better": b.better}
            for b, a in zip(self.before, self.after, strict=True)
        ]

    def _shortened(self) -> str:
        after = self.lengths_after
        if not self.lost_unit_length or after is None:
            return ""
        return (
            f"The rows had length 1 and now have lengths of {number(after.smallest)} to {number(after.largest)}. An "
            "index of inner products no longer gives cosines, and a threshold for cosines may let nothing through. "
            "Repair with --normalize (normalize=True) to give rows length 1 again."
        )

    def _length(self) -> Iterator[Row]:
        before, after = self.lengths_before, self.lengths_after
        if before is not None and after is not None:
            yield "Length of rows, mean", _length(before), replace(_length(after), tone="strong"), "", ""

    def _chosen(self) -> Iterator[Block]:
        for block in () if self.selection is None else self.selection.blocks():
            yield Text(block.text) if isinstance(block, Heading) else block

    def _facts(self) -> list[str]:
        size = f"{counted(self.n, 'row')} of {counted(self.k, 'column')}, {self.dtype}"
        facts = [f"{self.out}: {size if self.kind == 'vectors' else 'an encoder that loads without uncone'}"]
        if (rows := self.fitted) is not None:
            digest = "" if rows.sha256 is None else f", sha256 {rows.sha256[:12]}..."
            size = f"{count(rows.n)} x {count(rows.d)}{'' if rows.weights is None else ', weighted'}{digest}"
            facts.append(f"{self.label}; fitted on {rows.name} ({size})")
        if self.before:
            items = plural(self.measured, "row" if self.kind == "vectors" else "sentence")
            facts.append(f"measured on {count(self.measured)} {items}, before and after")
        return facts


def ways(before: Sequence[Measurement], after: Sequence[Measurement]) -> tuple[list[str], list[str], list[str]]:
    """The measures by which rows got clearly rounder, by which they got clearly less round, and the others.

    A measure counts only if it is defined on both sides and stays the same when all rows are multiplied by a number, so
    I(W) does not count."""
    steps = dict[str, float]()
    for one, then in zip(before, after, strict=True):
        if one.value is None or then.value is None:
            continue
        if one.name == "mean_cosine":
            step = abs(one.value) - abs(then.value)
            steps[one.name] = step if abs(one.value) > NEAR_ZERO else min(step, 0.0)
        elif one.name == "isoscore":
            steps[one.name] = then.value - one.value
        elif one.name == "effective_rank":  # as shares of the highest possible rank
            steps[one.name] = then.value / (then.range[1] or 1) - one.value / (one.range[1] or 1)
    rounder, less = ([name for name, step in steps.items() if way * step >= CLEARLY_MORE] for way in (1, -1))
    return rounder, less, [name for name in steps if name not in (*rounder, *less)]


def _row(before: Measurement, after: Measurement) -> Row:
    reference = "" if after.reference is None else number(after.reference, limits=after.range)
    value = Cell(_value(after), tone="strong")
    better = "depends on length" if before.name == "partition_isotropy" else before.better
    return title(before.name), _value(before), value, reference, better


def _length(lengths: Lengths) -> Cell:
    if lengths.is_unit:
        return Cell("1")
    return Cell(number(lengths.mean), f"{number(lengths.smallest)} to {number(lengths.largest)}")


def _value(measurement: Measurement) -> str:
    return "undefined" if measurement.value is None else number(measurement.value, limits=measurement.range)
