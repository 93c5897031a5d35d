"""The verdict of a comparison: one sentence on what became better or worse, by the largest changes."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from uncone.comparison.changes import range_width
from uncone.records import Change, ComparedSubject, Part
from uncone.records.text import listing, number, shortened, title

_MOST_NAMED = 3
_BAD = ("warning", "severe")

# Measures of one question tell the same change again: of each family only the first that was taken speaks.
# Raw readings of the spectrum come last in theirs: the mean alone moves them, and mean_cosine tells of it.
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


class _Step(NamedTuple):
    """One change that the verdict may name."""

    subject: str
    change: Change
    bounded: bool
    words: str


def give_verdict(names: Sequence[str], subjects: Sequence[ComparedSubject]) -> str:
    """One sentence: each diagnosis after the first against it."""
    base, *others = map(shortened, names)
    shared = [[s for s in subjects if s.sides[0] and s.sides[order]] for order in range(1, len(names))]
    if not any(shared):
        return f"{listing([base, *others])} have no subject in common, so nothing could be compared."
    alone, of_many = len(others) == 1, len(subjects) > 1
    sides = enumerate(zip(others, shared, strict=True), start=1)
    told = [_clause(base if alone else "", name, order, of, of_many=of_many) for order, (name, of) in sides]
    return f"{'' if alone else f'Against {base}: '}{'; '.join(told)}."


def _clause(base: str, name: str, order: int, shared: Sequence[ComparedSubject], *, of_many: bool) -> str:
    """What is said of the diagnosis `name` against `base`, empty where it stands before all clauses."""
    if not shared:
        return f"{name} has no subject in common" + (f" with {base}" if base else "")
    chosen = _choose([step for subject in shared for step in _steps(subject, order)])
    ways = dict.fromkeys(step.change.direction for step in chosen)
    than = f" than {base}" if base else ""
    said: list[str] = []
    for way in ways:
        words = _grouped([step for step in chosen if step.change.direction == way], of_many=of_many)
        said.append(f"{way}{'' if said else than} in {words}")
    findings = [words for subject in shared for words in _finding_words(subject, order, of_many=of_many)]
    also = f", with {listing(findings)}" if findings else ""
    if not said:
        return f"{name} differs little{f' from {base}' if base else ''}{also}"
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
    by_subject = {step.subject: [s.words for s in steps if s.subject == step.subject] for step in steps}
    return listing([f"{listing(words)} of {subject}" for subject, words in by_subject.items()])


def _steps(subject: ComparedSubject, order: int) -> Iterator[_Step]:
    """The changes that mean something, of each family only that of the first measure that was taken."""
    tables: tuple[Part, ...] = ("measures", "tokens")
    every = ((m, part) for part in tables for m in getattr(subject, part))
    taken = {m.name: (m, part) for m, part in every if m.changes[order] is not None}
    silent = {name for family in FAMILIES for name in [n for n in family if n in taken][1:]}
    for name, (measure, part) in taken.items():
        change, before, after = measure.changes[order], measure.values[0], measure.values[order]
        if name in silent or not change.meaningful or before is None or after is None:
            continue
        reading = subject.readings(name, part=part)[order]
        assert reading is not None  # it has a value
        values = " instead of ".join(number(value, limits=reading.range) for value in (after, before))
        group, dot, last = name.partition(".")
        called = f"{_name(last)} of {shortened(group)} rows" if dot and part == "tokens" else _name(name)
        yield _Step(_called(subject), change, range_width(reading.range) > 0, f"{called} ({values})")


def _called(subject: ComparedSubject) -> str:
    return _SUBJECTS.get(subject.name, shortened(subject.name))


def _finding_words(subject: ComparedSubject, order: int, *, of_many: bool) -> list[str]:
    of = f" in {_called(subject)}" if of_many else ""
    words = []
    for finding in subject.findings:
        levels = (finding.levels[0], finding.levels[order])
        before, after = (level if level in _BAD else None for level in levels)
        if before != after:
            how = "gone" if after is None else f"new ({after})" if before is None else f"now {after}"
            words.append(f"{_name(finding.cause)}{of} {how}")
    return words[:_MOST_NAMED]


def _name(name: str) -> str:
    """A name inside a sentence, without a comma: `centred stable rank`; people and scores keep capitals."""
    base, _, variant = shortened(title(name)).rpartition(", ")
    shown = base or variant
    is_common = shown[1:2].islower() and not any(c.isupper() for c in shown[1:])
    small = shown[:1].lower() + shown[1:] if is_common else shown
    return f"{variant} {small}" if base else small
