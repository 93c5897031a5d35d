"""Sums over all pairs of points of a function of their distance."""

import math
from collections.abc import Callable

import torch

from uncone.measure.neighbours.candidates import itself
from uncone.measure.neighbours.points import Points
from uncone.measure.neighbours.tiles import Block, Tiles, each_pair_of_blocks, queries_with_each_block

Tensor = torch.Tensor
Kernel = Callable[[Tensor], Tensor]
"""From scores -|z - z'|^2 / 2 (n, m), which it may overwrite, to the terms of the sum."""


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
    """For each of the points `queries` (int64, ascending) the sum of the kernel over all other points, float64 (Q,)."""
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


def _sums(terms: Tensor) -> Tensor:
    """The sum of each row, in float64 (n,)."""
    return terms.sum(1).double()
