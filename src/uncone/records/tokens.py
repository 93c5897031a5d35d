"""What a diagnosis says about tokens: groups by frequency, with intervals, and the tokens that were hardly
trained."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from uncone.errors import InputError
from uncone.records.blocks import Block, Cell, Folded, Heading, Table, Text
from uncone.records.parts import Measurement
from uncone.records.text import count, number, optional, shortened, title
from uncone.records.wording import counted, plural

UNDER_TRAINED_SHARE = "under_trained_share"
_MOST_SHOWN = 10
_COSINES = (-1.0, 1.0)
_LENGTHS = (0.0, None)
_READINGS: tuple[
    tuple[Literal["mean_cosine", "cosine_to_reserved", "cosine_to_common", "mean_norm"], str, str, Literal["lower", "neither"]], ...
] = (
    ("cosine_to_reserved", "to reserved", "mean cosine between the rows of the group and the reserved rows", "lower"),
    ("mean_cosine", "within", "mean cosine between rows of the group", "lower"),
    ("cosine_to_common", "to common", "mean cosine between the rows of the group and the mean of all rows", "neither"),
    ("mean_norm", "norm", "mean norm of the rows of the group", "neither"),
)  # fmt: skip
_CHANCE = (
    "Mean cosines: to the reserved rows, within the group, and to the direction of the sum of all unit rows. "
    "Above chance: the standard deviations by which the cosine within lies above that of random groups of the same size, "
    "and the most that such a group's probability can be "
    "(Cantelli), whatever the distribution."
)


@dataclass(frozen=True)
class Estimate:
    """A number and its interval, as if the rows had been drawn at random; None where it is undefined."""

    value: float | None
    interval: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        if self.interval is not None and (
            self.value is None or not self.interval[0] <= self.value <= self.interval[1]
        ):
            raise InputError(
                f"expected a value inside its interval, got {self.value} and {self.interval}: the file was edited"
            )


@dataclass(frozen=True)
class FrequencyGroup:
    """The rows of one group and their readings.

    `excess` is how many standard deviations the mean cosine of the group lies above that of random groups of
    its size; `chance` bounds the probability that a random group has as much (Cantelli's inequality, whatever
    the distribution).
    """

    name: str
    n: int
    occurrences: int | None
    mean_cosine: Estimate
    mean_norm: Estimate
    cosine_to_reserved: Estimate
    cosine_to_common: Estimate
    excess: float | None = None
    chance: float | None = None


@dataclass(frozen=True)
class Difference:
    """A reading of the group `first` minus that of the group `second`."""

    first: str
    second: str
    reading: Literal["mean_cosine", "mean_norm", "cosine_to_reserved", "cosine_to_common"]
    difference: Estimate


@dataclass(frozen=True)
class FrequencyGroups:
    """Frequent, medium, rare and reserved rows compared. `by` says what they were ranked by, `definition` how
    they were cut."""

    by: Literal["count", "id"]
    definition: str
    confidence: float
    groups: tuple[FrequencyGroup, ...]
    differences: tuple[Difference, ...]


@dataclass(frozen=True)
class UnderTrainedToken:
    """One row that looks untrained, with the evidence.

    `p` and `q` belong to the indicator; `cosine_to_unused` is to the mean of the known-unused rows and
    `cosine_to_mean` to the mean row. `expected` marks the known-unused rows themselves.
    """

    id: int
    token: str | None
    indicator: float
    p: float
    q: float
    norm: float
    cosine_to_unused: float | None
    cosine_to_mean: float | None
    count: int | None = None
    expected: bool = False


@dataclass(frozen=True)
class UnderTrained:
    """The rows that look like rows no text ever trained.

    `found` counts those that were not known to be unused, of `tested` rows, at the false-discovery rate
    `rate`; it is None exactly when nothing could be told, and `reason` says why. `known` rows were known to
    be unused (`reference` says which and how), `known_found` of them look it. `tokens` lists the first of
    both, the news first. `center` and `scale` are the null of the indicator, `threshold` is the last
    indicator that counts.
    """

    found: int | None
    reason: str = ""
    indicator: Literal["cosine", "norm", ""] = ""
    definition: str = ""
    rate: float = 0.0
    tested: int = 0
    reference: str = ""
    known: int = 0
    known_found: int = 0
    center: float | None = None
    scale: float | None = None
    threshold: float | None = None
    tokens: tuple[UnderTrainedToken, ...] = ()
    notes: tuple[str, ...] = ()


def token_measurements(
    groups: FrequencyGroups | None, under_trained: UnderTrained | None, d: int
) -> tuple[Measurement, ...]:
    """The readings of each frequency group as measurements called GROUP.READING, and the share of rows that
    look untrained.

    Cosines have the isotropic reference 0, norms have none. Intervals are those of the groups. The share
    counts the rows that were not known to be unused, of those that were tested; it is `under_trained_share`.
    """
    readings = [] if groups is None else [m for group in groups.groups for m in _of_group(groups, group, d)]
    return (*readings, *([] if under_trained is None else [_share(under_trained, d)]))


def _of_group(groups: FrequencyGroups, group: FrequencyGroup, d: int) -> Iterator[Measurement]:
    cut = f"{groups.definition}, intervals of {100 * groups.confidence:g}%"
    for name, _, words, better in _READINGS:
        if group.name == "reserved" and name == "cosine_to_reserved":
            continue  # to themselves
        estimate: Estimate = getattr(group, name)
        is_norm = name == "mean_norm"
        yield Measurement(
            name=f"{group.name}.{name}", value=estimate.value, reason="" if estimate.value is not None else "no such rows",
            range=_LENGTHS if is_norm else _COSINES, better=better, reference=None if is_norm else 0.0,
            interval=estimate.interval, n=group.n, d=d, definition=f"{words}; {cut}",
        )  # fmt: skip


def _share(rows: UnderTrained, d: int) -> Measurement:
    told = rows.found is not None and rows.tested > 0
    return Measurement(
        name=UNDER_TRAINED_SHARE, value=(rows.found or 0) / rows.tested if told else None, reason=rows.reason,
        range=(0.0, 1.0), better="lower", reference=0.0 if told else None, n=rows.tested, d=d,
        definition="rows that look untrained and were not known to, of those tested; "
        f"{rows.definition}, false-discovery rate {rows.rate:g}",
    )  # fmt: skip


def frequency_blocks(groups: FrequencyGroups) -> Iterator[Block]:
    """Frequent and rare tokens compared."""
    yield Heading("Frequent and rare tokens")
    yield Text(
        f"Groups by {groups.by}: {groups.definition}. Mean cosines to the reserved rows, within the group and to the common "
        f"direction, and norms; below each value the reach of its {100 * groups.confidence:g}% interval.",
        "lead",
    )
    names = [words for _, words, _, _ in _READINGS]
    columns = ("group", "rows", *names, "above chance")
    yield Table(columns, tuple(_group(group) for group in groups.groups), columns[1:])
    counts = tuple(
        (group.name, count(group.occurrences)) for group in groups.groups if group.occurrences is not None
    )
    occurrences = (Table(("group", "occurrences"), counts, ("occurrences",)),) if counts else ()
    yield Folded("What the columns say", (Text(_CHANCE), *occurrences))
    if groups.differences:
        words = {name: words if name == "mean_norm" else f"cosine {words}" for name, words, _, _ in _READINGS}
        rows = tuple(
            (f"{title(d.first)} minus {d.second}", words[d.reading], _estimate(d.difference))
            for d in groups.differences
        )
        table = Table(("groups", "reading", "difference"), rows, ("difference",))
        yield Folded("Differences between groups, with their intervals", (table,))


def _group(group: FrequencyGroup) -> tuple[str | Cell, ...]:
    readings = (
        _estimate(getattr(group, name), _LENGTHS if name == "mean_norm" else _COSINES)
        for name, *_ in _READINGS
    )
    chance = (
        "" if group.chance is None or group.chance >= 1 else f"p <= {number(group.chance, limits=(0.0, 1.0))}"
    )
    above = Cell("-" if group.excess is None else f"{number(group.excess)} sd", chance)
    return group.name, count(group.n), *readings, above


def _estimate(estimate: Estimate, limits: tuple[float | None, float | None] = (None, None)) -> Cell:
    reach = None if estimate.interval is None else (estimate.interval[1] - estimate.interval[0]) / 2
    return Cell(optional(estimate.value, limits), "" if reach is None else f"± {number(reach, digits=2)}")


def under_trained_blocks(rows: UnderTrained) -> Iterator[Block]:
    """The rows that look untrained."""
    yield Heading("Under-trained tokens")
    yield Text(_lead(rows))
    yield from (Text(note, "caution") for note in rows.notes)
    news, known = ([t for t in rows.tokens if t.expected is expected] for expected in (False, True))
    if news:
        yield _token_table(rows, news[:_MOST_SHOWN])
    if (rows.found or 0) > len(news[:_MOST_SHOWN]):
        more = (rows.found or 0) - len(news[:_MOST_SHOWN])
        yield Text(f"{count(more)} more; the page and the record list the first {count(len(news))}.", "quiet")
    if len(news) > _MOST_SHOWN:
        yield Folded(
            f"The next {len(news) - _MOST_SHOWN} of {count(rows.found or 0)}",
            (_token_table(rows, news[_MOST_SHOWN:]),),
        )
    if known:
        what = f"Known to be unused, for comparison: the first {count(len(known))} of {count(rows.known)}"
        yield Folded(what, (_token_table(rows, known),))


def _lead(rows: UnderTrained) -> str:
    if rows.found is None:
        return f"Not told: {rows.reason}."
    looks = plural(rows.found, "looks as if no text had trained it", "look as if no text had trained them")
    text = f"{count(rows.found)} of {counted(rows.tested, 'row')} {looks}, at a false-discovery rate of {number(100 * rows.rate)}%. "
    text += f"Indicator: {rows.definition}." + (f" Compared with {rows.reference}." if rows.reference else "")
    if not rows.known:
        return f"{text} No row is known to be unused."
    looks = counted(rows.known_found, "looks", "look")
    return f"{text} Of {counted(rows.known, 'row')} known to be unused {looks} it too."


def _token_table(rows: UnderTrained, tokens: Sequence[UnderTrainedToken]) -> Table:
    counts, by_cosine = any(t.count is not None for t in tokens), rows.indicator == "cosine"
    columns = ("token", "id", *(["distance"] if by_cosine else []), "p", "q", "norm", "to unused", "to mean")
    columns += ("count",) if counts else ()
    return Table(columns, tuple(_token_row(t, by_cosine, counts) for t in tokens), columns[1:])


def _token_row(t: UnderTrainedToken, by_cosine: bool, counts: bool) -> tuple[str | Cell, ...]:
    return (
        "-" if t.token is None else Cell(shortened(t.token, 24), tone="token"), count(t.id),
        *([number(t.indicator, limits=(0.0, 2.0))] if by_cosine else []), number(t.p, limits=(0.0, 1.0)), number(t.q, limits=(0.0, 1.0)),
        number(t.norm, limits=_LENGTHS), optional(t.cosine_to_unused, _COSINES), optional(t.cosine_to_mean, _COSINES),
        *(["-" if t.count is None else count(t.count)] if counts else []),
    )  # fmt: skip
