"""Rows of a source that can only be read forwards: compressed bytes, text, records of varying length.

A reader says how to begin at or before a row, and yields what follows in pieces of any length. Blocks on the
grid, ranges and single rows are made of that here.
"""

import copy
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Self, TypeVar

import torch

from uncone.errors import InputError
from uncone.rows.base import GRID, Buffer, Rows, Tensor

T = TypeVar("T")


class StreamedRows(Rows):
    """Rows that come in pieces, from a place at which reading can begin.

    A reader sets `shape`, `dtype`, `name`, and implements `begin` and `pieces`. `blocks` reads the source
    once. `read` goes on from where the last `read` ended, if that is nearer than the next place to begin at;
    rows that are asked for in ascending order therefore cost one pass over the source, in any other order up
    to a pass for each call.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cursor: _Cursor | None = None

    def begin(self, row: int) -> int:
        """The last row at or before `row` at which reading can begin."""
        raise NotImplementedError

    def pieces(self, begin: int) -> Iterator[Tensor]:
        """The rows from `begin` on, in order, as tensors (any number, D), in the dtype of the source or the
        blocks. A piece is never written to again."""
        raise NotImplementedError

    def all_pieces(self) -> Iterator[Tensor]:
        """`pieces(0)` for a whole pass: the next one is made on another thread while one is in use."""
        return one_ahead(self.pieces(0))

    def read(self, start: int, stop: int, out: Tensor | None = None) -> Tensor:
        if out is None:
            out = torch.empty((stop - start, self.shape[1]), dtype=self.widened)
        if start == stop:  # past the last row there is no place to begin at
            return out
        with self._lock:
            cursor, self._cursor = self._cursor, None  # an error on the way leaves none
            if cursor is None or not self.begin(start) <= cursor.row <= start:
                cursor = _Cursor(self._twin().pieces(self.begin(start)), self.begin(start), self.name)
            cursor.skip(start - cursor.row)
            cursor.fill(out)
            self._cursor = cursor
        return out

    def _twin(self) -> Self:
        """The same rows without a cursor. Pieces hold the rows that make them: if those held the pieces too,
        in their cursor, the file would stay open until the garbage collector comes by."""
        twin = copy.copy(self)
        twin._cursor = None
        return twin

    def blocks(self, size: int = GRID) -> Iterator[Tensor]:
        n, d = self.shape
        cursor, buffer = _Cursor(self.all_pieces(), 0, self.name), Buffer(min(size, n), d, self.widened)
        for start in range(0, n, size):
            count = min(size, n - start)
            block = cursor.whole(count, self.widened)
            if block is None:
                block = buffer.get(count)
                cursor.fill(block)
            yield block
            del block


class _Cursor:
    """Where reading stands in a run of pieces: `row` is the next one."""

    def __init__(self, pieces: Iterator[Tensor], row: int, name: str) -> None:
        self._pieces, self.row, self._name = pieces, row, name
        self._rest: Tensor | None = None

    def skip(self, count: int) -> None:
        """Go on by `count` rows."""
        while count:
            count -= len(self._take(count))

    def fill(self, out: Tensor) -> None:
        """The next rows into `out`, as many as it has."""
        done = 0
        while done < len(out):
            piece = self._take(len(out) - done)
            out[done : done + len(piece)] = piece
            done += len(piece)

    def whole(self, count: int, dtype: torch.dtype) -> Tensor | None:
        """The next `count` rows without a copy if one piece holds them in `dtype`, else None."""
        piece = self._piece()
        return self._take(count) if len(piece) >= count and piece.dtype == dtype else None

    def _take(self, most: int) -> Tensor:
        piece = self._piece()
        self._rest = piece[most:] if len(piece) > most else None
        self.row += min(len(piece), most)
        return piece[:most]

    def _piece(self) -> Tensor:
        while self._rest is None or len(self._rest) == 0:
            piece = next(self._pieces, None)
            if piece is None:
                raise InputError(
                    f"expected more rows than {self.row} in {self._name}, got its end: the file was cut, copy it again"
                )
            self._rest = piece
        return self._rest


def one_ahead(items: Iterator[T]) -> Iterator[T]:
    """`items`; while one is in use, the next is made on another thread. At most two exist at once."""
    with ThreadPoolExecutor(1, thread_name_prefix="uncone-ahead") as pool:
        coming = pool.submit(next, items, None)
        while (item := coming.result()) is not None:
            coming = pool.submit(next, items, None)
            yield item
            del item
