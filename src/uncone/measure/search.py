"""The exact nearest points: candidates from products, differences in float64, and a proof of each row.

A score is -|z - z'|^2 / 2 as a product of centred points gives it. Nothing of the size of a tile is ever
sorted: a row's worst candidate is a threshold, only what passes it is picked out of a tile, and that is
little once a first tile was seen.
"""

import threading
from collections.abc import Callable
from functools import partial

import numpy as np
import torch

from uncone.measure.points import Points
from uncone.measure.tiles import Block, Tiles, blocks_of, each_pair_of_blocks, groups_of, load, with_queries
from uncone.threads import share

Tensor = torch.Tensor
SPARE = 6
"""Candidates beyond those wanted: the farthest is then usually farther by more than products err."""
_NONE = -1
_AT_ONCE = 8192  # queries whose float64 copies are held


def nearest_points(
    points: Points, k: int, queries: Tensor | None, progress: Callable[[float], None]
) -> tuple[Tensor, Tensor]:
    """The k nearest other points of every query (by default all), and squared distances in `unit` squared: both
    (Q, k), from the nearest on, of equally far points the lower first, exact to the rounding of float64."""
    assert 1 <= k < points.n
    tiles, asked = Tiles(points), torch.arange(points.n) if queries is None else queries
    candidates = Candidates(len(asked), min(k + SPARE, points.n - 1))
    if queries is None:
        _offer_all(tiles, candidates, progress)
    else:
        _offer_queries(tiles, queries, candidates, progress)
    near, squares, settled = _settle(points, k, asked, candidates, tiles.half_squares)
    open_ = (~settled).nonzero().flatten()
    for start in range(0, len(open_), _AT_ONCE):
        part = open_[start : start + _AT_ONCE]
        near[part], squares[part] = _search_all(points, k, asked[part], squares[part, -1])
    return near, squares


class Candidates:
    """The K points with the highest scores offered to each of n rows: `scores`, `points` (n, K),
    unordered."""

    def __init__(self, n: int, count: int) -> None:
        self.scores = torch.full((n, count), -torch.inf)
        self.points = torch.full((n, count), _NONE, dtype=torch.int32)
        self.worst = torch.full((n,), -torch.inf)
        """The lowest of the K scores: what another point has to pass."""
        blocks = blocks_of(n)
        self._block, self._locks = blocks[0].stop, [threading.Lock() for _ in blocks]

    def offer(self, start: int, rows: Tensor, points: Tensor, scores: Tensor) -> None:
        """Entries (M,) for `rows` (ascending, counted from `start`): their points and scores."""
        hit, counts = torch.unique_consecutive(rows, return_counts=True)
        if len(hit) == 0:
            return
        line, place = torch.arange(len(hit)).repeat_interleave(counts), _within_runs(counts)
        shape = (len(hit), int(counts.max()))
        new_scores, new_points = torch.full(shape, -torch.inf), torch.full(shape, _NONE, dtype=torch.int32)
        new_scores[line, place], new_points[line, place] = scores, points.int()
        with self._locks[start // self._block]:
            self._keep(hit + start, new_scores, new_points)

    def offer_tile(self, start: int, tile: Tensor, first: int) -> None:
        """A whole tile: its row i is row start + i, its column j is point first + j."""
        points = torch.arange(first, first + tile.shape[1], dtype=torch.int32)
        self._keep(torch.arange(start, start + len(tile)), tile, points.expand(tile.shape))

    def _keep(self, at: Tensor, scores: Tensor, points: Tensor) -> None:
        scores, points = torch.cat([self.scores[at], scores], 1), torch.cat([self.points[at], points], 1)
        best, column = scores.topk(self.scores.shape[1], dim=1, sorted=False)
        self.scores[at], self.points[at] = best, points.gather(1, column)
        self.worst[at] = best.amin(1)


def _offer_all(tiles: Tiles, candidates: Candidates, progress: Callable[[float], None]) -> None:
    """All points to every point."""

    def work(a: Block, b: Block) -> None:
        tile, first, second = tiles.multiply(tiles.centered(a), a.at, b), a.at.start, b.at.start
        if a is b:  # before all others: they find thresholds
            candidates.offer_tile(first, tile.fill_diagonal_(-torch.inf), first)
            return
        worst_a, worst_b = candidates.worst[a.at].clone(), candidates.worst[b.at].clone()
        row, column, score = _entries(tile, torch.gt(tile, worst_a[:, None]).logical_or_(tile > worst_b))
        del tile  # lets another use its memory
        kept = score > worst_a[row]
        candidates.offer(first, row[kept], column[kept] + second, score[kept])
        kept = score > worst_b[column]
        row, score, (column, order) = row[kept], score[kept], column[kept].sort()
        candidates.offer(second, column, row[order] + first, score[order])

    each_pair_of_blocks(tiles.points, work, progress)


def _offer_queries(
    tiles: Tiles, queries: Tensor, candidates: Candidates, progress: Callable[[float], None]
) -> None:
    """All points to the points `queries` (int64, ascending)."""

    def use(part: slice, block: Block, tile: Tensor, itself: tuple[Tensor, Tensor]) -> None:
        tile[itself] = -torch.inf
        if block.at.start == 0:
            candidates.offer_tile(part.start, tile, 0)
        else:
            row, column, score = _entries(tile, tile > candidates.worst[part, None])
            candidates.offer(part.start, row, column + block.at.start, score)

    with_queries(tiles, queries, use, progress)


def _settle(
    points: Points, k: int, asked: Tensor, candidates: Candidates, half_squares: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The k nearest candidates of each query, their squared distances, and whether none can be nearer.

    Another point has a score of at most the worst candidate's. A point as near as the k-th has a length of at
    most the query's and that distance, which bounds the error of its score, however far out other points lie.
    """
    who = candidates.points.long()
    there = who >= 0
    squares = torch.full(who.shape, torch.inf, dtype=torch.float64)
    squares[there] = points.squares(asked[:, None].expand(who.shape)[there], who[there])
    length = (2 * half_squares[asked].double()).sqrt() * (1 + 2.0**-20)
    ordered, nearest = in_order(squares, who)
    last = ordered[:, k - 1]
    error = points.product_error(length, length + last.sqrt())
    # Strictly: an equally far point may have a lower number.
    settled = last / 2 + error < -candidates.worst.double()
    if who.shape[1] == points.n - 1:
        settled = there.all(1)
    # Products err by more than float32 can where a library was told to round to bfloat16 or less.
    error = points.product_error(length[:, None], length[:, None] + squares.sqrt())
    if bool((((candidates.scores.double() + squares / 2).abs() > error) & there).any()):
        settled = torch.zeros_like(settled)
    return nearest[:, :k].contiguous(), ordered[:, :k].contiguous(), settled


def _search_all(points: Points, k: int, queries: Tensor, enough: Tensor) -> tuple[Tensor, Tensor]:
    """The k nearest points by float64 products with all points, where float32 cannot tell them apart: all
    within the squared distances `enough`, in which k points lie, are compared by difference."""
    z = points.centered(points.raw_at(queries), queries, torch.float64)
    half = z.square().sum(1).div_(2)
    length = (2 * half).sqrt()
    # Of z.z' - |z'|^2 / 2, for a point that may be near enough.
    least = half - enough / 2 - points.product_error(length, length + enough.sqrt(), torch.float64)

    def near_enough(others: Tensor, start: int, part: slice) -> tuple[Tensor, Tensor]:
        product = torch.addmm(others.square().sum(1).div_(-2), z[part], others.T)
        row, column = (product >= least[part, None]).nonzero().T
        row, point = row + part.start, column + start
        other = queries[row] != point
        return row[other], point[other]

    row, point = torch.empty((2, 0), dtype=torch.int64)
    square, parts = torch.empty(0, dtype=torch.float64), blocks_of(len(queries))
    for group in groups_of(points, min(points.stripe, _AT_ONCE)):
        pairs: list[tuple[Tensor, Tensor]] = []
        for block in load(points, group):
            others = points.centered(block.raw, block.at, torch.float64)
            pairs += share(partial(near_enough, others, block.at.start, part) for part in parts)
        rows, near = (torch.cat(of_pairs) for of_pairs in zip(*pairs, strict=True))
        row, point = torch.cat([row, rows]), torch.cat([point, near])
        square = torch.cat([square, points.squares(queries[rows], near)])
        order = torch.from_numpy(np.lexsort((point.numpy(), square.numpy(), row.numpy())))
        order = order[_within_runs(torch.unique_consecutive(row[order], return_counts=True)[1]) < k]
        row, point, square = row[order], point[order], square[order]
    return point.view(len(queries), k), square.view(len(queries), k)


def in_order(squares: Tensor, points: Tensor) -> tuple[Tensor, Tensor]:
    """Both (Q, m), each row from the nearest to the farthest; equally far points by number."""
    points, order = points.sort(1)
    squares, nearest = squares.gather(1, order).sort(dim=1, stable=True)
    return squares, points.gather(1, nearest)


def _entries(tile: Tensor, passes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The rows (ascending), columns and values of `tile` where `passes`: NumPy looks through bytes ten times
    as fast as torch."""
    flat = torch.from_numpy(np.flatnonzero(passes.numpy()))
    row = flat // tile.shape[1]
    return row, flat - row * tile.shape[1], tile.view(-1)[flat]


def _within_runs(counts: Tensor) -> Tensor:
    """0, 1, ... within each of the runs of these lengths."""
    return torch.arange(int(counts.sum())) - (counts.cumsum(0) - counts).repeat_interleave(counts)
