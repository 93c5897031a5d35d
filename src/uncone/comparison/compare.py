"""`compare`: diagnoses matched by the names of their subjects and measures."""

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain, count
from pathlib import Path
from typing import Annotated, Any

from uncone.comparison.changes import INTERVALS, Ways, compare_findings, compare_measure, ways_of
from uncone.comparison.record import (
    LETTERS,
    MOST_COMPARED,
    PARTS,
    ComparedDiagnosis,
    ComparedMeasure,
    ComparedSubject,
    Comparison,
    Part,
    taken_in,
)
from uncone.comparison.verdict import give_verdict
from uncone.diagnosis.record import Diagnosis, Subject
from uncone.errors import InputError, expect
from uncone.records.parts import Measurement
from uncone.records.text import listing
from uncone.regular import starts_with
from uncone.roles import EngineName, Progress, Role
from uncone.watching.record import Watch
from uncone.watching.watch import is_run, watch

LOGIT_RANK = "logit_effective_rank"  # taken where a text was given
_OF_THE_ROWS = {"rogue_dimensions", "low_effective_rank", "dominant_direction"}  # of a head without a text alone
_OF_A_TABLE = {"common_direction_drift", "dominant_direction"}  # not of a head whose mean changes no probability
_HIDDEN_BY = {
    "dominant_direction": {"rogue_dimensions", "degenerate_tail", "near_copies", "low_effective_rank"},
    "near_copies": {"degenerate_tail", "equal_rows"},
}
"""Findings about the same rows or directions; when they are present, the key is not looked for."""


def compare(
    diagnoses: Annotated[Iterable[Any], Role.SPEC],
    *,
    names: Sequence[str] | None = None,
    workers: int | None = None,
    engine: EngineName | None = None,
    address: str | None = None,
    progress: Progress | None = None,
) -> Comparison | Watch:
    """Show what changed between diagnoses, and which defects appeared, grew, shrank or went away.

    The first diagnosis is the baseline. Subjects (`input`, `head`, `rows`) and measures are matched by name; notes list
    those without a match. If no name is shared and each diagnosis has one subject, none a head, these subjects are
    compared. A reading is worse or better only if it is the evidence of a defect that appeared or grew, shrank or went
    away; any other reading changed. If both readings have an interval, their difference has the MOVER interval of
    independent readings (Zou & Donner 2008). A caution warns if a different size or scale alone moves a measure.

    Args:
        diagnoses: two to six, the baseline first. Each is a `Diagnosis`, a file that one was saved to, or anything that
            `diagnose` takes as its spec: `diagnose(spec)` is then compared. Files of runs, from `uncone.Monitor`
            or a `trainer_state.json`, are compared only with runs.
        names: of the diagnoses; by default their own, numbered where equal.
        workers: as of `diagnose`, for specs of shards.
        engine: as of `diagnose`.
        address: as of `diagnose`.
        progress: called with (the step, rows done, rows in all) while a spec is diagnosed.

    Returns:
        A `Comparison`; for runs a `Watch` that overlays them.

    Raises:
        InputError: fewer than two diagnoses or more than six, runs mixed with diagnoses, names that do not
            match them, or a file or model that cannot be read.
        UnsupportedModel: the table or the head of a model cannot be found.

    Example:
        >>> import numpy, uncone
        >>> x = numpy.random.default_rng(0).normal(size=(500, 8))
        >>> compared = uncone.compare([uncone.diagnose(x), uncone.diagnose(x + 1)], names=["x", "shifted"])
        >>> compared.subjects[0].measures[0].name, compared.subjects[0].measures[0].changes[1].direction
        ('mean_cosine', 'worse')
    """
    sources = tuple(diagnoses)
    if not 2 <= len(sources) <= MOST_COMPARED:
        got = f"{len(sources)}: give the baseline first, then the others"
        raise InputError(f"expected 2 to {MOST_COMPARED} diagnoses to compare, got {got}")
    runs = [path for source in sources if (path := _run(source)) is not None]
    if runs:
        expect(len(runs) == len(sources), "runs alone or diagnoses alone, got both: compare one kind at a time")
        return watch(runs, names=names)
    called = None if names is None else [name.strip() for name in names]
    if called is not None and not (len(sources) == len(called) == len(set(called)) and all(called)):
        told = ", ".join(map(repr, names or ()))
        raise InputError(f"expected {len(sources)} different names, one for each diagnosis, got {told}")
    how = {"workers": workers, "engine": engine, "address": address}
    given = tuple(_diagnosis(source, how, progress) for source in sources)
    for diagnosis in given:
        _once(diagnosis.subjects, f"subjects of {diagnosis.name!r}")
        for subject in diagnosis.subjects:
            for part in PARTS:
                _once(taken_in(subject, part), f"measures of {subject.name!r} in {diagnosis.name!r}")
    shown = called or _names(given)
    compared = [ComparedDiagnosis(n, d.verdict, dict(d.versions)) for n, d in zip(shown, given, strict=True)]
    subjects = tuple(_subject(name, sides) for name, sides in _matched(given))
    notes = tuple(_notes(given, subjects))
    return Comparison(give_verdict(shown, subjects), tuple(compared), subjects, notes=notes, intervals=INTERVALS)


def _run(source: Any) -> Path | None:
    """The path, if it is a file of a run."""
    if not isinstance(source, str | os.PathLike):
        return None
    path = Path(source)
    return path if is_run(path) else None


def _once(named: Sequence[Subject | Measurement], what: str) -> None:
    for name, n in Counter(one.name for one in named).items():
        if n > 1:
            raise InputError(f"expected {what} of different names, got {name!r} twice: the file was edited")


def _diagnosis(source: Any, how: dict[str, Any], progress: Progress | None) -> Diagnosis:
    """The diagnosis of a source, with the options `how` for shards; a saved diagnosis as it is."""
    if isinstance(source, Diagnosis):
        return source
    is_path = isinstance(source, str | os.PathLike)
    if is_path and (Path(source).suffix.casefold() == ".json" or starts_with(source, b"{")):
        try:
            return Diagnosis.load(source)
        except InputError as error:
            raise error if str(source) in str(error) else InputError(f"{source}: {error}") from error
    from uncone.diagnosis.diagnose import diagnose  # saved diagnoses are compared without it

    if progress is None or not is_path:
        return diagnose(source, **how, progress=progress)
    return diagnose(source, **how, progress=lambda step, *done: progress(f"{Path(source).name}: {step}", *done))


def _names(diagnoses: Sequence[Diagnosis]) -> list[str]:
    unique = list[str]()
    for diagnosis in diagnoses:
        numbered = (f"{diagnosis.name} ({number})" for number in count(2))
        unique.append(next(name for name in chain([diagnosis.name], numbered) if name not in unique))
    return unique


def _matched(diagnoses: Sequence[Diagnosis]) -> list[tuple[str, list[Subject | None]]]:
    alone = [d.subjects[0] for d in diagnoses if len(d.subjects) == 1]
    named = [{subject.name: subject for subject in d.subjects} for d in diagnoses]
    names = dict.fromkeys(name for subjects in named for name in subjects)
    shared = any(all(name in subjects for subjects in named) for name in names)
    if not shared and len(alone) == len(diagnoses) and "head" not in names:
        return [(alone[0].name, list(alone))]
    return [(name, [subjects.get(name) for subjects in named]) for name in names]


def _subject(name: str, sides: Sequence[Subject | None]) -> ComparedSubject:
    found = [{finding.cause: finding for finding in reversed(side.findings)} if side else {} for side in sides]
    findings = compare_findings(found, _unlike(sides))
    ways = [ways_of(findings, found, place) for place in range(len(sides))]
    return ComparedSubject(
        name=name,
        sides=tuple(side and replace(side, picture=None) for side in sides),
        measures=_measures(sides, "measures", ways),
        without_effect=_measures(sides, "without_effect", [{}] * len(sides)),
        tokens=_measures(sides, "tokens", ways),
        findings=findings,
        notes=tuple(_subject_notes(sides)),
    )


def _unlike(sides: Sequence[Subject | None]) -> set[tuple[str, int]]:
    """Defects, and places, that this side or the first did not look for."""
    pairs = [(sides[0], side) for side in sides]
    causes = {finding.cause for side in sides if side for finding in side.findings}
    return {
        (cause, place)
        for place, (first, side) in enumerate(pairs)
        for cause in causes
        if place and first and side and not (_looks(first, cause, side) and _looks(side, cause, first))
    }


def _looks(side: Subject, cause: str, other: Subject) -> bool:
    """Whether `side` looked for a defect as `other` did, and no other finding of its own takes its place."""
    mine, theirs = ({f.cause: f for f in one.findings} for one in (side, other))
    defects = {f.cause for f in side.findings if f.is_defect}
    if cause == "under_trained_tokens":
        a, b = side.under_trained, other.under_trained
        if not a or not b or a.found is None or (a.found and cause not in mine):
            return False
        return b.found is None or (a.indicator, "of count 0" in a.reference) == (
            b.indicator,
            "of count 0" in b.reference,
        )
    if cause in ("hubs", "near_duplicates"):
        return any(one.name == "hubness" and one.value is not None for one in side.measurements)
    if cause == "degenerate_tail":
        return len({one.groups is not None and one.groups.reserved_by_name for one in (side, other)}) == 1
    if cause in _HIDDEN_BY and cause not in mine and defects & _HIDDEN_BY[cause]:
        return False
    if cause in _OF_THE_ROWS and LOGIT_RANK in _taken(side):
        return False
    if cause in _OF_A_TABLE and bool(side.without_effect) is not bool(other.without_effect):
        return False
    rests_on = {*theirs[cause].measures} & {*_taken(other)} if cause in theirs else set()
    return not rests_on or bool(rests_on & {*_taken(side)})


def _taken(side: Subject) -> set[str]:
    return {one.name for part in PARTS for one in taken_in(side, part)}


def _measures(sides: Sequence[Subject | None], table: Part, ways: Sequence[Ways]) -> tuple[ComparedMeasure, ...]:
    taken = [{one.name: one for one in taken_in(side, table)} if side else {} for side in sides]
    names = dict.fromkeys(name for readings in taken for name in readings)
    norms = [side.norms.mean if side and side.norms else None for side in sides]
    return tuple(compare_measure(name, [side.get(name) for side in taken], norms, ways) for name in names)


def _subject_notes(sides: Sequence[Subject | None]) -> list[str]:
    there = [(letter, side) for letter, side in zip(LETTERS, sides, strict=False) if side is not None]
    absent = [letter for letter, side in zip(LETTERS, sides, strict=False) if side is None]
    notes, logits = [], [letter for letter, side in there if LOGIT_RANK in _taken(side)]
    if 0 < len(logits) < len(there):
        notes.append(f"logits were read only in {listing(logits)} (with a text), so the head's rank is not compared")
    if absent:
        notes.append(f"only in {listing([letter for letter, _ in there])}, missing in {listing(absent)}")
    if len({side.name for _, side in there}) > 1:
        called = ", ".join(f"{side.name!r} in {letter}" for letter, side in there)
        notes.append(f"named {called}: compared because each diagnosis has one subject")
    if len({(side.n, side.d) for _, side in there}) > 1:
        sizes = ", ".join(f"{letter} {side.n:,} x {side.d:,}" for letter, side in there)
        notes.append(f"different sizes ({sizes}): measures that depend on the size carry a caution")
    for what, words in (("reserved", "the reserved rows"), ("bin_size", "the bins of ids")):
        if len({getattr(side.groups, what) for _, side in there if side.groups is not None}) > 1:
            notes.append(f"{words} differ, so readings by row id are not of the same rows")
    return notes


def _notes(diagnoses: Sequence[Diagnosis], subjects: Sequence[ComparedSubject]) -> list[str]:
    notes = []
    if not any(all(subject.sides) for subject in subjects):
        notes.append("no subject is in all diagnoses: diagnose one matrix, such as MODEL#input, to compare it")
    packages = sorted({name for d in diagnoses for name in d.versions}, key=lambda name: (name != "uncone", name))
    used = {name: [d.versions.get(name, "unknown") for d in diagnoses] for name in packages}
    for name, versions in [of for of in used.items() if len(set(of[1])) > 1][:4]:
        lettered = (f"{version} ({letter})" for letter, version in zip(LETTERS, versions, strict=False))
        notes.append(f"made with different versions of {name}: {', '.join(lettered)}")
    return notes
