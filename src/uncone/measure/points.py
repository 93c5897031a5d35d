"""The points of a search, centred for products, in float64 for differences."""

import math
from functools import partial
from typing import Literal

import numpy as np
import numpy.typing as npt

from uncone.measure.projections import by_piece
from uncone.memory import uninitialised
from uncone.moments import Moments, cuts, row_norms
from uncone.rows import GRID, Array, Rows, SelectedRows
from uncone.threads import share

Metric = Literal["euclidean", "cosine"]
KEPT_BYTES = 192 * 2**20  # larger matrices are read again, stripe by stripe
STRIPE_BYTES = 64 * 2**20
_ORDINARY = (1e-6, 1e6)  # lengths whose squares and products are far inside float32
_CONE = 0.75  # the mean cosine from which on unit rows are centred in float64
_PAIRS = 128  # rows a thread subtracts at once: float64 copies of them fit into a core's cache
_ROUNDING = {"f": 2.0**-24, "d": 2.0**-53}  # by dtype


class Points:
    """N points of a metric: the rows themselves, or (cosine) the rows divided by their norms, without zero rows.

    Products are taken of `centered` points: a long mean would cost all digits. Every length is in units of `unit`, a
    power of two that keeps squares inside float32.
    """

    def __init__(self, rows: Rows, moments: Moments, *, metric: Metric, ids: Array | None = None) -> None:
        """`ids` (ascending) picks rows. `moments` are of all rows, first-order."""
        self.metric, self.unit = metric, 1.0
        self._divisor: Array | None = None
        if metric == "cosine":
            pieces = by_piece(rows, _PAIRS, lambda _, x: row_norms(x.astype(np.float64)))
            norms = np.concatenate(list(pieces))  # distances of unit rows are as exact as these are
            if ids is None and moments.zero_rows:
                ids = np.flatnonzero(norms)
            norms = norms if ids is None else norms[ids]
            self._divisor = norms[:, None]
            center = moments.unit_sums()[0] / max(moments.unit_weight, 1.0)
            # Float32 will do for unit rows of ordinary length in no narrow cone.
            ordinary = bool(((norms > _ORDINARY[0]) & (norms < _ORDINARY[1])).all())
            plain = ordinary and float(np.square(center).sum()) < _CONE
        else:
            center = moments.mean()
            longest = max(moments.norm_max, float(np.abs(center).max()))
            plain = longest == 0 or _ORDINARY[0] < longest < _ORDINARY[1]
            if not plain:
                self.unit = 2.0 ** min(1000, math.frexp(longest)[1])
                self._divisor = np.broadcast_to(self.unit, (rows.shape[0], 1))
                center = center / self.unit
        self.center = center.astype(rows.widened)
        self._wide = rows.widened == np.float64 or not plain
        self.ids = np.arange(rows.shape[0]) if ids is None else ids  # Which row of the matrix each point is
        self._rows = rows if len(self.ids) == rows.shape[0] else SelectedRows(rows, self.ids)
        self.n, self.d = self._rows.shape
        row_bytes = self.d * rows.widened.itemsize
        self.stripe = max(1, STRIPE_BYTES // row_bytes)  # Points to hold at once
        self._kept: Array | None = None
        if self.n * row_bytes <= KEPT_BYTES:
            self._kept, self.stripe = np.ascontiguousarray(self.raw(0, self.n)), self.n

    def raw(self, start: int, stop: int) -> Array:
        """Rows [start, stop), as far as there are any."""
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

    def raw_at(self, points: Array) -> Array:
        """`points` ascend."""
        return self._rows.take(points) if self._kept is None else self._kept[points]

    def centered(self, raw: Array, at: Array | slice, out: Array | None = None) -> Array:
        """As `exact`, minus the centre, in float32; `out` may hold them."""
        if self._wide:
            return (self.exact(raw, at) - self.center).astype(np.float32)  # type: ignore[no-any-return]
        if self._divisor is not None:
            raw = np.multiply(raw, (1 / self._divisor[at]).astype(np.float32), out=out)
        return np.subtract(raw, self.center, out=out)  # type: ignore[no-any-return]

    def exact(self, raw: Array, at: Array | slice) -> Array:
        """The points `at` whose rows are `raw` (n, D), in float64 and units of `unit`."""
        wide: Array = raw.astype(np.float64, copy=False)
        return wide if self._divisor is None else np.divide(wide, self._divisor[at])

    def product_error(self, length: Array, other: Array, dtype: npt.DTypeLike = np.float32) -> Array:
        """Bounds |computed - true| of -|z - z'|^2 / 2 from products of points of at most these lengths.

        An inner product of D terms errs by at most D u |z| |z'| (1 + ...) in any order of adding (Higham 2002, eq.
        3.4); the rest is for the rounding of points, half squares, subtractions, and squares by difference.
        """
        u = _ROUNDING[np.dtype(dtype).char]
        # Rounding before the centre was subtracted may have moved a centred point.
        points = 4 * (_ROUNDING["d"] if self._wide else u) if self.metric == "cosine" else 0.0
        differences = (self.d + 4) * _ROUNDING["d"]
        products: Array = (self.d + 4) * u * length * other + (4 * u + differences) * np.square(length + other)
        return 1.01 * (products + 2 * points * (length + other)) + self.d * 2.0**-120

    def squares(self, a: Array, b: Array) -> Array:
        """Squared distances, in `unit` squared, of the pairs (a[i], b[i]), by difference in float64."""
        squares = np.empty(len(a))

        def difference(x: Array, y: Array, x0: int, y0: int, at: Array) -> None:
            i, j = a[at], b[at]
            moved = self.exact(x[i - x0], i) - self.exact(y[j - y0], j)
            squares[at] = np.square(moved, out=moved).sum(1)

        stripes = self.n // self.stripe + 1
        cell = (a // self.stripe) * stripes + b // self.stripe
        order = np.argsort(cell, kind="stable")
        starts, held, x = runs(cell[order])[0], -1, np.empty(0)
        for key, pairs in zip(cell[order][starts].tolist(), np.split(order, starts[1:]), strict=False):
            x0, y0 = (i * self.stripe for i in divmod(key, stripes))
            if held != x0:
                del x  # frees its memory first
                held, x = x0, self.raw(x0, x0 + self.stripe)
            y = self.raw(y0, y0 + self.stripe)
            share(partial(difference, x, y, x0, y0, pairs[some]) for some in cuts(len(pairs), _PAIRS))
            del y
        return squares


def first_of_each(points: Points) -> Array:
    """For each point the lowest point at the same place, int64 (N,)."""
    codes = _codes(points)
    pending = first = np.arange(points.n)
    while len(pending):
        pending = pending[np.argsort(codes[pending], kind="stable")]
        starts, run, _ = runs(codes[pending])
        lowest = pending[starts][run]
        several = lowest != pending
        pending, lowest = pending[several], lowest[several]
        same = points.squares(pending, lowest) == 0
        first[pending[same]] = lowest[same]
        pending = np.sort(pending[~same])  # another place with the same code: once in 2^33 pairs
    return first


def runs(x: Array) -> tuple[Array, Array, Array]:
    """Of runs of equal numbers: where each begins; which run each number is in, and its place there."""
    begins = np.append(True, x[1:] != x[:-1])[: len(x)]
    starts, run = np.flatnonzero(begins), begins.cumsum() - 1
    return starts, run, np.arange(len(x)) - starts[run]


def _codes(points: Points) -> Array:
    """int64 (N,): equal points have equal numbers, others nearly never."""
    odd = np.random.default_rng(0).integers(-(2**62), 2**62, points.d) * 2 + 1
    codes = np.empty(points.n, np.int64)

    def code(raw: Array, which: slice) -> None:
        x = points.exact(raw, which) if points.metric == "cosine" else raw
        x = x + 0.0  # -0 is 0
        bits: Array = x.view(np.int32 if x.dtype == np.float32 else np.int64)
        if x.dtype == np.float64:  # whole numbers differ in high bits, which a product leaves there
            bits ^= bits >> 29
        codes[which] = np.einsum("ij,j->i", bits, odd)

    for stripe in cuts(points.n, points.stripe):
        raw, first = points.raw(stripe.start, stripe.stop), stripe.start
        share(partial(code, raw[at], slice(first + at.start, first + at.stop)) for at in cuts(len(raw), 512))
        del raw
    return codes
