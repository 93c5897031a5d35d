"""The points of a search: rows or unit rows, centred for products, in float64 for differences."""

import math
from functools import partial
from typing import Literal

import torch

from uncone.measure.projections import by_piece
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
_CODED = 512
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
        self.unit = 1.0
        self._divisor: Tensor | None = None
        if metric == "cosine":
            norms = _norms(rows)
            if ids is None and moments.zero_rows:
                ids = norms.nonzero().flatten()
            norms = norms if ids is None else norms[ids]
            self._divisor = norms[:, None]
            center = moments.unit_sums()[0].cpu() / max(moments.unit_weight, 1.0)
            # Float32 will do for unit rows of ordinary length in no narrow cone.
            ordinary = bool((norms > _ORDINARY[0]).all() and (norms < _ORDINARY[1]).all())
            plain = ordinary and float(center.square().sum()) < _CONE
        else:
            center = moments.mean().cpu()
            longest = max(moments.norm_max, float(center.abs().max()))
            plain = longest == 0 or _ORDINARY[0] < longest < _ORDINARY[1]
            if not plain:
                self.unit = 2.0 ** min(1000, math.frexp(longest)[1])
                self._divisor = torch.full((1, 1), self.unit, dtype=torch.float64).expand(rows.shape[0], 1)
                center = center / self.unit
        self._center = center.to(rows.widened)
        self._wide = rows.widened == torch.float64 or not plain
        self.ids = torch.arange(rows.shape[0]) if ids is None else ids
        """Which row of the matrix each point is."""
        self._rows = rows if len(self.ids) == rows.shape[0] else SelectedRows(rows, self.ids)
        self.n, self.d = self._rows.shape
        row_bytes = self.d * rows.widened.itemsize
        self.stripe = max(1, STRIPE_BYTES // row_bytes)
        """Points to hold at once."""
        self._kept: Tensor | None = None
        if self.n * row_bytes <= KEPT_BYTES:
            self._kept, self.stripe = self.raw(0, self.n).contiguous(), self.n

    def raw(self, start: int, stop: int) -> Tensor:
        """Rows [start, stop) as they are, as far as there are any."""
        stop = min(stop, self.n)
        if self._kept is not None:
            return self._kept[start:stop]
        if not isinstance(self._rows, SelectedRows):  # may be in memory already
            return self._rows.read(start, stop)
        selected = uninitialised((stop - start, self.d), self._rows.widened)
        for begin in range(start, stop, GRID):
            end = min(begin + GRID, stop)
            self._rows.read(begin, end, out=selected[begin - start : end - start])
        return selected

    def raw_at(self, points: Tensor) -> Tensor:
        """Rows at `points` (int64, ascending)."""
        return self._rows.take(points) if self._kept is None else self._kept[points]

    def centered(self, raw: Tensor, at: Tensor | slice, dtype: torch.dtype = torch.float32) -> Tensor:
        """The points `at` whose rows are `raw` (n, D), minus the centre, in units of `unit`."""
        if self._wide or dtype == torch.float64:
            moved = self.exact(raw, at).sub(self._center.double())
        elif self._divisor is None:
            moved = raw - self._center
        else:
            moved = (raw * self._divisor[at].reciprocal().float()).sub_(self._center)
        return moved.to(dtype)

    def exact(self, raw: Tensor, at: Tensor | slice) -> Tensor:
        """The points `at` whose rows are `raw`, in float64 and units of `unit`."""
        return raw.double() if self._divisor is None else raw.double() / self._divisor[at]

    def product_error(self, length: Tensor, other: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """Bounds |computed - true| of -|z - z'|^2 / 2 from products of points of at most these lengths.

        An inner product of D terms errs by at most D u |z| |z'| (1 + ...) in any order of adding (Higham
        2002, eq. 3.4); the rest is for the rounding of the points, of their half squares, of two
        subtractions, and of squares by difference.
        """
        u = _ROUNDING[dtype]
        # Rounding before the centre was subtracted may have moved a centred point.
        points = 4 * _ROUNDING[torch.float64 if self._wide else dtype] if self.metric == "cosine" else 0.0
        differences = (self.d + 4) * _ROUNDING[torch.float64]
        products = (self.d + 4) * u * length * other + (4 * u + differences) * (length + other).square()
        return 1.01 * (products + 2 * points * (length + other)) + self.d * 2.0**-120

    def squares(self, a: Tensor, b: Tensor) -> Tensor:
        """Squared distances, in `unit` squared, of the pairs (a[i], b[i]) by difference in float64: (P,) from
        int64 (P,), (P,)."""
        squares = torch.empty(len(a), dtype=torch.float64)

        def difference(x: Tensor, y: Tensor, x0: int, y0: int, at: Tensor) -> None:
            i, j = a[at], b[at]
            squares[at] = self.exact(x[i - x0], i).sub_(self.exact(y[j - y0], j)).square_().sum(1)

        stripes = self.n // self.stripe + 1
        cell = (a // self.stripe) * stripes + b // self.stripe
        order = torch.argsort(cell, stable=True)
        keys, counts = torch.unique_consecutive(cell[order], return_counts=True)
        held, x = -1, torch.empty(0)
        for key, pairs in zip(keys.tolist(), torch.split(order, counts.tolist()), strict=True):
            x0, y0 = (i * self.stripe for i in divmod(key, stripes))
            if held != x0:
                del x  # lets go of its memory first
                held, x = x0, self.raw(x0, x0 + self.stripe)
            y = self.raw(y0, y0 + self.stripe)
            share(partial(difference, x, y, x0, y0, at) for at in torch.split(pairs, _PAIRS))
            del y
        return squares


def _norms(rows: Rows) -> Tensor:
    """The rows' norms, summed in float64: distances of unit rows are as exact as these are."""
    norms = torch.empty(rows.shape[0], dtype=torch.float64)

    def work(which: slice, x: Tensor) -> None:
        # Into memory that is there: a small result kept beside a freed copy would leave a hole that the next does not fit into.
        norms[which] = row_norms(x.double())

    list(by_piece(rows, _PAIRS, work))
    return norms


def first_of_each(points: Points) -> Tensor:
    """For each point the lowest point at the same place, itself where there is none below: int64 (N,)."""
    codes = _codes(points)
    first = torch.arange(points.n)
    pending = first
    while len(pending):
        order = torch.argsort(codes[pending], stable=True)
        pending = pending[order]
        _, counts = torch.unique_consecutive(codes[pending], return_counts=True)
        lowest = pending[(counts.cumsum(0) - counts).repeat_interleave(counts)]
        several = (counts > 1).repeat_interleave(counts) & (lowest != pending)
        pending, lowest = pending[several], lowest[several]
        same = points.squares(pending, lowest) == 0
        first[pending[same]] = lowest[same]
        pending = pending[~same].sort().values  # another place with the same code: once in 2^33 pairs
    return first


def _codes(points: Points) -> Tensor:
    """A number for each point, int64 (N,): equal points have equal numbers, others nearly never."""
    generator = torch.Generator().manual_seed(0)
    odd = torch.randint(-(2**62), 2**62, (points.d,), generator=generator) * 2 + 1
    codes = torch.empty(points.n, dtype=torch.int64)

    def code(raw: Tensor, start: int) -> None:
        which = slice(start, start + len(raw))
        x = points.exact(raw, which) if points.metric == "cosine" else raw
        x = x + 0.0  # -0 is 0
        bits = x.view(torch.int32).long() if x.dtype == torch.float32 else x.view(torch.int64)
        if x.dtype == torch.float64:  # whole numbers differ in high bits, which a product leaves there
            bits = bits ^ (bits >> 29)
        codes[which] = (bits * odd).sum(1)

    for start in range(0, points.n, points.stripe):
        raw = points.raw(start, start + points.stripe)
        share(partial(code, piece, start + i * _CODED) for i, piece in enumerate(torch.split(raw, _CODED)))
        del raw
    return codes
