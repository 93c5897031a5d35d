"""The points of a search: rows or unit rows, centred for products, in float64 for differences."""

import math
from functools import partial
from typing import Literal

import torch

from uncone.memory import uninitialised
from uncone.moments import Moments, row_norms
from uncone.rows import GRID, Rows, SelectedRows
from uncone.threads import share

Tensor = torch.Tensor
Metric = Literal["euclidean", "cosine"]
KEPT_BYTES = 192 * 2**20
"""Rows of up to this size are kept for a search; larger matrices are read again, stripe by stripe."""
STRIPE_BYTES = 64 * 2**20
_ORDINARY = (1e-6, 1e6)
"""Between these, squares and products of float32 are nowhere near the ends of its range."""
_CONE = 0.75  # the mean cosine from which on unit rows are centred in float64: what they differ by is less than they are
_PAIRS = 128  # rows a thread subtracts at once: float64 copies of them fit into a core's cache
_ROUNDING = {torch.float32: 2.0**-24, torch.float64: 2.0**-53}


class Points:
    """N points of a metric: the rows themselves, or (cosine) the rows divided by their norms; zero rows have
    no direction and are left out.

    Products are taken of `centered` points: a fixed shift changes no difference, and where the mean is long
    it would cost all digits. Every length is in units of `unit`, a power of two that keeps squares inside
    float32.
    """

    def __init__(self, rows: Rows, moments: Moments, *, metric: Metric, ids: Tensor | None = None) -> None:
        """`ids` (ascending) picks rows; all by default. `moments` are of all rows, first-order."""
        self.metric: Metric = metric
        self._moments = moments
        norms = None
        if metric == "cosine":
            norms = _norms(rows)
            if ids is None and moments.zero_rows:
                ids = norms.nonzero().flatten()
            norms = norms if ids is None else norms[ids]
        self.ids = torch.arange(rows.shape[0]) if ids is None else ids
        """Which row of the matrix each point is."""
        self._rows = rows if ids is None or len(ids) == rows.shape[0] else SelectedRows(rows, ids)
        self.n, self.d = self._rows.shape
        self.unit, self._divisor, center = self._scaling(norms)
        self._center = center.to(rows.widened)
        # In float64, unless float32 will do: for unit rows of ordinary length in no narrow cone, and where nothing is divided.
        plain = self._divisor is None
        if norms is not None:
            plain = _ordinary(norms) and float(center.square().sum()) < _CONE
        self._wide = rows.widened == torch.float64 or not plain
        itemsize = rows.widened.itemsize
        self.fits = self.n * self.d * itemsize <= KEPT_BYTES
        self._kept = self._read(0, self.n).contiguous() if self.fits else None
        self.stripe = self.n if self.fits else max(1, STRIPE_BYTES // (self.d * itemsize))
        """Points to hold at once."""

    def _scaling(self, norms: Tensor | None) -> tuple[float, Tensor | None, Tensor]:
        """The unit of lengths, the divisor of rows (None for 1), and the mean of the points in that unit."""
        m = self._moments
        if norms is not None:
            return 1.0, norms[:, None], m.unit_sums()[0].cpu() / max(m.unit_weight, 1.0)
        mean = m.mean().cpu()
        longest = max(m.norm_max, float(mean.abs().max()))
        if longest == 0 or _ORDINARY[0] < longest < _ORDINARY[1]:
            return 1.0, None, mean
        unit = 2.0 ** min(1000, math.frexp(longest)[1])
        return unit, torch.full((1, 1), unit, dtype=torch.float64), mean / unit

    def _read(self, start: int, stop: int) -> Tensor:
        """Rows as they are, without a second copy where they are in memory already."""
        if not isinstance(self._rows, SelectedRows):
            return self._rows.read(start, stop)
        found = uninitialised((stop - start, self.d), self._rows.widened)
        for begin in range(start, stop, GRID):
            end = min(begin + GRID, stop)
            self._rows.read(begin, end, out=found[begin - start : end - start])
        return found

    def raw(self, start: int, stop: int) -> Tensor:
        """Rows [start, stop) as they are."""
        return self._read(start, stop) if self._kept is None else self._kept[start:stop]

    def raw_at(self, points: Tensor) -> Tensor:
        """Rows at `points` (int64, ascending)."""
        return self._rows.take(points) if self._kept is None else self._kept[points]

    def _divisors(self, at: Tensor | slice) -> Tensor:
        assert self._divisor is not None
        return self._divisor if self.metric == "euclidean" else self._divisor[at]

    def centered(self, raw: Tensor, at: Tensor | slice, dtype: torch.dtype = torch.float32) -> Tensor:
        """The points `at` whose rows are `raw` (n, D), minus the centre, in units of `unit`."""
        center = self._center
        if self._wide or dtype == torch.float64:
            moved = self.exact(raw, at).sub(center.double())
        elif self._divisor is None:
            moved = raw - center
        else:
            moved = (raw * self._divisors(at).reciprocal().float()).sub_(center)
        return moved.to(dtype)

    def exact(self, raw: Tensor, at: Tensor | slice) -> Tensor:
        """The points `at` whose rows are `raw`, in float64 and units of `unit`."""
        return raw.double() if self._divisor is None else raw.double() / self._divisors(at)

    def rounding(self, dtype: torch.dtype) -> float:
        """How far rounding before the centre was subtracted may have moved a centred point."""
        return 4 * _ROUNDING[torch.float64 if self._wide else dtype] if self.metric == "cosine" else 0.0

    def product_error(self, length: Tensor, other: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """Bounds |computed - true| of -|z - z'|^2 / 2 from products of points of at most these lengths.

        An inner product of D terms errs by at most D u |z| |z'| (1 + ...) in any order of adding (Higham
        2002, eq. 3.4); the rest is for the rounding of the points, of their half squares, of two
        subtractions, and of squares by difference.
        """
        u = _ROUNDING[dtype]
        points = self.rounding(dtype)
        differences = (self.d + 4) * _ROUNDING[torch.float64]
        products = (self.d + 4) * u * length * other + (4 * u + differences) * (length + other).square()
        return 1.01 * (products + 2 * points * (length + other)) + self.d * 2.0**-120

    def squares(self, a: Tensor, b: Tensor) -> Tensor:
        """Squared distances, in `unit` squared, of the pairs (a[i], b[i]) by difference in float64: (P,) from
        int64 (P,), (P,)."""
        found = torch.empty(len(a), dtype=torch.float64)
        if self._kept is not None:
            self._difference(self._kept, self._kept, a, b, 0, 0, torch.arange(len(a)), found)
            return found
        cell = (a // self.stripe) * (self.n // self.stripe + 1) + b // self.stripe
        order = torch.argsort(cell, stable=True)
        held: tuple[int, Tensor] | None = None
        keys, counts = torch.unique_consecutive(cell[order], return_counts=True)
        for key, part in zip(keys.tolist(), torch.split(order, counts.tolist()), strict=True):
            i, j = divmod(key, self.n // self.stripe + 1)
            if held is None or held[0] != i:
                held = None  # lets go of its memory first
                held = (i, self.raw(i * self.stripe, min((i + 1) * self.stripe, self.n)))
            other = self.raw(j * self.stripe, min((j + 1) * self.stripe, self.n))
            self._difference(held[1], other, a, b, i * self.stripe, j * self.stripe, part, found)
        return found

    def _difference(
        self, x: Tensor, y: Tensor, a: Tensor, b: Tensor, x0: int, y0: int, at: Tensor, out: Tensor
    ) -> None:
        def work(part: Tensor) -> None:
            i, j = a[part], b[part]
            difference = self.exact(x[i - x0], i).sub_(self.exact(y[j - y0], j))
            out[part] = difference.square_().sum(1)

        share(partial(work, part) for part in torch.split(at, _PAIRS))


def _norms(rows: Rows) -> Tensor:
    """The rows' norms, summed in float64: distances of unit rows are as exact as these are."""
    norms = torch.empty(rows.shape[0], dtype=torch.float64)

    def work(piece: Tensor, start: int) -> None:
        # Into memory that is there: a small result kept beside a freed copy would leave a hole that the next does not fit into.
        norms[start : start + len(piece)] = row_norms(piece.double())

    done = 0
    for block in rows.blocks():
        share(partial(work, piece, done + i * _PAIRS) for i, piece in enumerate(torch.split(block, _PAIRS)))
        done += len(block)
        del block
    return norms


def _ordinary(norms: Tensor) -> bool:
    return bool((norms > _ORDINARY[0]).all() and (norms < _ORDINARY[1]).all())
