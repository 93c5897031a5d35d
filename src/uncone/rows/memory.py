"""Memory for blocks of rows and what is computed from them."""

import math

import numpy as np
import torch

_ALIGNED = 64


def uninitialised(shape: tuple[int, ...], dtype: torch.dtype, device: str | torch.device = "cpu") -> torch.Tensor:
    """A tensor with nothing written to it yet, as `torch.empty` gives one.

    The first touch of fresh memory costs a page fault for every 4 KiB, which can take as long as a pass over the data.
    numpy asks the system for large pages, torch does not: from 4 MiB on its memory is several times cheaper to begin.
    """
    if torch.device(device).type != "cpu":
        return torch.empty(shape, dtype=dtype, device=device)
    size = math.prod(shape) * dtype.itemsize
    content = np.empty(size + _ALIGNED, np.uint8)
    # Kernels are fastest on whole cache lines, and round alike only where they find the same alignment.
    skipped = -content.ctypes.data % _ALIGNED
    return torch.from_numpy(content[skipped : skipped + size]).view(dtype).view(shape)
