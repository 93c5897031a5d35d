"""Whole numbers as floats, where float64 holds each of them exactly."""

from typing import Any

import numpy as np
import numpy.typing as npt

from uncone.errors import InputError
from uncone.rows.floats import is_tensor, of_tensor

_KINDS = "iu"
_EXACT = 2**53


def whole_as_float64(x: Any, name: str) -> Any:
    """An array or tensor of integers as an array of float64; anything else as it is.

    Raises:
        InputError: an integer beyond 2^53 on either side.
    """
    if isinstance(x, np.ndarray):
        return _widened(x, name) if x.dtype.kind in _KINDS else x
    is_whole = is_tensor(x) and not (x.is_floating_point() or x.is_complex() or x.is_meta or x.is_quantized)
    if not is_whole or str(x.layout) != "torch.strided" or str(x.dtype) == "torch.bool":
        return x
    return _widened(of_tensor(x, name)[0], name)


def _widened(x: npt.NDArray[Any], name: str) -> npt.NDArray[np.float64]:
    if x.size and x.dtype.itemsize == 8:
        largest = max(-int(x.min()), int(x.max()))
        if largest > _EXACT:
            raise InputError(
                f"expected whole numbers up to 2^53, which float64 holds exactly, got {largest} in size from {name}: "
                "pass floats to have them rounded"
            )
    return x.astype(np.float64)
