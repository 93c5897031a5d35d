"""The best few candidates of every row, from float32 products of blocks; each pair of blocks is multiplied once.

A score is -|z - z'|^2 / 2 as a product of centred points gives it. Nothing of the size of a tile is ever sorted: a row's
worst candidate is a threshold, only what passes it is picked out of a tile, and that is little once a first tile was seen.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from uncone.measure.neighbours.points import Points
from uncone.memory import uninitialised
from uncone.moments import share

Tensor = torch.Tensor
BLOCK = 1024
"""Rows of a block: a tile of two blocks takes 4 MiB, and is picked over while a core's cache holds it."""
_TILES_BETWEEN_TICKS = 64
_NONE = -1


@dataclass(frozen=True)
class Block:
    """Some points in a row, as they are stored: points [start, start + len(raw))."""

    start: int
    raw: Tensor

    @property
    def at(self) -> slice:
        return slice(self.start, self.start + len(self.raw))


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
    """Candidates from tiles of products. `run` is for all points against one another, `run_queries` for some against all."""

    def __init__(self, points: Points, count: int, progress: Callable[[float], None]) -> None:
        """`progress` gets the share of the products that is done."""
        self._points, self._count, self._progress = points, count, progress
        self.half_squares = half_squares(points)
        """|z|^2 / 2 of every centred point, (N,) float32."""
        self._tiles = deque[Tensor]()

    def run(self) -> Candidates:
        """The candidates of all points."""
        n = self._points.n
        cuts = blocks_of(n)
        found = Candidates(n, self._count, cuts[0][1])
        groups = groups_of(cuts, self._points.stripe)
        pairs = len(cuts) * (len(cuts) + 1) / 2
        done = 0
        for group in groups:  # first every block with itself: later tiles find thresholds
            blocks = load(self._points, group)
            done = self._do([partial(self._diagonal, found, a) for a in blocks], done, pairs)
            del blocks
        for i, group in enumerate(groups):
            blocks = load(self._points, group)
            done = self._do([partial(self._pair, found, a, b) for a, b in in_turn(blocks)], done, pairs)
            for other in groups[i + 1 :]:
                others = load(self._points, other)
                done = self._do([partial(self._pair, found, a, b) for a, b in each_with_each(blocks, others)], done, pairs)
                del others
            del blocks
        return found

    def run_queries(self, queries: Tensor) -> Candidates:
        """The candidates of the points `queries` (int64, ascending) among all points."""
        raw, cuts = self._points.raw_at(queries), blocks_of(len(queries))
        found = Candidates(len(queries), self._count, cuts[0][1])
        references = blocks_of(self._points.n)
        done, pairs = 0, float(len(cuts) * len(references))
        for group in groups_of(references, self._points.stripe):
            blocks = load(self._points, group)
            tasks = [partial(self._asked, found, queries, start, raw[start:stop], blocks) for start, stop in cuts]
            share(tasks)
            done += len(tasks) * len(blocks)
            self._progress(done / pairs)
            del blocks, tasks
        return found

    def _do(self, tasks: list[partial[None]], done: int, pairs: float) -> int:
        for start in range(0, len(tasks), _TILES_BETWEEN_TICKS):
            part = tasks[start : start + _TILES_BETWEEN_TICKS]
            share(part)
            done += len(part)
            self._progress(done / pairs)
        return done

    def _multiply(self, a: Tensor, b: Tensor, half_a: Tensor, half_b: Tensor) -> Tensor:
        """Scores of centred points a (n, D) and b (m, D): a tile (n, m), to be given back to `_tiles`."""
        try:
            flat = self._tiles.popleft()
        except IndexError:  # as many as there are workers
            flat = uninitialised((BLOCK * BLOCK,), torch.float32)
        tile = flat[: len(a) * len(b)].view(len(a), len(b))
        return torch.addmm(half_b.neg(), a, b.T, out=tile).sub_(half_a[:, None])

    def _give_back(self, tile: Tensor) -> None:
        self._tiles.append(tile.as_strided((BLOCK * BLOCK,), (1,)))

    def _diagonal(self, found: Candidates, a: Block) -> None:
        z, half = self._points.centered(a.raw, a.at), self.half_squares[a.at]
        tile = self._multiply(z, z, half, half)
        tile.fill_diagonal_(-torch.inf)
        found.offer_tile(a.start, tile, a.start)
        self._give_back(tile)

    def _pair(self, found: Candidates, a: Block, b: Block) -> None:
        """One tile, for the rows of both blocks."""
        points = self._points
        half_a, half_b = self.half_squares[a.at], self.half_squares[b.at]
        tile = self._multiply(points.centered(a.raw, a.at), points.centered(b.raw, b.at), half_a, half_b)
        worst_a, worst_b = found.worst[a.at].clone(), found.worst[b.at].clone()
        passes = torch.gt(tile, worst_a[:, None]).logical_or_(tile > worst_b)
        row, column, score = _entries(tile, passes)
        self._give_back(tile)
        kept = score > worst_a[row]
        found.offer(a.start, row[kept], column[kept] + b.start, score[kept])
        kept = score > worst_b[column]
        row, score, (column, order) = row[kept], score[kept], column[kept].sort()
        found.offer(b.start, column, row[order] + a.start, score[order])

    def _asked(self, found: Candidates, queries: Tensor, start: int, raw: Tensor, blocks: list[Block]) -> None:
        """Some queries against blocks of points, for the queries only."""
        at = queries[start : start + len(raw)]
        z, half = self._points.centered(raw, at), self.half_squares[at]
        for b in blocks:
            tile = self._multiply(z, self._points.centered(b.raw, b.at), half, self.half_squares[b.at])
            itself = ((at >= b.start) & (at < b.start + len(b.raw))).nonzero().flatten()
            tile[itself, at[itself] - b.start] = -torch.inf
            if b.start == 0:
                found.offer_tile(start, tile, 0)
            else:
                row, column, score = _entries(tile, tile > found.worst[start : start + len(raw), None])
                found.offer(start, row, column + b.start, score)
            self._give_back(tile)


def half_squares(points: Points) -> Tensor:
    """|z|^2 / 2 of every centred point, summed in float64, (N,) float32."""
    found = torch.empty(points.n, dtype=torch.float32)

    def work(block: Block) -> None:
        found[block.at] = points.centered(block.raw, block.at).double().square().sum(1).div_(2).float()

    for group in groups_of(blocks_of(points.n), points.stripe):
        share(partial(work, block) for block in load(points, group))
    return found


def _entries(tile: Tensor, passes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The rows (ascending), columns and values of `tile` where `passes`: NumPy looks through bytes ten times as fast as torch."""
    flat = torch.from_numpy(np.flatnonzero(passes.numpy()))
    row = flat // tile.shape[1]
    return row, flat - row * tile.shape[1], tile.view(-1)[flat]


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


def in_turn(blocks: list[Block]) -> Iterator[tuple[Block, Block]]:
    """Every pair of blocks once, in rounds in which no block plays twice, so that threads seldom wait for each other."""
    count = len(blocks)
    for turn in range(count):
        for i in range(count):
            j = (turn - i) % count
            if i < j:
                yield blocks[i], blocks[j]


def each_with_each(blocks: list[Block], others: list[Block]) -> Iterable[tuple[Block, Block]]:
    """Every pair of a block and another, in an order of the same kind."""
    longer = max(len(blocks), len(others))
    for turn in range(longer):
        for i, block in enumerate(blocks):
            j = (i + turn) % longer
            if j < len(others):
                yield block, others[j]
