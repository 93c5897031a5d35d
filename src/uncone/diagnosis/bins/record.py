"""Rows by how often their tokens were counted in a text."""

from collections.abc import Sequence
from math import sqrt

from uncone.records.blocks import Blocks, Cell, Chart, Curve, Figure, Folded, Mark, Row, Table, Text
from uncone.records.brief import part
from uncone.records.layout import numbers, section, shown
from uncone.records.text import Limits, count, counted, number, optional, percent
from uncone.records.token_text import shown_token
from uncone.records.tokens import Estimate

_COSINES, _LENGTHS, _SHARES = (-1.0, 1.0), (0.0, None), (0.0, 1.0)
_READINGS: tuple[tuple[str, str, str, Limits], ...] = (
    ("mean_norm", "norm", "Norm", _LENGTHS),
    ("mean_cosine", "within", "Cosine within the bin", _COSINES),
    ("cosine_to_reserved", "to reserved", "Cosine to reserved rows", _COSINES),
    ("along_common", "along common", "Distance along the common direction", (None, None)),
    ("partition_isotropy", "I(W)", "I(W)", _SHARES),
)
"""The field, the column, the chart's title, and the range."""
_NEVER = 0.3  # the place of tokens never seen on a logarithmic axis
_FIRST = "The first point: tokens that were never seen."
_DRAWN = "Beside I(W): that of as many rows drawn from all, as fewer rows have a lower one."


@part
class FrequencyBin:
    """Rows whose tokens occur `low` to `high` times; undefined readings are None."""

    low: int  # the least count in the bin
    high: int  # the greatest
    n: int  # rows
    occurrences: int  # the sum of their counts
    mean_norm: float
    mean_cosine: float | None  # between rows of the bin
    cosine_to_reserved: float | None  # mean cosine of its rows and the reserved rows
    along_common: float | None  # mean of w . c over the mean norm of all rows
    partition_isotropy: float | None  # I(W) of the bin's rows, along the eigenvectors of all rows
    # the same of as many rows drawn from all: fewer rows have a lower one
    partition_isotropy_drawn: float | None = None

    @property
    def name(self) -> str:
        if self.high == 0:
            return "never seen"
        return count(self.low) if self.low == self.high else f"{count(self.low)} to {count(self.high)}"


@part
class CountCorrelation:
    reading: str  # what the count is correlated with
    n: int  # rows
    correlation: Estimate  # Spearman's, with Fisher's interval (Bonett & Wright 2000)


@part
class PlacedToken:
    id: int
    token: str | None
    count: int
    norm: float
    along_common: float | None  # of this row
    cosine_to_reserved: float | None  # of this row


@part
class FrequencyBins:
    """Reserved rows stand apart."""

    verdict: str  # one sentence
    tokens: int  # the sum of the counts
    confidence: float  # of the intervals
    bins: tuple[FrequencyBin, ...]  # from never seen to the most frequent
    reserved: FrequencyBin | None  # the rows known to be unused
    compared: str  # which rows cosines to the reserved rows are to
    common: str  # what the common direction is
    correlations: tuple[CountCorrelation, ...]  # of the count with each reading
    never_seen: int  # tokens that do not occur and are not reserved
    unseen: tuple[PlacedToken, ...]  # the first of them, the nearest to the reserved rows first
    furthest: tuple[PlacedToken, ...]  # the rows furthest along the common direction


def by_count_blocks(by_count: FrequencyBins | None) -> Blocks:
    if not by_count or not by_count.bins:
        return ()
    columns = ("count", "rows", *(words for _, words, *_ in _READINGS))
    rows = [_row(one, one.name) for one in by_count.bins]
    rows += [_row(by_count.reserved, "reserved")] if by_count.reserved else []
    charts = tuple(chart for reading in _READINGS if (chart := _chart(by_count.bins, *reading)))
    unseen, furthest = by_count.unseen, by_count.furthest
    never = f"Never seen, though not reserved: the first {len(unseen)} of {count(by_count.never_seen)}"
    return section(
        "By measured frequency",
        Text(by_count.verdict, "lead"),
        _correlations(by_count),
        numbers(columns, rows),
        Text(f"{by_count.compared} {by_count.common} {_DRAWN}", "quiet"),
        Figure("By measured frequency", charts, _FIRST if by_count.never_seen else ""),
        Folded(never, shown(_tokens(unseen))),
        Folded(f"Furthest along the common direction: {len(furthest)} tokens", shown(_tokens(furthest))),
    )


def _row(one: FrequencyBin, name: str) -> Row:
    *readings, isotropy = (optional(getattr(one, field), limits) for field, *_, limits in _READINGS)
    drawn = one.partition_isotropy_drawn
    return name, count(one.n), *readings, Cell(isotropy, "" if drawn is None else f"of {number(drawn, limits=_SHARES)}")


def _correlations(by_count: FrequencyBins) -> Table:
    def row(one: CountCorrelation) -> tuple[str, ...]:
        ends = " to ".join(number(end, limits=_COSINES) for end in one.correlation.interval or ())
        return one.reading, optional(one.correlation.value, _COSINES), ends or "-", count(one.n)

    interval = f"{percent(by_count.confidence, precise=True)} interval"
    columns = ("rank correlation of the count with", "value", interval, "rows")
    return numbers(columns, map(row, by_count.correlations))


def _chart(bins: Sequence[FrequencyBin], field: str, words: str, title: str, limits: Limits) -> Chart | None:
    known = [(one, value) for one in bins if (value := getattr(one, field)) is not None]
    if len(known) < 2:
        return None
    x = tuple(sqrt(one.low * one.high) if one.high else _NEVER for one, _ in known)
    y = tuple(value for _, value in known)
    tips = tuple(f"{one.name}: {number(value, limits=limits)} ({counted(one.n, 'row')})" for one, value in known)
    curve = Curve("bins", x, y, "bins", dots=True, tips=tips)
    marks = (Mark(0.0, "y"),) if limits == _COSINES else ()
    name, along, spark = f"by count {words}", "occurrences in the text", f"{words} by count"
    return Chart(name, title, along, words, (curve,), marks=marks, log_x=True, spark=spark)


def _tokens(tokens: Sequence[PlacedToken]) -> Table:
    def row(one: PlacedToken) -> Row:
        token = "-" if one.token is None else Cell(shown_token(one.token, 24), tone="token")
        along, to_reserved = optional(one.along_common), optional(one.cosine_to_reserved, _COSINES)
        return token, count(one.id), count(one.count), number(one.norm, limits=_LENGTHS), along, to_reserved

    return numbers(("token", "id", "count", "norm", "along common", "to reserved"), map(row, tokens))
