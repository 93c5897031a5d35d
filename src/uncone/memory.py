"""Memory for blocks of rows and what is computed from them."""

import ctypes
import math
import mmap
import os
import sys
import weakref
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from uncone.errors import InputError

_CACHE_LINE, _LARGE, _SMALL = 64, 4 * 2**20, 8 * 2**20
_PRIVATE = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
RECYCLED_BYTES = 512 * 2**20
MEMORY_GB = "UNCONE_MEMORY_GB"  # of the environment
_CGROUPS = (
    (Path("/sys/fs/cgroup"), "memory.max", "memory.current"),
    (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes", "memory.usage_in_bytes"),
)


def has_room(size: int) -> bool:
    """Whether `size` bytes are at most half of what UNCONE_MEMORY_GB allows or, unset, is free."""
    allowed = _allowed()
    return allowed is None or 2 * size <= allowed


def _allowed() -> int | None:
    setting = os.environ.get(MEMORY_GB, "")
    try:
        return int(float(setting) * 1e9) if setting else free_bytes()
    except (ValueError, OverflowError) as error:
        got = f"got {setting[:40]!r}: set a number such as 16"
        raise InputError(f"expected a number of GB in {MEMORY_GB}, {got}") from error


def check_memory(size: int, what: str, way_out: str) -> None:
    """Refuse work of more than 512 MiB that takes more than UNCONE_MEMORY_GB allows or, unset, is free."""
    if size <= 512 * 2**20:
        return
    allowed = _allowed()
    if allowed is not None and size > allowed:
        setting = os.environ.get(MEMORY_GB, "")
        of_all = f"{size / 1e9:.1f} GB of the {allowed / 1e9:.1f} GB that are {'allowed' if setting else 'free'}"
        more = f"To allow more, set {MEMORY_GB}={math.ceil(size / 1e9)}"
        got = f"got {what}, which would take {of_all}: {way_out}. {more}"
        raise InputError(f"expected work that fits into memory, {got}")


def free_bytes() -> int | None:
    """Memory that is free without swapping, within the control group's limits; None: not known."""
    free = []
    with suppress(OSError, ValueError, IndexError):
        free.append(int(Path("/proc/meminfo").read_text().split("MemAvailable:")[1].split()[0]) * 1024)
    for folder, limit, used in _CGROUPS:
        with suppress(OSError, ValueError, KeyError):  # "max" is no limit
            stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
            allowed, taken = (int((folder / name).read_text()) for name in (limit, used))
            free.append(max(0, allowed - taken + int(stat["inactive_file"])))
    return min(free, default=None)


def give_back() -> None:
    """Return memory that glibc keeps to the system: arrays of many sizes leave holes that add up."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def uninitialised(
    shape: tuple[int, ...], dtype: npt.DTypeLike = np.float64, *, most_recycled: int = _SMALL
) -> npt.NDArray[Any]:
    """Up to `most_recycled` bytes, freed memory is used again. From 4 MiB on it goes back to the system when it is
    freed: the C library would keep it, and leave holes that no matrix fits into."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    if size < _LARGE:
        # Kernels are fastest on whole cache lines, and round alike on equal alignment.
        content = np.empty(size + _CACHE_LINE, np.uint8)
        content = content[-content.ctypes.data % _CACHE_LINE :][:size]
    elif size > most_recycled:
        content = np.frombuffer(mmap.mmap(-1, size, **_PRIVATE), np.uint8)
    else:
        mapping = _freed.take(size) or mmap.mmap(-1, size, **_PRIVATE)
        content = np.frombuffer(mapping, np.uint8)  # every view of it keeps this array alive
        weakref.finalize(content, _freed.put, mapping).atexit = False
        content = content[:size]
    return content.view(dtype).reshape(shape)


def recycled(shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """`uninitialised`, in memory of any size that is free again: the first touch of fresh memory can take as long as
    the work in it."""
    return uninitialised(shape, dtype, most_recycled=RECYCLED_BYTES)


def clear_recycled() -> None:
    _freed.kept.clear()


class Buffer:
    """Two blocks, each used again once nobody else holds it: fresh arrays cost a page fault every 4 KiB."""

    def __init__(self, rows: int, d: int, dtype: npt.DTypeLike) -> None:
        self._shape, self._dtype = (rows, d), dtype
        self._kept: list[npt.NDArray[Any]] = []
        self._alone = 0

    def get(self, rows: int) -> npt.NDArray[Any]:
        free = next((i for i, kept in enumerate(self._kept) if sys.getrefcount(kept.base) <= self._alone), None)
        if free is None:
            self._kept = [*self._kept[-1:], uninitialised(self._shape, self._dtype)]
            free = len(self._kept) - 1
            self._alone = sys.getrefcount(self._kept[free].base)
        return self._kept[free][:rows]


class _Freed:
    def __init__(self) -> None:
        self.kept: deque[mmap.mmap] = deque()

    def put(self, mapping: mmap.mmap) -> None:
        self.kept.append(mapping)
        while len(self.kept) > 8 or sum(map(len, tuple(self.kept))) > RECYCLED_BYTES:
            with suppress(IndexError):  # another thread has them
                self.kept.popleft()

    def take(self, size: int) -> mmap.mmap | None:
        for mapping in sorted(self.kept, key=len):
            if size <= len(mapping) <= 2 * size:
                with suppress(ValueError):  # another thread has it
                    self.kept.remove(mapping)
                    return mapping
        return None


_freed = _Freed()


def zeros(shape: tuple[int, ...], dtype: npt.DTypeLike = np.float64) -> npt.NDArray[Any]:
    array = uninitialised(shape, dtype)
    if array.nbytes <= _SMALL:  # else just mapped by the system, which gives zeros
        array.fill(0)
    return array
