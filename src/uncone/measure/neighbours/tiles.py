"""Tiles of products: every pair of blocks of points once, shared out to threads; and sums of them."""

import math
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import torch

from uncone.measure.neighbours.points import Points
from uncone.memory import uninitialised
from uncone.threads import share

T = TypeVar("T")
Tensor = torch.Tensor
Kernel = Callable[[Tensor], Tensor]
"""From scores -|z - z'|^2 / 2 (n, m), which it may overwrite, to the terms of a sum."""
BLOCK = 1024
"""Rows of a block: a tile of two blocks takes 4 MiB, and is picked over while a core's cache holds it."""
_TILES_BETWEEN_TICKS = 64


@dataclass(frozen=True)
class Block:
    """Some points in a row, as they are stored: points [start, start + len(raw))."""

    start: int
    raw: Tensor

    @property
    def at(self) -> slice:
        return slice(self.start, self.start + len(self.raw))


class Tiles:
    """Scores -|z - z'|^2 / 2 of centred points by float32 products."""

    def __init__(self, points: Points) -> None:
        self.points = points
        self.half_squares = _half_squares(points)
        """|z|^2 / 2 of every centred point, (N,) float32."""
        self._free = deque[Tensor]()

    def centered(self, block: Block) -> Tensor:
        """The centred points of a block, (n, D) float32."""
        return self.points.centered(block.raw, block.at)

    def multiply(self, a: Tensor, b: Tensor, at_a: Tensor | slice, at_b: Tensor | slice) -> Tensor:
        """The scores of centred points a (n, D) and b (m, D), which are the points `at_a` and `at_b`: (n, m),
        to be given back."""
        try:
            flat = self._free.popleft()
        except IndexError:  # as many as there are workers
            flat = uninitialised((BLOCK * BLOCK,), torch.float32)
        tile = flat[: len(a) * len(b)].view(len(a), len(b))
        torch.addmm(self.half_squares[at_b].neg(), a, b.T, out=tile)
        return tile.sub_(self.half_squares[at_a][:, None])

    def give_back(self, tile: Tensor) -> None:
        """Let the memory of a tile be used for another."""
        self._free.append(tile.as_strided((BLOCK * BLOCK,), (1,)))


def _half_squares(points: Points) -> Tensor:
    found = torch.empty(points.n, dtype=torch.float32)

    def work(block: Block) -> None:
        found[block.at] = points.centered(block.raw, block.at).double().square().sum(1).div_(2).float()

    for group in groups_of(blocks_of(points.n), points.stripe):
        share(partial(work, block) for block in load(points, group))
    return found


def each_pair_of_blocks(
    points: Points,
    diagonal: Callable[[Block], T],
    pair: Callable[[Block, Block], T],
    progress: Callable[[float], None],
) -> list[T]:
    """The results of `diagonal` of every block, then of `pair` of every two, each on one thread, in order.

    `progress` gets the share of the work that is done. A few blocks are held at a time where the points do
    not fit into memory.
    """
    cuts = blocks_of(points.n)
    groups = groups_of(cuts, points.stripe)
    found, total = list[T](), len(cuts) * (len(cuts) + 1) / 2

    def do(tasks: list[Callable[[], T]]) -> None:
        for start in range(0, len(tasks), _TILES_BETWEEN_TICKS):
            found.extend(share(tasks[start : start + _TILES_BETWEEN_TICKS]))
            progress(len(found) / total)

    for group in groups:
        do([partial(diagonal, a) for a in load(points, group)])
    for i, group in enumerate(groups):
        blocks = load(points, group)
        do([partial(pair, a, b) for a, b in _pairs(blocks, blocks)])
        for other in groups[i + 1 :]:
            do([partial(pair, a, b) for a, b in _pairs(blocks, load(points, other))])
        del blocks
    return found


def queries_with_each_block(
    points: Points,
    queries: Tensor,
    ask: Callable[[int, Tensor, list[Block]], None],
    progress: Callable[[float], None],
) -> None:
    """`ask(i, raw, blocks)` for pieces of the points `queries` (ascending) with all blocks, in order.

    The piece is queries[i : i + len(raw)], and its rows are `raw`; one thread has a piece at a time.
    """
    raw, cuts = points.raw_at(queries), blocks_of(len(queries))
    for group in groups_of(blocks_of(points.n), min(points.stripe, 16 * BLOCK)):
        blocks = load(points, group)
        share([partial(ask, start, raw[start:stop], blocks) for start, stop in cuts])
        del blocks
        progress(group[-1][1] / points.n)


def blocks_of(n: int) -> list[tuple[int, int]]:
    """Starts and stops of blocks of at most `BLOCK` rows, all of one size but the last."""
    size = -(-n // -(-n // BLOCK))
    return [(start, min(start + size, n)) for start in range(0, n, size)]


def groups_of(cuts: list[tuple[int, int]], most: int) -> list[list[tuple[int, int]]]:
    """The blocks in groups of about `most` rows."""
    count = -(-most // (cuts[0][1] - cuts[0][0]))
    return [cuts[i : i + count] for i in range(0, len(cuts), count)]


def load(points: Points, group: list[tuple[int, int]]) -> list[Block]:
    """The blocks of a group, read at once."""
    first = group[0][0]
    raw = points.raw(first, group[-1][1])
    return [Block(start, raw[start - first : stop - first]) for start, stop in group]


def _pairs(blocks: list[Block], others: list[Block]) -> Iterator[tuple[Block, Block]]:
    """Every pair of a block and another once, in rounds in which a block plays at most twice: threads seldom
    wait for each other."""
    longer = max(len(blocks), len(others))
    for turn in range(longer):
        for i, block in enumerate(blocks):
            j = (i + turn) % longer
            if j < len(others) and (others is not blocks or i < j):
                yield block, others[j]


def sum_over_pairs(points: Points, kernel: Kernel, progress: Callable[[float], None]) -> float:
    """The sum of the kernel over all pairs of two points, each once; the same on any number of threads."""
    tiles = Tiles(points)

    def diagonal(a: Block) -> float:
        z = tiles.centered(a)
        tile = tiles.multiply(z, z, a.at, a.at)
        found = float(_sums(kernel(tile).fill_diagonal_(0.0)).sum()) / 2
        tiles.give_back(tile)
        return found

    # Numbers and no tensors come back: a small tensor kept where a copy of a block was freed leaves a hole in the heap.
    def pair(a: Block, b: Block) -> float:
        tile = tiles.multiply(tiles.centered(a), tiles.centered(b), a.at, b.at)
        found = float(_sums(kernel(tile)).sum())
        tiles.give_back(tile)
        return found

    return math.fsum(each_pair_of_blocks(points, diagonal, pair, progress))


def sum_by_query(
    points: Points, queries: Tensor, kernel: Kernel, progress: Callable[[float], None]
) -> Tensor:
    """The sum of the kernel over all other points, for each of `queries` (ascending): float64 (Q,)."""
    tiles, found = Tiles(points), torch.zeros(len(queries), dtype=torch.float64)

    def ask(start: int, raw: Tensor, blocks: list[Block]) -> None:
        at = queries[start : start + len(raw)]
        z = points.centered(raw, at)
        for b in blocks:
            tile = tiles.multiply(z, tiles.centered(b), at, b.at)
            terms = kernel(tile)
            terms[itself(at, b)] = 0.0
            found[start : start + len(raw)] += _sums(terms)
            tiles.give_back(tile)

    queries_with_each_block(points, queries, ask, progress)
    return found


def itself(queries: Tensor, b: Block) -> tuple[Tensor, Tensor]:
    """Where in a tile of the queries with a block the queries meet themselves."""
    row = ((queries >= b.start) & (queries < b.at.stop)).nonzero().flatten()
    return row, queries[row] - b.start


def _sums(terms: Tensor) -> Tensor:
    """The sum of each row, in float64 (n,)."""
    return terms.sum(1).double()
