"""Memory for blocks of rows and what is computed from them."""

import math
import mmap
import weakref
from collections import deque
from contextlib import suppress

import numpy as np
import numpy.typing as npt
import torch

Bytes = npt.NDArray[np.uint8]
_CACHE_LINE = 64
_LARGE_PAGE = 2 * 2**20
_LARGE = 2 * _LARGE_PAGE
_MOST_MAPPINGS = 8
_SMALL = 8 * 2**20
RECYCLED_BYTES = 512 * 2**20


def uninitialised(shape: tuple[int, ...], dtype: torch.dtype, device: str | torch.device = "cpu") -> torch.Tensor:
    """A tensor with nothing written to it yet, as `torch.empty` gives one.

    The first touch of fresh memory costs a page fault for every 4 KiB, which can take as long as a pass over the data;
    large pages save that. What is large has a mapping of its own, and goes back to the system when it is freed: the C
    library would keep it, and leave holes that the next matrix does not fit into. Up to 8 MiB, what was freed is used again.
    """
    return _tensor(shape, dtype, device, most_recycled=_SMALL)


def recycled(shape: tuple[int, ...], dtype: torch.dtype, device: str | torch.device = "cpu") -> torch.Tensor:
    """As `uninitialised`, of any size in memory that was freed by another tensor of this module, if some fits; it holds anything.

    For what is needed again in every step of a training: the first touch of fresh memory can take as long as the work that it
    is for. A few freed mappings of `RECYCLED_BYTES` in all are kept; on a GPU torch does that.
    """
    return _tensor(shape, dtype, device, most_recycled=RECYCLED_BYTES)


def _tensor(shape: tuple[int, ...], dtype: torch.dtype, device: str | torch.device, *, most_recycled: int) -> torch.Tensor:
    if torch.device(device).type != "cpu":
        return torch.empty(shape, dtype=dtype, device=device)
    size = math.prod(shape) * dtype.itemsize
    if not _has_mapping(size):
        content = _on_cache_line(size)
    elif size > most_recycled:
        content = _content(_map(size), size)
    else:
        content = _content(_freed.take(size) or _map(size), size, recycle=True)
    return torch.from_numpy(content).view(dtype).view(shape)


class _Freed:
    """Mappings without a user. Tensors are freed on any thread, even between two lines of one that is here."""

    def __init__(self) -> None:
        self._kept: deque[mmap.mmap] = deque()

    def put(self, mapping: mmap.mmap) -> None:
        self._kept.append(mapping)
        while len(self._kept) > _MOST_MAPPINGS or sum(len(m) for m in tuple(self._kept)) > RECYCLED_BYTES:
            try:
                self._kept.popleft()
            except IndexError:
                return

    def take(self, size: int) -> mmap.mmap | None:
        for mapping in sorted(self._kept, key=len):
            if size + _LARGE_PAGE <= len(mapping) <= 2 * size:
                try:
                    self._kept.remove(mapping)
                except ValueError:  # another thread has it
                    continue
                return mapping
        return None

    def clear(self) -> None:
        self._kept.clear()


_freed = _Freed()


def clear_recycled() -> None:
    """Give what `recycled` keeps to the system."""
    _freed.clear()


def zeros(shape: tuple[int, ...], dtype: torch.dtype, device: str | torch.device = "cpu") -> torch.Tensor:
    """The same with zeros. No thread is woken for it: that would take longer than the zeros, and then be in the way."""
    if torch.device(device).type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    found = uninitialised(shape, dtype)
    if not _has_mapping(found.nbytes) or found.nbytes <= _SMALL:  # else just mapped by the system, which gives zeros
        found.view(torch.uint8).numpy().fill(0)
    return found


def _has_mapping(size: int) -> bool:
    return size >= _LARGE and hasattr(mmap, "MAP_PRIVATE")


def _on_cache_line(size: int) -> Bytes:
    """Kernels are fastest on whole cache lines, and round alike only where they find the same alignment."""
    content = np.empty(size + _CACHE_LINE, np.uint8)
    skipped = -content.ctypes.data % _CACHE_LINE
    return content[skipped : skipped + size]


def _map(size: int) -> mmap.mmap:
    """Private memory that begins with a large page and consists of them, but for what does not fill one."""
    mapping = mmap.mmap(-1, size + _LARGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # a system without large pages
            mapping.madvise(mmap.MADV_HUGEPAGE, _begin(np.frombuffer(mapping, np.uint8)), size - size % _LARGE_PAGE)
    return mapping


def _content(mapping: mmap.mmap, size: int, *, recycle: bool = False) -> Bytes:
    content = np.frombuffer(mapping, np.uint8)
    if recycle:  # every view of it, a tensor's too, keeps this one array alive
        weakref.finalize(content, _freed.put, mapping).atexit = False
    begin = _begin(content)
    return content[begin : begin + size]


def _begin(content: Bytes) -> int:
    return int(-content.ctypes.data % _LARGE_PAGE)
