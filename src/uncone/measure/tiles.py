"""Tiles of products of every pair of blocks of points, and sums of them."""

import math
import threading
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from uncone.measure.points import Points
from uncone.memory import uninitialised
from uncone.moments import cuts
from uncone.rows import Array
from uncone.threads import share

T = TypeVar("T")
Tick = Callable[[float], None]  # of the share of the work that is done
Kernel = Callable[[Array], Array]  # from scores -|z - z'|^2 / 2 (n, m), which it may overwrite, to the terms of a sum
BLOCK = 1024  # rows: a tile of two blocks takes 4 MiB, which a core's cache holds


class Block(NamedTuple):
    """Consecutive points, and their rows as they are stored."""

    at: slice
    raw: Array


Use = Callable[[slice, Block, Array, tuple[Array, Array]], None]


class Kept(threading.local):
    """Memory of each thread: fresh memory would cost more than what is written to it."""

    def get(self, name: str, shape: tuple[int, int], dtype: npt.DTypeLike = np.float32) -> Array:
        """An uninitialised array, which the thread may use until it calls `get` with that name again."""
        kept, size = self.__dict__.get(name), math.prod(shape)
        if kept is None or len(kept) < size:
            kept = self.__dict__[name] = uninitialised((size,), dtype)
        return kept[:size].reshape(shape)


class Tiles:
    """Scores -|z - z'|^2 / 2 of centred points by float32 products."""

    def __init__(self, points: Points) -> None:
        self.points, self.kept = points, Kept()
        self.half_squares = np.empty(points.n, np.float32)  # |z|^2 / 2 of every centred point, (N,) float32

        def work(block: Block) -> None:
            z = self.centered(block)
            self.half_squares[block.at] = np.einsum("ij,ij->i", z, z, dtype=np.float64) / 2

        for group in groups_of(points, points.stripe):
            share(partial(work, block) for block in load(points, group))

    def centered(self, block: Block, name: str = "rows") -> Array:
        """The centred points of a block, (n, D), in the thread's memory of that name."""
        return self.points.centered(block.raw, block.at, out=self.kept.get(name, block.raw.shape))

    def multiply(self, z: Array, at: Array | slice, block: Block) -> Array:
        """The scores (n, m) of centred points z, the points `at`, with the points of a block; valid until the thread's
        next call."""
        tile = self.kept.get("tile", (len(z), len(block.raw)))
        np.matmul(z, self.centered(block, "columns").T, out=tile)
        tile -= self.half_squares[block.at]
        tile -= self.half_squares[at][:, None]
        return tile


def each_pair_of_blocks(points: Points, work: Callable[[Block, Block], T], progress: Tick) -> list[T]:
    """The results of `work` of every block with itself, then of every two, a few blocks held at a time."""
    groups = groups_of(points, points.stripe)
    results, count = list[T](), sum(map(len, groups))

    def do(pairs: Iterable[tuple[Block, Block]]) -> None:
        tasks = [partial(work, a, b) for a, b in pairs]
        for some in cuts(len(tasks), 64):
            results.extend(share(tasks[some]))
            progress(len(results) / (count * (count + 1) / 2))

    for group in groups:
        do((a, a) for a in load(points, group))
    for i, group in enumerate(groups):
        blocks = load(points, group)
        do(_pairs(blocks, blocks))
        for other in groups[i + 1 :]:
            do(_pairs(blocks, load(points, other)))
        del blocks
    return results


def with_queries(tiles: Tiles, queries: Array, use: Use, progress: Tick) -> None:
    """`use(part, block, tile, itself)` for the tile of each part of `queries` (ascending) with each block, in order;
    `itself` is where points meet themselves."""
    points = tiles.points
    raw = points.raw_at(queries)

    def ask(part: slice, blocks: list[Block]) -> None:
        at = queries[part]
        z = points.centered(raw[part], at)
        for block in blocks:
            row = np.arange(*np.searchsorted(at, (block.at.start, block.at.stop)))
            use(part, block, tiles.multiply(z, at, block), (row, at[row] - block.at.start))

    for group in groups_of(points, min(points.stripe, 16 * BLOCK)):
        blocks = load(points, group)
        share([partial(ask, part, blocks) for part in blocks_of(len(queries))])
        del blocks
        progress(group[-1].stop / points.n)


def blocks_of(n: int) -> list[slice]:
    """Slices of n points, all of one size except the last."""
    return cuts(n, -(-n // -(-n // BLOCK)))


def groups_of(points: Points, most: int) -> list[list[slice]]:
    blocks = blocks_of(points.n)
    count = -(-most // blocks[0].stop)
    return [blocks[i : i + count] for i in range(0, len(blocks), count)]


def load(points: Points, group: list[slice]) -> list[Block]:
    first = group[0].start
    raw = points.raw(first, group[-1].stop)
    return [Block(at, raw[at.start - first : at.stop - first]) for at in group]


def _pairs(blocks: list[Block], others: list[Block]) -> Iterator[tuple[Block, Block]]:
    """Each pair once, in rounds in which a block plays at most twice: threads seldom wait."""
    longer = max(len(blocks), len(others))
    for turn in range(longer):
        for i, block in enumerate(blocks):
            j = (i + turn) % longer
            if j < len(others) and (others is not blocks or i < j):
                yield block, others[j]


def sum_over_pairs(points: Points, kernel: Kernel, progress: Tick) -> float:
    """The sum of `kernel` over pairs of different points, each pair once; the same on any number of threads."""
    tiles = Tiles(points)

    def work(a: Block, b: Block) -> float:
        terms = kernel(tiles.multiply(tiles.centered(a), a.at, b))
        if a is b:
            np.fill_diagonal(terms, 0.0)
        return float(terms.sum(1).sum(dtype=np.float64)) / (2 if a is b else 1)

    return math.fsum(each_pair_of_blocks(points, work, progress))


def sum_by_query(points: Points, queries: Array, kernel: Kernel, progress: Tick) -> Array:
    """The sum of `kernel` over all other points, for each of `queries` (ascending): float64 (Q,)."""
    sums = np.zeros(len(queries))

    def use(part: slice, block: Block, tile: Array, itself: tuple[Array, Array]) -> None:
        terms = kernel(tile)
        terms[itself] = 0.0
        sums[part] += terms.sum(1)

    with_queries(Tiles(points), queries, use, progress)
    return sums
