"""`compare`: the diagnoses side by side, matched by the names of their subjects and measures.

The module is not called `compare`: importing it would then hide the function of that name in the package.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from uncone.comparison.cautions import Measured
from uncone.comparison.changes import INTERVALS, compare_measure
from uncone.comparison.verdict import give_verdict
from uncone.errors import InputError
from uncone.records import (
    MOST_COMPARED,
    PARTS,
    ComparedDiagnosis,
    ComparedFinding,
    ComparedMeasure,
    ComparedSubject,
    Comparison,
    Diagnosis,
    Measurement,
    Part,
    Subject,
    taken_in,
)
from uncone.records.wording import listing

LETTERS = "ABCDEF"
_MOST_VERSIONS = 4


def compare(diagnoses: Iterable[Diagnosis], *, names: Sequence[str] | None = None) -> Comparison:
    """Say what became better or worse between diagnoses; the first is the baseline.

    Subjects are matched by name (`input`, `head`, `rows`), and measures by theirs; what only one side has is said. Where
    no name is shared, and each diagnosis has one subject and none is a head, these are compared with each other.
    Every difference comes with its direction by the measure's `better`, and with an interval where both readings have
    one: the MOVER interval of independent readings (Zou & Donner 2008), as `Comparison.intervals` says. Where another
    number of rows or columns, or another scale, moves a measure by itself, a caution says so.

    Args:
        diagnoses: two to six, the baseline first.
        names: what to call them; by default their own names, numbered where equal.

    Returns:
        A `Comparison`: the verdict in one sentence, and each subject with its measures and findings.

    Raises:
        InputError: fewer than two diagnoses or more than six, names that do not match them, or a subject or measure
            that is there twice.

    Example:
        >>> import numpy, uncone
        >>> x = numpy.random.default_rng(0).normal(size=(500, 8))
        >>> found = uncone.compare([uncone.diagnose(x), uncone.diagnose(x + 1)], names=["centred", "shifted"])
        >>> found.subjects[0].measures[0].name, found.subjects[0].measures[0].changes[1].direction
        ('mean_cosine', 'worse')
    """
    given = tuple(diagnoses)
    if not 2 <= len(given) <= MOST_COMPARED:
        raise InputError(
            f"expected 2 to {MOST_COMPARED} diagnoses to compare, got {len(given)}: give the baseline first, then the others"
        )
    for diagnosis in given:
        _check(diagnosis)
    shown = _unique([diagnosis.name for diagnosis in given]) if names is None else _given(names, len(given))
    called = zip(shown, given, strict=True)
    compared = tuple(ComparedDiagnosis(name, d.verdict, dict(d.versions), d.schema) for name, d in called)
    subjects = tuple(_subject(name, sides) for name, sides in _matched(given))
    return Comparison(
        verdict=give_verdict(shown, subjects), diagnoses=compared, subjects=subjects,
        notes=tuple(_notes(given, subjects)), intervals=INTERVALS,
    )  # fmt: skip


def _check(diagnosis: Diagnosis) -> None:
    _once([subject.name for subject in diagnosis.subjects], f"subjects of {diagnosis.name!r}")
    for subject in diagnosis.subjects:
        for measurements in (taken_in(subject, table) for table in PARTS):
            _once(
                [measurement.name for measurement in measurements],
                f"measures of {subject.name!r} in {diagnosis.name!r}",
            )


def _once(names: list[str], what: str) -> None:
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"expected {what} of different names, got {twice!r} twice: the file was edited")


def _given(names: Sequence[str], count: int) -> list[str]:
    found = [name.strip() for name in names]
    if len(found) != count or len(set(found)) < count or not all(found):
        raise InputError(
            f"expected {count} different names, one for each diagnosis, got {', '.join(map(repr, names))}"
        )
    return found


def _unique(names: list[str]) -> list[str]:
    """The names, numbered from the second of the same on."""
    found = list[str]()
    for name in names:
        number = 2
        unique = name
        while unique in found:
            unique, number = f"{name} ({number})", number + 1
        found.append(unique)
    return found


def _matched(diagnoses: Sequence[Diagnosis]) -> list[tuple[str, list[Subject | None]]]:
    """The subjects by name, in the order in which they first appear."""
    alone = [diagnosis.subjects[0] for diagnosis in diagnoses if len(diagnosis.subjects) == 1]
    names = list(dict.fromkeys(subject.name for diagnosis in diagnoses for subject in diagnosis.subjects))
    shared = any(all(any(s.name == name for s in d.subjects) for d in diagnoses) for name in names)
    if not shared and len(alone) == len(diagnoses) and "head" not in names:
        return [(alone[0].name, list(alone))]
    return [
        (name, [next((s for s in d.subjects if s.name == name), None) for d in diagnoses]) for name in names
    ]


def _subject(name: str, sides: Sequence[Subject | None]) -> ComparedSubject:
    return ComparedSubject(
        name=name, sides=tuple(None if side is None else replace(side, picture=None) for side in sides),
        measures=_measures(sides, "measures"), without_effect=_measures(sides, "without_effect"), tokens=_measures(sides, "tokens"),
        findings=_findings(sides), notes=tuple(_subject_notes(name, sides)),
    )  # fmt: skip


def _measures(sides: Sequence[Subject | None], table: Part) -> tuple[ComparedMeasure, ...]:
    taken = [
        {} if side is None else {reading.name: reading for reading in taken_in(side, table)} for side in sides
    ]
    names = dict.fromkeys(name for measurements in taken for name in measurements)
    letters = LETTERS[: len(sides)]
    return tuple(
        compare_measure(
            name,
            [_measured(found.get(name), side) for found, side in zip(taken, sides, strict=True)],
            letters,
        )
        for name in names
    )


def _measured(reading: Measurement | None, side: Subject | None) -> Measured | None:
    return None if reading is None or side is None else Measured(reading, side)


def _findings(sides: Sequence[Subject | None]) -> tuple[ComparedFinding, ...]:
    found = [
        {} if side is None else {finding.cause: finding.level for finding in reversed(side.findings)}
        for side in sides
    ]
    causes = dict.fromkeys(finding.cause for side in sides if side is not None for finding in side.findings)
    return tuple(ComparedFinding(cause, tuple(levels.get(cause) for levels in found)) for cause in causes)


def _subject_notes(name: str, sides: Sequence[Subject | None]) -> list[str]:
    there = [(letter, side) for letter, side in zip(LETTERS, sides, strict=False) if side is not None]
    absent = [letter for letter, side in zip(LETTERS, sides, strict=False) if side is None]
    notes = []
    if absent:
        notes.append(
            f"only in {listing([letter for letter, _ in there])}; {listing(absent)} {'have' if len(absent) > 1 else 'has'} none"
        )
    if len({side.name for _, side in there}) > 1:
        called = ", ".join(f"{side.name!r} in {letter}" for letter, side in there)
        notes.append(f"named {called}: compared, since each diagnosis has one subject")
    if len({(side.n, side.d) for _, side in there}) > 1:
        sizes = ", ".join(f"{letter} {side.n:,} x {side.d:,}" for letter, side in there)
        notes.append(f"different sizes ({sizes}): measures that depend on the size carry a caution")
    for what in ("reserved", "bin_size"):
        if len({getattr(side.groups, what) for _, side in there if side.groups is not None}) > 1:
            words = {"reserved": "the reserved rows", "bin_size": "the bins of ids"}[what]
            notes.append(f"{words} are not the same, so readings by row id are not of the same rows")
    return notes


def _notes(diagnoses: Sequence[Diagnosis], subjects: Sequence[ComparedSubject]) -> list[str]:
    notes = []
    if not any(all(side is not None for side in subject.sides) for subject in subjects):
        notes.append(
            "no subject is in all diagnoses: name one matrix when diagnosing, such as MODEL#input, to compare it"
        )
    if len({diagnosis.schema for diagnosis in diagnoses}) > 1:
        notes.append(
            f"written with different schemas: {_by_letter([diagnosis.schema for diagnosis in diagnoses])}"
        )
    keys = sorted(
        {key for diagnosis in diagnoses for key in diagnosis.versions}, key=lambda key: (key != "uncone", key)
    )
    versions = {key: [diagnosis.versions.get(key, "unknown") for diagnosis in diagnoses] for key in keys}
    differing = [(key, found) for key, found in versions.items() if len(set(found)) > 1]
    notes += [
        f"made with different versions of {key}: {_by_letter(found)}"
        for key, found in differing[:_MOST_VERSIONS]
    ]
    return notes


def _by_letter(values: Sequence[str]) -> str:
    return ", ".join(f"{value} ({letter})" for letter, value in zip(LETTERS, values, strict=False))
