"""A map of rows applied to an array, a tensor, or rows that are read block by block."""

import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from uncone.errors import InputError, expect
from uncone.memory import uninitialised
from uncone.rows import GRID, DerivedRows, Rows, nonfinite_error
from uncone.rows.base import float_array
from uncone.rows.floats import DTYPES, FLOATING, is_tensor, narrow, of_tensor, widen
from uncone.threads import share

if TYPE_CHECKING:
    import torch

Array = npt.NDArray[Any]
X = TypeVar("X", npt.NDArray[Any], Rows, "torch.Tensor")
_PIECE = 1024  # rows that one thread maps at once
_SPECIAL = {"bfloat16": np.uint16(0x7F80), "float16": np.uint16(0x7C00)}
"""The bits that are all 1 in numbers that are not finite: NumPy's own check of float16 is slow."""


class Map(NamedTuple):
    """(n, D) of float32 or float64 to (n, K) of the same dtype.

    `move` works row by row, into any `out`, and keeps its argument. Tensors that need a gradient or are on another
    device stay tensors."""

    move: Callable[..., Any]
    d: int
    k: int


def apply(x: X, map: Map) -> X:
    """`map` of a tensor, array (..., D) or `Rows`, in the same kind and dtype. float16 and bfloat16 are computed in
    float32; `Rows` when they are read."""
    if isinstance(x, Rows):
        return TransformedRows(x, map)
    if is_tensor(x):
        moved: X = _of_tensor(x, map)
        return moved
    if isinstance(x, np.ndarray):
        x = float_array(x, "the array")
        return _of_array(x, map, str(x.dtype))
    got = f"got {type(x).__name__}: convert it, for instance with numpy.asarray(x)"
    raise InputError(f"expected a tensor or an array of shape (N, {map.d}), or Rows, {got}")


class TransformedRows(DerivedRows):
    """`map` of `rows`, block by block; float32, or float64 where `rows` are."""

    def __init__(self, rows: Rows, map: Map) -> None:
        _check_width(rows.shape, map.d, rows.name)
        super().__init__(rows)
        self._move, self.shape = map.move, (rows.shape[0], map.k)
        self.dtype = str(rows.widened)

    def read(self, start: int, stop: int, out: Array | None = None) -> Array:
        return self._of(self._rows.read(start, stop), out)

    def blocks(self, size: int = GRID) -> Iterator[Array]:
        for block in self._rows.blocks(size):  # in order: a compressed source is read once
            y = self._of(block)
            del block
            yield y
            del y

    def _of(self, block: Array, out: Array | None = None) -> Array:
        y = uninitialised((len(block), self.shape[1]), block.dtype) if out is None else out
        if not mapped(self._move, block, y, self.dtype):
            raise overflow(self.dtype, self.name) if np.isfinite(block).all() else nonfinite_error(self._rows)
        return y


def mapped(move: Callable[..., Any], x: Array, y: Array, dtype: str) -> bool:
    """Write what `move` makes of rows `x` to `y`, which stores `dtype`. Returns whether all numbers are finite."""

    def piece(x: Array, y: Array) -> bool:
        rows = x
        if x.dtype.itemsize < 4:
            widen(x, rows := np.empty(x.shape, np.float32))
        with np.errstate(all="ignore"):
            if y.dtype == rows.dtype:
                move(rows, y)
            else:
                y[...] = narrow(move(rows), dtype)
        bits = _SPECIAL.get(dtype)
        return bool((np.isfinite(y) if bits is None else (y.view(np.uint16) & bits) != bits).all())

    cuts = (slice(start, start + _PIECE) for start in range(0, len(x), _PIECE))
    return all(share(partial(piece, x[cut], y[cut]) for cut in cuts))


def like(x: Array, rows: Any) -> Any:
    """Fitted numbers in the dtype of `rows`, and on their device if they are a tensor."""
    return rows.new_tensor(x) if is_tensor(rows) else x.astype(rows.dtype, copy=False)


def library(rows: Any) -> Any:
    """torch for a tensor, else NumPy: maps of rows call only functions that both name alike."""
    return sys.modules["torch" if is_tensor(rows) else "numpy"]


def norms_of(rows: Any) -> Any:
    """The Euclidean norms (n, 1), infinite or zero where the squares are."""
    if is_tensor(rows):
        return sys.modules["torch"].linalg.vector_norm(rows, dim=1, keepdim=True)
    return np.sqrt(np.einsum("ij,ij->i", rows, rows))[:, None]


def _of_array(x: Array, map: Map, dtype: str) -> Array:
    _check_width(x.shape, map.d, "the tensor")
    flat = x.reshape(-1, map.d)
    y = np.empty((len(flat), map.k), x.dtype)
    if not mapped(map.move, flat, y, dtype):
        widen(flat, wide := np.empty(flat.shape))
        raise _not_finite(int(np.count_nonzero(~np.isfinite(wide).all(axis=1))), len(flat), dtype)
    return y.reshape(*x.shape[:-1], map.k)


def _of_tensor(x: Any, map: Map) -> Any:
    torch, dtype = sys.modules["torch"], str(x.dtype).removeprefix("torch.")
    expect(dtype in DTYPES, f"a tensor of {FLOATING}, got {x.dtype}: convert it, for instance x.float()")
    if x.device.type == "cpu" and not (torch.is_grad_enabled() and x.requires_grad):
        y = _of_array(of_tensor(x, "the tensor")[0], map, dtype)
        return torch.from_numpy(y.view(np.int16) if dtype == "bfloat16" else y).view(x.dtype)
    _check_width(x.shape, map.d, "the tensor")
    if x.is_meta:
        of_tensor(x, "the tensor")  # which has no numbers
    flat = x.reshape(-1, map.d)
    y = map.move(flat.to(torch.float64 if dtype == "float64" else torch.float32)).to(x.dtype)
    if not bool(torch.isfinite(y).all()):
        raise _not_finite(int((~torch.isfinite(flat).all(dim=1)).sum()), len(flat), dtype)
    return y.reshape(*x.shape[:-1], map.k)


def _not_finite(bad: int, n: int, dtype: str) -> InputError:
    found = InputError(f"expected finite rows, got {bad} of {n} with NaN or inf: correct or drop them")
    return found if bad else overflow(dtype, "the result")


def _check_width(shape: tuple[int, ...], d: int, name: str) -> None:
    got = f"got shape {tuple(shape)} from {name}: the transformation was fitted on rows of {d} features"
    expect(tuple(shape[-1:]) == (d,), f"rows of {d} features, {got}")


def overflow(dtype: str, name: str) -> InputError:
    got = f"got larger ones in {name}: convert the rows to a wider dtype"
    return InputError(f"expected numbers that {dtype} can hold, {got}")
