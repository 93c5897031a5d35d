"""Where bytes come from: a local file today, ranges of a remote one later. Readers know only this interface."""

import os
from pathlib import Path
from typing import Protocol

from uncone.errors import InputError


class ByteSource(Protocol):
    """Random access to a known number of bytes."""

    name: str
    size: int

    def read_into(self, offset: int, buffer: memoryview) -> None:
        """Fill `buffer` with the bytes from `offset` on; InputError where there are fewer."""


class LocalFile:
    """A `ByteSource` over a file on this machine. The file is opened at the first read and read without a mapping,
    so the memory in use is the caller's buffer and nothing else."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.name = str(path)
        try:
            self._handle = open(self.path, "rb", buffering=0)  # noqa: SIM115 - closed with the object
            self.size = os.fstat(self._handle.fileno()).st_size
        except OSError as error:
            raise InputError(f"cannot read {path}: {error.strerror}: give a file that exists and can be read") from error

    def read_into(self, offset: int, buffer: memoryview) -> None:
        """Fill `buffer` with the bytes from `offset` on; InputError where there are fewer."""
        view = buffer.cast("B")
        done = 0
        while done < len(view):
            count = os.preadv(self._handle.fileno(), [view[done:]], offset + done)
            if count == 0:
                raise InputError(
                    f"expected {len(view)} bytes at offset {offset} of {self.name}, got {done}: the file was cut, copy it again"
                )
            done += count
