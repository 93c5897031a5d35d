"""What do the lengths of the rows show? Their distribution, how they follow the ids, and rows of one short length, as
weight decay leaves rows without gradient."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from uncone.errors import UndefinedMeasure
from uncone.records.measures import MeasureDescription
from uncone.records.parts import Measurement, Norms
from uncone.records.text import counted
from uncone.rows import Array, as_array
from uncone.statistics.correlations import fisher_interval

_PER_OCTAVE = 256
_OCTAVES = 128
_BIN = 2.0 ** (1 / _PER_OCTAVE)
SHORT = 0.5  # of the median norm
FEWEST = 10  # fewer rows of one length come by chance
PEAK = 3.0  # times the rows in the window of the same width above, and in the window below

NORM_ID_CORRELATION = MeasureDescription(
    "norm_id_correlation", range=(-1.0, 1.0), better="neither", centered=False,
    says="How a row's length changes with its id; `NormProfile.id_correlation` computes it.",
    definition="Spearman correlation between the norm of a row and its id; ids stand for frequency where sorted by it",
    formula="Spearman's rank correlation of |x_i| and i, norms ranked to 0.27%, ties by their mean rank", isotropic="0",
    reads_badly="ids are not sorted by frequency: the value then shows nothing about rarity. Where ids are sorted "
    "(WordPiece, many BPE vocabularies), it shows how strongly length encodes rarity.",
    source="Gao et al. 2019 and Bis et al. 2021 discuss norm against frequency; the rank correlation with the id is "
    "ours.",
    interval="95%, for other rows with such ids: Fisher's, with the variance of Bonett & Wright 2000.",
)  # fmt: skip


class NormProfile:
    """The norms of rows that come block by block: a histogram with bins 2^(1/256) wide (0.27%), which is the precision
    of quantiles and rank correlations. The first bin is for norm 0."""

    def __init__(self) -> None:
        self._counts, self._id_sums = np.zeros((2, 1 + _PER_OCTAVE * _OCTAVES))
        self.n, self._low = 0, math.inf
        self._sum = self._id_square = self._high = 0.0

    def update(self, norms: Any, ids: Any) -> None:
        """Add the norms (n,) of the rows with the given ids (n,)."""
        norms, ids = (np.asarray(as_array(given), np.float64) for given in (norms, ids))
        size = len(self._counts)
        with np.errstate(divide="ignore"):  # of norm 0
            at = (np.log2(norms) + _OCTAVES / 2) * _PER_OCTAVE + 1.5
        at = np.where(norms > 0, at.clip(1, size - 1), 0).astype(np.int64)
        self._counts += np.bincount(at, minlength=size)
        self._id_sums += np.bincount(at, weights=ids, minlength=size)
        self.n += len(norms)
        self._sum += float(norms.sum())
        self._id_square += float(np.square(ids).sum())
        self._low, self._high = min(self._low, float(norms.min())), max(self._high, float(norms.max()))

    def absorb(self, other: "NormProfile") -> "NormProfile":
        """The norms of both."""
        self._counts += other._counts
        self._id_sums += other._id_sums
        self.n, self._sum, self._id_square = (
            self.n + other.n,
            self._sum + other._sum,
            self._id_square + other._id_square,
        )
        self._low, self._high = min(self._low, other._low), max(self._high, other._high)
        return self

    def quantile(self, q: float) -> float:
        """The norm below which a share `q` of the rows falls, to 0.27%."""
        at = int(np.searchsorted(self._counts.cumsum(), q * self.n))
        norm = float(_norm_at(np.array(min(at, len(self._counts) - 1))))
        return min(self._high, max(self._low, norm)) if at else 0.0

    def count_from(self, norm: float) -> int:
        """How many rows have at least this norm, to 0.27% of it."""
        at = min(max(0, math.ceil((math.log2(norm) + _OCTAVES / 2) * _PER_OCTAVE + 1)), len(self._counts))
        return int(self._counts[at:].sum())

    def record(self) -> Norms:
        """The norms in at most 60 bars from the 0.1% to the 99.9% quantile; the outermost bars hold the rest."""
        low, high, mean = self.quantile(0.001), self.quantile(0.999), self._sum / self.n
        if not high > low or self._high <= self._low * _BIN:  # as of rows that were normalised
            return Norms(self._low, mean, self._high, (self._low, max(self._high, self._low)), (self.n,))
        edges = np.linspace(low, high, 61)
        edges[0], edges[-1] = min(self._low, low), max(self._high, high)
        at = np.searchsorted(edges[1:-1], _norm_at(np.arange(len(self._counts))))
        counts = np.bincount(at, weights=self._counts, minlength=60).astype(np.int64)
        return Norms(self._low, mean, self._high, tuple(edges.tolist()), tuple(counts.tolist()))

    def id_correlation(self, d: int) -> Measurement:
        """`NORM_ID_CORRELATION` of the rows so far, which have d features.

        Undefined: fewer than three rows, or norms that are all equal to 0.27%.
        >>> profile = NormProfile()
        >>> profile.update(np.array([1.0, 4.0, 2.0]), np.arange(3))  # ranks 1, 3, 2 against 1, 2, 3
        >>> round(profile.id_correlation(d=8), 12)  # 1 - 6 (1 + 1) / (3 (3^2 - 1))
        0.5
        """
        ranks = self._counts.cumsum() - (self._counts - 1) / 2
        mean_rank, mean_id = (self.n + 1) / 2, float(self._id_sums.sum()) / max(self.n, 1)
        rank_spread = float((self._counts * np.square(ranks - mean_rank)).sum())
        id_spread = self._id_square - self.n * mean_id**2
        if self.n < 3 or rank_spread <= 0 or id_spread <= 0 or self._high <= self._low * _BIN:
            got = f"fewer in {counted(self.n, 'row')}: this measure does not apply to rows of one length"
            raise UndefinedMeasure(f"expected at least three rows with different norms, got {got}")
        together = float((ranks * self._id_sums).sum()) - mean_rank * self.n * mean_id
        value = max(-1.0, min(1.0, together / math.sqrt(rank_spread * id_spread)))
        interval = fisher_interval(value, self.n, 0.95)
        return NORM_ID_CORRELATION.measured(value, n=self.n, d=d, reference=0.0, interval=interval)


def _norm_at(position: Array) -> Array:
    """The norm in the middle of the bin at `position`, from 1."""
    return np.asarray(np.exp2((position - 1) / _PER_OCTAVE - _OCTAVES / 2))


@dataclass(frozen=True, eq=False)
class LengthFloor:
    """The rows of one short length."""

    rows: Array  # their numbers, int64 (n,)
    norm: float  # their median norm
    median: float  # that of all rows
    spread: float  # Standard deviation of their norms, over their mean
    width: float  # of the window that holds them, in the logarithm
    beside: int  # rows in a window of that width above or below, away from this group: the larger number


def length_floor(norms: Any, d: int) -> LengthFloor | None:
    """The largest group of short rows of nearly one length among rows of `d` columns with `norms` (N,); None if there
    is none.

    Random rows that were only shrunk, by the same factor at every step, keep the relative spread of a Gaussian's norm,
    1 / sqrt(2 D). The group fits a window of four such spreads and is a peak: the windows above and below hold at most
    a third as many rows.
    >>> norms = np.concatenate([np.linspace(0.8, 1.2, 90), np.full(10, 0.1)])
    >>> length_floor(norms, 64).rows.tolist()
    [90, 91, 92, 93, 94, 95, 96, 97, 98, 99]
    """
    norms = np.asarray(as_array(norms), np.float64)
    median = float(np.median(norms)) if len(norms) else 0.0
    logs = np.sort(np.log(norms[norms > 0]))
    short = logs[logs < math.log(SHORT * median)] if median > 0 else logs[:0]
    if len(short) < FEWEST:
        return None
    width = 4 / math.sqrt(2 * d)
    ends = np.searchsorted(short, short + width, side="right")  # no window reaches into the usual rows
    start = int((ends - np.arange(len(short))).argmax())
    n, first = int(ends[start]) - start, float(short[start])
    above = int(np.diff(np.searchsorted(logs, [first + width, first + 2 * width], side="right"))[0])
    below = start - int(np.searchsorted(logs, first - width))
    if n < max(FEWEST, PEAK * above, PEAK * below):
        return None
    ranges = ([first + 1.5 * width, first + 2.5 * width], [first - 1.5 * width, first - 0.5 * width])  # 4 spreads off
    beside = max(int(np.diff(np.searchsorted(logs, one))[0]) for one in ranges)
    low, high = math.exp(first), math.exp(float(logs[ends[start] - 1]))
    rows = np.flatnonzero((norms >= low * (1 - 1e-12)) & (norms <= high * (1 + 1e-12)))
    of = norms[rows]
    return LengthFloor(rows, float(np.median(of)), median, float(of.std() / of.mean()), width, beside)
