"""Memory for blocks of rows and what is computed from them."""

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch

_CACHE_LINE = 64
_LARGE_PAGE = 2 * 2**20
_LARGE = 2 * _LARGE_PAGE


def uninitialised(shape: tuple[int, ...], dtype: torch.dtype, device: str | torch.device = "cpu") -> torch.Tensor:
    """A tensor with nothing written to it yet, as `torch.empty` gives one.

    The first touch of fresh memory costs a page fault for every 4 KiB, which can take as long as a pass over the data.
    numpy asks the system for large pages from 4 MiB on, torch does not; memory that begins with a page consists of them.
    """
    if torch.device(device).type != "cpu":
        return torch.empty(shape, dtype=dtype, device=device)
    return _laid_out(np.empty, shape, dtype)


def zeros(shape: tuple[int, ...], dtype: torch.dtype, device: str | torch.device = "cpu") -> torch.Tensor:
    """The same with zeros. No thread is woken for it: that would take longer than the zeros, and then be in the way."""
    if torch.device(device).type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    return _laid_out(np.zeros, shape, dtype)


def _laid_out(
    allocate: Callable[[int, type[np.uint8]], npt.NDArray[np.uint8]], shape: tuple[int, ...], dtype: torch.dtype
) -> torch.Tensor:
    size = math.prod(shape) * dtype.itemsize
    # Kernels are fastest on whole cache lines, and round alike only where they find the same alignment.
    aligned = _LARGE_PAGE if size >= _LARGE else _CACHE_LINE
    content = allocate(size + 2 * aligned, np.uint8)  # room to begin and to end with a page
    skipped = -content.ctypes.data % aligned
    return torch.from_numpy(content[skipped : skipped + size]).view(dtype).view(shape)
