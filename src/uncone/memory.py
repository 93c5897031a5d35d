"""Memory for blocks of rows and what is computed from them."""

import math
import mmap
import threading
from contextlib import suppress

import numpy as np
import numpy.typing as npt
import torch

Bytes = npt.NDArray[np.uint8]
_CACHE_LINE = 64
_LARGE_PAGE = 2 * 2**20
_LARGE = 2 * _LARGE_PAGE


def uninitialised(shape: tuple[int, ...], dtype: torch.dtype, device: str | torch.device = "cpu") -> torch.Tensor:
    """A tensor with nothing written to it yet, as `torch.empty` gives one.

    The first touch of fresh memory costs a page fault for every 4 KiB, which can take as long as a pass over the data;
    large pages save that. What is large has a mapping of its own, and goes back to the system when it is freed: the C
    library would keep it, and leave holes that the next matrix does not fit into.
    """
    if torch.device(device).type != "cpu":
        return torch.empty(shape, dtype=dtype, device=device)
    size = math.prod(shape) * dtype.itemsize
    content = _mapped(size) if _has_mapping(size) else _on_cache_line(size)
    return torch.from_numpy(content).view(dtype).view(shape)


class Bench:
    """Working memory that is used again and again, kept between uses: one tensor a name.

    First touch of fresh memory can take as long as the work that it is for. Who borrows while it is lent gets fresh memory.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[tuple[str, torch.dtype], torch.Tensor] = {}

    def borrow(self, name: str, size: int, dtype: torch.dtype, device: str | torch.device) -> torch.Tensor:
        """At least `size` numbers, holding anything. Only memory of the CPU is kept: on a GPU torch does it."""
        with self._lock:
            kept = self._kept.pop((name, dtype), None) if torch.device(device).type == "cpu" else None
        return kept if kept is not None and len(kept) >= size else uninitialised((size,), dtype, device)

    def give_back(self, name: str, memory: torch.Tensor) -> None:
        """What `borrow` gave; the largest of a name is kept."""
        if memory.device.type != "cpu":
            return
        with self._lock:
            kept = self._kept.get((name, memory.dtype))
            if kept is None or len(kept) < len(memory):
                self._kept[name, memory.dtype] = memory

    def clear(self) -> None:
        """Give all of it to the system."""
        with self._lock:
            self._kept.clear()


def zeros(shape: tuple[int, ...], dtype: torch.dtype, device: str | torch.device = "cpu") -> torch.Tensor:
    """The same with zeros. No thread is woken for it: that would take longer than the zeros, and then be in the way."""
    if torch.device(device).type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    found = uninitialised(shape, dtype)
    if not _has_mapping(found.nbytes):  # what the system maps is zero
        found.view(torch.uint8).numpy().fill(0)
    return found


def _has_mapping(size: int) -> bool:
    return size >= _LARGE and hasattr(mmap, "MAP_PRIVATE")


def _on_cache_line(size: int) -> Bytes:
    """Kernels are fastest on whole cache lines, and round alike only where they find the same alignment."""
    content = np.empty(size + _CACHE_LINE, np.uint8)
    skipped = -content.ctypes.data % _CACHE_LINE
    return content[skipped : skipped + size]


def _mapped(size: int) -> Bytes:
    """Private memory that begins with a large page and consists of them, but for what does not fill one."""
    mapping = mmap.mmap(-1, size + _LARGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    content = np.frombuffer(mapping, np.uint8)
    skipped = -content.ctypes.data % _LARGE_PAGE
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # a system without large pages
            mapping.madvise(mmap.MADV_HUGEPAGE, skipped, size - size % _LARGE_PAGE)
    return content[skipped : skipped + size]
