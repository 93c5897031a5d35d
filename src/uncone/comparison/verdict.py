"""The verdict of a comparison: one sentence on what became better or worse, by the largest changes that mean
something."""

from collections.abc import Sequence
from dataclasses import dataclass

from uncone.comparison.changes import range_width
from uncone.records import Change, ComparedMeasure, ComparedSubject, Part
from uncone.records.text import number, shortened, title
from uncone.records.wording import listing

_MOST_NAMED = 3
_BAD = ("warning", "severe")

# Measures of one question tell the same change again: of each family only the first that was taken speaks.
# Raw readings of the spectrum come last in theirs: what moves them alone is the mean, of which mean_cosine speaks.
FAMILIES = (
    ("mean_cosine", "mean_shift", "uniformity", "uniformity_exact"),
    ("isoscore", "isoscore_debiased", "isoscore_star", "participation_ratio", "participation_ratio_debiased"),
    ("effective_rank", "rankme", "singular_entropy"),
    ("stable_rank_centered", "anisotropy_1", "stable_rank", "anisotropy_1_raw", "singular_entropy_raw"),
    ("partition_isotropy", "gaussian_isotropy"),
    tuple(
        f"{group}.{reading}"
        for reading in ("cosine_to_reserved", "mean_cosine")
        for group in ("rare", "medium", "frequent", "reserved")
    ),
)
_SUBJECTS = {"input": "the input token table", "head": "the output head", "rows": "the collection"}


@dataclass(frozen=True)
class _Step:
    """One change that the verdict may name."""

    subject: str
    measure: str
    change: Change
    bounded: bool
    words: str


def give_verdict(names: Sequence[str], subjects: Sequence[ComparedSubject]) -> str:
    """One sentence: each diagnosis after the first against it."""
    shown = [shortened(name) for name in names]
    if not any(
        any(side is not None for side in subject.sides[1:]) and subject.sides[0] is not None
        for subject in subjects
    ):
        return f"{listing(shown)} have no subject in common, so nothing could be compared."
    clauses = [
        _clause(shown[0], shown[order], order, subjects, alone=len(shown) == 2)
        for order in range(1, len(shown))
    ]
    sentence = clauses[0] if len(shown) == 2 else f"Against {shown[0]}: {'; '.join(clauses)}"
    return sentence + "."


def _clause(base: str, name: str, order: int, subjects: Sequence[ComparedSubject], *, alone: bool) -> str:
    shared = [
        subject for subject in subjects if subject.sides[0] is not None and subject.sides[order] is not None
    ]
    if not shared:
        return f"{name} has no subject in common" + (f" with {base}" if alone else "")
    of_many = len(subjects) > 1
    chosen = _choose([step for subject in shared for step in _steps(subject, order)])
    ways = list(dict.fromkeys(step.change.direction for step in chosen))
    said = [
        f"{way} in {_grouped([s for s in chosen if s.change.direction == way], of_many=of_many)}"
        for way in ways
    ]
    findings = [words for subject in shared for words in _finding_words(subject, order, of_many=of_many)]
    also = f", with {listing(findings)}" if findings else ""
    if not said:
        return f"{name} differs little{f' from {base}' if alone else ''}{also}"
    if alone:
        said[0] = f"{ways[0]} than {base}{said[0].removeprefix(ways[0])}"
    return f"{name} is {', but '.join(said)}{also}"


def _choose(steps: list[_Step]) -> list[_Step]:
    """The largest; where both directions occur, the largest change the other way takes the last place."""
    steps.sort(key=lambda step: (not step.bounded, -step.change.size))
    chosen = steps[:_MOST_NAMED]
    if len({step.change.direction for step in chosen}) == 1:
        chosen[-1:] += [step for step in steps if step.change.direction != chosen[0].change.direction][:1]
    return chosen[: _MOST_NAMED - 1] + chosen[-1:] if len(chosen) > _MOST_NAMED else chosen


def _grouped(steps: Sequence[_Step], *, of_many: bool) -> str:
    """The words of the changes; with several subjects, those of one subject together."""
    if not of_many:
        return listing([step.words for step in steps])
    subjects = dict.fromkeys(step.subject for step in steps)
    return listing(
        [f"{listing([s.words for s in steps if s.subject == subject])} of {subject}" for subject in subjects]
    )


def _steps(subject: ComparedSubject, order: int) -> list[_Step]:
    """The changes that mean something, of each family only that of the first measure that was taken."""
    tables: tuple[tuple[Part, tuple[ComparedMeasure, ...]], ...] = (
        ("measures", subject.measures),
        ("tokens", subject.tokens),
    )
    taken = {
        m.name: (m, table) for table, measures in tables for m in measures if m.changes[order] is not None
    }
    silent = {name for family in FAMILIES for name in [n for n in family if n in taken][1:]}
    return [
        step
        for name in taken
        if name not in silent and (step := _step(subject, *taken[name], order)) is not None
    ]


def _step(subject: ComparedSubject, measure: ComparedMeasure, table: Part, order: int) -> _Step | None:
    change, before, after = measure.changes[order], measure.values[0], measure.values[order]
    if change is None or before is None or after is None or not change.meaningful:
        return None
    reading = subject.readings(measure.name, part=table)[order]
    assert reading is not None  # it has a value
    limits = reading.range
    shown = (number(value, limits=limits) for value in (after, before))
    group, dot, last = measure.name.partition(".")
    name = f"{_name(last)} of {shortened(group)} rows" if dot and table == "tokens" else _name(measure.name)
    words = f"{name} ({' instead of '.join(shown)})"
    return _Step(_called(subject), measure.name, change, range_width(limits) > 0, words)


def _called(subject: ComparedSubject) -> str:
    return _SUBJECTS.get(subject.name, shortened(subject.name))


def _finding_words(subject: ComparedSubject, order: int, *, of_many: bool) -> list[str]:
    of = f" in {_called(subject)}" if of_many else ""
    words = []
    for finding in subject.findings:
        before, after = (
            level if level in _BAD else None for level in (finding.levels[0], finding.levels[order])
        )
        if before != after:
            how = "gone" if after is None else f"new ({after})" if before is None else f"now {after}"
            words.append(f"{_name(finding.cause)}{of} {how}")
    return words[:_MOST_NAMED]


def _name(name: str) -> str:
    """A name inside a sentence, without a comma: `centred stable rank`. Names of people and scores keep their
    capitals."""
    base, _, variant = shortened(title(name)).rpartition(", ")
    shown = base or variant
    small = (
        shown[:1].lower() + shown[1:]
        if shown[1:2].islower() and not any(c.isupper() for c in shown[1:])
        else shown
    )
    return f"{variant} {small}" if base else small
