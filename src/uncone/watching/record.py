"""The record of watched runs: their readings over the steps, their warnings, and how they compare."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from uncone.records.blocks import (
    Blocks,
    Bullets,
    Cell,
    Chart,
    Curve,
    Document,
    Figure,
    Folded,
    Heading,
    Mark,
    Row,
    Table,
    Text,
)
from uncone.records.brief import part
from uncone.records.layout import section, shown
from uncone.records.rebuild import expect
from uncone.records.record import Record, made_with
from uncone.records.text import count, counted, number, optional, shortened, signed

MOST_WATCHED = 6
JUDGED = (
    12,
    200,
)  # records and steps from which rules judge: ten increments, and past the turns at every training's start
LOSSES = ("loss.cross_entropy", "cross_entropy", "loss.loss", "loss", "eval_loss")
"""Names of the loss, the plain one first."""
_FIRST = ("mean_cosine", "effective_rank", "sample_rank", "norm_largest", "dead", "participation_ratio")
_THEN = ("mean_share", "norm_median")
_LOSS_AT = 2.5  # the place of the plain loss among them
_COUNTS = ("n", "rows", "targets")  # need no chart
_OPEN, _MOST_CHARTS, _MOST_ROWS, _IN_TABLE = 12, 36, 60, 16
_IN_TERMINAL = (8, 2)  # charts of the geometry and of losses that a terminal shows
_LETTERS = "ABCDEF"
_LATEST = 4  # warnings that a live view keeps
_WIDE = 100.0  # times the least value: a logarithmic axis


@part
class Reading:
    name: str  # as in the file, for instance `head.mean_cosine`
    steps: tuple[int, ...]  # optimiser steps; of a long run every second, fourth, ... record, and the last
    values: tuple[float, ...]  # as many

    def __post_init__(self) -> None:
        came = f"{len(self.steps)} and {len(self.values)}: the file was cut or edited"
        expect(len(self.steps) == len(self.values) > 0, f"as many steps as values, at least one, got {came}")

    def at(self, step: int) -> float | None:
        """The last value up to this step."""
        known = [value for one, value in zip(self.steps, self.values, strict=True) if one <= step]
        return known[-1] if known else None

    @property
    def key(self) -> tuple[str, str]:
        """The part and the reading, without the group."""
        first, *_ = names = self.name.split(".")
        return (first if len(names) > 1 else "", names[-1])

    @property
    def group(self) -> str:
        """The group of tokens; empty for all rows."""
        return ".".join(self.name.split(".")[1:-1])

    @property
    def is_loss(self) -> bool:
        return self.name in LOSSES or self.key[0] == "loss"


@part
class RunWarning:
    step: int  # the record's
    rule: str  # which rule warned
    name: str  # of the reading
    text: str  # what happened and what to look at

    @property
    def event(self) -> str:
        """The first sentence."""
        return self.text.partition(". ")[0].rstrip(".") + "."

    @property
    def advice(self) -> str:
        """The sentences after it."""
        return self.text.partition(". ")[2]


@part
class Run:
    name: str  # the name of its file or folder
    file: str  # the file's name
    readings: tuple[Reading, ...] = ()  # in the order of the file
    warnings: tuple[RunWarning, ...] = ()  # in the order of the steps, at most 1,000
    model: str = ""  # what was trained, as the file says
    every: int | None = None  # steps from one record to the next, as the file says
    first_step: int | None = None  # of the records
    last_step: int | None = None  # of the records
    records: int = 0  # how many, without warnings
    steps_per_second: float | None = None  # over the last 20 records
    last_time: float | None = None  # seconds since the epoch at the last record
    notes: tuple[str, ...] = ()  # lines that could not be read, and what was left out

    @property
    def loss(self) -> Reading | None:
        """The plain cross-entropy if the file has it, otherwise the loss that was minimised."""
        by_name = {one.name: one for one in self.readings}
        return next((by_name[name] for name in LOSSES if name in by_name), None)

    @property
    def has_geometry(self) -> bool:
        return any(one.key[0] in ("table", "head", "states") for one in self.readings)

    @property
    def is_judged(self) -> bool:
        """Whether the run is long enough for rules, and has the readings they follow."""
        steps = (self.last_step or 0) - (self.first_step or 0)
        return self.has_geometry and self.records >= JUDGED[0] and steps >= JUDGED[1]

    def warned(self, *, loss: bool) -> RunWarning | None:
        """The first warning about the loss, or about anything else."""
        return next((one for one in self.warnings if (one.rule == "loss") is loss), None)


@dataclass(frozen=True)
class Watch(Record):
    """The result of `watch`."""

    HOW: ClassVar[str] = "uncone watch RUN... --json F"
    READING: ClassVar[str] = (
        "A rule compares a reading with its own past, from the twelfth record on, after 200 steps. The absence of "
        "warnings does not prove health: a rule cannot see an earlier collapse, or one as slow as its usual drift."
    )

    verdict: str  # one sentence
    runs: tuple[Run, ...]  # one to six
    common_step: int | None = None  # the last step that all runs have reached, if there are several
    versions: Mapping[str, str] = field(default_factory=dict)  # packages and their versions

    def __post_init__(self) -> None:
        expect(1 <= len(self.runs) <= MOST_WATCHED, f"one to {MOST_WATCHED} runs, got {len(self.runs)}: edited?")

    @property
    def title(self) -> str:
        """The first two runs, and how many more."""
        names = self._names()
        return " and ".join([*names[:2], *[f"{len(names) - 2} more"] * (len(names) > 2)])

    @property
    def name(self) -> str:
        return self.title

    @property
    def worse(self) -> bool:
        """Whether a later run has a warning by a rule that did not warn about the first run (`compare`)."""
        first, *others = ({one.rule for one in run.warnings} for run in self.runs)
        return any(rules - first for rules in others)

    def to_rows(self) -> list[dict[str, Any]]:
        """One row for each run, reading and step."""
        return [
            {"run": run.name, "reading": one.name, "step": step, "value": value}
            for run in self.runs
            for one in run.readings
            for step, value in zip(one.steps, one.values, strict=True)
        ]

    def blocks(self) -> Blocks:
        warned = any(run.warnings for run in self.runs)
        judged = any(run.is_judged for run in self.runs)
        label = "WARNED" if warned else "NO WARNING" if judged else "NOT JUDGED"
        return shown(
            Heading(self.verdict, 1, label, "warning" if warned else "note"),
            (Text(line, "quiet") for line in self._facts()),
            section("Warnings", self._warnings()),
            section("Readings", self._readings(), self._others()),
            self._figures(),
            section("Notes", Bullets(tuple(f"{run.name}: {note}." for run in self.runs for note in run.notes))),
            Text(made_with(self.versions), "quiet"),
        )

    def live(self, now: float, trouble: str = "") -> Document:
        """What fits a terminal during the runs. `now`: seconds since the epoch; `trouble`: why nothing is new."""
        every = [(one.step, run.name, one.event) for run in self.runs for one in run.warnings]
        latest = tuple(f"{shortened(name)}: {event}" for _, name, event in sorted(every)[-_LATEST:])
        facts = [
            line if run.last_time is None else f"{line}, last record {_ago(now - run.last_time)}"
            for line, run in zip(self._facts(), self.runs, strict=True)
        ]
        said = [Text(f"Waiting: {trouble}.", "caution")] if trouble else []
        blocks = shown(
            self.blocks()[:1], said, (Text(line, "quiet") for line in facts), Bullets(latest), self._figures()
        )
        return Document(self.title, self.KIND, blocks)

    def _figures(self) -> Iterator[Figure | Folded]:
        charts = tuple(self._charts())
        geometry, losses = (tuple(chart for chart, is_loss in charts if is_loss is loss) for loss in (False, True))
        legend = tuple((f"d{i}", self._lettered(i)) for i in range(len(self.runs))) if len(self.runs) > 1 else ()
        dashed = ("Dashed: a rule warned.", "Dashed: the first warning about the geometry.")
        warned = any(run.warnings for run in self.runs)
        titles = ("Geometry over training", "Loss under the geometry")
        for title, some, said, spark in zip(
            titles, (geometry, losses), dashed, ("Over training:", "Loss:"), strict=True
        ):
            said = said if warned else ""
            yield Figure(title, some[:_OPEN], said, legend, spark)
            if rest := some[_OPEN:_MOST_CHARTS]:
                yield Folded(f"{counted(len(rest), 'more chart')}", (Figure("", rest, said, legend),))

    def _names(self) -> tuple[str, ...]:
        return tuple(shortened(run.name) for run in self.runs)

    def _lettered(self, place: int) -> str:
        return f"{_LETTERS[place]} {self._names()[place]}"

    def _facts(self) -> Iterator[str]:
        for place, run in enumerate(self.runs):
            name = self._lettered(place) if len(self.runs) > 1 else ""
            model = shortened(run.model)
            step = "" if run.last_step is None else f"step {count(run.last_step)}"
            speed = "" if run.steps_per_second is None else f"{number(run.steps_per_second)} steps per second"
            every = "" if run.every is None else f"every {count(run.every)} steps"
            records = f"{counted(run.records, 'record')} {every}".strip()
            yield ": ".join(filter(None, [name, ", ".join(filter(None, [model, step, records, speed]))]))

    def _warnings(self) -> Iterator[Table | Bullets]:
        """What happened, one row per warning, then the advice of each rule once."""
        every = [(place, one) for place, run in enumerate(self.runs) for one in run.warnings]
        columns = ("step", "rule", "what happened")
        rows = list[Row]()
        for place, one in every[:_MOST_ROWS]:
            row: Row = (count(one.step), Cell(one.rule.replace("_", " "), tone="worse"), one.event)
            rows.append(row if len(self.runs) == 1 else (_LETTERS[place], *row))
        if rows:
            yield Table(columns if len(self.runs) == 1 else ("run", *columns), tuple(rows), ("step",))
            yield Bullets(tuple(dict.fromkeys(one.advice for _, one in every if one.advice)))

    def _keys(self) -> list[tuple[str, str]]:
        """Parts and readings: first those with warnings, then those that rules follow, the plain loss, and the others;
        without readings of a table that equal the head's, as happens when the two are one matrix."""
        twice = self._twice()
        keys = dict.fromkeys(one.key for run in self.runs for one in run.readings if one.name not in twice)
        readings = [one for run in self.runs for one in run.readings]
        warned = {(i, one.name) for i, run in enumerate(self.runs) for one in run.warnings}
        first = {one.key for i, run in enumerate(self.runs) for one in run.readings if (i, one.name) in warned}
        order = (*_FIRST, *_THEN)
        rank: dict[tuple[str, str], float] = {key: order.index(key[1]) for key in keys if key[1] in order}
        rank |= {one.key: _LOSS_AT for one in readings if one.name == LOSSES[0]} | dict.fromkeys(first, -1)
        return sorted(keys, key=lambda key: rank.get(key, len(order)))

    def _twice(self) -> set[str]:
        found = set[str]()
        for run in self.runs:
            values = {one.name: (one.steps, one.values) for one in run.readings}
            of = {name: f"head.{name.removeprefix('table.')}" for name in values if name.startswith("table.")}
            same = {name for name, head in of.items() if values.get(head) == values[name]}
            found = same if run is self.runs[0] else found & same
        return found

    def _ordered(self) -> list[str]:
        order, twice = {key: place for place, key in enumerate(self._keys())}, self._twice()
        names = {one.name: one.key for run in self.runs for one in run.readings if one.name not in twice}
        return sorted(names, key=lambda name: (name.count(".") > 1, order[names[name]]))

    def _table(self, names: Sequence[str]) -> Table | None:
        if len(self.runs) == 1:
            columns = ("reading", "first", "last", "least", "greatest")
            by_name = {one.name: one for one in self.runs[0].readings}
            rows = tuple(_row(by_name[name]) for name in names)
        else:
            step = self.common_step or 0
            columns = ("reading", *_LETTERS[: len(self.runs)], *["B - A"] * (len(self.runs) == 2))
            rows = tuple(_compared(name, self.runs, step) for name in names)
        return Table(columns, rows, columns[1:]) if rows else None

    def _readings(self) -> Iterator[Text | Table]:
        """The first readings, which rules follow; for several runs at the step that all have reached."""
        if len(self.runs) > 1 and self.common_step is not None:
            at = f"At step {count(self.common_step)}, the last that all runs have reached. "
            yield Text(f"{at}Each column is one run, and another seed would differ too.", "quiet")
        if self._twice():
            yield Text("Readings of the table that are the same as the head's are shown once.", "quiet")
        if table := self._table(self._ordered()[:_IN_TABLE]):
            yield table

    def _others(self) -> Iterator[Folded]:
        rest = self._ordered()[_IN_TABLE:]
        if table := self._table(rest[: 4 * _MOST_ROWS]):
            yield Folded(f"{counted(len(rest), 'more reading')}", (table,))

    def _charts(self) -> Iterator[tuple[Chart, bool]]:
        """One chart per name for several runs; for one run a chart per part and reading, then one with its groups."""
        several, twice = len(self.runs) > 1, self._twice()
        every = [(i, one) for i, run in enumerate(self.runs) for one in run.readings if one.name not in twice]
        of = dict[Any, list[tuple[int, Reading]]]()
        for i, one in every:
            of.setdefault(one.name if several else (one.key, bool(one.group)), []).append((i, one))
        parts = [(key, grouped) for grouped in (False, True) for key in self._keys()]
        drawn = {False: 0, True: 0}  # whether it is a loss
        for place in self._ordered() if several else parts:
            found = of.get(place, [])[:MOST_WATCHED]
            if any(value for _, one in found for value in one.values if one.key[1] not in _COUNTS):  # not a line at 0
                is_loss, is_whole = found[0][1].is_loss, several or not found[0][1].group
                drawn[is_loss] += is_whole
                yield self._chart(found, in_terminal=is_whole and drawn[is_loss] <= _IN_TERMINAL[is_loss]), is_loss

    def _chart(self, found: Sequence[tuple[int, Reading]], *, in_terminal: bool) -> Chart:
        several, first = len(self.runs) > 1, found[0][1]
        title = _title(first) if several else _words(first) + " by group" * bool(first.group)
        lines = [(_LETTERS[i], i) if several else (one.group or "all", place) for place, (i, one) in enumerate(found)]
        curves = tuple(
            Curve(name, one.steps, one.values, f"d{style}")
            for (name, style), (_, one) in zip(lines, found, strict=True)
        )
        values = [value for _, one in found for value in one.values]
        dashes = ("solid", "dashed", "dotted", "dash-dotted", "long dashes", "dashes and dots")
        named = ", ".join(f"{name} ({dash})" for (name, _), dash in zip(lines, dashes, strict=False))
        return Chart(
            first.name,
            title,
            "step",
            "",
            curves,
            marks=tuple(Mark(float(step)) for step in self._marked(found, is_loss=first.is_loss)),
            log_y=0 < _WIDE * min(values) < max(values) > 10,
            x_limits=(0.0, float(max(1, *(step for run in self.runs for one in run.readings for step in one.steps)))),
            caption=f"{named}." if not several and first.group else "",
            spark=self._spark(title, first) if in_terminal else "",
        )

    def _spark(self, title: str, reading: Reading) -> str:
        """The label of a sparkline; for one run with the last value."""
        return f"{shortened(title, 19):<20}" + (f"{number(reading.values[-1]):>8}  " if len(self.runs) == 1 else "")

    def _marked(self, found: Sequence[tuple[int, Reading]], *, is_loss: bool) -> list[int]:
        """Where rules warned of these readings; under a loss, where the geometry warned first."""
        if is_loss:
            first = (run.warned(loss=False) for run in self.runs)
            return sorted({one.step for one in first if one is not None})
        of = {(i, one.name) for i, one in found}
        steps = {one.step for i, run in enumerate(self.runs) for one in run.warnings if (i, one.name) in of}
        return sorted(steps)[:MOST_WATCHED]


def _ago(seconds: float) -> str:
    for unit, size in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{count(int(seconds // size))} {unit} ago"
    return f"{max(0, round(seconds))} s ago"


def _words(reading: Reading) -> str:
    part, last = reading.key
    words = f"{'' if part == 'loss' else part} {last}".replace("_", " ").replace("effective rank", "eff. rank")
    return shortened(words.strip())


def _title(reading: Reading) -> str:
    return f"{_words(reading)} ({shortened(reading.group)})" if reading.group else _words(reading)


def _row(reading: Reading) -> Row:
    values = reading.values
    return (_title(reading), *map(number, (values[0], values[-1], min(values), max(values))))


def _compared(name: str, runs: Sequence[Run], step: int) -> Row:
    found = [next((one for one in run.readings if one.name == name), None) for run in runs]
    values = [None if one is None else one.at(step) for one in found]
    title = _title(next(one for one in found if one is not None))
    a, b = values[:2]
    differs = () if len(runs) > 2 else ("-" if a is None or b is None else signed(b - a),)
    return (title, *map(optional, values), *differs)
