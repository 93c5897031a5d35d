"""One matrix over several diagnoses: how its numbers differ from the first one's, and how that is shown."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from uncone.errors import InputError
from uncone.records.blocks import Block, Bullets, Cell, Chart, Figure, Folded, Heading, Table, Text, Tone
from uncone.records.charts import (
    READINGS,
    bin_charts,
    bins_table,
    curve_of,
    drawable,
    has_norms,
    norms_outline,
    spectra,
    unit_of,
)
from uncone.records.parts import Measurement
from uncone.records.subject import LEVELS, WITHOUT_EFFECT, WITHOUT_EFFECT_REASON, Subject
from uncone.records.text import Limits, number, signed, title

Part = Literal["measures", "without_effect", "tokens"]
PARTS: tuple[Part, ...] = ("measures", "tokens", "without_effect")
"""The tables of a comparison."""
LETTERS = "ABCDEF"
_MARKS: dict[str, Tone] = {"better": "better", "worse": "worse"}
_SIGNS = {"better": "+", "worse": "-"}
_HEADINGS = {
    "measures": ("Measurements", ""), "tokens": ("Tokens by frequency", ""),
    "without_effect": (WITHOUT_EFFECT, WITHOUT_EFFECT_REASON),
}  # fmt: skip
LITTLE = "In brackets: little, or under a caution."


@dataclass(frozen=True)
class Change:
    """How one reading differs from the baseline's.

    `difference` is the reading less the baseline's. `direction` follows the measure's `better`; it is `equal`
    where the difference is no more than rounding, `unclear` where its interval holds 0, `neither` where
    neither end is better. `size` is the difference without its sign as a share of the measure's range, or of
    the larger reading where the range has no end. `meaningful` tells a better or worse that is not little and
    is under no caution. `interval` is that of the difference, None unless both readings have one.
    """

    difference: float
    direction: Literal["better", "worse", "equal", "unclear", "neither"]
    size: float
    meaningful: bool
    interval: tuple[float, float] | None = None


@dataclass(frozen=True)
class ComparedMeasure:
    """One measure over all diagnoses, in their order.

    `values` are None where the measure is undefined or was not taken. `distances` are value less isotropic
    reference. `changes` are None for the baseline and where there is nothing to subtract. `cautions` holds,
    for each diagnosis, what else than the rows may have moved the number, or why it was not subtracted.
    """

    name: str
    better: Literal["higher", "lower", "neither"]
    values: tuple[float | None, ...]
    distances: tuple[float | None, ...]
    changes: tuple[Change | None, ...]
    cautions: tuple[tuple[str, ...], ...]

    def __post_init__(self) -> None:
        if not len(self.values) == len(self.distances) == len(self.changes) == len(self.cautions):
            raise InputError(
                f"expected as many changes and cautions as values of {self.name!r}, got another number: edited?"
            )


@dataclass(frozen=True)
class ComparedFinding:
    """One cause over all diagnoses: its level in each, None where it was not found."""

    cause: str
    levels: tuple[Literal["healthy", "note", "warning", "severe"] | None, ...]


@dataclass(frozen=True)
class ComparedSubject:
    """One matrix over all diagnoses. `sides` holds what each read from it, without the picture; None where it
    has none."""

    name: str
    sides: tuple[Subject | None, ...]
    measures: tuple[ComparedMeasure, ...]
    findings: tuple[ComparedFinding, ...] = ()
    without_effect: tuple[ComparedMeasure, ...] = ()
    tokens: tuple[ComparedMeasure, ...] = ()
    """Readings of groups of tokens by frequency, called GROUP.READING, and the share that looks untrained."""
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        parts = [measure.values for measure in (*self.measures, *self.without_effect, *self.tokens)]
        if any(
            len(part) != len(self.sides) for part in [*parts, *(finding.levels for finding in self.findings)]
        ):
            raise InputError(
                f"expected {len(self.sides)} values of each measure of {self.name!r}, got another number: edited?"
            )

    @property
    def title(self) -> str:
        """The matrix in words."""
        return next(side for side in self.sides if side is not None).title

    def lettered(self) -> list[tuple[int, Subject]]:
        """The sides that there are, each with the place of its diagnosis."""
        return [(place, side) for place, side in enumerate(self.sides) if side is not None]

    def blocks(self, names: tuple[str, ...]) -> Iterator[Block]:
        """Findings, drawings over each other, and tables; `names` are those of the diagnoses."""
        sides = self.lettered()
        sizes = {LETTERS[place]: f"{side.n:,} x {side.d:,}, {side.dtype}" for place, side in sides}
        alike = len(set(sizes.values())) == 1
        about = (
            next(iter(sizes.values()))
            if alike
            else "; ".join(f"{letter} {size}" for letter, size in sizes.items())
        )
        yield Heading(self.title, 2, about=about)
        yield from (Text(f"Note: {note}") for note in self.notes)
        if len(sides) < 2:
            yield Folded("The readings of the one diagnosis that has it", tuple(self._content(names)))
        else:
            yield from self._content(names)

    def _content(self, names: tuple[str, ...]) -> Iterator[Block]:
        findings = _by_level(self)
        if findings:
            yield Heading("Findings")
            yield Table(("finding", *LETTERS[: len(self.sides)]), findings)
        yield from _figures(self, names)
        for part in PARTS:
            yield from _measures(self, part)

    def readings(self, name: str, *, part: Part = "measures") -> tuple[Measurement | None, ...]:
        """The measurement called `name` of each side, with its interval, reference and warnings; None where
        not taken."""
        return tuple(None if side is None else _taken(side, name, part) for side in self.sides)


def taken_in(side: Subject, part: Part) -> tuple[Measurement, ...]:
    """The measurements of a subject that belong to one table of its comparison."""
    if part == "tokens":
        return side.token_measurements()
    return side.without_effect if part == "without_effect" else side.measurements


def _taken(side: Subject, name: str, part: Part) -> Measurement | None:
    return next((measurement for measurement in taken_in(side, part) if measurement.name == name), None)


def _by_level(subject: ComparedSubject) -> tuple[tuple[str | Cell, ...], ...]:
    """Causes with their levels, the worst first."""
    found = [finding for finding in subject.findings if any(finding.levels)]
    found.sort(key=lambda finding: min(LEVELS.index(level) for level in finding.levels if level is not None))
    return tuple(
        (title(f.cause), *(Cell(level, tone=level) if level else "-" for level in f.levels)) for f in found
    )


def _measures(subject: ComparedSubject, part: Part) -> Iterator[Block]:
    measures: Sequence[ComparedMeasure] = getattr(subject, part)
    if not measures:
        return
    heading, why = _HEADINGS[part]
    yield Heading(heading)
    if why:
        yield Text(why, "lead")
    yield (
        _pair_table(subject, measures, part)
        if len(subject.sides) == 2
        else _wide_table(subject, measures, part)
    )
    if len(subject.sides) == 2:
        yield Text(f"Off: the value less what an isotropic cloud of the same size has. {LITTLE}", "quiet")
    else:
        yield Text("Against A: + better, - worse; no mark: little, unclear, or under a caution.", "quiet")
    remarks = tuple(
        f"{letters}: {words} [{'; '.join(names)}]"
        for letters, words, names in _remarks(subject, measures, part)
    )
    if remarks:
        yield Bullets(remarks, "quiet")
    known = (
        (
            m.name,
            [r.definition for r in subject.readings(m.name, part=part) if r is not None and r.definition],
        )
        for m in measures
    )
    meanings = tuple(
        (_title(name, part), Cell(name, tone="code"), definitions[0])
        for name, definitions in known
        if definitions
    )
    if meanings:
        yield Folded(
            "What these measures are", (Table(("measure", "name in files", "definition"), meanings),)
        )


def _pair_table(subject: ComparedSubject, measures: Sequence[ComparedMeasure], part: Part) -> Table:
    """Two diagnoses: values, difference with its interval, and the distances to the isotropic value unless
    that is 0."""
    apart = any(
        distance not in (None, value)
        for m in measures
        for distance, value in zip(m.distances, m.values, strict=True)
    )
    columns = ("measure", "A", "B", "B - A", "", "A off", "B off")[: 7 if apart else 5]
    rows: list[tuple[str | Cell, ...]] = []
    for m in measures:
        change = m.changes[1]
        off = ("-" if distance is None else signed(distance) for distance in m.distances)
        cells: tuple[str | Cell, ...] = (
            _title(m.name, part),
            *_values(subject, m, part),
            _difference(change),
            _direction(change),
            *off,
        )
        rows.append(cells[: len(columns)])
    return Table(columns, tuple(rows), ("A", "B", "B - A", "A off", "B off"))


def _wide_table(subject: ComparedSubject, measures: Sequence[ComparedMeasure], part: Part) -> Table:
    """More than two: values, each with its direction against A."""
    first = f"isotropic, {LETTERS[subject.lettered()[0][0]]}"
    columns = ("measure", first, *LETTERS[: len(subject.sides)])
    rows: list[tuple[str | Cell, ...]] = []
    for m in measures:
        readings = subject.readings(m.name, part=part)
        reference = next((reading.reference for reading in readings if reading is not None), None)
        values = (
            replace(cell, text=f"{cell.text} {_SIGNS.get(_direction(change).text, ' ')}")
            for cell, change in zip(_values(subject, m, part), m.changes, strict=True)
        )
        rows.append((_title(m.name, part), "-" if reference is None else number(reference), *values))
    return Table(columns, tuple(rows), columns[1:])


def _values(subject: ComparedSubject, measure: ComparedMeasure, part: Part) -> list[Cell]:
    """The values with their intervals, none rounded onto an end of the measure's range."""
    readings = subject.readings(measure.name, part=part)
    limits: Limits = next((r.range for r in readings if r is not None and r.value is not None), (None, None))
    cells = []
    for value, reading in zip(measure.values, readings, strict=True):
        interval = None if reading is None or value is None else reading.interval
        note = "" if interval is None else " to ".join(number(end, limits=limits) for end in interval)
        cells.append(Cell("-" if value is None else number(value, limits=limits), note))
    return cells


def _difference(change: Change | None) -> Cell:
    """A difference with its sign; one no larger than rounding is `0`, with a tilde where it is not 0 to the
    bit."""
    if change is None:
        return Cell("-")
    interval = "" if change.interval is None else " to ".join(map(signed, change.interval))
    if change.direction == "equal":
        return Cell("~0" if change.difference else "0", interval)
    return Cell(signed(change.difference), interval, "strong")


def _direction(change: Change | None) -> Cell:
    """The direction as one word, in brackets where it is little or under a caution; empty where there is
    none."""
    if change is None or change.direction == "neither":
        return Cell("")
    if change.direction in _MARKS and not change.meaningful:
        return Cell(f"({change.direction})", tone="little")
    return Cell(change.direction, tone=_MARKS.get(change.direction, "little"))


def _remarks(
    subject: ComparedSubject, measures: Sequence[ComparedMeasure], part: Part
) -> list[tuple[str, str, list[str]]]:
    """(letters, words, measures): why a side has no number, its warnings and the cautions, each said once for
    all measures."""
    by_words = dict[tuple[str, str], list[str]]()
    for measure in measures:
        said = dict[str, str]()
        readings = subject.readings(measure.name, part=part)
        for place, (side, reading) in enumerate(zip(subject.sides, readings, strict=True)):
            change = measure.changes[place]
            unclear = change is not None and change.direction == "unclear"
            for words in (
                *_missing(side, reading), *(reading.warnings if reading is not None else ()), *measure.cautions[place],
                *(["the interval of the difference holds 0"] if unclear else []),
            ):  # fmt: skip
                said[words] = said.get(words, "") + LETTERS[place]
        for words, letters in said.items():
            by_words.setdefault((", ".join(letters), words), []).append(_title(measure.name, part))
    return [(letters, words, names) for (letters, words), names in by_words.items()]


def _missing(side: Subject | None, reading: Measurement | None) -> list[str]:
    if side is None:
        return []  # said once, of the subject
    if reading is None:
        return ["not taken"]
    return [f"undefined: {reading.reason}"] if reading.value is None else []


def _title(name: str, part: Part) -> str:
    """A measure in words: a reading of a group of tokens says which group."""
    group, dot, last = name.partition(".")
    return f"{title(group)}: {title(last).lower()}" if dot and part == "tokens" else title(name)


def _figures(subject: ComparedSubject, names: tuple[str, ...]) -> Iterator[Block]:
    """The curves of all diagnoses over each other."""
    sides = subject.lettered()
    legend = tuple((f"d{place}", f"{LETTERS[place]} {names[place]}") for place, _ in sides)
    shapes = tuple(
        chart for chart in (_spectra(subject, "raw"), _spectra(subject, "centered"), _norms(subject)) if chart
    )
    binned = [
        (place, side.groups.bins) for place, side in sides if side.groups is not None and side.groups.bins
    ]
    panels = tuple(bin_charts([(LETTERS[place], f"d{place}", bins) for place, bins in binned]))
    if panels:
        first, last = binned[0][1][0].start, binned[0][1][-1].stop - 1
        spark = (
            f"By row id, from {first:,} to {last:,}, one scale for each reading:" if len(binned) > 1 else ""
        )
        yield Figure("By row id", panels, "Dashed: what an isotropic cloud gives.", legend, spark)
        letters = tuple(LETTERS[place] for place, _ in binned)
        numbers = [(place, bins_table([bins for _, bins in binned], place)) for place in range(len(READINGS))]
        tables = tuple(
            Table(("ids", *letters), tuple(rows), letters, READINGS[place][1])
            for place, rows in numbers
            if rows
        )
        yield Folded("The numbers behind this figure", tables)
    if shapes:
        caption = (
            "The flatter a spectrum, the evener the cloud. Dotted: an isotropic cloud of the first one's size and trace. "
            "Norms are shares of the rows of each diagnosis, whatever their number."
        )
        yield Figure("Spectra and norms", shapes, caption, legend)


def _spectra(subject: ComparedSubject, field: Literal["raw", "centered"]) -> Chart | None:
    sides = [(place, side.spectrum) for place, side in subject.lettered() if side.spectrum is not None]
    kept = [(place, drawable(getattr(spectrum, field))) for place, spectrum in sides]
    kept = [(place, values) for place, values in kept if len(values) > 1]
    if not kept:
        return None
    curves = [curve_of(values, LETTERS[place], f"d{place}") for place, values in kept]
    isotropic = drawable(sides[0][1].isotropic) if field == "centered" else []
    if len(isotropic) > 1:
        curves.insert(0, curve_of(isotropic, "isotropic", "even"))
    caption = (
        "Largest eigenvalue: "
        + "; ".join(f"{LETTERS[place]} {number(values[0])}" for place, values in kept)
        + "."
    )
    how = "as stored" if field == "raw" else "mean row subtracted"
    return spectra("spectrum" if field == "raw" else "spectrum centred", f"Spectrum, {how}", curves, caption)


def _norms(subject: ComparedSubject) -> Chart | None:
    sides = [
        (place, side.norms)
        for place, side in subject.lettered()
        if side.norms is not None and has_norms(side.norms)
    ]
    if not sides:
        return None
    unit = unit_of([norms for _, norms in sides])
    curves = tuple(norms_outline(norms, unit, LETTERS[place], f"d{place}") for place, norms in sides)
    caption = (
        "Mean norm: " + "; ".join(f"{LETTERS[place]} {number(norms.mean)}" for place, norms in sides) + "."
    )
    y_label = f"% of rows per {number(unit, digits=2)} of norm"
    return Chart("norms", "Norms", "Euclidean norm (embedding units)", y_label, curves, caption=caption)
