"""Where bytes come from: a local file today, ranges of a remote one later. Readers know only this interface."""

import os
import weakref
from pathlib import Path
from typing import Protocol, runtime_checkable

from uncone.errors import InputError
from uncone.regular import open_regular


@runtime_checkable
class ByteSource(Protocol):
    """Random access to a known number of bytes."""

    name: str
    size: int

    def read_into(self, offset: int, buffer: memoryview) -> None:
        """Fill `buffer` with the bytes from `offset` on; InputError where there are fewer."""


class LocalFile:
    """A `ByteSource` over a file on this machine. The file is read without a mapping, so the memory in use is the caller's
    buffer and nothing else. The descriptor is closed with the object."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.name = str(path)
        file = open_regular(path)
        weakref.finalize(self, file.close)
        self._descriptor = file.fileno()
        self.size = os.fstat(self._descriptor).st_size

    def head(self, most: int) -> bytes:
        """The first `most` bytes, or all where there are fewer."""
        content = bytearray(min(self.size, most))
        self.read_into(0, memoryview(content))
        return bytes(content)

    def read_into(self, offset: int, buffer: memoryview) -> None:
        """Fill `buffer` with the bytes from `offset` on; InputError where there are fewer."""
        view = buffer.cast("B")
        done = 0
        while done < len(view):
            count = os.preadv(self._descriptor, [view[done:]], offset + done)
            if count == 0:
                raise InputError(
                    f"expected {len(view)} bytes at offset {offset} of {self.name}, got {done}: the file was cut, copy it again"
                )
            done += count
