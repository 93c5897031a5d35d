"""What the terminal and the page of a comparison say alike: letters, changes and remarks in words."""

from collections.abc import Sequence

from uncone.records import Change, ComparedMeasure, ComparedSubject, Comparison, Measurement, Subject, Table
from uncone.records.text import number, title
from uncone.records.wording import counted
from uncone.report.findings import LEVELS
from uncone.report.provenance import subject_title

LETTERS = "ABCDEF"
MARKS = {"better": "+", "worse": "-"}
LITTLE = "In brackets: little, or under a caution."
READING = "Distances are values less what an isotropic cloud of the same number of rows and columns gives."


def title_of(subject: ComparedSubject) -> str:
    """The subject in words."""
    return subject_title(first_side(subject))


def first_side(subject: ComparedSubject) -> Subject:
    """What the first diagnosis that has this subject read from it."""
    return next(side for side in subject.sides if side is not None)


def measure_title(name: str, table: Table) -> str:
    """A measure in words: a reading of a group of tokens says which group."""
    group, dot, last = name.partition(".")
    return f"{title(group)}: {title(last).lower()}" if dot and table == "tokens" else title(name)


def lettered(subject: ComparedSubject) -> list[tuple[str, Subject]]:
    """The sides that there are, each with the letter of its diagnosis."""
    return [(letter, side) for letter, side in zip(LETTERS, subject.sides, strict=False) if side is not None]


def limits_of(readings: Sequence[Measurement | None]) -> tuple[float | None, float | None]:
    """The range whose ends numbers of a measure are not rounded onto: of the first reading that has a value."""
    return next(
        (reading.range for reading in readings if reading is not None and reading.value is not None),
        (None, None),
    )


def signed(value: float, separator: str) -> str:
    """A difference with its sign."""
    shown = number(value, separator=separator)
    return shown if value <= 0 or shown.startswith((">", "<")) else f"+{shown}"


def difference_words(change: Change, separator: str) -> str:
    """A difference with its sign; what is no more than rounding is `0`, with a tilde where it is not 0 to the bit."""
    if change.direction == "equal":
        return "~0" if change.difference else "0"
    return signed(change.difference, separator)


def tally(comparison: Comparison, order: int) -> str:
    """How many measures of the diagnosis at `order` went which way beyond little; empty where none has a direction."""
    changes = [
        m.changes[order] for subject in comparison.subjects for m in subject.measures if m.better != "neither"
    ]
    there = [change for change in changes if change is not None]
    ways = [change.direction for change in there if change.meaningful]
    rest = f", {len(there) - len(ways)} little changed or under a caution" if len(ways) < len(there) else ""
    return (
        f"{ways.count('worse')} worse, {ways.count('better')} better of {counted(len(there), 'measure')}{rest}"
        if there
        else ""
    )


def remarks(subject: ComparedSubject, measure: ComparedMeasure, *, table: Table) -> list[tuple[str, str]]:
    """(letters, words): why a side has no number, what was warned of there, and the cautions; the same words once."""
    said = dict[str, str]()
    for letter, side, reading, change, cautions in zip(
        LETTERS, subject.sides, subject.readings(measure.name, table=table), measure.changes,
        measure.cautions, strict=False,
    ):  # fmt: skip
        for words in (
            *_missing(side, reading),
            *(reading.warnings if reading is not None else ()),
            *cautions,
        ):
            said[words] = said.get(words, "") + letter
        if change is not None and change.direction == "unclear":
            said["the interval of the difference holds 0"] = (
                said.get("the interval of the difference holds 0", "") + letter
            )
    return [(", ".join(letters), words) for words, letters in said.items()]


def _missing(side: Subject | None, reading: Measurement | None) -> list[str]:
    if side is None:
        return []  # said once, of the subject
    if reading is None:
        return ["not taken"]
    return [f"undefined: {reading.reason}"] if reading.value is None else []


def change_words(change: Change | None) -> str:
    """The direction as one word, in brackets where it is little or under a caution; empty where there is none."""
    if change is None or change.direction == "neither":
        return ""
    return (
        f"({change.direction})" if change.direction in MARKS and not change.meaningful else change.direction
    )


def grouped_remarks(
    subject: ComparedSubject, measures: Sequence[ComparedMeasure], *, table: Table
) -> list[tuple[str, str, list[str]]]:
    """(letters, words, measures): the remarks on several measures, each said once."""
    found = dict[tuple[str, str], list[str]]()
    for measure in measures:
        for remark in remarks(subject, measure, table=table):
            found.setdefault(remark, []).append(measure_title(measure.name, table))
    return [(letters, words, names) for (letters, words), names in found.items()]


def level_order(subject: ComparedSubject) -> list[tuple[str, tuple[str | None, ...]]]:
    """Causes in words with their levels, the worst first; `healthy` last."""
    worst = [
        (min(LEVELS.index(level) for level in f.levels if level is not None), f)
        for f in subject.findings
        if any(f.levels)
    ]
    ordered = [finding for _, finding in sorted(worst, key=lambda pair: pair[0])]
    return [(title(finding.cause), tuple(finding.levels)) for finding in ordered]
