"""From candidates to the exact nearest points: differences in float64, and a proof for every row that nothing was missed."""

from collections.abc import Callable
from functools import partial

import torch

from uncone.measure.neighbours.candidates import Candidates, Search
from uncone.measure.neighbours.duplicates import in_order
from uncone.measure.neighbours.points import Points
from uncone.measure.neighbours.tiles import Block, Tiles, blocks_of, groups_of, load
from uncone.threads import share

Tensor = torch.Tensor
SPARE = 6
"""Candidates beyond those wanted: the farthest is then usually farther than the last wanted by more than products err."""
_AT_ONCE = 8192  # queries whose float64 copies are held


def nearest_points(
    points: Points, k: int, queries: Tensor | None, progress: Callable[[float], None]
) -> tuple[Tensor, Tensor]:
    """The k nearest other points of every query (all points by default), and their squared distances in `unit` squared.

    Both (Q, k), from the nearest to the farthest; of equally far points the lower comes first. Exact to the rounding of float64.
    """
    assert 1 <= k < points.n
    tiles = Tiles(points)
    search = Search(tiles, min(k + SPARE, points.n - 1), progress)
    found = search.run() if queries is None else search.run_queries(queries)
    asked = torch.arange(points.n) if queries is None else queries
    near, squares, settled = _settle(points, k, asked, found, tiles.half_squares)
    if not bool(settled.all()):
        open_ = (~settled).nonzero().flatten()
        near[open_], squares[open_] = _search_all(points, k, asked[open_], squares[open_, -1])
    return near, squares


def _settle(
    points: Points, k: int, asked: Tensor, found: Candidates, half_squares: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The k nearest candidates of each query in order, their squared distances, and whether no other point can be nearer.

    What is no candidate has a score of at most the worst candidate's. A point as near as the k-th has a length of at most the
    query's and that distance, which bounds the error of its score, however far out other points lie.
    """
    count = found.points.shape[1]
    who = found.points.long()
    squares = torch.full(who.shape, torch.inf, dtype=torch.float64)
    there = who >= 0
    squares[there] = points.squares(asked[:, None].expand(who.shape)[there], who[there])
    length = (2 * half_squares[asked].double()).sqrt() * (1 + 2.0**-20)
    wrong = _exceeds(points, found, squares, length)
    ordered, nearest = in_order(squares, who)
    last = ordered[:, k - 1]
    if count == points.n - 1:
        settled = there.all(1)
    else:
        error = points.product_error(length, length + last.sqrt())
        settled = (
            last / 2 + error < -found.worst.double()
        )  # strictly: an equally far point may have a lower number
    if wrong:
        settled = torch.zeros_like(settled)
    return nearest[:, :k].contiguous(), ordered[:, :k].contiguous(), settled


def _exceeds(points: Points, found: Candidates, squares: Tensor, length: Tensor) -> bool:
    """Whether products erred by more than float32 can, as they do where a library was told to round to bfloat16 or less."""
    distance = squares.sqrt()
    error = points.product_error(length[:, None], length[:, None] + distance)
    off = (found.scores.double() + squares / 2).abs() > error
    return bool((off & (found.points >= 0)).any())


def _search_all(points: Points, k: int, queries: Tensor, enough: Tensor) -> tuple[Tensor, Tensor]:
    """The k nearest points of the queries by float64 products with all points, for what float32 cannot tell apart.

    `enough` are squared distances within which k points lie. All points that may be as near are compared by difference.
    """
    near = torch.empty((len(queries), k), dtype=torch.int64)
    squares = torch.empty((len(queries), k), dtype=torch.float64)
    for part in torch.split(torch.arange(len(queries)), _AT_ONCE):
        near[part], squares[part] = _Exhaustive(points, k, queries[part], enough[part]).run()
    return near, squares


class _Exhaustive:
    """Some queries against all points in float64."""

    def __init__(self, points: Points, k: int, queries: Tensor, enough: Tensor) -> None:
        self._points, self._k, self._queries = points, k, queries
        self._z = points.centered(points.raw_at(queries), queries, torch.float64)
        self._half = self._z.square().sum(1).div_(2)
        length = (2 * self._half).sqrt()
        error = points.product_error(length, length + enough.sqrt(), torch.float64)
        self._least = self._half - enough / 2 - error  # of z.z' - |z'|^2 / 2
        self._row, self._point = torch.empty(0, dtype=torch.int64), torch.empty(0, dtype=torch.int64)
        self._square = torch.empty(0, dtype=torch.float64)

    def run(self) -> tuple[Tensor, Tensor]:
        points, cuts = self._points, blocks_of(len(self._queries))
        for group in groups_of(blocks_of(points.n), min(points.stripe, _AT_ONCE)):
            found: list[tuple[Tensor, Tensor]] = []
            for block in load(points, group):
                z = points.centered(block.raw, block.at, torch.float64)
                found += share(partial(self._near, z, block, start, stop) for start, stop in cuts)
            self._add(torch.cat([row for row, _ in found]), torch.cat([point for _, point in found]))
        shape = (len(self._queries), self._k)
        return self._point.view(shape), self._square.view(shape)

    def _near(self, z: Tensor, block: Block, start: int, stop: int) -> tuple[Tensor, Tensor]:
        """Rows and points of the pairs that may be near enough."""
        product = torch.addmm(z.square().sum(1).div_(-2), self._z[start:stop], z.T)
        row, column = (product >= self._least[start:stop, None]).nonzero().T
        row, point = row + start, column + block.start
        other = self._queries[row] != point
        return row[other], point[other]

    def _add(self, row: Tensor, point: Tensor) -> None:
        """Keep the k nearest of each query: sorted by query, then square, then point."""
        square = torch.cat([self._square, self._points.squares(self._queries[row], point)])
        row, point = torch.cat([self._row, row]), torch.cat([self._point, point])
        order = torch.argsort(point)
        order = order[torch.argsort(square[order], stable=True)]
        order = order[torch.argsort(row[order], stable=True)]
        row, point, square = row[order], point[order], square[order]
        counts = torch.unique_consecutive(row, return_counts=True)[1]
        rank = torch.arange(len(row)) - (counts.cumsum(0) - counts).repeat_interleave(counts)
        kept = rank < self._k
        self._row, self._point, self._square = row[kept], point[kept], square[kept]
