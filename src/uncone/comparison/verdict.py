"""The verdict of a comparison: one sentence on what became better or worse, by the largest changes that mean something."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from uncone.comparison.changes import range_width
from uncone.records import ComparedMeasure, ComparedSubject
from uncone.report.text import number, shortened, title

MEANINGFUL = 0.02
"""A change counts from a fiftieth of the measure's range on; readings of healthy tables of one size, drawn anew, differ by less."""
MEANINGFUL_UNBOUNDED = 0.1
"""Where a range has no end: from a tenth of the larger of the two values on."""
_MOST_NAMED = 3
_BAD = ("warning", "severe")

# Measures of one question tell the same change again: of each family only the first that was taken speaks.
FAMILIES = (
    ("mean_cosine", "mean_shift", "uniformity"),
    ("isoscore", "isoscore_debiased", "isoscore_star", "participation_ratio", "participation_ratio_debiased"),
    ("effective_rank", "rankme", "singular_entropy"),
    ("stable_rank_centered", "anisotropy_1"),
    ("stable_rank", "anisotropy_1_raw", "singular_entropy_raw"),
    ("partition_isotropy", "gaussian_isotropy"),
)
_SUBJECTS = {"input": "the input token table", "head": "the output head", "rows": "the collection"}


@dataclass(frozen=True)
class _Step:
    """One change that the verdict may name, `size` as a share of the range or of the larger value."""

    direction: Literal["better", "worse"]
    bounded: bool
    size: float
    words: str


def give_verdict(names: Sequence[str], subjects: Sequence[ComparedSubject]) -> str:
    """One sentence: each diagnosis after the first against it."""
    shown = [shortened(name) for name in names]
    if not any(any(side is not None for side in subject.sides[1:]) and subject.sides[0] is not None for subject in subjects):
        return f"{_listing(shown)} have no subject in common, so nothing could be compared."
    clauses = [_clause(shown[0], shown[order], order, subjects, alone=len(shown) == 2) for order in range(1, len(shown))]
    sentence = clauses[0] if len(shown) == 2 else f"Against {shown[0]}: {'; '.join(clauses)}"
    return sentence + "."


def _clause(base: str, name: str, order: int, subjects: Sequence[ComparedSubject], *, alone: bool) -> str:
    shared = [subject for subject in subjects if subject.sides[0] is not None and subject.sides[order] is not None]
    if not shared:
        return f"{name} has no subject in common" + (f" with {base}" if alone else "")
    steps = [step for subject in shared for step in _steps(subject, order, of_many=len(subjects) > 1)]
    findings = [words for subject in shared for words in _finding_words(subject, order, of_many=len(subjects) > 1)]
    steps.sort(key=lambda step: (not step.bounded, -step.size))
    # Whatever is named, both directions are told where both occur: the largest change the other way takes the last place.
    chosen = steps[:_MOST_NAMED]
    other = next((step for step in steps if chosen and step.direction != chosen[0].direction), None)
    if other is not None and other not in chosen:
        chosen[-1] = other
    worse, better = ([step.words for step in chosen if step.direction == way] for way in ("worse", "better"))
    ways = [f"{way} in {_listing(words)}" for way, words in (("worse", worse), ("better", better)) if words]
    than = f" than {base}" if alone else ""
    also = f", with {_listing(findings)}" if findings else ""
    if not ways:
        return f"{name} differs little{f' from {base}' if alone else ''}{also}"
    first = chosen[0].direction
    ordered = sorted(ways, key=lambda way: not way.startswith(first))
    one = f"{name} is {ordered[0].replace(' in ', than + ' in ', 1)}"
    return ", but ".join([one, *ordered[1:]]) + also


def _steps(subject: ComparedSubject, order: int, *, of_many: bool) -> list[_Step]:
    taken = {measure.name: measure for measure in subject.measures if measure.changes[order] is not None}
    silent = {name for family in FAMILIES for name in [n for n in family if n in taken][1:]}
    found = (_step(subject, measure, order, of_many) for name, measure in taken.items() if name not in silent)
    return [step for step in found if step is not None]


def _step(subject: ComparedSubject, measure: ComparedMeasure, order: int, of_many: bool) -> _Step | None:
    """The change as the verdict would tell it; None where it is small, unclear, under a caution, or good and bad do not apply."""
    change, before, after = measure.changes[order], measure.values[0], measure.values[order]
    if change is None or before is None or after is None or change.direction not in ("better", "worse"):
        return None
    if measure.cautions[order]:
        return None
    reading = next(reading for reading in subject.readings(measure.name) if reading is not None)
    width = range_width(reading.range)
    size = abs(change.difference) / (width or max(abs(before), abs(after)))
    if not size >= (MEANINGFUL if width else MEANINGFUL_UNBOUNDED):
        return None
    of = f" of {_SUBJECTS.get(subject.name, shortened(subject.name))}" if of_many else ""
    shown = (number(value, limits=reading.range, separator=",") for value in (after, before))
    return _Step(change.direction, width > 0, size, f"{_name(measure.name)}{of} ({' instead of '.join(shown)})")


def _finding_words(subject: ComparedSubject, order: int, *, of_many: bool) -> list[str]:
    of = f" in {_SUBJECTS.get(subject.name, shortened(subject.name))}" if of_many else ""
    words = []
    for finding in subject.findings:
        before, after = (level if level in _BAD else None for level in (finding.levels[0], finding.levels[order]))
        if before != after:
            how = "gone" if after is None else f"new ({after})" if before is None else f"now {after}"
            words.append(f"{_name(finding.cause)}{of} {how}")
    return words[:_MOST_NAMED]


def _name(name: str) -> str:
    """A name inside a sentence: names of people and scores keep their capitals."""
    shown = shortened(title(name))
    return shown[:1].lower() + shown[1:] if shown[1:2].islower() and not any(c.isupper() for c in shown[1:]) else shown


def _listing(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " and " + parts[-1]
