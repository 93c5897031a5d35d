"""Rows of a source that can only be read forwards: compressed bytes, text, records of varying length."""

import copy
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Self, TypeVar

import torch

from uncone.errors import InputError
from uncone.rows.base import GRID, Buffer, Rows, Tensor

T = TypeVar("T")
_NOTHING = torch.empty(0)


class StreamedRows(Rows):
    """Rows that come in pieces of any length, from a place at which reading can begin.

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

    def fill(self, start: int, out: Tensor) -> None:
        if not len(out):  # past the last row there is no place to begin at
            return
        with self._lock:
            cursor, self._cursor = self._cursor, None  # an error on the way leaves none
            if cursor is None or not self.begin(start) <= cursor.row <= start:
                cursor = _Cursor(self._twin().pieces(self.begin(start)), self.begin(start), self.name)
            cursor.skip(start - cursor.row)
            cursor.fill(out)
            self._cursor = cursor

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
        self._rest = _NOTHING

    def skip(self, count: int) -> None:
        """Go on by `count` rows."""
        while count:
            count -= len(self._take(count))

    def fill(self, out: Tensor) -> None:
        """The next rows into `out`, as many as it has."""
        while len(out):
            piece = self._take(len(out))
            out[: len(piece)] = piece
            out = out[len(piece) :]

    def whole(self, count: int, dtype: torch.dtype) -> Tensor | None:
        """The next `count` rows without a copy if one piece holds them in `dtype`, else None."""
        self._need_rest()
        return self._take(count) if len(self._rest) >= count and self._rest.dtype == dtype else None

    def _take(self, most: int) -> Tensor:
        self._need_rest()
        whole = self._rest
        self._rest = whole[most:] if len(whole) > most else _NOTHING  # an empty view would hold the memory
        self.row += min(most, len(whole))
        return whole[:most]

    def _need_rest(self) -> None:
        while not len(self._rest):
            piece = next(self._pieces, None)
            if piece is None:
                raise InputError(
                    f"expected more rows than {self.row} in {self._name}, got its end: the file was cut, copy it again"
                )
            self._rest = piece


def one_ahead(items: Iterator[T]) -> Iterator[T]:
    """`items`; while one is in use, the next is made on another thread. At most two exist at once."""
    with ThreadPoolExecutor(1, thread_name_prefix="uncone-ahead") as pool:
        coming = pool.submit(next, items, None)
        while (item := coming.result()) is not None:
            coming = pool.submit(next, items, None)
            yield item
            del item
