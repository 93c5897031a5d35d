"""The best few candidates of every row, from float32 products of blocks.

A score is -|z - z'|^2 / 2 as a product of centred points gives it. Nothing of the size of a tile is ever sorted: a row's
worst candidate is a threshold, only what passes it is picked out of a tile, and that is little once a first tile was seen.
"""

import threading
from collections.abc import Callable

import numpy as np
import torch

from uncone.measure.neighbours.tiles import (
    Block,
    Tiles,
    blocks_of,
    each_pair_of_blocks,
    queries_with_each_block,
)

Tensor = torch.Tensor
_NONE = -1


class Candidates:
    """For each of n rows the K points with the highest scores offered so far: `scores` and `points`, (n, K), unordered."""

    def __init__(self, n: int, count: int, block: int) -> None:
        self.scores = torch.full((n, count), -torch.inf)
        self.points = torch.full((n, count), _NONE, dtype=torch.int32)
        self.worst = torch.full((n,), -torch.inf)
        """The lowest of the K scores: what another point has to pass."""
        self._block, self._locks = block, [threading.Lock() for _ in range(n // block + 1)]

    def offer(self, start: int, rows: Tensor, points: Tensor, scores: Tensor) -> None:
        """Entries for rows from `start` on: int64 `rows` (ascending, counted from `start`), their points and scores, (M,)."""
        hit, counts = torch.unique_consecutive(rows, return_counts=True)
        if len(hit) == 0:
            return
        place = torch.arange(len(rows)) - (counts.cumsum(0) - counts).repeat_interleave(counts)
        line, at, count = torch.arange(len(hit)).repeat_interleave(counts), hit + start, self.scores.shape[1]
        width = count + int(counts.max())
        all_scores = torch.full((len(hit), width), -torch.inf)
        all_points = torch.full((len(hit), width), _NONE, dtype=torch.int32)
        all_scores[line, count + place] = scores
        all_points[line, count + place] = points.int()
        with self._locks[start // self._block]:
            all_scores[:, :count], all_points[:, :count] = self.scores[at], self.points[at]
            self._keep(at, all_scores, all_points)

    def offer_tile(self, start: int, tile: Tensor, first: int) -> None:
        """A whole tile, for rows that have no candidates yet: row i of it is row start + i, column j is point first + j."""
        count, (rows, columns) = self.scores.shape[1], tile.shape
        points = torch.arange(first, first + columns, dtype=torch.int32).expand(rows, columns)
        if columns < count:
            tile = torch.nn.functional.pad(tile, (0, count - columns), value=-torch.inf)
            points = torch.nn.functional.pad(points, (0, count - columns), value=_NONE)
        self._keep(torch.arange(start, start + rows), tile, points)

    def _keep(self, at: Tensor, scores: Tensor, points: Tensor) -> None:
        best, column = scores.topk(self.scores.shape[1], dim=1, sorted=False)
        self.scores[at], self.points[at] = best, points.gather(1, column)
        self.worst[at] = best.amin(1)


class Search:
    """Candidates from tiles. `run` is for all points against one another, `run_queries` for some against all."""

    def __init__(self, tiles: Tiles, count: int, progress: Callable[[float], None]) -> None:
        """`progress` gets the share of the products that is done."""
        self._tiles, self._count, self._progress = tiles, count, progress

    def run(self) -> Candidates:
        """The candidates of all points."""
        n = self._tiles.points.n
        found = Candidates(n, self._count, blocks_of(n)[0][1])
        each_pair_of_blocks(
            self._tiles.points,
            lambda a: self._diagonal(found, a),
            lambda a, b: self._pair(found, a, b),
            self._progress,
        )
        return found

    def run_queries(self, queries: Tensor) -> Candidates:
        """The candidates of the points `queries` (int64, ascending) among all points."""
        found = Candidates(len(queries), self._count, blocks_of(len(queries))[0][1])

        def ask(start: int, raw: Tensor, blocks: list[Block]) -> None:
            self._ask(found, start, queries[start : start + len(raw)], raw, blocks)

        queries_with_each_block(self._tiles.points, queries, ask, self._progress)
        return found

    def _diagonal(self, found: Candidates, a: Block) -> None:
        """A block with itself: later tiles find thresholds."""
        z = self._tiles.centered(a)
        tile = self._tiles.multiply(z, z, a.at, a.at)
        tile.fill_diagonal_(-torch.inf)
        found.offer_tile(a.start, tile, a.start)
        self._tiles.give_back(tile)

    def _pair(self, found: Candidates, a: Block, b: Block) -> None:
        """One tile, for the rows of both blocks."""
        tile = self._tiles.multiply(self._tiles.centered(a), self._tiles.centered(b), a.at, b.at)
        worst_a, worst_b = found.worst[a.at].clone(), found.worst[b.at].clone()
        passes = torch.gt(tile, worst_a[:, None]).logical_or_(tile > worst_b)
        row, column, score = _entries(tile, passes)
        self._tiles.give_back(tile)
        kept = score > worst_a[row]
        found.offer(a.start, row[kept], column[kept] + b.start, score[kept])
        kept = score > worst_b[column]
        row, score, (column, order) = row[kept], score[kept], column[kept].sort()
        found.offer(b.start, column, row[order] + a.start, score[order])

    def _ask(self, found: Candidates, start: int, queries: Tensor, raw: Tensor, blocks: list[Block]) -> None:
        """Some queries with blocks of points, for the queries only."""
        z = self._tiles.points.centered(raw, queries)
        for b in blocks:
            tile = self._tiles.multiply(z, self._tiles.centered(b), queries, b.at)
            tile[itself(queries, b)] = -torch.inf
            if b.start == 0:
                found.offer_tile(start, tile, 0)
            else:
                row, column, score = _entries(tile, tile > found.worst[start : start + len(raw), None])
                found.offer(start, row, column + b.start, score)
            self._tiles.give_back(tile)


def itself(queries: Tensor, b: Block) -> tuple[Tensor, Tensor]:
    """Where in a tile of the queries with a block the queries meet themselves."""
    row = ((queries >= b.start) & (queries < b.at.stop)).nonzero().flatten()
    return row, queries[row] - b.start


def _entries(tile: Tensor, passes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The rows (ascending), columns and values of `tile` where `passes`: NumPy looks through bytes ten times as fast as torch."""
    flat = torch.from_numpy(np.flatnonzero(passes.numpy()))
    row = flat // tile.shape[1]
    return row, flat - row * tile.shape[1], tile.view(-1)[flat]
