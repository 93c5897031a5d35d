"""A file on this machine: its bytes, and a matrix that lies in it row after row."""

import io
import os
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from uncone.errors import InputError
from uncone.regular import open_regular
from uncone.rows.base import DTYPES, Rows


class LocalFile:
    """Random access to the bytes of a file. Nothing is mapped: the memory in use is the caller's buffer.

    The descriptor is closed with the object.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path, self.name = Path(path), str(path)
        file = open_regular(path)
        weakref.finalize(self, file.close)
        self._descriptor = file.fileno()
        self.size = os.fstat(self._descriptor).st_size

    def head(self, most: int) -> bytes:
        """The first `most` bytes, or all where there are fewer."""
        return self.read(0, min(self.size, most))

    def read(self, offset: int, count: int) -> bytes:
        """`count` bytes from `offset` on; InputError where there are fewer."""
        content = bytearray(count)
        self.read_into(offset, memoryview(content))
        return bytes(content)

    def read_into(self, offset: int, buffer: memoryview) -> None:
        """Fill `buffer` with the bytes from `offset` on; InputError where there are fewer."""
        view, done = buffer.cast("B"), 0
        while done < len(view):
            count = os.preadv(self._descriptor, [view[done:]], offset + done)
            if count == 0:
                raise self._cut(f"{len(view)} bytes at offset {offset}", done)
            done += count

    def check_whole(self) -> None:
        """Raise InputError where the file has become shorter since it was opened."""
        size = os.fstat(self._descriptor).st_size
        if size < self.size:
            raise self._cut(f"{self.size} bytes", size)

    def _cut(self, expected: str, got: int) -> InputError:
        return InputError(f"expected {expected} of {self.name}, got {got}: the file was cut, copy it again")


class SequentialFile(io.RawIOBase):
    """The bytes of `source` from `offset` on as a file object; positions count from byte 0 of the source."""

    def __init__(self, source: LocalFile, offset: int = 0) -> None:
        self._source, self._at = source, offset

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        count = max(0, min(len(view), self._source.size - self._at))
        self._source.read_into(self._at, view[:count])
        self._at += count
        return count

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._source.size}[whence]
        if base + offset < 0:
            raise OSError(f"expected a position from 0 up, got {base + offset}")
        self._at = base + offset
        return self._at


class FlatRows(Rows):
    """A row-major (N, D) matrix of one dtype that starts at `offset` of `source`; `swapped` is in the other byte order."""

    def __init__(
        self,
        source: LocalFile,
        offset: int,
        shape: tuple[int, ...],
        dtype: str,
        name: str,
        swapped: bool = False,
    ) -> None:
        self._source, self._offset, self._swapped = source, offset, swapped
        self.shape, self.dtype, self.name = (shape[0], shape[1]), dtype, name

    def fill(self, start: int, out: torch.Tensor) -> None:
        stored = DTYPES[self.dtype]
        raw = out if stored == out.dtype else torch.empty(out.shape, dtype=stored)
        content = raw.view(torch.uint8).numpy().reshape(-1)
        self._read_into(self._offset + start * self.shape[1] * stored.itemsize, content)
        if self._swapped:
            content.view(f"u{stored.itemsize}").byteswap(inplace=True)
        if raw is not out:
            out.copy_(raw)

    def _read_into(self, offset: int, content: npt.NDArray[np.uint8]) -> None:
        self._source.read_into(offset, content.data)
