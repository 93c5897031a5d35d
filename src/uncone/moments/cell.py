"""The sums of one block of rows, computed piece by piece on single-thread workers."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from uncone.moments.norms import are_safe, inverse, measured_norms
from uncone.moments.workers import share, symmetric_product

Tensor = torch.Tensor
_SUMS = ("first", "unit_first", "unit_square")
Buffer = Callable[[str, tuple[int, ...], torch.dtype], Tensor]
PIECE = 512
"""Rows summed at once in the dtype of the rows: few, so that rounding stays small and a core's cache holds them."""


class Cell:
    """The partial sums of one block: products in the dtype of the rows, everything else in float64.

    Rows are worked on in pieces that a core's cache holds; a piece's sums are in the dtype of the rows.
    """

    def __init__(self, shift: Tensor, buffer: Buffer, *, second: bool, unit: bool, unit_second: bool) -> None:
        self._shift, self._buffer, self._second, self._unit_second = shift, buffer, second, unit_second
        self._names = _SUMS if unit else _SUMS[:1]
        self._products: dict[str, Tensor] = {}
        self.sums: dict[str, Any] = {}
        self.norm_min, self.norm_max = float("inf"), 0.0

    def add(self, x: Tensor, w: Tensor | None) -> None:
        """Add the rows of `x` (n, D) with weights `w` (n,); where float32 will not do, as float64."""
        x, norms, sums = self._measured(x, w)
        for name, value in zip(self._names, sums.double().sum(0), strict=True):
            self._add(name, value)
        self._add_scalars(norms, w)
        if self._second:
            self._add_product("second", self._buffer("rows", tuple(x.shape), x.dtype))
        if self._unit_second:
            self._add_unit_product(x, norms, w)

    def take_product(self, name: str) -> Tensor:
        """The (D, D) product "second" or "unit_second" of all that was added; only its lower half has a meaning."""
        return self._products.pop(name)

    def _add_unit_product(self, x: Tensor, norms: Tensor, w: Tensor | None) -> None:
        """Add sum w u u' over unit rows to its product, while the rows are still in a cache."""
        y, root = self._buffer("rows", tuple(x.shape), x.dtype), inverse(norms)
        root = _column(root if w is None else root * w.sqrt(), x)
        share(partial(torch.mul, x[cut], root[cut], out=y[cut]) for cut in _cuts(len(x), x.device))
        self._add_product("unit_second", y)

    def _measured(self, x: Tensor, w: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """The rows, their norms, and the sums of pieces of them (pieces, names, D); the buffer "rows" holds the shifted rows.

        Norms are taken for granted first, and looked at when all are there. Where a row is zero, or too long or too
        short for float32 squares, everything is computed again with care.
        """
        norms = torch.empty(len(x), dtype=x.dtype, device=x.device)
        sums = self._sum_pieces(x, w, norms, None)
        if are_safe(norms):
            return x, norms.double(), sums
        careful = measured_norms(x)
        if careful is None:
            x = x.double()
            careful = measured_norms(x)
        assert careful is not None
        return x, careful, self._sum_pieces(x, w, norms.to(x.dtype), inverse(careful))

    def _sum_pieces(self, x: Tensor, w: Tensor | None, norms: Tensor, scale: Tensor | None) -> Tensor:
        cuts = _cuts(len(x), x.device)
        sums = torch.empty((len(cuts), len(self._names), x.shape[1]), dtype=x.dtype, device=x.device)
        shift = self._shift.to(x.dtype) if self._second else None
        weight, scale = None if w is None else _column(w, x), None if scale is None else _column(scale, x)
        pieces = (
            _Piece(x[cut], y, norms[cut], sums[i], shift, *(None if f is None else f[cut] for f in (weight, scale)))
            for i, (cut, y) in enumerate(zip(cuts, self._working(x, cuts), strict=True))
        )
        if self._second:
            share(pieces)
        else:
            for (
                piece
            ) in pieces:  # torch shares out each operation: sums of columns and norms of rows round alike on any threads
                piece()
        return sums

    def _working(self, x: Tensor, cuts: list[slice]) -> list[Tensor]:
        """Memory of the shape of each piece: its own part of "rows" where the product wants it, else the same for all."""
        if self._second:
            rows = self._buffer("rows", tuple(x.shape), x.dtype)
            return [rows[cut] for cut in cuts]
        piece = self._buffer("rows", (cuts[0].stop, x.shape[1]), x.dtype)
        return [piece[: cut.stop - cut.start] for cut in cuts]

    def _add_scalars(self, norms: Tensor, w: Tensor | None) -> None:
        lowest, highest = torch.aminmax(norms)
        self.norm_min, self.norm_max = min(self.norm_min, float(lowest)), max(self.norm_max, float(highest))
        if w is None:
            w = torch.ones_like(norms)
        unit = w * (norms > 0)
        self._add("zero_rows", int((norms == 0).sum()))
        self._add("weight", float(w.sum()))
        self._add("weight_square", float(w.square().sum()))
        self._add("unit_weight", float(unit.sum()))
        self._add("unit_weight_square", float(unit.square().sum()))
        self._add("norm_sum", float((w * norms).sum()))
        self._add("norm_square_sum", float((w * norms.square()).sum()))

    def _add(self, name: str, value: Any) -> None:
        self.sums[name] = self.sums[name] + value if name in self.sums else value

    def _add_product(self, name: str, y: Tensor) -> None:
        kept = self._products.get(name)
        if kept is None:
            out = self._buffer(f"{name} product", (y.shape[1], y.shape[1]), y.dtype)
            self._products[name] = symmetric_product(y, out=out)
            return
        wider = torch.promote_types(y.dtype, kept.dtype)  # one of the two may be float64 for its lengths
        self._products[name] = symmetric_product(y.to(wider), out=kept.to(wider), add=True)


class _Piece:
    """A few rows x with weights: their norms, and their sums into `sums` (3, D), or (1, D) without unit rows; `scale` stands for 1 / norm if given.

    `y` is working memory of the shape of x, as fresh memory would cost more than the sums; with a `shift` it ends as
    sqrt(weight) (x - shift).
    """

    def __init__(
        self,
        x: Tensor,
        y: Tensor,
        norms: Tensor,
        sums: Tensor,
        shift: Tensor | None,
        weight: Tensor | None,
        scale: Tensor | None,
    ) -> None:
        self._x, self._y, self._norms, self._sums = x, y, norms, sums
        self._shift, self._weight, self._scale = shift, weight, scale

    def __call__(self) -> None:
        x, y, weight, scale = self._x, self._y, self._weight, self._scale
        first, *unit = self._sums
        if scale is None:
            scale = torch.linalg.vector_norm(x, dim=1, out=self._norms).reciprocal()[:, None]
        if unit:
            torch.sum(torch.mul(x, scale if weight is None else scale * weight, out=y), 0, out=unit[0])
            torch.sum(y.square_(), 0, out=unit[1])
        if self._shift is not None:
            x = torch.sub(x, self._shift, out=y)
        if weight is None:
            torch.sum(x, 0, out=first)
        elif self._shift is None:
            torch.sum(torch.mul(x, weight, out=y), 0, out=first)
        else:
            root = weight.sqrt()
            torch.sum(y.mul_(root) * root, 0, out=first)


def _column(factor: Tensor, x: Tensor) -> Tensor:
    return factor.to(x.dtype)[:, None]


def _cuts(n: int, device: torch.device) -> list[slice]:
    """Pieces of a block on the CPU, where a core's cache is small; a GPU takes the block whole."""
    size = PIECE if device.type == "cpu" else n
    return [slice(start, min(start + size, n)) for start in range(0, n, size)]
