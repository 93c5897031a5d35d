"""The bytes of a file, and rows that are stored in order, or can only be read forwards."""

import copy
import io
import os
import struct
import threading
import weakref
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from uncone.errors import InputError
from uncone.memory import Buffer, has_room, uninitialised
from uncone.regular import open_regular
from uncone.roles import Path_, Told
from uncone.rows.base import GRID, Rows
from uncone.rows.floats import DTYPES, Array, widen
from uncone.threads import waited

T = TypeVar("T")
ZIP, PICKLE = b"PK\x03\x04", b"\x80"  # how files of `torch.save` begin, now and before PyTorch 1.6
MOST_INFLATED = 1032  # bytes for one byte of a deflated stream
_NOTHING: Array = np.empty(0)
_PIECE_BYTES = 2**24  # bytes fetched at once into memory


class File:
    """Random access to bytes. `path` exists only if the file is on this machine; otherwise it is for messages."""

    path: Path
    name: str
    size: int
    is_local = False  # `path` can be opened

    def __str__(self) -> str:
        return self.name

    def read_into(self, offset: int, buffer: memoryview) -> None:
        """Fill `buffer`. InputError: there are fewer bytes."""
        raise NotImplementedError

    def head(self, most: int) -> bytes:
        return self.read(0, min(self.size, most))

    def read(self, offset: int, count: int) -> bytes:
        content = bytearray(count)
        self.read_into(offset, memoryview(content))
        return bytes(content)

    def check_whole(self) -> None:
        """InputError: the file was cut since it was opened."""


class LocalFile(File):
    """A file on this machine, closed with the object. Nothing is mapped: only the buffer takes memory."""

    is_local = True

    def __init__(self, path: Path_) -> None:
        self.path, self.name = Path(path), str(path)
        file = open_regular(path)
        weakref.finalize(self, file.close)
        self._descriptor = file.fileno()
        self.size = os.fstat(self._descriptor).st_size

    def read_into(self, offset: int, buffer: memoryview) -> None:
        view, done = buffer.cast("B"), 0
        while done < len(view):
            count = os.preadv(self._descriptor, [view[done:]], offset + done)
            if count == 0:
                raise was_cut(f"{len(view)} bytes at offset {offset} of {self.name}", done)
            done += count

    def check_whole(self) -> None:
        if (size := os.fstat(self._descriptor).st_size) < self.size:
            raise was_cut(f"{self.size} bytes of {self.name}", size)


class MemoryFile(File):
    """The bytes [start, start + len(content)) of a file, kept in memory. Nothing else of the file is read."""

    def __init__(self, name: str, start: int, content: Array) -> None:
        self.name, self.path, self._start, self._content = name, Path(name), start, content
        self.size = start + len(content)

    def read_into(self, offset: int, buffer: memoryview) -> None:
        view, at = buffer.cast("B"), offset - self._start
        view[:] = self._content[at : at + len(view)].data


def as_file(path: "Path_ | File") -> File:
    return path if isinstance(path, File) else LocalFile(path)


def member_start(source: File, member: zipfile.ZipInfo) -> int:
    """Where the bytes of a member begin: its own header may be longer than the directory states."""
    lengths: tuple[int, int] = struct.unpack("<26xHH", source.read(member.header_offset, 30))
    return member.header_offset + 30 + sum(lengths)


def was_cut(expected: str, got: object) -> InputError:
    return InputError(f"expected {expected}, got {got}: the file was cut, copy it again")


class SequentialFile(io.RawIOBase):
    """`source` from `offset` on as a file object; positions count from byte 0 of the source."""

    def __init__(self, source: File, offset: int = 0) -> None:
        self._source, self._at = source, offset

    def readable(self) -> bool:
        return True

    seekable = readable

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        count = max(0, min(len(view), self._source.size - self._at))
        self._source.read_into(self._at, view[:count])
        self._at += count
        return count

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._source.size}[whence]
        if at < 0:
            raise OSError(f"expected a position from 0 up, got {at}")
        self._at = at
        return at


class FlatRows(Rows):
    """A row-major (N, D) matrix at `offset` of `source`; `swapped`: in the other byte order."""

    def __init__(
        self, source: File, offset: int, shape: tuple[int, ...], dtype: str, name: str, swapped: bool = False
    ) -> None:
        self._source, self._offset, self._swapped = source, offset, swapped
        self._describe(shape, dtype, name)

    def at_hand(self, progress: Told = None) -> Rows:
        size = self.shape[0] * self.shape[1] * DTYPES[self.dtype].itemsize
        if self._source.is_local or isinstance(self._source, MemoryFile) or not has_room(size):
            return self
        content, rows = uninitialised((size,), np.uint8), copy.copy(self)
        for at in range(0, size, _PIECE_BYTES):
            piece = content[at : at + _PIECE_BYTES]
            self._source.read_into(self._offset + at, piece.data)
            if progress is not None:
                progress(at + len(piece), size)
        rows._source = MemoryFile(self._source.name, self._offset, content)
        return rows

    def fill(self, start: int, out: Array) -> None:
        stored, row_bytes = DTYPES[self.dtype], self.shape[1] * DTYPES[self.dtype].itemsize
        whole = stored == out.dtype or not self._source.is_local  # in one request
        at_once = max(1, len(out) if whole else 2**20 // self.shape[1])  # few compared with a block
        for first in range(0, len(out), at_once):
            part = out[first : first + at_once]
            raw = part if stored == out.dtype else np.empty(part.shape, stored)
            content = raw.reshape(-1).view(np.uint8)
            self._read_into(self._offset + (start + first) * row_bytes, content)
            if self._swapped:
                content.view(f"u{stored.itemsize}").byteswap(inplace=True)
            if raw is not part:
                widen(raw, part)

    def _read_into(self, offset: int, content: Array) -> None:
        self._source.read_into(offset, content.data)


class StreamedRows(Rows):
    """Rows of compressed bytes, text or records: they come in pieces of any length from fixed places.

    A reader implements `begin` and `pieces`. Reads in ascending order cost one pass over the source, in any other order
    up to one pass each.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cursor: _Cursor | None = None

    def begin(self, row: int) -> int:
        """The last row at or before `row` at which reading can begin."""
        raise NotImplementedError

    def pieces(self, begin: int) -> Iterator[Array]:
        """Arrays (any number, D) from row `begin` on, in the source's or the blocks' dtype. They stay valid."""
        raise NotImplementedError

    def all_pieces(self) -> Iterator[Array]:
        """Every piece, for a whole pass."""
        return one_ahead(self.pieces(0))

    def fill(self, start: int, out: Array) -> None:
        if not len(out):  # past the last row there is no place to begin at
            return
        with self._lock:
            cursor, self._cursor = self._cursor, None  # an error on the way leaves no cursor
            if cursor is None or not self.begin(start) <= cursor.row <= start:
                # Read from a copy without a cursor: a cycle would keep the file open.
                begin = self.begin(start)
                cursor = _Cursor(copy.copy(self).pieces(begin), begin, self.name)
            cursor.skip(start - cursor.row)
            cursor.fill(out)
            self._cursor = cursor

    def blocks(self, size: int = GRID) -> Iterator[Array]:
        n, d = self.shape
        cursor, buffer = _Cursor(self.all_pieces(), 0, self.name), Buffer(min(size, n), d, self.widened)
        for start in range(0, n, size):
            count = min(size, n - start)
            if (block := cursor.whole(count, self.widened)) is None:
                cursor.fill(block := buffer.get(count))
            yield block
            del block


class _Cursor:
    def __init__(self, pieces: Iterator[Array], row: int, name: str) -> None:
        self._pieces, self.row, self._name = pieces, row, name
        self._rest = _NOTHING

    def skip(self, count: int) -> None:
        while count:
            count -= len(self._take(count))

    def fill(self, out: Array) -> None:
        while len(out):
            piece = self._take(len(out))
            out[: len(piece)] = piece
            out = out[len(piece) :]

    def whole(self, count: int, dtype: np.dtype[Any]) -> Array | None:
        """The next `count` rows without a copy, if one piece holds them in `dtype`."""
        self._need_rest()
        return self._take(count) if len(self._rest) >= count and self._rest.dtype == dtype else None

    def _take(self, most: int) -> Array:
        self._need_rest()
        whole = self._rest
        self._rest = whole[most:] if len(whole) > most else _NOTHING  # an empty view would hold the memory
        self.row += min(most, len(whole))
        return whole[:most]

    def _need_rest(self) -> None:
        while not len(self._rest):
            if (piece := next(self._pieces, None)) is None:
                raise was_cut(f"row {self.row} of {self._name}", "its end")
            self._rest = piece


def one_ahead(items: Iterator[T]) -> Iterator[T]:
    """While an item is in use, the next is made on another thread. At most two exist at once."""
    with ThreadPoolExecutor(1, thread_name_prefix="uncone-ahead") as pool:
        coming = pool.submit(next, items, None)
        while (item := waited(coming)) is not None:
            coming = pool.submit(next, items, None)
            yield item
            del item
