"""The sums of one block of rows, computed piece by piece on single-thread workers."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from uncone.moments.norms import inverse, measured_norms
from uncone.moments.workers import share, symmetric_product

Tensor = torch.Tensor
Buffer = Callable[[str, tuple[int, ...], torch.dtype], Tensor]
PIECE = 512
"""Rows summed at once in the dtype of the rows: few, so that rounding stays small and a core's cache holds them."""


class Cell:
    """The partial sums of one block: products in the dtype of the rows, everything else in float64.

    Rows are worked on in pieces that a core's cache holds; a piece's sums are in the dtype of the rows.
    """

    def __init__(self, shift: Tensor, buffer: Buffer, *, second: bool, unit_second: bool) -> None:
        self._shift, self._buffer, self._second, self._unit_second = shift, buffer, second, unit_second
        self.sums: dict[str, Any] = {}
        self.norm_min, self.norm_max = float("inf"), 0.0

    def add(self, x: Tensor, w: Tensor | None) -> None:
        """Add the rows of `x` (n, D) with weights `w` (n,)."""
        x, norms, done = self._measured(x, w)
        for name in done[0].sums:
            self._add(name, sum((piece.sums[name] for piece in done[1:]), start=done[0].sums[name]))
        lowest, highest = torch.aminmax(norms)
        self.norm_min, self.norm_max = min(self.norm_min, float(lowest)), max(self.norm_max, float(highest))
        self._add_scalars(norms, w, has_zero=float(lowest) == 0.0)
        if self._second:
            self._add_product("second", self._buffer("rows", tuple(x.shape), x.dtype))
        if self._unit_second:
            root = inverse(norms) if w is None else inverse(norms) * w.sqrt()
            buffer = self._buffer("rows", tuple(x.shape), x.dtype)
            scale = root.to(x.dtype)[:, None]
            share(partial(torch.mul, x[cut], scale[cut], out=buffer[cut]) for cut in _cuts(len(x), x.device))
            self._add_product("unit_second", buffer)

    def _measured(self, x: Tensor, w: Tensor | None) -> tuple[Tensor, Tensor, list["_Piece"]]:
        """The rows, in float64 where float32 cannot square them; their norms; and the sums of their pieces."""
        while True:
            shift = self._shift.to(x.dtype)
            y = self._buffer("rows", tuple(x.shape), x.dtype) if self._second else None
            pieces = [
                _Piece(x[cut], None if w is None else w[cut], shift, None if y is None else y[cut])
                for cut in _cuts(len(x), x.device)
            ]
            if all(share(pieces)):
                return x, torch.cat([piece.norms for piece in pieces]), pieces
            x = x.double()

    def _add_scalars(self, norms: Tensor, w: Tensor | None, *, has_zero: bool) -> None:
        if w is None:
            w = torch.ones_like(norms)
        unit = w * (norms > 0) if has_zero else w
        self._add("zero_rows", int((norms == 0).sum()) if has_zero else 0)
        self._add("weight", float(w.sum()))
        self._add("weight_square", float(w.square().sum()))
        self._add("unit_weight", float(unit.sum()))
        self._add("unit_weight_square", float(unit.square().sum()))
        self._add("norm_sum", float((w * norms).sum()))
        self._add("norm_square_sum", float((w * norms.square()).sum()))

    def _add(self, name: str, value: Any) -> None:
        self.sums[name] = self.sums[name] + value if name in self.sums else value

    def _add_product(self, name: str, y: Tensor) -> None:
        shape = (y.shape[1], y.shape[1])
        if name not in self.sums:
            self.sums[name] = symmetric_product(y, out=self._buffer(name, shape, y.dtype))
        else:
            self.sums[name] += symmetric_product(y, out=self._buffer("product", shape, y.dtype))


class _Piece:
    """A few rows x with weights w: their norms, their sums, and the shifted rows (times sqrt w) written into y."""

    def __init__(self, x: Tensor, w: Tensor | None, shift: Tensor, y: Tensor | None) -> None:
        self._x, self._w, self._shift, self._y = x, w, shift, y
        self.norms = x.new_empty(0)
        self.sums: dict[str, Tensor] = {}

    def __call__(self) -> bool:
        """Compute; False where the rows must be float64 first."""
        x, w, y = self._x, self._w, self._y
        norms = measured_norms(x)
        if norms is None:
            return False
        self.norms = norms
        weighted = inverse(norms) if w is None else inverse(norms) * w
        unit = x * weighted.to(x.dtype)[:, None]
        self.sums["unit_first"] = unit.sum(0).double()
        self.sums["unit_square"] = unit.square_().sum(0).double()
        w = None if w is None else w.to(x.dtype)[:, None]
        if y is None:  # nothing cancels in a first-order sum: the shift is zero
            self.sums["first"] = (x if w is None else torch.mul(x, w, out=unit)).sum(0).double()
        else:
            torch.sub(x, self._shift, out=y)
            self.sums["first"] = (y if w is None else torch.mul(y, w, out=unit)).sum(0).double()
            if w is not None:
                y.mul_(w.sqrt())
        return True


def _cuts(n: int, device: torch.device) -> list[slice]:
    """Pieces of a block on the CPU, where a core's cache is small; a GPU takes the block whole."""
    size = PIECE if device.type == "cpu" else n
    return [slice(start, min(start + size, n)) for start in range(0, n, size)]
