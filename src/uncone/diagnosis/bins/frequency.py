"""How measured frequency shapes rows: readings of bins of counts, rank correlations, and tokens by name."""

import math
from collections.abc import Callable

import numpy as np

from uncone.diagnosis.bins.record import CountCorrelation, FrequencyBin, FrequencyBins, PlacedToken
from uncone.measure.groups import FEWEST_RESERVED
from uncone.measure.partition import partition_of
from uncone.measure.projections import UnitSums
from uncone.moments import Moments, inverse
from uncone.records.text import counted, listing, number
from uncone.records.token_text import token_texts
from uncone.records.tokens import Estimate
from uncone.rows import Array, Rows, SelectedRows
from uncone.statistics.correlations import fisher_interval
from uncone.statistics.ranks import centred_ranks

FEWEST_ROWS = 10  # a smaller bin is joined to its neighbour: its means say little
CONFIDENCE = 0.95
LITTLE = 0.1  # a rank correlation that explains a hundredth of the ranks, which no reader would see
_PER_DECADE, _LISTED = 2, 20
_ALONG, _NEAR = "distance along the common direction", "cosine to reserved rows"
_WAYS = {
    "norm": ("shorter", "longer"),
    _ALONG: ("less far along the common direction", "further along the common direction"),
    _NEAR: ("less near to reserved rows", "nearer to reserved rows"),
}
"""Rarer tokens have a lower, or a higher, reading."""
_NEAR_ZERO = 1e-5  # of the mean norm: a shorter mean row is rounding


def spearman(x: Array, y: Array, *, confidence: float = CONFIDENCE) -> Estimate:
    """Spearman's rank correlation of x and y (n,), ties by their mean rank; undefined where either is constant.

    The interval is that of `fisher_interval`.

    >>> spearman(np.array([1.0, 2.0, 3.0]), np.array([1.0, 3.0, 2.0])).value
    0.5
    """
    a, b = map(centred_ranks, (x, y))
    length = math.sqrt(float(a @ a) * float(b @ b))
    if length == 0:
        return Estimate(None)
    r, n = max(-1.0, min(1.0, float(a @ b) / length)), len(a)
    return Estimate(r, fisher_interval(r, n, confidence))


def bin_edges(counts: Array) -> list[int]:
    """The least count of each bin: 0, then 1, 4, 10, 32, ..., two bins a decade.

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
    """Reads rows by their `counts` (N,): `update` in a first pass, `take` in a second, then `read`."""

    def __init__(self, rows: Rows, counts: Array, unused: Array) -> None:
        self._counts, self._unused = counts, unused
        low = bin_edges(counts[~unused])
        self._groups = np.searchsorted(low, counts, side="right") - 1  # reserved rows last
        self._groups[unused] = len(low)
        self._bins, n = len(low) + 1, int(unused.sum())
        never = int((self._groups == 0).sum()) if low[0] == 0 else 0
        self._reference: int | None = None  # the bin that others are compared with
        self._compared = "No rows are reserved, and too few were never seen to stand in."
        if n >= FEWEST_RESERVED:
            self._reference = len(low)
            self._compared = f"Reserved: {counted(n, 'row')} whose token is reserved by name, or that have none."
        elif never >= FEWEST_RESERVED:
            self._reference = 0
            self._compared = f"In place of reserved rows: the {counted(never, 'row')} never seen in the text."
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
        """None where no row has a count. `common` says what the common direction is.

        I(W) of a bin is min Z(c) / max Z(c) over its rows (Mu & Viswanath 2018, eq. 6), with both signs of the
        eigenvectors of all rows. It falls with the number of rows: as many drawn from all are read too.
        """
        if not self._counts.any() or m.n < 2:
            return None
        done, bins = 0, list[FrequencyBin]()
        for k in range(self._bins):
            members = np.flatnonzero(self._groups == k)
            if len(members):
                bins.append(self._bin(k, members, rows, m))
            done += len(members)
            progress(done)
        reserved = bins.pop() if self._unused.any() else None
        correlations = self._correlations()
        never = np.flatnonzero((self._counts == 0) & ~self._unused)
        return FrequencyBins(
            verdict=_verdict(correlations),
            tokens=int(self._counts.sum(dtype=np.float64)),
            confidence=CONFIDENCE,
            bins=tuple(bins),
            reserved=reserved,
            compared=self._compared,
            common=common,
            correlations=correlations,
            never_seen=len(never),
            unseen=self._named(rows, never, self._to_reserved),
            furthest=() if self._along is None else self._named(rows, np.flatnonzero(~self._unused), self._along),
        )

    def _bin(self, k: int, members: Array, rows: Rows, m: Moments) -> FrequencyBin:
        norms, counts = self._unit.norms[members], self._counts[members]
        n, s = np.count_nonzero(norms), self._unit.sums[k]
        drawn = np.random.default_rng(k).choice(len(self._counts), len(members), replace=False)
        cosines = None if k == self._reference or not n else self._to_reserved
        return FrequencyBin(
            low=int(counts.min()),
            high=int(counts.max()),
            n=len(members),
            occurrences=int(counts.sum(dtype=np.float64)),
            mean_norm=float(norms.mean()),
            mean_cosine=min(1.0, (float(s @ s) - n) / (n * (n - 1))) if n > 1 else None,
            cosine_to_reserved=None if cosines is None else float(cosines[members].sum()) / n,
            partition_isotropy=_isotropy(rows, members, m),
            partition_isotropy_drawn=_isotropy(rows, np.sort(drawn), m),
            along_common=None if self._along is None else float(self._along[members].mean()),
        )

    def _correlations(self) -> tuple[CountCorrelation, ...]:
        """Without reserved rows; cosines are of rows with a direction that are not the reference."""
        others = ~self._unused
        of = [("norm", self._unit.norms, others)]
        if self._along is not None:
            of.append((_ALONG, self._along, others))
        if self._to_reserved is not None:
            free = others & (self._unit.norms > 0) & (self._groups != self._reference)
            of.append((_NEAR, self._to_reserved, free))
        return tuple(
            CountCorrelation(name, int(kept.sum()), spearman(self._counts[kept], values[kept]))
            for name, values, kept in of
        )

    def _named(self, rows: Rows, which: Array, by: Array | None) -> tuple[PlacedToken, ...]:
        """Those greatest by `by` first."""
        order = which if by is None else which[np.argsort(-by[which], kind="stable")]
        listed, ids = order[:_LISTED].tolist(), rows.ids

        def token(i: int, text: str | None) -> PlacedToken:
            of = (None if values is None else float(values[i]) for values in (self._along, self._to_reserved))
            own = int(self._counts[i]), float(self._unit.norms[i])
            return PlacedToken(i if ids is None else int(ids[i]), text, *own, *of)

        return tuple(map(token, listed, token_texts(rows.labels, listed)))


def _isotropy(rows: Rows, members: Array, m: Moments) -> float | None:
    if len(members) < 2:
        return None
    return math.exp(-float(np.ptp(np.stack(partition_of(SelectedRows(rows, members), m)))))


def _verdict(correlations: tuple[CountCorrelation, ...]) -> str:
    sure, unsure = list[str](), False
    for one in correlations:
        ends, value = one.correlation.interval, one.correlation.value
        if ends is None or value is None or abs(value) < LITTLE:
            continue
        if ends[0] * ends[1] > 0:
            sure.append(f"the {_WAYS[one.reading][value < 0]} (rank correlation {number(-value, digits=2)})")
        else:
            unsure = True
    if sure:
        return f"The rarer a token, {listing(sure)}."
    if unsure:
        few = "Too few rows to say whether a token's frequency shapes its row"
        return f"{few}: the intervals of the larger rank correlations hold 0."
    return f"How often a token occurs says little of its row: no rank correlation reaches {LITTLE:g}."
