"""Do the lengths of the rows say something? Their distribution, and how they follow the ids."""

import math

import torch

from uncone.errors import UndefinedMeasure
from uncone.records import Measurement, Norms
from uncone.records.wording import counted

Tensor = torch.Tensor
_PER_OCTAVE = 256
_OCTAVES = 128
_BARS = 60


class NormProfile:
    """The norms of rows that come block by block, in constant memory: a fine histogram on a logarithmic scale.

    A bin is 2^(1/256) wide, 0.27 %: quantiles and rank correlations are exact to that resolution.
    """

    def __init__(self) -> None:
        size = _PER_OCTAVE * _OCTAVES
        self.counts = torch.zeros(size, dtype=torch.int64)
        self._id_sums = torch.zeros(size, dtype=torch.float64)
        self.n = 0
        self._zero, self._zero_ids = 0, 0.0
        self._sum, self._square = 0.0, 0.0
        self._low, self._high = math.inf, 0.0
        self._id_square = 0.0

    def update(self, norms: Tensor, ids: Tensor) -> None:
        """Add the norms (n,) of the rows with the given ids (n,)."""
        norms, ids = norms.double().cpu(), ids.double().cpu()
        present = norms > 0
        at = (
            ((norms[present].log2() + _OCTAVES / 2) * _PER_OCTAVE + 0.5)
            .long()
            .clamp_(0, len(self.counts) - 1)
        )
        self.counts += torch.bincount(at, minlength=len(self.counts))
        self._id_sums += torch.bincount(at, weights=ids[present], minlength=len(self.counts))
        self.n += len(norms)
        self._zero += int((~present).sum())
        self._zero_ids += float(ids[~present].sum())
        self._sum += float(norms.sum())
        self._square += float(norms.square().sum())
        self._id_square += float(ids.square().sum())
        self._low, self._high = min(self._low, float(norms.min())), max(self._high, float(norms.max()))

    def quantile(self, q: float) -> float:
        """The norm below which a share `q` of the rows lies, to 0.27 %."""
        wanted = q * self.n - self._zero
        if wanted <= 0:
            return 0.0
        at = int(torch.searchsorted(self.counts.cumsum(0).double(), wanted))
        return min(self._high, max(self._low, _edge(min(at, len(self.counts) - 1))))

    def _all_alike(self) -> bool:
        """Whether the norms differ by no more than a bin, as those of rows that were normalised."""
        alike: bool = self._high <= self._low * 2.0 ** (1 / _PER_OCTAVE)
        return alike

    def record(self) -> Norms:
        """The distribution in at most 60 bars of equal width between the 0.1 % and 99.9 % quantiles, with the rest outside."""
        low, high = self.quantile(0.001), self.quantile(0.999)
        if not high > low or self._all_alike():
            return Norms(
                self._low, self._sum / self.n, self._high, (self._low, max(self._high, self._low)), (self.n,)
            )
        edges = torch.linspace(low, high, _BARS + 1, dtype=torch.float64)
        edges[0], edges[-1] = min(self._low, low), max(self._high, high)
        centers = torch.tensor([_edge(i) for i in range(len(self.counts))], dtype=torch.float64)
        at = torch.searchsorted(edges[1:-1].contiguous(), centers)
        counts = torch.bincount(at, weights=self.counts.double(), minlength=_BARS)
        counts[0] += self._zero
        return Norms(
            self._low,
            self._sum / self.n,
            self._high,
            tuple(edges.tolist()),
            tuple(int(c) for c in counts.tolist()),
        )

    def id_correlation(self, d: int) -> Measurement:
        """Spearman's rank correlation between a row's norm and its id.

        Where ids are sorted by frequency (WordPiece, many BPE vocabularies), it says how strongly length encodes rarity.
        Norms are ranked by the bins of the histogram, ties by their mean rank.

        Returns:
            A value in [-1, 1]; an isotropic cloud has 0.

        Raises:
            UndefinedMeasure: fewer than three rows, or norms that are all equal to 0.27 %.
        """
        counts = torch.cat([torch.tensor([self._zero]), self.counts]).double()
        id_sums = torch.cat([torch.tensor([self._zero_ids], dtype=torch.float64), self._id_sums])
        ranks = counts.cumsum(0) - (counts - 1) / 2
        mean_rank, mean_id = (self.n + 1) / 2, float(id_sums.sum()) / max(self.n, 1)
        rank_spread = float((counts * (ranks - mean_rank).square()).sum())
        id_spread = self._id_square - self.n * mean_id**2
        if self.n < 3 or rank_spread <= 0 or id_spread <= 0 or self._all_alike():
            raise UndefinedMeasure(
                f"expected at least three rows with different norms, got {counted(self.n, 'row')}: there is no order of norms"
            )
        together = float((ranks * id_sums).sum()) - mean_rank * self.n * mean_id
        value = max(-1.0, min(1.0, together / math.sqrt(rank_spread * id_spread)))
        return Measurement(
            "norm_id_correlation", value, range=(-1.0, 1.0), better="neither", reference=0.0, n=self.n, d=d, centered=False,
            definition="Spearman correlation between the norm of a row and its id; ids stand for frequency where sorted by it",
        )  # fmt: skip


def _edge(position: float) -> float:
    return float(2.0 ** (position / _PER_OCTAVE - _OCTAVES / 2))
