"""Whole numbers as floats, where float64 holds each of them exactly."""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from uncone.errors import InputError

_KINDS = "iu"
_EXACT = 2**53


def whole_as_float64(x: Any, name: str) -> Any:
    """An array or tensor of integers in float64, on its device; anything else as it is.

    Raises:
        InputError: an integer beyond 2^53 on either side.
    """
    if isinstance(x, np.ndarray):
        return _widened(x, name) if x.dtype.kind in _KINDS else x
    is_whole = isinstance(x, torch.Tensor) and not (x.is_floating_point() or x.is_complex() or x.is_meta)
    if not is_whole or x.dtype == torch.bool or x.is_quantized or x.layout != torch.strided:
        return x
    return torch.from_numpy(_widened(x.cpu().numpy(), name)).to(x.device)


def _widened(x: npt.NDArray[Any], name: str) -> npt.NDArray[np.float64]:
    if x.size and x.dtype.itemsize == 8:
        largest = max(-int(x.min()), int(x.max()))
        if largest > _EXACT:
            raise InputError(
                f"expected whole numbers up to 2^53, which float64 holds exactly, got {largest} in size from {name}: "
                "pass floats to have them rounded"
            )
    return x.astype(np.float64)
