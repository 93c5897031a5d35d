"""The record of a comparison: how several diagnoses differ from the first."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

from uncone.comparison.figures.record import compared_figures
from uncone.diagnosis.record import LABELS, LEVELS, WITHOUT_EFFECT, WITHOUT_EFFECT_REASON, Subject
from uncone.records.blocks import Blocks, Bullets, Cell, Folded, Heading, Row, Table, Text, Tone
from uncone.records.brief import part
from uncone.records.layout import named, numbers, section, shown
from uncone.records.parts import Level, Measurement
from uncone.records.rebuild import expect
from uncone.records.record import Record
from uncone.records.text import Limits, counted, number, optional, shortened, signed, title

MOST_COMPARED = 6  # more cannot be distinguished in one drawing
Part = Literal["measures", "without_effect", "tokens"]
PARTS: tuple[Part, ...] = ("measures", "tokens", "without_effect")
LETTERS = "ABCDEF"
_Readings = tuple[Measurement | None, ...]  # of all diagnoses
_TONES: dict[str, Tone] = {"better": "better", "worse": "worse"}
_MOVED = ("better", "worse", "changed", "neither")
_HEADINGS = {"measures": ("Measurements", ""), "tokens": ("Tokens by frequency", "")}
_HEADINGS["without_effect"] = WITHOUT_EFFECT, WITHOUT_EFFECT_REASON
LITTLE = "In brackets: small, or under a caution."
WORSE, BETTER = ("new", "grew"), ("gone", "shrank")
_WAYS = "Worse and better are for defects that appeared, grew, shrank or went away. Other readings changed, up or down."
_OFF = f"Off: the value minus the value of an isotropic cloud of the same size. {LITTLE} {_WAYS}"
_AGAINST_A = f"Arrows: compared with A. No arrow: small, unclear, or under a caution. {_WAYS}"


@part
class Change:
    """How one reading differs from the baseline's.

    `direction` is `worse` or `better` if the reading is the evidence of a defect that appeared or grew, shrank or went
    away; `equal` if the difference is rounding, `unclear` if its interval includes 0, and otherwise `changed`.
    """

    difference: float  # reading less baseline
    # `better`, `worse`, `changed`, `equal` or `unclear`; `neither` in older files
    direction: Literal["better", "worse", "changed", "equal", "unclear", "neither"]
    size: float  # share of the range, or of the larger reading where the range has no end
    meaningful: bool  # better, worse or changed, not small, and under no caution
    interval: tuple[float, float] | None = None  # of the difference


@part
class ComparedMeasure:
    """`cautions` list what other than the rows may have moved a number, or why it was not subtracted."""

    name: str  # see [measures](measures.md)
    better: Literal["higher", "lower", "neither"]  # `higher`, `lower` or `neither`
    values: tuple[float | None, ...]  # `null` if undefined or not measured
    distances: tuple[float | None, ...]  # value less isotropic reference
    # compared with the baseline; `null` for the baseline itself and if there is nothing to subtract
    changes: tuple[Change | None, ...]
    cautions: tuple[tuple[str, ...], ...]  # for each diagnosis

    def __post_init__(self) -> None:
        fit = len(self.values) == len(self.distances) == len(self.changes) == len(self.cautions)
        expect(fit, f"as many changes and cautions as values of {self.name!r}, got another number: edited?")


FindingChange = Literal["", "new", "grew", "gone", "shrank", "not_measured"]


@part
class ComparedFinding:
    cause: str  # as in the table of findings
    levels: tuple[Level | None, ...]  # its level in each diagnosis, `null` where it was not found
    # what became of a defect: `new`, `gone`, `grew` or `shrank`; `not_measured` if this diagnosis or the baseline did
    # not look for it; empty if it did not change, or is no defect
    changes: tuple[FindingChange, ...] = ()


@part
class ComparedSubject:
    name: str  # as in the diagnoses
    # what each diagnosis read, without the picture; `null` if it has no such subject
    sides: tuple[Subject | None, ...]
    measures: tuple[ComparedMeasure, ...]  # every measure that any side has
    findings: tuple[ComparedFinding, ...] = ()  # every cause that any side has
    without_effect: tuple[ComparedMeasure, ...] = ()  # of heads: raw readings that no probability depends on
    # readings of tokens by frequency as GROUP.READING, such as `rare.cosine_to_reserved`, and `under_trained_share`,
    # the share of tested rows that look untrained and were not known to
    tokens: tuple[ComparedMeasure, ...] = ()
    notes: tuple[str, ...] = ()  # what only some have, and sizes, bins or reserved rows that differ

    def __post_init__(self) -> None:
        n, findings = len(self.sides), self.findings
        lengths = {len(measure.values) for measure in (*self.measures, *self.without_effect, *self.tokens)}
        lengths |= {len(one.levels) for one in findings} | {len(one.changes) for one in findings if one.changes}
        expect(lengths <= {n}, f"{n} values of each measure of {self.name!r}, got another number: edited?")
        expect(any(self.sides), f"a side of {self.name!r} in one diagnosis at least, got none: edited?")

    @property
    def title(self) -> str:
        return next(side for side in self.sides if side is not None).title

    def lettered(self) -> list[tuple[str, int, Subject]]:
        """The sides that there are, with the letter and the place of each diagnosis."""
        return [(LETTERS[place], place, side) for place, side in enumerate(self.sides) if side is not None]

    def blocks(self, names: tuple[str, ...]) -> Blocks:
        sides = self.lettered()
        sizes = [f"{side.n:,} x {side.d:,}, {side.dtype}" for *_, side in sides]
        lettered = (f"{letter} {size}" for (letter, *_), size in zip(sides, sizes, strict=True))
        content = shown(
            section("Findings", Table(("finding", *LETTERS[: len(self.sides)]), _by_level(self))),
            compared_figures(sides, names),
            *(_measures(self, part) for part in PARTS),
        )
        return shown(
            Heading(self.title, 2, about=sizes[0] if len(set(sizes)) == 1 else "; ".join(lettered)),
            (Text(f"Note: {note}") for note in self.notes),
            content if len(sides) > 1 else Folded("The readings of the only diagnosis that has this subject", content),
        )

    def readings(self, name: str, *, part: Part = "measures") -> _Readings:
        """The measurement called `name` of each side."""
        taken = [() if side is None else taken_in(side, part) for side in self.sides]
        return tuple(next((one for one in side if one.name == name), None) for side in taken)


@part
class ComparedDiagnosis:
    name: str  # its name in this comparison
    verdict: str  # its own verdict
    versions: Mapping[str, str] = field(default_factory=dict)  # packages and their versions


@dataclass(frozen=True)
class Comparison(Record):
    """The result of `compare`."""

    READING: ClassVar[str] = (
        "A distance is a value minus the value of an isotropic cloud with the same number of rows and columns. "
        f"{LITTLE} Numbers are never rounded onto a limit they did not reach."
    )

    verdict: str  # a sentence for each diagnosis after the first
    diagnoses: tuple[ComparedDiagnosis, ...]  # two to six, the first is the baseline
    subjects: tuple[ComparedSubject, ...]  # the matrices
    notes: tuple[str, ...] = ()  # versions that differ, and whether nothing is shared
    intervals: str = ""  # how intervals of differences are computed

    def __post_init__(self) -> None:
        n = len(self.diagnoses)
        expect(2 <= n <= MOST_COMPARED, f"2 to {MOST_COMPARED} diagnoses to compare, got {n}")
        fit = all(len(subject.sides) == n for subject in self.subjects)
        expect(fit, f"{n} sides of each subject, got another number: edited?")

    @property
    def worse(self) -> bool:
        """Whether a defect appeared or grew after the baseline (`--fail-on worse`), whatever else improved."""
        return any("worse" in ways for ways in self._ways())

    @property
    def mixed(self) -> bool:
        """Whether defects appeared or grew, and in each such diagnosis others shrank or went away."""
        return self.worse and all("better" in ways for ways in self._ways() if "worse" in ways)

    def _ways(self) -> list[set[str]]:
        """For each diagnosis, whether its defects are better or worse than the baseline's."""
        changes = [f.changes for subject in self.subjects for f in subject.findings if f.changes]
        words = dict.fromkeys(WORSE, "worse") | dict.fromkeys(BETTER, "better")
        return [{words.get(of[place], "") for of in changes} for place in range(len(self.diagnoses))]

    @property
    def title(self) -> str:
        """The first two diagnoses, and how many more."""
        names = self._names()
        return " and ".join([*names[:2], *[f"{len(names) - 2} more"] * (len(names) > 2)])

    def to_rows(self) -> list[dict[str, Any]]:
        """One row for each measure and diagnosis."""
        return [
            {"subject": subject.name, "measure": measure.name, "part": table, "diagnosis": self.diagnoses[place].name}
            | {"value": measure.values[place], "distance": measure.distances[place]}
            | {name: change and getattr(change, name) for name in ("difference", "direction")}
            | dict(zip(("low", "high"), (change and change.interval) or (None, None), strict=True))
            for subject, table, measure in self._measures()
            for place, change in enumerate(measure.changes)
        ]

    def blocks(self) -> Blocks:
        names = self._names()
        tallies = ("baseline", *map(self._tally, range(1, len(names))))
        rows = tuple(zip(LETTERS, names, tallies, strict=False))
        verdicts = tuple(zip(LETTERS, (diagnosis.verdict for diagnosis in self.diagnoses), strict=False))
        made = (", ".join(map(" ".join, d.versions.items())) or "unknown" for d in self.diagnoses)
        versions = Bullets(tuple(map(": ".join, zip(LETTERS, made, strict=False))))
        changes = (change for *_, measure in self._measures() for change in measure.changes)
        has_interval = any(change is not None and change.interval is not None for change in changes)
        return shown(
            Heading(
                self.verdict, 1, *(("MIXED", "warning") if self.mixed else ("WORSE", "severe") if self.worse else ())
            ),
            Table(("", "diagnosis", "measures"), rows),
            Folded("The verdict and versions of each diagnosis", (Table(("", "verdict"), verdicts), versions)),
            *(named(one.blocks(names), one.name if place else "") for place, one in enumerate(self.subjects)),
            section("Notes", Bullets(self.notes), level=2),
            Text(self.intervals if has_interval else "", "quiet"),
        )

    def _names(self) -> tuple[str, ...]:
        return tuple(shortened(diagnosis.name) for diagnosis in self.diagnoses)

    def _measures(self) -> Iterator[tuple[ComparedSubject, Part, ComparedMeasure]]:
        for subject in self.subjects:
            for place in PARTS:
                yield from ((subject, place, measure) for measure in getattr(subject, place))

    def _tally(self, place: int) -> str:
        moved = [m.changes[place] for _, part, m in self._measures() if part != "without_effect"]
        there = [change for change in moved if change is not None]
        if not there:
            return ""
        ways = [f.changes[place] for subject in self.subjects for f in subject.findings if f.changes]
        worse, better = (sum(way in kind for way in ways) for kind in (WORSE, BETTER))
        of = f"{sum(change.meaningful for change in there)} of {counted(len(there), 'measure')} changed noticeably"
        return f"{counted(worse, 'defect')} worse, {better} better; {of}"


def taken_in(side: Subject, part: Part) -> tuple[Measurement, ...]:
    if part == "tokens":
        return side.token_measurements()
    return side.without_effect if part == "without_effect" else side.measurements


def _by_level(subject: ComparedSubject) -> tuple[Row, ...]:
    findings = [f for f in subject.findings if any(f.levels)]
    findings.sort(key=lambda f: min(LEVELS.index(level) for level in f.levels if level is not None))
    rows = list[Row]()
    for f in findings:
        levels = zip(f.levels, f.changes or [""] * len(f.levels), strict=True)
        cells = (
            Cell(LABELS[level].lower() if level else "-", change.replace("_", " "), level or "")
            for level, change in levels
        )
        rows.append((title(f.cause), *cells))
    return tuple(rows)


_Lines = list[tuple[str, ComparedMeasure, _Readings]]


def _measures(subject: ComparedSubject, part: Part) -> Blocks:
    measures: Sequence[ComparedMeasure] = getattr(subject, part)
    if not measures:
        return ()
    lines = [(_title(m.name, part), m, subject.readings(m.name, part=part)) for m in measures]
    heading, why = _HEADINGS[part]
    table, caption = (_pair_table, _OFF) if len(subject.sides) == 2 else (_wide_table, _AGAINST_A)
    meanings = []
    for words, m, readings in lines:
        definitions = [r.definition for r in readings if r and r.definition]
        meanings += [(words, Cell(m.name, tone="code"), said) for said in definitions[:1]]
    columns = ("measure", "name in files", "definition")
    return section(
        heading,
        Text(why, "lead"),
        table(subject, lines),
        Text(caption, "quiet"),
        Bullets(_remarks(subject, lines), "quiet"),
        Folded("What these measures are", shown(Table(columns, tuple(meanings)))),
    )


def _pair_table(subject: ComparedSubject, lines: _Lines) -> Table:
    pairs = [pair for _, m, _ in lines for pair in zip(m.distances, m.values, strict=True)]
    apart = any(distance not in (None, value) for distance, value in pairs)
    columns = ("measure", "A", "B", "B - A", "", "A off", "B off")[: 7 if apart else 5]
    rows: list[Row] = []
    for words, m, readings in lines:
        off = (optional(distance, shown=signed) for distance in m.distances)
        differs = (_difference(m.changes[1]), _direction(m.changes[1]))
        row: Row = (words, *_values(m, readings), *differs, *off)
        rows.append(row[: len(columns)])
    return Table(columns, tuple(rows), ("A", "B", "B - A", "A off", "B off"))


def _wide_table(subject: ComparedSubject, lines: _Lines) -> Table:
    first = f"isotropic, {subject.lettered()[0][0]}"
    columns = ("measure", first, *LETTERS[: len(subject.sides)])
    rows: list[Row] = []
    for words, m, readings in lines:
        reference = next((reading.reference for reading in readings if reading is not None), None)
        values = (
            replace(cell, text=f"{cell.text} {_arrow(change)}", tone=_TONES.get(change.direction, cell.tone))
            if change is not None and change.meaningful
            else cell
            for cell, change in zip(_values(m, readings), m.changes, strict=True)
        )
        rows.append((words, optional(reference), *values))
    return numbers(columns, rows)


def _values(measure: ComparedMeasure, readings: _Readings) -> list[Cell]:
    """The values; no value is rounded onto an end of the measure's range."""
    limits: Limits = next((r.range for r in readings if r is not None and r.value is not None), (None, None))
    cells = []
    for value, reading in zip(measure.values, readings, strict=True):
        interval = None if reading is None or value is None else reading.interval
        note = "" if interval is None else " to ".join(number(end, limits=limits) for end in interval)
        cells.append(Cell(optional(value, limits), note))
    return cells


def _difference(change: Change | None) -> Cell:
    """A difference no larger than rounding is `0`, with a tilde if it is not 0 to the bit."""
    if change is None:
        return Cell("-")
    interval = "" if change.interval is None else " to ".join(map(signed, change.interval))
    if change.direction == "equal":
        return Cell("~0" if change.difference else "0", interval)
    return Cell(signed(change.difference), interval, "strong")


def _direction(change: Change | None) -> Cell:
    """The words are in brackets if the change is small or under a caution."""
    if change is None:
        return Cell("")
    if change.direction not in _MOVED:
        return Cell(change.direction, tone="little")
    if not change.meaningful:
        return Cell(f"({_arrow(change)})", tone="little")
    word = "changed" if change.direction == "neither" else change.direction
    return Cell(f"{_arrow(change)} {word}", tone=_TONES.get(word, ""))


def _arrow(change: Change) -> str:
    return "↑" if change.difference > 0 else "↓"


def _remarks(subject: ComparedSubject, lines: _Lines) -> tuple[str, ...]:
    """Why a side has no number, its warnings and the cautions, each once."""
    by_words = dict[tuple[str, str], list[str]]()
    for name, measure, readings in lines:
        said = dict[str, str]()
        for place, (side, reading, change) in enumerate(zip(subject.sides, readings, measure.changes, strict=True)):
            unclear = change is not None and change.direction == "unclear"
            every = [*(reading.warnings if reading else ()), *measure.cautions[place]]
            every += ["the interval of the difference includes 0"] * unclear
            if reading is not None and reading.value is None:
                every.insert(0, f"undefined: {reading.reason}")
            elif side is not None and reading is None:  # no side: noted once, for the subject
                every.insert(0, "not measured")
            for words in every:
                said[words] = said.get(words, "") + LETTERS[place]
        for words, letters in said.items():
            by_words.setdefault((", ".join(letters), words), []).append(name)
    return tuple(f"{letters}: {words} [{'; '.join(names)}]" for (letters, words), names in by_words.items())


def _title(name: str, part: Part) -> str:
    """The title of a reading; for a group of tokens it names the group."""
    group, dot, last = name.partition(".")
    return f"{title(group)}: {title(last).lower()}" if dot and part == "tokens" else title(name)
