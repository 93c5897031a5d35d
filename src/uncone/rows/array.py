"""Rows over an array or tensor that is in memory already."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from uncone.errors import InputError
from uncone.rows.base import DTYPES, FLOATING, GRID, Rows, check_shape


class ArrayRows(Rows):
    """Rows of a two-dimensional tensor. The tensor is not copied."""

    def __init__(self, x: torch.Tensor, *, name: str) -> None:
        dtype = str(x.dtype).removeprefix("torch.")
        if dtype not in DTYPES:
            raise InputError(
                f"expected rows of {FLOATING}, got {dtype} from {name}: convert them, for instance x.astype('float32')"
            )
        check_shape(tuple(x.shape), name)
        if x.is_meta:
            raise InputError(
                f"expected rows of numbers, got {name} on the device meta, which holds none: load the model's weights"
            )
        self._x = x.detach()
        self.shape, self.dtype, self.name = (x.shape[0], x.shape[1]), dtype, name

    def read(self, start: int, stop: int, out: torch.Tensor | None = None) -> torch.Tensor:
        block = self._x[start:stop].to(device="cpu", dtype=self.widened)
        return block if out is None else out.copy_(block)

    def blocks(self, size: int = GRID) -> Iterator[torch.Tensor]:
        for start in range(0, self.shape[0], size):
            yield self.read(start, min(start + size, self.shape[0]))


def float_tensor(x: npt.NDArray[Any], name: str) -> torch.Tensor:
    """An array of floats as a tensor, without a copy where the memory allows it; another byte order is
    converted.

    Raises:
        InputError: an array with a mask, or of another dtype.
    """
    if isinstance(x, np.ma.MaskedArray):
        raise InputError(
            f"expected an array without a mask, got a masked array from {name}: fill or drop the masked rows first"
        )
    if x.dtype.hasobject or x.dtype.kind != "f" or x.dtype.itemsize > 8:
        raise InputError(
            f"expected an array of {FLOATING}, got dtype {x.dtype} from {name}: "
            "convert it, for instance x.astype('float32')"
        )
    if not x.dtype.isnative:
        x = x.astype(x.dtype.newbyteorder("="))
    if not x.flags.writeable or any(stride < 0 for stride in x.strides):
        x = np.array(x)  # torch can neither mark a tensor read-only nor step backwards
    return torch.from_numpy(x)


def from_numpy(x: npt.NDArray[Any], *, name: str) -> ArrayRows:
    """Rows of a NumPy array of floats."""
    return ArrayRows(float_tensor(x, name), name=name)


def as_rows(x: Any, *, name: str | None = None) -> Rows:
    """`x` as Rows: Rows as they are, a tensor or array (N, D) without a copy."""
    if isinstance(x, Rows):
        return x
    if isinstance(x, torch.Tensor):
        return ArrayRows(x, name=name or "tensor")
    if isinstance(x, np.ndarray):
        return from_numpy(x, name=name or "array")
    raise InputError(
        f"expected Rows, a tensor or an array of shape (N, D), got {type(x).__name__}: "
        "convert it, for instance with numpy.asarray(x)"
    )
