"""Rows by how often their tokens were counted in a text."""

from collections.abc import Sequence
from math import sqrt
from typing import Literal

from uncone.records.blocks import Blocks, Cell, Chart, Curve, Figure, Folded, Mark, Row, Table, Text
from uncone.records.brief import part
from uncone.records.layout import numbers, section, shown
from uncone.records.text import Limits, count, counted, number, optional, percent
from uncone.records.token_text import shown_token
from uncone.records.tokens import Estimate

_COSINES, _LENGTHS, _SHARES, _ANY = (-1.0, 1.0), (0.0, None), (0.0, 1.0), (None, None)
NORM, ALONG, NEAR = "norm", "distance along the common direction", "cosine to reserved rows"
_LIMITS: dict[str, Limits] = {NORM: _LENGTHS, NEAR: _COSINES}
_READINGS: tuple[tuple[str, str, str, Limits], ...] = (
    ("mean_norm", "norm", "Norm", _LENGTHS),
    ("mean_cosine", "within", "Cosine within the bin", _COSINES),
    ("cosine_to_reserved", "to reserved", "Cosine to reserved rows", _COSINES),
    ("along_common", "along common", "Distance along the common direction", _ANY),
    ("partition_isotropy", "I(W)", "I(W)", _SHARES),
)
"""The field, the column, the chart's title, and the range."""
_NEVER = 0.3  # the place of tokens never seen on a logarithmic axis
_FIRST = "The first point: tokens that were never seen."
_DRAWN = 'After "of": I(W) of a random sample of the same size, because small groups score lower.'
_BY_RANK = "You gave the rows in order of frequency, the most frequent first. They are grouped by rank, not by count."
_TURNS = "We chose each turning point on one half of the rows. The two correlations are over the other half."


@part
class FrequencyBin:
    """Rows whose tokens occur `low` to `high` times, or have these ranks. Undefined readings are None."""

    low: int  # the least count in the bin, or rank
    high: int  # the greatest
    n: int  # rows
    occurrences: int | None  # the sum of their counts; `null` by rank
    mean_norm: float
    mean_cosine: float | None  # between rows of the bin
    cosine_to_reserved: float | None  # mean cosine of its rows and the reserved rows
    along_common: float | None  # mean of w . c over the mean norm of all rows
    partition_isotropy: float | None  # I(W) of the bin's rows, along the eigenvectors of all rows
    # the same for a random sample of this size: fewer rows have a lower I(W)
    partition_isotropy_drawn: float | None = None

    @property
    def name(self) -> str:
        if self.high == 0:
            return "never seen"
        return count(self.low) if self.low == self.high else f"{count(self.low)} to {count(self.high)}"


@part
class Turn:
    """A reading that rises and then falls with the count, or the other way round. One half of the rows chose where."""

    at: int  # the least count of the second side, or rank
    below: Estimate  # rank correlation of the other half's rows below `at`
    above: Estimate  # rank correlation of its rows from `at` on
    rows: tuple[int, int]  # rows in these correlations


@part
class CountCorrelation:
    reading: str  # what the count, or rank, is correlated with
    n: int  # rows, of tokens that occur
    correlation: Estimate  # Spearman's, with an interval that holds under ties and for any joint distribution
    turn: Turn | None = None  # where the relation turns from rising to falling, or back; `null` if no turn was found


@part
class NeverSeen:
    """Tokens that never occur compared with tokens that do, for fixed reserved rows and a fixed common direction."""

    reading: str  # as in the correlations
    n: int  # rows that were never seen
    mean: float  # of the rows never seen
    mean_of_seen: float  # of the tokens that occur
    difference: Estimate  # the first minus the second
    deviation: float  # standard deviation over the tokens that occur


@part
class PlacedToken:
    id: int
    token: str | None
    count: int | None  # `null` by rank
    norm: float
    along_common: float | None  # of this row
    cosine_to_reserved: float | None  # of this row


@part
class FrequencyBins:
    """Rows by the frequency of their tokens. Reserved rows have their own bin."""

    verdict: str  # how rows change with frequency, and how the rows of tokens never seen differ
    tokens: int | None  # the sum of the counts; `null` by rank
    confidence: float  # of the intervals
    bins: tuple[FrequencyBin, ...]  # from never seen to the most frequent; by rank from the most frequent on
    reserved: FrequencyBin | None  # the rows known to be unused
    compared: str  # which rows count as reserved for the cosines
    common: str  # what the common direction is
    correlations: tuple[CountCorrelation, ...]  # of the count, or rank, with each reading
    never_seen: int  # tokens that do not occur and are not reserved
    unseen: tuple[PlacedToken, ...]  # the first of these tokens, the nearest to the reserved rows first
    furthest: tuple[PlacedToken, ...]  # the rows furthest along the common direction
    # what bins group by: `count`, or `rank` if you gave rows in order of frequency
    by: Literal["count", "rank"] = "count"
    never: tuple[NeverSeen, ...] = ()  # how rows of tokens never seen differ from rows of tokens that occur


def by_count_blocks(by_count: FrequencyBins | None) -> Blocks:
    if not by_count or not by_count.bins:
        return ()
    by, never = by_count.by, by_count.never_seen
    columns = (by, "rows", *(words for _, words, *_ in _READINGS))
    rows = [_row(one, one.name) for one in by_count.bins]
    rows += [_row(by_count.reserved, "reserved")] if by_count.reserved else []
    charts = tuple(chart for reading in _READINGS if (chart := _chart(by, by_count.bins, *reading)))
    unseen, furthest = by_count.unseen, by_count.furthest
    listed = f"Never seen, though not reserved: the first {len(unseen)} of {count(never)}"
    title = "By measured frequency" if by == "count" else "By rank"
    return section(
        title,
        Text(by_count.verdict, "lead"),
        Text(_BY_RANK if by == "rank" else "", "quiet"),
        _correlations(by_count),
        Text(_TURNS if any(one.turn for one in by_count.correlations) else "", "quiet"),
        _never(by_count),
        numbers(columns, rows),
        Text(f"{by_count.compared} {by_count.common} {_DRAWN}", "quiet"),
        Figure(title, charts, _FIRST if never else ""),
        Folded(listed, shown(_tokens(unseen))),
        Folded(f"Furthest along the common direction: {len(furthest)} tokens", shown(_tokens(furthest))),
    )


def _row(one: FrequencyBin, name: str) -> Row:
    *readings, isotropy = (optional(getattr(one, field), limits) for field, *_, limits in _READINGS)
    drawn = one.partition_isotropy_drawn
    return name, count(one.n), *readings, Cell(isotropy, "" if drawn is None else f"of {number(drawn, limits=_SHARES)}")


def _correlations(by_count: FrequencyBins) -> Table:
    def row(words: str, correlation: Estimate, n: int) -> tuple[str, ...]:
        return words, optional(correlation.value, _COSINES), _ends(correlation, _COSINES), count(n)

    rows = list[Row]()
    for one in by_count.correlations:
        rows.append(row(one.reading, one.correlation, one.n))
        if one.turn:
            below, above = f"up to {count(one.turn.at - 1)}", f"from {count(one.turn.at)}"
            rows.append(row(f"{one.reading}, {below}", one.turn.below, one.turn.rows[0]))
            rows.append(row(f"{one.reading}, {above}", one.turn.above, one.turn.rows[1]))
    return numbers((f"rank correlation of the {by_count.by} with", "value", _interval(by_count), "rows"), rows)


def _never(by_count: FrequencyBins) -> Table:
    rows = (
        (
            one.reading,
            *(number(value, limits=_LIMITS.get(one.reading, _ANY)) for value in (one.mean, one.mean_of_seen)),
            optional(one.difference.value),
            _ends(one.difference, _ANY),
        )
        for one in by_count.never
    )
    return numbers(("mean of", "never seen", "seen", "difference", _interval(by_count)), rows)


def _interval(by_count: FrequencyBins) -> str:
    return f"{percent(by_count.confidence, precise=True)} interval"


def _ends(estimate: Estimate, limits: Limits) -> str:
    return " to ".join(number(end, limits=limits) for end in estimate.interval or ()) or "-"


def _chart(by: str, bins: Sequence[FrequencyBin], field: str, words: str, title: str, limits: Limits) -> Chart | None:
    known = [(one, value) for one in bins if (value := getattr(one, field)) is not None]
    if len(known) < 2:
        return None
    x = tuple(sqrt(one.low * one.high) if one.high else _NEVER for one, _ in known)
    y = tuple(value for _, value in known)
    tips = tuple(f"{one.name}: {number(value, limits=limits)} ({counted(one.n, 'row')})" for one, value in known)
    curve = Curve("bins", x, y, "bins", dots=True, tips=tips)
    marks = (Mark(0.0, "y"),) if limits == _COSINES else ()
    along = "occurrences in the text" if by == "count" else "rank, the most frequent first"
    name, spark = f"by {by} {words}", f"{words} by {by}"
    return Chart(name, title, along, words, (curve,), marks=marks, log_x=True, spark=spark)


def _tokens(tokens: Sequence[PlacedToken]) -> Table:
    often = ("count",) if any(one.count is not None for one in tokens) else ()

    def row(one: PlacedToken) -> Row:
        token = "-" if one.token is None else Cell(shown_token(one.token, 24), tone="token")
        along, to_reserved = optional(one.along_common), optional(one.cosine_to_reserved, _COSINES)
        occurs = (optional(one.count, shown=count) for _ in often)
        return token, count(one.id), *occurs, number(one.norm, limits=_LENGTHS), along, to_reserved

    return numbers(("token", "id", *often, "norm", "along common", "to reserved"), map(row, tokens))
