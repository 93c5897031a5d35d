"""A `ByteSource` as a file object, for the standard library's readers of compressed bytes."""

import io
from typing import Any

from uncone.rows.bytes import ByteSource


class SequentialFile(io.RawIOBase):
    """The bytes of `source` from `offset` on, readable and seekable (positions count from the first byte of the source)."""

    def __init__(self, source: ByteSource, offset: int = 0) -> None:
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

    def tell(self) -> int:
        return self._at
