"""The verdict of a comparison: defects first, then the largest changes."""

from collections.abc import Iterator, Sequence

from uncone.comparison.changes import range_width
from uncone.comparison.record import BETTER, WORSE, ComparedSubject, Part
from uncone.diagnosis.record import CALLED
from uncone.records.parts import DEFECTS
from uncone.records.text import counted, listing, number, shortened, title

_MOST_NAMED = 3

# Measures of one question change alike: only the first available measure of each family is reported. Raw
# readings of the spectrum come last in their family: the mean alone moves them, and mean_cosine shows it.
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


_Step = tuple[bool, float, str, str]  # whether the range is open, minus the size, the subject, and the words


def give_verdict(names: Sequence[str], subjects: Sequence[ComparedSubject]) -> str:
    """A sentence for each diagnosis after the first, compared with it, defects first."""
    base, *others = map(shortened, names)
    shared = [[s for s in subjects if s.sides[0] and s.sides[order]] for order in range(1, len(names))]
    if not any(shared):
        return f"{listing([base, *others])} have no subject in common, so nothing could be compared."
    alone, of_many = len(others) == 1, len(subjects) > 1
    sides = enumerate(zip(others, shared, strict=True), start=1)
    told = [_clause(f" than {base}" if alone else "", name, order, of, of_many) for order, (name, of) in sides]
    start = "".join(_untrained(name, place, subjects) for place, name in enumerate(map(shortened, names)))
    return f"{start}{'' if alone else f'Compared with {base}, '}{'. '.join(told)}."


def _untrained(name: str, place: int, subjects: Sequence[ComparedSubject]) -> str:
    there = [subject for subject in subjects if subject.sides[place]]
    random = [s for s in there if any(f.cause == "untrained" and f.levels[place] for f in s.findings)]
    if not random:
        return ""
    of = f"{listing([_called(s) for s in random])} of ".capitalize() if len(random) < len(there) else ""
    is_model = any(subject.name in ("input", "head") for subject in random)
    looks = "looks untrained" if is_model else "looks like noise"
    training = ", so the changes are what training did" if place == 0 and is_model else ""
    return f"{of}{name} {looks}{training}. "


def _clause(than: str, name: str, order: int, shared: Sequence[ComparedSubject], of_many: bool) -> str:
    """`than` is empty if the baseline is named before all clauses."""
    if not shared:
        return f"{name} has no subject in common" + than.replace(" than ", " with ")
    steps = sorted((step for subject in shared for step in _steps(subject, order)), key=lambda step: step[:2])
    changed = _grouped(steps[:_MOST_NAMED], of_many)
    named = [(subject, f" of {_called(subject)}" if of_many else "") for subject in shared]
    worse, better = ([w for s, of in named for w in _finding_words(s, order, kinds, of)] for kinds in (WORSE, BETTER))
    alone = [w for subject, of in named for w in _shown_by_one(subject, order, of)]
    if not worse and not better and not changed and not alone:
        raw = sum(c.meaningful for s in shared for m in s.without_effect if (c := m.changes[order]))
        only = f"; {counted(raw, 'reading')} changed, but no probability depends on that" if raw else ""
        return f"{name} differs little" + than.replace(" than ", " from ") + only
    judged = f"neither worse nor better{than}"
    if worse or better:
        judged = f"{'worse' if worse else 'better'}{than}: {listing(worse or better)}"
    if worse and better:
        judged = f"mixed{than.replace(' than ', ' compared with ')}: {listing(worse)}, but {listing(better)}"
    apart = f"; not comparable: the {listing(alone)}, which only one of the two can show" if alone else ""
    return f"{name} is {judged}{apart}" + (f". Changed: {changed}" if changed else "")


def _grouped(steps: Sequence[_Step], of_many: bool) -> str:
    words = [said for *_, said in steps]
    if of_many:
        names = dict.fromkeys(name for *_, name, _ in steps)
        words = [f"{listing([said for *_, of, said in steps if of == name])} of {name}" for name in names]
    return listing(words) if words else ""


def _steps(subject: ComparedSubject, order: int) -> Iterator[_Step]:
    """The noticeable changes: in each family the first measure available, without readings that are the evidence of a
    listed defect."""
    tables: tuple[Part, ...] = ("measures", "tokens")
    taken = {m.name: (m, part) for part in tables for m in getattr(subject, part) if m.changes[order] is not None}
    silent = {name for family in FAMILIES for name in [n for n in family if n in taken][1:]}
    for name, (measure, part) in taken.items():
        change, before, after = measure.changes[order], measure.values[0], measure.values[order]
        told = change.direction in ("better", "worse")
        if name in silent or told or not change.meaningful or before is None or after is None:
            continue
        reading = subject.readings(name, part=part)[order]
        assert reading is not None  # it has a value
        shown, was = (number(value, limits=reading.range) for value in (after, before))
        way = "up" if change.difference > 0 else "down"
        group, dot, last = name.partition(".")
        called = (
            f"{_name(last)} of {shortened(group.replace('_', ' '))} rows" if dot and part == "tokens" else _name(name)
        )
        words = f"{called} {way} from {was} to {shown}"
        yield range_width(reading.range) == 0, -change.size, _called(subject), words


def _called(subject: ComparedSubject) -> str:
    return CALLED.get(subject.name, shortened(subject.name))


def _finding_words(subject: ComparedSubject, order: int, kinds: Sequence[str], of: str) -> list[str]:
    """Words for each defect, with the first reading that is its evidence."""
    words = []
    for finding in subject.findings:
        change = finding.changes[order]
        if change in kinds:
            level = [str(finding.levels[order])] if change in WORSE else []
            told = ", ".join(level + _evidence(subject, finding.cause, order))
            words.append(f"{_name(finding.cause)}{of} {change}" + (f" ({told})" if told else ""))
    return words[:_MOST_NAMED]


def _shown_by_one(subject: ComparedSubject, order: int, of: str) -> list[str]:
    """Defects of one side that the other did not look for."""
    alone = (one for one in subject.findings if one.changes[order] == "not_measured")
    shown = (one for one in alone if (one.levels[0] in DEFECTS) is not (one.levels[order] in DEFECTS))
    return [f"{_name(one.cause)}{of}" for one in shown]


def _evidence(subject: ComparedSubject, cause: str, order: int) -> list[str]:
    """The first reading of a defect, for instance "mean cosine 0.63 instead of 0.02"."""
    sides = [side for place in (order, 0) if (side := subject.sides[place]) is not None]
    names = [name for side in sides for f in side.findings if f.cause == cause for name in f.measures]
    taken, defined_otherwise = (*subject.measures, *subject.tokens), "defined differently"
    values = {m.name: m.values for m in taken if not any(c.startswith(defined_otherwise) for c in m.cautions[order])}
    name = next((name for name in names if name in values), "")
    before, after = (values[name][place] if name else None for place in (0, order))
    if before is None or after is None:
        return []
    return [f"{_name(name.rpartition('.')[2])} {number(after)} instead of {number(before)}"]


def _name(name: str) -> str:
    """A name has no comma here, as in `centred stable rank`; people and scores keep capitals."""
    base, _, variant = shortened(title(name)).rpartition(", ")
    shown = base or variant
    is_common = shown[1:2].islower() and not any(c.isupper() for c in shown[1:])
    small = shown[:1].lower() + shown[1:] if is_common else shown
    return f"{variant} {small}" if base else small
