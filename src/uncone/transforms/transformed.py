"""A map of rows applied to what it is given: a tensor, an array, or rows that are read block by block."""

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from uncone.errors import InputError
from uncone.memory import uninitialised
from uncone.rows import GRID, DerivedRows, Rows, nonfinite_error
from uncone.rows.base import FLOATING, float_tensor
from uncone.threads import share_rows

Tensor = torch.Tensor
X = TypeVar("X", Tensor, npt.NDArray[Any], Rows)
Map = Callable[[Tensor], Tensor]
"""(n, D) of float32 or float64 to (n, K) of the same dtype, on the same device, row by row. It does not write
to its argument."""
_COMPUTED = dict.fromkeys((torch.float16, torch.bfloat16, torch.float32), torch.float32) | {
    torch.float64: torch.float64
}


def apply(x: X, function: Map, *, d: int, k: int) -> X:
    """`function` of the rows of `x`, a tensor, array (..., D) or `Rows`: of the same kind and dtype, K wide.

    float16 and bfloat16 are computed in float32; `Rows` are computed when they are read.
    """
    if isinstance(x, Rows):
        return TransformedRows(x, function, d=d, k=k)
    if isinstance(x, torch.Tensor):
        return _of_tensor(x, function, d=d, k=k)
    if isinstance(x, np.ndarray):
        return _of_tensor(float_tensor(x, "the array"), function, d=d, k=k).numpy()
    raise InputError(
        f"expected a tensor or an array of shape (N, {d}), or Rows, got {type(x).__name__}: convert it, for "
        "instance with numpy.asarray(x)"
    )


class TransformedRows(DerivedRows):
    """`function` of `rows`, computed block by block; float32, or float64 where `rows` are."""

    def __init__(self, rows: Rows, function: Map, *, d: int, k: int) -> None:
        _check_width(rows.shape, d, rows.name)
        super().__init__(rows)
        self._function, self.shape = function, (rows.shape[0], k)
        self.dtype = "float64" if rows.widened == torch.float64 else "float32"

    def read(self, start: int, stop: int, out: Tensor | None = None) -> Tensor:
        y = self._of(self._rows.read(start, stop))
        return y if out is None else out.copy_(y)

    def blocks(self, size: int = GRID) -> Iterator[Tensor]:
        for block in self._rows.blocks(size):  # in order: a compressed source is read once
            y = self._of(block)
            del block
            yield y
            del y

    def _of(self, block: Tensor) -> Tensor:
        y = uninitialised((len(block), self.shape[1]), block.dtype)
        share_rows(lambda rows, out: out.copy_(self._function(rows)), block, y)
        if not _is_finite(y):
            raise nonfinite_error(self._rows) if not _is_finite(block) else overflow(y.dtype, self.name)
        return y


def _of_tensor(x: Tensor, function: Map, *, d: int, k: int) -> Tensor:
    computed = _COMPUTED.get(x.dtype)
    if computed is None:
        raise InputError(
            f"expected a tensor of {FLOATING}, got {x.dtype}: convert it, for instance x.float()"
        )
    _check_width(tuple(x.shape), d, "the tensor")
    flat = x.reshape(-1, d)
    if x.device.type == "cpu" and not (torch.is_grad_enabled() and x.requires_grad):
        y = torch.empty((len(flat), k), dtype=x.dtype)
        share_rows(lambda rows, out: out.copy_(function(rows.to(computed))), flat, y)
    else:
        y = function(flat.to(computed)).to(x.dtype)
    if not _is_finite(y):
        bad = int((~torch.isfinite(flat).all(dim=1)).sum())
        if bad == 0:
            raise overflow(x.dtype, "the result")
        raise InputError(f"expected finite rows, got {bad} of {len(flat)} with NaN or inf: mend or drop them")
    return y.reshape(*x.shape[:-1], k)


def _check_width(shape: tuple[int, ...], d: int, name: str) -> None:
    if len(shape) == 0 or shape[-1] != d:
        raise InputError(
            f"expected rows of {d} features, got shape {shape} from {name}: the transformation was fitted on "
            f"rows of {d}"
        )


def _is_finite(x: Tensor) -> bool:
    total = x.detach().sum(dtype=torch.float64 if x.dtype == torch.float64 else torch.float32)
    # finite numbers can have a sum that is not
    return bool(torch.isfinite(total)) or bool(torch.isfinite(x).all())


def overflow(dtype: torch.dtype, name: str) -> InputError:
    """The error over a result that `dtype` cannot hold."""
    return InputError(
        f"expected numbers that {str(dtype).removeprefix('torch.')} can hold, got larger ones in {name}: "
        "convert the rows to a wider dtype"
    )
