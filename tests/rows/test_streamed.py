"""Rows that only go forwards: any pieces make the same blocks and ranges, and nothing is read too often."""

import threading
from collections.abc import Iterator

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from uncone import InputError
from uncone.rows.bytes import StreamedRows, one_ahead
from uncone.rows.floats import Array

from ..matrices import equal, gaussian
from .reading import refuses


class Pieces(StreamedRows):
    """A matrix in pieces of given lengths, which can begin at every `step`-th row."""

    name = "pieces"

    def __init__(self, x: torch.Tensor, lengths: list[int], step: int) -> None:
        super().__init__()
        self.x, self.lengths, self.step, self.begun = x.numpy(), lengths, step, list[int]()
        self.shape, self.dtype = (x.shape[0], x.shape[1]), str(x.dtype).removeprefix("torch.")

    def begin(self, row: int) -> int:
        return row // self.step * self.step

    def pieces(self, begin: int) -> Iterator[Array]:
        self.begun.append(begin)
        at, turn = begin, 0
        while at < len(self.x):
            length = self.lengths[turn % len(self.lengths)]
            yield self.x[at : at + length]
            at, turn = at + length, turn + 1


LENGTHS = st.lists(st.integers(0, 9), min_size=1).filter(any)


@given(st.integers(1, 40), LENGTHS, st.integers(1, 50), st.integers(1, 12), st.data())
def test_blocks_and_ranges_are_its_rows(n: int, lengths: list[int], step: int, size: int, data: st.DataObject) -> None:
    x = gaussian(n, 3, dtype=data.draw(st.sampled_from([torch.float32, torch.float64, torch.float16])))
    rows, wide = Pieces(x, lengths, step), x.to(torch.float64 if x.dtype == torch.float64 else torch.float32)
    blocks = list(rows.blocks(size))
    assert [len(block) for block in blocks] == [min(size, n - start) for start in range(0, n, size)]
    assert equal(np.concatenate(blocks), wide)
    for _ in range(4):
        start = data.draw(st.integers(0, n))
        stop = data.draw(st.integers(start, n))
        assert equal(rows.read(start, stop), wide[start:stop])


def test_rows_in_ascending_order_take_one_pass() -> None:
    rows = Pieces(gaussian(100, 2), [7], 1000)
    for start in range(0, 90, 10):
        rows.read(start, start + 4)
    assert rows.begun == [0]
    rows.read(3, 4)
    assert rows.begun == [0, 0]


def test_a_nearer_place_to_begin_is_taken() -> None:
    rows = Pieces(gaussian(100, 2), [7], 20)
    rows.read(0, 2)
    rows.read(85, 90)
    rows.read(90, 100)
    assert rows.begun == [0, 80]


def test_a_block_that_one_piece_holds_is_not_copied() -> None:
    x = gaussian(64, 2)
    blocks = Pieces(x, [32], 64).blocks(16)
    assert [block.ctypes.data for block in blocks] == [x[k:].data_ptr() for k in (0, 16, 32, 48)]


def test_a_block_that_is_let_go_is_used_again() -> None:
    seen = set()
    for block in Pieces(gaussian(40, 2), [3], 40).blocks(8):
        seen.add(block.ctypes.data)
        del block
    assert len(seen) == 1


def test_fewer_rows_than_promised_are_an_error() -> None:
    rows = Pieces(gaussian(10, 2), [4], 10)
    rows.shape = (12, 2)
    for read in (lambda: list(rows.blocks()), lambda: rows.read(8, 12), lambda: rows.read(11, 12)):
        refuses("expected row 10 of pieces, got its end", read)
    assert equal(rows.read(2, 4), rows.x[2:4])


def test_one_ahead_is_one_ahead() -> None:
    made, before = [], set(threading.enumerate())  # streams that other tests left may wait in theirs

    def items() -> Iterator[int]:
        for i in range(5):
            made.append(i)
            yield i

    ahead = one_ahead(items())
    assert next(ahead) == 0
    assert list(ahead) == [1, 2, 3, 4]
    assert made == [0, 1, 2, 3, 4]
    ahead = one_ahead(items())
    next(ahead)
    ahead.close()
    assert len(made) <= 5 + 2
    for thread in set(threading.enumerate()) - before:
        thread.join(10)  # it was told to end, and does
        assert not thread.is_alive()


def test_an_error_arrives_from_the_other_thread() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise InputError("the file was cut")

    refuses("the file was cut", lambda: list(one_ahead(items())))
