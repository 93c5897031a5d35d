"""Floats as stored and as arrays. bfloat16, which NumPy does not have, is the upper half of float32."""

import sys
from typing import Any

import numpy as np
import numpy.typing as npt

from uncone.errors import InputError

Array = npt.NDArray[Any]
DTYPES: dict[str, np.dtype[Any]] = {name: np.dtype(name) for name in ("float64", "float32", "float16")}
DTYPES["bfloat16"] = np.dtype(np.uint16)  # all in the machine's byte order
FLOATING = "float64, float32, float16 or bfloat16"
_HALF = np.uint32(16)
_PLACES, _EXPONENTS, _INFINITE = np.int32(-0x70002000), np.float32(2.0**112), 2.0**16
"""The bits of a float16 in a float32, sign first; the factor between the exponents; where infinity goes."""


def widen(x: Array, out: Array) -> None:
    """Widen floats as stored into `out`, float32 or float64 of the same shape."""
    if x.dtype == np.float16 and out.dtype == np.float32 and x.size:
        # NumPy takes five times as long. Move the bits to their new places, then scale.
        bits = np.left_shift(x.view(np.int16), 13, out=out.view(np.int32), dtype=np.int32)
        np.bitwise_and(bits, _PLACES, out=bits)
        np.multiply(out, _EXPONENTS, out=out)
        if out.max() >= _INFINITE or out.min() <= -_INFINITE:
            out[...] = x
    elif x.dtype != np.uint16:
        out[...] = x
    elif out.dtype == np.float32:
        np.left_shift(x, _HALF, out=out.view(np.uint32), dtype=np.uint32)
    else:
        out[...] = np.left_shift(x, _HALF, dtype=np.uint32).view(np.float32)


def narrow(x: Array, dtype: str) -> Array:
    """Floats as `dtype` is stored, rounded to nearest, ties to even."""
    with np.errstate(over="ignore"):  # the caller checks for infinities
        if dtype != "bfloat16":
            return x.astype(DTYPES[dtype], copy=False)
        bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    rounded = (bits + (0x7FFF + ((bits >> _HALF) & 1)) >> _HALF).astype(np.uint16)
    return np.where(np.isnan(x), np.uint16(0x7FC0), rounded)


def is_tensor(x: Any) -> bool:
    """Whether it is a torch tensor. torch is not loaded to find that out."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


def of_tensor(x: Any, name: str) -> tuple[Array, str]:
    """The numbers and dtype of a dense tensor, on the CPU without a copy; bfloat16 as stored."""
    torch = sys.modules["torch"]
    if x.is_meta:
        raise InputError(f"expected numbers, got {name} on meta, which has none: load the model's weights")
    dtype = str(x.dtype).removeprefix("torch.")
    x = x.detach().cpu().resolve_conj().resolve_neg()
    if x.layout != torch.strided or x.is_quantized:
        raise InputError(f"expected a dense tensor, got {name} with another layout: use x.to_dense()")
    return (x.view(torch.int16).numpy().view(np.uint16) if dtype == "bfloat16" else x.numpy()), dtype


def as_array(x: Any) -> Any:
    """A tensor as an array, on the CPU without a copy (bfloat16 as float32); anything else as it is."""
    if not is_tensor(x):
        return x
    array, dtype = of_tensor(x, "the tensor")
    if dtype != "bfloat16":
        return array
    widen(array, wide := np.empty(array.shape, np.float32))
    return wide
