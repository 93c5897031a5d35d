"""How measured frequency shapes rows: readings of bins of counts, rank correlations, and tokens by name."""

import math
from collections.abc import Callable
from statistics import NormalDist
from typing import Literal

import numpy as np

from uncone.diagnosis.bins.record import (
    ALONG,
    NEAR,
    NORM,
    CountCorrelation,
    FrequencyBin,
    FrequencyBins,
    NeverSeen,
    PlacedToken,
)
from uncone.diagnosis.bins.shape import CONFIDENCE, LITTLE, find_turn, spearman
from uncone.measure.groups import FEWEST_RESERVED
from uncone.measure.partition import partition_of
from uncone.measure.projections import UnitSums
from uncone.moments import Moments, inverse
from uncone.records.text import count, counted, listing, number, percent, plural
from uncone.records.token_text import token_texts
from uncone.records.tokens import Estimate
from uncone.rows import Array, Rows, SelectedRows

FEWEST_ROWS = 10  # a smaller bin is joined to its neighbour: its means show little
APART = 0.2  # standard deviations of the tokens that occur, by which rows never seen differ noticeably (Cohen 1988)
_PER_DECADE, _LISTED = 2, 20
_WAYS = {
    NORM: ("shorter", "longer"),
    ALONG: ("less far along the common direction", "further along the common direction"),
    NEAR: ("further from reserved rows", "nearer to reserved rows"),
}
"""Words for a lower and for a higher reading."""
_NEAR_ZERO = 1e-5  # of the mean norm: a shorter mean row is rounding


def bin_edges(counts: Array) -> list[int]:
    """The least count of each bin: 0, then 1, 4, 10, 32, ..., two bins per decade.

    >>> bin_edges(np.repeat([0, 1, 2, 50, 700], 20))
    [0, 1, 32, 317]
    """
    most = int(counts.max(initial=0))
    steps = range(math.ceil(_PER_DECADE * math.log10(max(most, 1))) + 1)
    edges = [0, *(math.ceil(10 ** (k / _PER_DECADE) - 1e-9) for k in steps)]
    sizes = np.histogram(counts, [*edges, math.inf])[0].tolist()
    kept, rows = list[int](), 0
    for edge, size in zip(edges[:0:-1], sizes[:0:-1], strict=True):  # the frequent ones are few
        rows += size
        if rows >= FEWEST_ROWS:
            kept, rows = [edge, *kept], 0
    if rows and kept:
        kept[0] = 1
    kept = kept or [1]
    return [0, *kept] if sizes[0] else kept


class BinReader:
    """Reads rows by their `counts` (N,): `update` in a first pass, `take` in a second, then `read`.

    Without counts the rows are in order of frequency, and read by rank, from 1 for the most frequent.
    """

    def __init__(self, rows: Rows, counts: Array | None, unused: Array) -> None:
        ids = np.arange(rows.shape[0]) if rows.ids is None else rows.ids
        self._by: Literal["count", "rank"] = "rank" if counts is None else "count"
        self._order, self._unused = ids + 1 if counts is None else counts, unused
        self._edges = low = bin_edges(self._order[~unused])
        self._groups = np.searchsorted(low, self._order, side="right") - 1  # reserved rows last
        self._groups[unused] = len(low)
        self._bins, n = len(low) + 1, int(unused.sum())
        never = int((self._groups == 0).sum()) if low[0] == 0 else 0
        self._reference: int | None = None  # the bin that others are compared with
        self._compared = "No rows are reserved, and too few tokens were never seen to take their place."
        if n >= FEWEST_RESERVED:
            self._reference = len(low)
            self._compared = f"Reserved: {counted(n, 'row')} whose token is reserved by name, or that have no token."
        elif never >= FEWEST_RESERVED:
            self._reference = 0
            self._compared = f"In place of reserved rows: {counted(never, 'row')} of tokens never seen in the text."
        self._unit = UnitSums(self._groups, self._bins, rows.shape[1])
        self._along: Array | None = None
        self._to_reserved: Array | None = None

    def update(self, block: Array, norms: Array) -> None:
        self._unit.update(block, norms)

    def axes(self, common: Array) -> Array:
        """(D, 2): the mean unit reserved row, and the common direction."""
        reference, length = self._reference, math.sqrt(float(common @ common))
        axes = np.zeros((len(common), 2))
        if reference is not None:
            with_direction = (self._groups == reference) & (self._unit.norms > 0)
            axes[:, 0] = self._unit.sums[reference] / max(1, int(with_direction.sum()))
        if length > _NEAR_ZERO * self._mean_norm():
            axes[:, 1] = common / length
        return axes

    def take(self, products: Array, axes: Array) -> None:
        if axes[:, 1].any():
            self._along = products[:, 1] / self._mean_norm()
        if axes[:, 0].any():
            self._to_reserved = products[:, 0] * inverse(self._unit.norms)

    def _mean_norm(self) -> float:
        return float(self._unit.norms.mean()) or 1.0

    def read(self, rows: Rows, m: Moments, common: str, progress: Callable[[int], None]) -> FrequencyBins | None:
        """None if no row has a count. `common` is a sentence that describes the common direction.

        I(W) of a bin is min Z(c) / max Z(c) over its rows (Mu & Viswanath 2018, eq. 6), with both signs of the
        eigenvectors of all rows. Fewer rows have a lower I(W), so a random sample of the same size is read too.
        """
        if not self._order.any() or m.n < 2:
            return None
        done, bins = 0, list[FrequencyBin]()
        for k in range(self._bins):
            members = np.flatnonzero(self._groups == k)
            if len(members):
                bins.append(self._bin(k, members, rows, m))
            done += len(members)
            progress(done)
        reserved = bins.pop() if self._unused.any() else None
        correlations, differences = self._correlations()
        never = np.flatnonzero((self._order == 0) & ~self._unused)
        verdict = _verdict(correlations, differences, self._by)
        if self._reference == 0:
            verdict = verdict.replace("reserved rows", "rows never seen")
        return FrequencyBins(
            verdict=verdict,
            tokens=self._occurrences(self._order),
            confidence=CONFIDENCE,
            bins=tuple(bins),
            reserved=reserved,
            compared=self._compared,
            common=common,
            correlations=correlations,
            never_seen=len(never),
            unseen=self._named(rows, never, self._to_reserved),
            furthest=() if self._along is None else self._named(rows, np.flatnonzero(~self._unused), self._along),
            by=self._by,
            never=differences,
        )

    def _bin(self, k: int, members: Array, rows: Rows, m: Moments) -> FrequencyBin:
        norms, order = self._unit.norms[members], self._order[members]
        n, s = np.count_nonzero(norms), self._unit.sums[k]
        drawn = np.random.default_rng(k).choice(len(self._order), len(members), replace=False)
        cosines = None if k == self._reference or not n else self._to_reserved
        return FrequencyBin(
            low=int(order.min()),
            high=int(order.max()),
            n=len(members),
            occurrences=self._occurrences(order),
            mean_norm=float(norms.mean()),
            mean_cosine=min(1.0, (float(s @ s) - n) / (n * (n - 1))) if n > 1 else None,
            cosine_to_reserved=None if cosines is None else float(cosines[members].sum()) / n,
            partition_isotropy=_isotropy(rows, members, m),
            partition_isotropy_drawn=_isotropy(rows, np.sort(drawn), m),
            along_common=None if self._along is None else float(self._along[members].mean()),
        )

    def _occurrences(self, order: Array) -> int | None:
        return int(order.sum(dtype=np.float64)) if self._by == "count" else None

    def _correlations(self) -> tuple[tuple[CountCorrelation, ...], tuple[NeverSeen, ...]]:
        """Correlations over tokens that occur, and tokens never seen compared with them, both without reserved rows.
        Cosines are of nonzero rows outside the reference."""
        others, seen = ~self._unused, self._order > 0
        of = [(NORM, self._unit.norms, others)]
        if self._along is not None:
            of.append((ALONG, self._along, others))
        if self._to_reserved is not None:
            free = others & (self._unit.norms > 0) & (self._groups != self._reference)
            of.append((NEAR, self._to_reserved, free))
        correlations, differences = list[CountCorrelation](), list[NeverSeen]()
        for name, values, kept in of:
            order, own, never = self._order[kept & seen], values[kept & seen], values[kept & ~seen]
            turn = find_turn(order, own, [edge for edge in self._edges if edge])
            correlations.append(CountCorrelation(name, len(own), spearman(order, own), turn))
            if min(len(own), len(never)) >= FEWEST_ROWS:
                differences.append(_apart(name, never, own))
        return tuple(correlations), tuple(differences)

    def _named(self, rows: Rows, which: Array, by: Array | None) -> tuple[PlacedToken, ...]:
        """Tokens with their readings, the greatest by `by` first."""
        order = which if by is None else which[np.argsort(-by[which], kind="stable")]
        listed, ids = order[:_LISTED].tolist(), rows.ids

        def token(i: int, text: str | None) -> PlacedToken:
            of = (None if values is None else float(values[i]) for values in (self._along, self._to_reserved))
            often = int(self._order[i]) if self._by == "count" else None
            return PlacedToken(i if ids is None else int(ids[i]), text, often, float(self._unit.norms[i]), *of)

        return tuple(map(token, listed, token_texts(rows.labels, listed)))


def _isotropy(rows: Rows, members: Array, m: Moments) -> float | None:
    if len(members) < 2:
        return None
    return math.exp(-float(np.ptp(np.stack(partition_of(SelectedRows(rows, members), m)))))


def _apart(name: str, never: Array, seen: Array) -> NeverSeen:
    """Rows never seen compared with rows seen, with the normal interval of a difference of means (Welch 1938)."""
    difference = float(never.mean() - seen.mean())
    error = math.sqrt(float(never.var(ddof=1)) / len(never) + float(seen.var(ddof=1)) / len(seen))
    reach = NormalDist().inv_cdf((1 + CONFIDENCE) / 2) * error
    estimate = Estimate(difference, (difference - reach, difference + reach))
    return NeverSeen(name, len(never), float(never.mean()), float(seen.mean()), estimate, float(seen.std(ddof=1)))


def _verdict(
    correlations: tuple[CountCorrelation, ...], differences: tuple[NeverSeen, ...], by: Literal["count", "rank"]
) -> str:
    sure, turns, unsure = list[str](), list[str](), ""
    for one in correlations:
        ends, value = one.correlation.interval, one.correlation.value
        if one.turn:
            turns.append(_turn_words(one, by))
        elif value is not None and abs(value) >= LITTLE:
            rarer = value if by == "rank" else -value
            if ends and ends[0] * ends[1] > 0:
                sure.append(f"{_WAYS[one.reading][rarer > 0]} (rank correlation {number(rarer, digits=2)})")
            else:
                have = "the intervals of the larger rank correlations include 0"
                unsure = have if ends else unsure or "the larger rank correlations have no interval"
    over = f", over the {count(correlations[0].n)} tokens that occur" if differences else ""
    said = ([f"Rarer tokens have rows that are {listing(sure)}{over}."] if sure else []) + turns
    if unsure and not said:
        said = [f"Too few rows to say whether a token's frequency shapes its row: {unsure}."]
    if not said and all(one.correlation.value is None for one in correlations):
        why = "all tokens that occur are equally frequent, or all rows have the same readings"
        said = [f"Frequency cannot be compared with the rows: {why}."]
    if not said:
        said = [f"A token's frequency shows little about its row: no rank correlation reaches {LITTLE:g}."]
    return " ".join([*said, *_never_words(differences)])


def _turn_words(one: CountCorrelation, by: Literal["count", "rank"]) -> str:
    assert one.turn
    (below, above), total = (side.value or 0.0 for side in (one.turn.below, one.turn.above)), sum(one.turn.rows)
    ways = ("rises", "falls") if below > 0 else ("falls", "rises")
    at = f"about {counted(one.turn.at, 'occurrence')}" if by == "count" else f"about rank {count(one.turn.at)}"
    sides = zip((below, above), one.turn.rows, strict=True)
    shown = " and ".join(f"{number(value, digits=2)} over {percent(n / total)}" for value, n in sides)
    words = f"The {one.reading} {ways[0]} with the {by} up to {at} and {ways[1]} from there"
    return f"{words} (rank correlations {shown} of the tokens{' that occur' if by == 'count' else ''})."


def _never_words(differences: tuple[NeverSeen, ...]) -> list[str]:
    parts = list[str]()
    for one in differences:
        ends, value = one.difference.interval or (0.0, 0.0), one.difference.value or 0.0
        if ends[0] * ends[1] > 0 and abs(value) >= APART * one.deviation:
            means = f"{number(one.mean, digits=2)} against {number(one.mean_of_seen, digits=2)}"
            parts.append(f"{_WAYS[one.reading][value > 0]} ({means})")
    if not parts:
        return []
    tokens = plural(differences[0].n, "token", "tokens")
    return [f"The {count(differences[0].n)} {tokens} never seen have rows that are on average {listing(parts)}."]
