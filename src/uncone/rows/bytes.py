"""Where bytes come from: a local file today, ranges of a remote one later. Readers know only this interface."""

import os
import stat
import weakref
from pathlib import Path
from typing import Protocol, runtime_checkable

from uncone.errors import InputError


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
        try:
            self._descriptor = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK)  # a named pipe must not hang
        except OSError as error:
            raise InputError(f"cannot read {path}: {error.strerror}: give a file that exists and can be read") from error
        weakref.finalize(self, os.close, self._descriptor)
        status = os.fstat(self._descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise InputError(f"expected a file, got {path} which is a folder or a device: give a file")
        self.size = status.st_size

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
