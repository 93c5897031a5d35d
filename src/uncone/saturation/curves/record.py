from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, ClassVar

from uncone.records.blocks import (
    Block,
    Blocks,
    Bullets,
    Cell,
    Chart,
    Curve,
    Figure,
    Folded,
    Heading,
    Mark,
    Row,
    Table,
    Text,
)
from uncone.records.brief import part
from uncone.records.layout import LARGEST_DRAWN, section, shown
from uncone.records.rebuild import expect
from uncone.records.record import Record
from uncone.records.text import count, counted, listing, number, optional

MOST_DRAWN = 12  # declined curves that keep their points, to be drawn
_MOST_ROWS, _FEW = 300, 24
"""The most curves in a table, and the most curves or families whose part without a decline a terminal shows."""
_COLUMNS = ("peak", "final", "decline", "seen from", "P alone", "bends at")


@part
class CurveVerdict:
    model: str  # the model, with further columns that distinguish curves
    task: str
    metric: str
    declined: bool | None  # `null` where it is undecided
    suite: str = ""
    shots: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)  # batch size and weight decay, where the source has them
    lower: bool = False  # less is better
    logarithm: bool = False  # ln(value) was judged: `decline`, its error, `jitter` and `visible` are in its unit
    reason: str = ""  # why it is undecided
    checkpoints: int = 0  # how many were judged
    peak: float | None = None  # the best value
    peak_step: float | None = None  # its step
    final: float | None = None  # the last value
    final_step: float | None = None  # its step
    decline: float | None = None  # by how much the last value is worse than the best
    decline_error: float | None = None  # from the standard errors of the two
    decline_z: float | None = None  # their ratio
    declined_alone: bool | None = None  # by its own jitter, and not corrected for the others
    p_alone: float | None = None  # chance of such a late fall without a decline, by its own jitter
    p_family: float | None = None  # the same, if the other curves of its family show how its jitter is correlated
    p_holm: float | None = (
        None  # `p_family` after Holm; with `first`, of those the largest `p_alone` so far, and of the others no less than it
    )
    jitter: float | None = None  # deviation between checkpoints, from second differences
    visible: float | None = None  # the fall over the last third that is found in 80% of such curves, in white jitter
    change_step: float | None = None  # where the curve bends
    change_low: float | None = None  # lower end of its 95% interval
    change_high: float | None = None  # upper end
    notes: tuple[str, ...] = ()  # what was left out of this curve
    steps: tuple[float, ...] = ()  # kept for the twelve clearest declines, to be drawn
    values: tuple[float, ...] = ()  # one for each of `steps`

    def __post_init__(self) -> None:
        came = f"{len(self.steps)} and {len(self.values)}: the file was cut or edited"
        expect(len(self.steps) == len(self.values), f"as many steps as values, got {came}")

    @property
    def family(self) -> tuple[str, str, str, str]:
        return _family(self)


@part
class CurveFamily:
    task: str
    metric: str
    suite: str
    shots: str
    lower: bool  # less is better
    curves: int  # how many
    declined: int  # how many declined
    undecided: int  # how many could not be judged
    correlation: float | None = None  # of the jitter of neighbouring checkpoints, from all its curves

    @property
    def title(self) -> str:
        """Such as "lambada_openai acc (v1, 0 shots)"."""
        more = ", ".join(filter(None, [self.suite, self.shots and f"{self.shots} shots"]))
        name = " ".join(filter(None, (self.task, self.metric))) or "curves"
        return f"{name} ({more})" if more else name


@dataclass(frozen=True)
class CurveVerdicts(Record):
    """The result of `judge_curves`."""

    READING: ClassVar[str] = (
        "P alone: the chance of such a fall at the end of a curve that never falls, by its own jitter, which may be "
        "autocorrelated. P of the family, below it: the other curves show the correlation of the jitter, and Holm "
        "corrects for their number. A curve declined if P of the family is small. Seen from: the fall over the last "
        "third that is detected in 80% of such curves, judged alone; smaller falls may be missed. Each curve is one "
        "run: other seeds are other runs."
    )

    verdict: str  # which curves declined
    name: str  # what was read
    alpha: float  # the level within each family
    curves: tuple[CurveVerdict, ...]  # every curve
    families: tuple[CurveFamily, ...]  # every family
    told_apart_by: tuple[str, ...] = ()  # the columns that distinguish curves
    first: tuple[str, ...] = ()  # the models that were tested before the others, in this order
    notes: tuple[str, ...] = ()  # what is missing or was left out
    provenance: Mapping[str, Any] = field(default_factory=dict)  # the seed and the versions

    def blocks(self) -> Blocks:
        fell = any(family.declined for family in self.families)
        undecided = all(curve.declined is None for curve in self.curves)
        titles, own = self._titles(), list[str]()
        for curve in [curve for curve in self.curves if curve.notes][:_FEW]:
            name = ", ".join(filter(None, (curve.model, titles.get(curve.family))))
            own.append(f"{name}: {'; '.join(curve.notes)}.")
        apart = f"Curves are distinguished by {', '.join(self.told_apart_by)}." if self.told_apart_by else ""
        corrected = "Each family (one task, metric, suite and shots) is corrected separately"
        if self.first:
            order = f"Tested first, each only if all before it declined: {listing(self.first)}."
            apart = f"{order} Their P of the family is the largest P alone up to that model. {apart}"
        label = "DECLINED" if fell else "UNDECIDED" if undecided else "NO DECLINE SHOWN"
        return shown(
            Heading(self.verdict, 1, label, "warning" if fell else "note"),
            Text(f"{corrected}, at {self.alpha:g}. {apart}", "quiet"),
            self._by_family(),
            self._figures(),
            section("Each curve", self._by_curve()),
            section("What was left out or is missing", Bullets((*self.notes, *own))),
        )

    def to_rows(self) -> list[dict[str, Any]]:
        out = ("settings", "steps", "values", "notes")
        named = sorted({name for curve in self.curves for name in curve.settings})
        return [
            {key: value for key, value in vars(curve).items() if key not in out}
            | {name: curve.settings.get(name, "") for name in named}
            for curve in self.curves
        ]

    def _by_family(self) -> Iterator[Table | Folded]:
        marked = [one for one in self.families if one.declined or one.undecided]
        others = [one for one in self.families if not (one.declined or one.undecided)]
        if marked:
            yield _families(sorted(marked, key=lambda one: -one.declined))
        if others:
            title = f"{counted(len(others), 'family', 'families')} without a decline"
            yield Folded(title, (_families(others),), in_terminal=len(self.families) <= _FEW)

    def _figures(self) -> Iterator[Figure]:
        titles = self._titles()
        caption = "The peak has another colour. Dashed: where the curve bends, with its interval shaded."
        drawn = sorted((curve for curve in self.curves if curve.steps), key=_family)
        for family, curves in groupby(drawn, key=_family):
            charts = tuple(_chart(curve) for curve in curves if max(map(abs, curve.values)) < LARGEST_DRAWN)
            yield Figure(titles.get(family, ""), charts, caption)

    def _by_curve(self) -> Iterator[Block]:
        marked = [curve for curve in self.curves if curve.declined is not False or curve.declined_alone]
        others = [curve for curve in self.curves if curve.declined is False and not curve.declined_alone]
        if marked:
            yield self._table(marked[:_MOST_ROWS], grouped=False)
        if others:
            more = f", {_MOST_ROWS} of them here and all in the JSON record" if len(others) > _MOST_ROWS else ""
            table = self._table(others[:_MOST_ROWS], grouped=len(self.families) > 1)
            title = f"{counted(len(others), 'curve')} without a decline{more}"
            yield Folded(title, (table,), in_terminal=len(self.curves) <= _FEW)

    def _table(self, chosen: list[CurveVerdict], *, grouped: bool) -> Table:
        titles = self._titles()
        order = {family: at for at, family in enumerate(titles)}
        chosen = sorted(chosen, key=lambda curve: order.get(curve.family, 0))
        settings = list(dict.fromkeys(name for curve in chosen for name in curve.settings))
        family = () if grouped or len(titles) < 2 else ("family",)
        rows = tuple(_row(curve, [titles.get(curve.family, "")] * len(family), settings) for curve in chosen)
        runs = groupby(chosen, key=_family) if grouped else ()
        groups = tuple((titles.get(key, ""), len(list(curves))) for key, curves in runs)
        columns = ("curve", *family, *settings, *_COLUMNS)
        return Table(columns, rows, columns[1 + len(family) :], groups=groups, grouped_by="family" if groups else "")

    def _titles(self) -> dict[tuple[str, str, str, str], str]:
        return {_family(one): one.title for one in self.families}


def _family(one: CurveVerdict | CurveFamily) -> tuple[str, str, str, str]:
    return one.task, one.metric, one.suite, one.shots


def _families(chosen: list[CurveFamily]) -> Table:
    columns = ("family", "better", "curves", "declined", "undecided", "jitter correlation")
    rows = list[Row]()
    for one in chosen[:_MOST_ROWS]:
        declined = Cell(count(one.declined), tone="worse" if one.declined else "")
        counts = count(one.curves), declined, count(one.undecided)
        rows.append((one.title, "lower" if one.lower else "higher", *counts, optional(one.correlation)))
    return Table(columns, tuple(rows), columns[2:])


def _row(curve: CurveVerdict, family: list[str], settings: list[str]) -> Row:
    labels = [*family, *(curve.settings.get(name, "") for name in settings)]
    if curve.declined is None:
        return Cell(curve.model, f"undecided: {curve.reason}", "quiet"), *labels, *["-"] * len(_COLUMNS)
    bend = Cell(_step(curve.change_step), f"{_step(curve.change_low)} to {_step(curve.change_high)}")
    return (
        _named(curve),
        *labels,
        Cell(optional(curve.peak), f"at {_step(curve.peak_step)}"),
        optional(curve.final),
        Cell(optional(curve.decline), _z(curve.decline_z)),
        optional(curve.visible),
        Cell(_chance(curve.p_alone), f"family {_chance(curve.p_holm)}"),
        bend if curve.declined or curve.declined_alone else "-",
    )


def _named(curve: CurveVerdict) -> Cell:
    if curve.declined:
        return Cell(curve.model, "declined", "worse")
    return Cell(curve.model, "declined, judged alone" if curve.declined_alone else "not shown")


def _chart(curve: CurveVerdict) -> Chart:
    peak = curve.steps.index(curve.peak_step) if curve.peak_step in curve.steps else 0
    tips = tuple(f"step {_step(step)}: {number(value)}" for step, value in zip(curve.steps, curve.values, strict=True))
    line = Curve(curve.model, curve.steps, curve.values, dots=True, tips=tips, marked=(peak,))
    marks, bands = tuple[Mark, ...](), tuple[tuple[float, float], ...]()
    if curve.change_step is not None:
        marks = (Mark(curve.change_step, label="bend"),)
        bands = ((curve.change_low or 0.0, curve.change_high or 0.0),)
    verdict = f"{optional(curve.peak)} at step {_step(curve.peak_step)}, {optional(curve.final)} at the end."
    name = " ".join(filter(None, (curve.model, curve.task, curve.metric, curve.suite, curve.shots)))
    drawn = Chart(name, curve.model, "step", curve.metric or "value", (line,), marks=marks, bands=bands)
    return replace(drawn, log_y=curve.logarithm, caption=verdict)


def _step(value: float | None) -> str:
    return optional(value, shown=lambda step: number(step, digits=6))


def _z(value: float | None) -> str:
    return "" if value is None else f"z {number(value)}"


def _chance(value: float | None) -> str:
    return optional(value, shown=lambda p: number(p, digits=2, most=2))
