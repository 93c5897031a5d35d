"""Readings of tokens: groups by frequency, and the tokens that were barely trained."""

from collections.abc import Sequence
from typing import Literal

from uncone.errors import expect
from uncone.records.blocks import Blocks, Cell, Folded, Row, Table, Text
from uncone.records.brief import part
from uncone.records.layout import folded, numbers, section, shown
from uncone.records.parts import Measurement
from uncone.records.text import Limits, count, counted, listing, number, optional, plural, title
from uncone.records.token_text import shown_token

UNDER_TRAINED_SHARE = "under_trained_share"
_MOST_SHOWN = 10
_COSINES, _LENGTHS, _SHARES = (-1.0, 1.0), (0.0, None), (0.0, 1.0)
Kind = Literal["place", "length", "decay", "equality"]
_KINDS: dict[str, str] = {"place": "direction and place", "length": "length", "decay": "decay", "equality": "equality"}
Reading = Literal["mean_cosine", "mean_norm", "cosine_to_reserved", "cosine_to_common"]
_READINGS: tuple[tuple[Reading, str, str, Literal["lower", "neither"], Limits], ...] = (
    ("cosine_to_reserved", "to reserved", "mean cosine between its rows and the reserved rows", "lower", _COSINES),
    ("mean_cosine", "within", "mean cosine between rows of the group", "lower", _COSINES),
    ("cosine_to_common", "to common", "mean cosine between its rows and the mean of all rows", "neither", _COSINES),
    ("mean_norm", "norm", "mean norm of the rows of the group", "neither", _LENGTHS),
)
_CHANCE = (
    "Mean cosines to the reserved rows, within the group, and to the common direction (the sum of all unit rows). "
    "Above chance: how many standard deviations (sd) the cosine within is above that of random groups of this size. "
    "A random group reaches it with probability p at most, whatever the distribution (Cantelli)."
)


@part
class Estimate:
    """A number and its interval, as if the rows had been drawn at random."""

    value: float | None  # `null` where it is undefined
    interval: tuple[float, float] | None = None  # around the value; `null` with fewer than 10 rows

    def __post_init__(self) -> None:
        low, high = self.interval or (0.0, 0.0)
        fits = self.interval is None or (self.value is not None and low <= self.value <= high)
        expect(fits, f"a value inside its interval, got {self.value} and {self.interval}: the file was edited")


@part
class FrequencyGroup:
    # `frequent`, `medium`, `rare`, `never_seen` (a count of 0), or `reserved`: reserved by name, or without a token
    name: str
    n: int  # rows
    occurrences: int | None  # the sum of their counts
    mean_cosine: Estimate  # among the rows of the group
    mean_norm: Estimate  # mean row length
    cosine_to_reserved: Estimate  # mean cosine to the reserved rows
    cosine_to_common: Estimate  # mean cosine to the sum of all unit rows
    # how many standard deviations `mean_cosine` is above that of random groups of this size
    excess: float | None = None
    chance: float | None = None  # upper bound on the probability that a random group has as much (Cantelli)
    counts: tuple[int, int] | None = None  # the lowest and the highest count of its tokens


@part
class Difference:
    first: str  # a group
    second: str  # the group whose reading is subtracted
    reading: Reading  # `mean_cosine`, `mean_norm`, `cosine_to_reserved` or `cosine_to_common`
    difference: Estimate  # the first minus the second


@part
class FrequencyGroups:
    # what rows were ranked by: `count`, `id` where no counts were given, or `rank` where the ids were given as ranks
    by: Literal["count", "id", "rank"]
    definition: str  # how the groups were cut
    confidence: float  # confidence level of the intervals
    groups: tuple[FrequencyGroup, ...]  # frequent, medium, rare, never seen, reserved; empty ones left out
    differences: tuple[Difference, ...]  # between groups


@part
class UnderTrainedToken:
    id: int  # the row
    # its token; of a byte-level vocabulary as text, `" the"` for `Ġthe`, with bytes that are not text alone as
    # `\xe2\x80`
    token: str | None
    indicator: float  # cosine distance, or norm
    p: float  # one-sided p-value
    q: float  # the lowest false-discovery rate at which the row is found
    norm: float  # its length
    cosine_to_unused: float | None  # to the mean of the known-unused rows, as the definition says
    cosine_to_mean: float | None  # of the row as stored, to the mean row; `null` for a head, whose mean is subtracted
    count: int | None = None  # how often it occurs, where counts were given
    expected: bool = False  # whether it was known to be unused
    special: bool = False  # whether it is a special token of the tokenizer, which may be trained
    leaning: bool = False  # whether only its direction looks untrained: barely trained, and not found
    # the evidence that finds the row: `place` (with its direction), `length`, `decay`, `equality`
    kinds: tuple[str, ...] = ()


@part
class EvidenceKind:
    """One kind of evidence for untrained rows."""

    name: Kind  # `place`, `length`, `decay` or `equality`
    found: int | None  # how many of the found rows this kind finds; `null` where this kind does not count
    known_found: int | None  # known-unused rows that this kind finds alone; `null` without such rows, or if undefined
    of: int | None  # known-unused rows, or rows in their place, that were tested; the kind counts if it finds half


@part
class UnderTrained:
    # rows that look untrained and were not known to be unused; `null` exactly when the test cannot decide
    found: int | None
    reason: str = ""  # why the test cannot decide, else empty
    indicator: Literal["cosine", "norm", ""] = ""  # `cosine` or `norm`; lower is suspect
    definition: str = ""  # what the indicator is
    rate: float = 0.0  # the false-discovery rate
    tested: int = 0  # rows that were tested
    reference: str = ""  # which rows the others are compared with, and why these; empty where there are none
    known: int = 0  # rows known to be unused
    known_found: int = 0  # known-unused rows that the same test finds
    center: float | None = None  # centre of the indicator's null distribution
    scale: float | None = None  # standard deviation of the null distribution
    threshold: float | None = None  # the indicator of the last row that was found
    # at most 200 found rows, 20 known rows and 200 leaning rows, the smallest p-values of each first
    tokens: tuple[UnderTrainedToken, ...] = ()
    notes: tuple[str, ...] = ()  # cautions
    special: int = 0  # special tokens of the tokenizer among the rows that were tested
    special_found: int = 0  # special tokens that are found
    # rows that share only the direction of the unused rows: barely trained, and not among the found rows
    leaning: int = 0
    kinds: tuple[EvidenceKind, ...] = ()  # the kinds of evidence that were tried

    @property
    def by_kind(self) -> str:
        """The kinds of evidence for the found rows, if several, and the kinds that find too few known-unused rows."""
        speak = [f"{_KINDS[one.name]} ({counted(one.found, 'row')})" for one in self.kinds if one.found]
        weak = [one for one in self.kinds if one.found is None and one.known_found is not None]
        sentences = [f"Evidence: {', '.join(speak)}"] * (len(speak) > 1)
        if weak and len(weak) < len(self.kinds):
            found = ", ".join(count(one.known_found or 0) for one in weak)
            names = listing([_KINDS[one.name] for one in weak])
            do = plural(len(weak), "has no power here: it finds", "have no power here: they find")
            sentences.append(f"{names.capitalize()} {do} {found} of {count(weak[0].of or 0)} unused rows")
        return ". ".join(sentences)

    def listed(self, which: Literal["found", "known", "leaning"]) -> list[UnderTrainedToken]:
        def kind(one: UnderTrainedToken) -> str:
            return "known" if one.expected else "leaning" if one.leaning else "found"

        return [one for one in self.tokens if kind(one) == which]


def token_measurements(groups: FrequencyGroups | None, rows: UnderTrained | None, d: int) -> tuple[Measurement, ...]:
    """The readings GROUP.READING of each frequency group, and the share of rows that look untrained."""
    readings = []
    cut = "" if groups is None else f"{groups.definition}, intervals of {100 * groups.confidence:g}%"
    for group in () if groups is None else groups.groups:
        for name, _, words, direction, limits in _READINGS:
            estimate: Estimate = getattr(group, name)
            if (group.name, name) != ("reserved", "cosine_to_reserved"):  # which is to themselves
                value, reason = estimate.value, "no such rows" if estimate.value is None else ""
                known = (None if name == "mean_norm" else 0.0, estimate.interval, group.n, d)
                start = (f"{group.name}.{name}", value, reason, limits, direction)
                readings.append(Measurement(*start, *known, definition=f"{words}; {cut}"))
    if rows is not None:
        share = None if rows.found is None or not rows.tested else rows.found / rows.tested
        known = (None if share is None else 0.0, None, rows.tested, d)
        what = "share of the tested rows that look untrained and were not known to be unused"
        how = f"{what}; {rows.definition}, false-discovery rate {rows.rate:g}"
        readings.append(Measurement(UNDER_TRAINED_SHARE, share, rows.reason, _SHARES, "lower", *known, definition=how))
    return tuple(readings)


def frequency_blocks(groups: FrequencyGroups | None) -> Blocks:
    if groups is None or not groups.groups:
        return ()
    columns = ("group", "rows", *(words for _, words, *_ in _READINGS), "above chance")
    counts = [(_words(g.name), *_counts(g)) for g in groups.groups if g.occurrences is not None]
    names = {name: words if name == "mean_norm" else f"cosine {words}" for name, words, *_ in _READINGS}
    differences = tuple(
        (f"{title(d.first)} minus {_words(d.second)}", names[d.reading], _estimate(d.difference))
        for d in groups.differences
    )
    compared = Table(("groups", "reading", "difference"), differences, ("difference",))
    lead = (
        f"Groups by {groups.by}: {groups.definition}. Mean cosines to the reserved rows, within the group and to the "
        f"common direction, and mean norms. Below each value is its {100 * groups.confidence:g}% interval (±)."
    )
    occurrences = numbers(("group", "each occurs", "occurrences"), counts)
    return section(
        "Frequent and rare tokens",
        Text(lead, "lead"),
        numbers(columns, map(_group, groups.groups)),
        Folded("What the columns mean", shown(Text(_CHANCE), occurrences)),
        Folded("Differences between groups, with their intervals", shown(compared)),
    )


def _group(group: FrequencyGroup) -> Row:
    readings = (_estimate(getattr(group, name), limits) for name, *_, limits in _READINGS)
    chance = "" if group.chance is None or group.chance >= 1 else f"p <= {number(group.chance, limits=_SHARES)}"
    above = Cell("-" if group.excess is None else f"{number(group.excess)} sd", chance)
    return _words(group.name), count(group.n), *readings, above


def _counts(group: FrequencyGroup) -> tuple[str, str]:
    ends = tuple(map(count, dict.fromkeys(group.counts or ())))
    return " to ".join(ends) or "-", optional(group.occurrences, shown=count)


def _words(group: str) -> str:
    return group.replace("_", " ")


def _estimate(estimate: Estimate, limits: Limits = (None, None)) -> Cell:
    reach = None if estimate.interval is None else (estimate.interval[1] - estimate.interval[0]) / 2
    return Cell(optional(estimate.value, limits), "" if reach is None else f"± {number(reach, digits=2)}")


def under_trained_blocks(rows: UnderTrained | None) -> Blocks:
    if rows is None:
        return ()
    news, known, leaning = rows.listed("found"), rows.listed("known"), rows.listed("leaning")
    first, rest, total = news[:_MOST_SHOWN], news[_MOST_SHOWN:], rows.found or 0
    more = f"{count(total - len(first))} more. The page and the record list the first {count(len(news))}."
    listed = shown(_token_table(rows, first), Text(more if total > len(first) else "", "quiet"))
    of_known = f"Known to be unused, for comparison: the first {count(len(known))} of {count(rows.known)}"
    blocks = section(
        "Under-trained tokens",
        Text(_lead(rows)),
        (Text(note, "caution") for note in rows.notes),
        Folded(f"The first {len(first)} of {count(total)}", listed, in_terminal=True),
        Folded(f"The next {len(rest)} of {count(total)}", shown(_token_table(rows, rest))),
        Folded(
            f"Hardly trained: the first {len(leaning)} of {count(rows.leaning)}", shown(_token_table(rows, leaning))
        ),
        Folded(of_known, shown(_token_table(rows, known))),
    )
    return folded(blocks) if rows.found is None else blocks


def _lead(rows: UnderTrained) -> str:
    if rows.found is None:
        return f"Not tested here: {rows.reason}."
    looks = plural(rows.found, "looks untrained", "look untrained")
    rate = f"at a false-discovery rate of {number(100 * rows.rate)}%"
    text = f"{count(rows.found)} of {counted(rows.tested, 'row')} {looks}, {rate}. "
    text += f"Indicator: {rows.definition}." + (f" Compared with {rows.reference}." if rows.reference else "")
    text += f" {rows.by_kind}." if rows.by_kind else ""
    if rows.special_found:
        text += f" Among them are {count(rows.special_found)} of {counted(rows.special, 'special token')}."
    if rows.leaning:
        leans = counted(rows.leaning, "more row has", "more rows have")
        text += f" {leans} the direction of the unused rows but not their place: barely trained."
    if not rows.known:
        return f"{text} These reference rows are assumed to be unused, not known to be."
    looks = counted(rows.known_found, "looks", "look")
    return f"{text} Of {counted(rows.known, 'row')} known to be unused, {looks} untrained too."


def _token_table(rows: UnderTrained, tokens: Sequence[UnderTrainedToken]) -> Table:
    distance = ("distance",) if rows.indicator == "cosine" else ()
    often = ("count",) if any(t.count is not None for t in tokens) else ()
    by = ("by",) if len({t.kinds for t in rows.tokens if not t.leaning}) > 1 else ()  # otherwise the text names it
    columns = ("token", "id", *distance, "p", "q", "norm", "to unused", "to mean", *often, *by)
    cells = list[Row]()
    for t in tokens:
        name = "-" if t.token is None else Cell(shown_token(t.token, 24), tone="token")
        apart = [number(t.indicator, limits=(0.0, 2.0)) for _ in distance]
        read = (optional(t.p, _SHARES), optional(t.q, _SHARES), optional(t.norm, _LENGTHS))
        cosines = (optional(t.cosine_to_unused, _COSINES), optional(t.cosine_to_mean, _COSINES))
        counts = [optional(t.count, shown=count) for _ in often]
        cells.append((name, count(t.id), *apart, *read, *cosines, *counts, *(", ".join(t.kinds) for _ in by)))
    return numbers(columns, cells)
