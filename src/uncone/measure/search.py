"""The exact nearest points: candidates from products, differences in float64, and a proof for each row.

A score is -|z - z'|^2 / 2, computed by a product of centred points. Only scores above a row's worst candidate are
picked out of a tile, and nothing as large as a tile is sorted.
"""

import threading
from functools import partial

import numpy as np

from uncone.measure.points import Points, runs
from uncone.measure.tiles import Block, Tick, Tiles, blocks_of, each_pair_of_blocks, groups_of, load, with_queries
from uncone.moments import cuts
from uncone.rows import Array
from uncone.threads import share

SPARE = 6  # candidates beyond those wanted: the farthest is then usually farther by more than products err
_GROUPS = 4  # groups of a tile's columns for each candidate, whose maxima give a first threshold
_AT_ONCE = 8192  # queries whose float64 copies are held


def nearest_points(points: Points, k: int, queries: Array | None, progress: Tick) -> tuple[Array, Array]:
    """The k nearest other points of every query (by default all), and squared distances in `unit` squared: both (Q, k),
    the nearest first, the lower of equally far points first."""
    assert 1 <= k < points.n
    tiles, asked = Tiles(points), np.arange(points.n) if queries is None else queries
    candidates = Candidates(len(asked), min(k + SPARE, points.n - 1))
    if queries is None:
        _offer_all(tiles, candidates, progress)
    else:
        _offer_queries(tiles, queries, candidates, progress)
    near, squares, settled = _settle(points, k, asked, candidates, tiles.half_squares)
    open_ = np.flatnonzero(~settled)
    for cut in cuts(len(open_), _AT_ONCE):
        part = open_[cut]
        near[part], squares[part] = _search_all(points, k, asked[part], squares[part, -1])
    return near, squares


class Candidates:
    """The points with the highest scores offered to each of n rows, unordered."""

    def __init__(self, n: int, count: int) -> None:
        self.scores = np.full((n, count), -np.inf, np.float32)
        self.points = np.full((n, count), -1, np.int32)
        self.worst = np.full(n, -np.inf, np.float32)  # of the K scores
        blocks = blocks_of(n)
        self._block, self._locks = blocks[0].stop, [threading.Lock() for _ in blocks]

    def offer(self, start: int, rows: Array, points: Array, scores: Array) -> None:
        """Entries (M,) for `rows` (ascending, counted from `start`)."""
        if len(rows) == 0:
            return
        starts, row, place = runs(rows)
        hit, shape, kept = rows[starts] + start, (len(starts), int(place.max()) + 1), self.scores.shape[1]
        new_scores, new_points = np.full(shape, -np.inf, np.float32), np.full(shape, -1, np.int32)
        new_scores[row, place], new_points[row, place] = scores, points
        with self._locks[start // self._block]:
            scores = np.concatenate([self.scores[hit], new_scores], 1)
            points = np.concatenate([self.points[hit], new_points], 1)
            best = np.argpartition(scores, -kept, 1)[:, -kept:]  # the first of them is the lowest
            self.scores[hit] = scores = np.take_along_axis(scores, best, 1)
            self.points[hit] = np.take_along_axis(points, best, 1)
            self.worst[hit] = scores[:, 0]

    def offer_tile(self, start: int, tile: Array, first: int) -> None:
        """The tile's row i is row start + i, its column j is point first + j. As many groups of columns as there are
        candidates have a maximum that is no lower than so many points."""
        n, m = tile.shape
        kept = self.scores.shape[1]
        passes, groups = tile > -np.inf, _GROUPS * kept
        if m >= 2 * groups:
            highest = tile[:, : m // groups * groups].reshape(n, -1, groups).max(1)
            highest.partition(groups - kept, 1)
            passes = tile >= highest[:, groups - kept, None]
        row, column, score = _entries(tile, passes)
        self.offer(start, row, column + first, score)


def _offer_all(tiles: Tiles, candidates: Candidates, progress: Tick) -> None:
    def work(a: Block, b: Block) -> None:
        tile, first, second = tiles.multiply(tiles.centered(a), a.at, b), a.at.start, b.at.start
        if a is b:  # before all others: they find thresholds
            np.fill_diagonal(tile, -np.inf)
            candidates.offer_tile(first, tile, first)
            return
        worst_a, worst_b = candidates.worst[a.at].copy(), candidates.worst[b.at].copy()
        passes, other = (tiles.kept.get(name, tile.shape, np.bool_) for name in ("passes", "other"))
        np.greater(tile, worst_a[:, None], out=passes)
        np.logical_or(passes, np.greater(tile, worst_b, out=other), out=passes)
        row, column, score = _entries(tile, passes)
        kept = score > worst_a[row]
        candidates.offer(first, row[kept], column[kept] + second, score[kept])
        better = np.flatnonzero(score > worst_b[column])
        better = better[np.argsort(column[better], kind="stable")]
        candidates.offer(second, column[better], row[better] + first, score[better])

    each_pair_of_blocks(tiles.points, work, progress)


def _offer_queries(tiles: Tiles, queries: Array, candidates: Candidates, progress: Tick) -> None:
    def use(part: slice, block: Block, tile: Array, itself: tuple[Array, Array]) -> None:
        tile[itself] = -np.inf
        if block.at.start == 0:
            candidates.offer_tile(part.start, tile, 0)
        else:
            row, column, score = _entries(tile, tile > candidates.worst[part, None])
            candidates.offer(part.start, row, column + block.at.start, score)

    with_queries(tiles, queries, use, progress)


def _settle(points: Points, k: int, asked: Array, candidates: Candidates, half_squares: Array) -> tuple[Array, ...]:
    """The k nearest candidates of each query, their squared distances, and whether none can be nearer.

    Another point scores at most as the worst candidate. A point as near as the k-th has a length of at most the query's
    and that distance, which bounds the error of its score.
    """
    who = candidates.points.astype(np.int64)
    there = who >= 0
    squares = np.full(who.shape, np.inf)
    squares[there] = points.squares(np.broadcast_to(asked[:, None], who.shape)[there], who[there])
    length = np.sqrt(2 * half_squares[asked].astype(np.float64)) * (1 + 2.0**-20)
    ordered, nearest = in_order(squares, who)
    last = ordered[:, k - 1]
    with np.errstate(invalid="ignore"):  # of infinite squares
        error = points.product_error(length, length + np.sqrt(last))
        # Strictly: an equally far point may have a lower number.
        settled: Array = np.less(last / 2 + error, -candidates.worst.astype(np.float64))
        if who.shape[1] == points.n - 1:
            settled = np.all(there, axis=1)
        # Products err by more than float32 can where a library was set to round to bfloat16 or less.
        error = points.product_error(length[:, None], length[:, None] + np.sqrt(squares))
        if bool(((np.abs(candidates.scores + squares / 2) > error) & there).any()):
            settled = np.zeros_like(settled)
    return nearest[:, :k].copy(), ordered[:, :k].copy(), settled


def _search_all(points: Points, k: int, queries: Array, enough: Array) -> tuple[Array, Array]:
    """For points that float32 cannot separate: all within the squared distances `enough`, in which k points lie, by
    products in float64, are compared by difference."""
    z = points.exact(points.raw_at(queries), queries) - points.center
    half = np.einsum("ij,ij->i", z, z) / 2
    length = np.sqrt(2 * half)
    # Of z.z' - |z'|^2 / 2, for a point that may be near enough.
    least = half - enough / 2 - points.product_error(length, length + np.sqrt(enough), np.float64)

    def near_enough(others: Array, start: int, part: slice) -> tuple[Array, Array]:
        product = z[part] @ others.T
        product -= np.einsum("ij,ij->i", others, others) / 2
        row, column = np.nonzero(product >= least[part, None])
        row, point = row + part.start, column + start
        other = queries[row] != point
        return row[other], point[other]

    row = point = np.empty(0, np.int64)
    square, parts = np.empty(0), blocks_of(len(queries))
    for group in groups_of(points, min(points.stripe, _AT_ONCE)):
        pairs = list[tuple[Array, Array]]()
        for block in load(points, group):
            others = points.exact(block.raw, block.at) - points.center
            pairs += share(partial(near_enough, others, block.at.start, part) for part in parts)
        rows, near = (np.concatenate(of_pairs) for of_pairs in zip(*pairs, strict=True))
        row, point = np.concatenate([row, rows]), np.concatenate([point, near])
        square = np.concatenate([square, points.squares(queries[rows], near)])
        order = np.lexsort((point, square, row))
        order = order[runs(row[order])[2] < k]
        row, point, square = row[order], point[order], square[order]
    return point.reshape(-1, k), square.reshape(-1, k)


def in_order(squares: Array, points: Array) -> tuple[Array, Array]:
    """From the nearest to the farthest; equally far points by number."""
    order = np.lexsort((points, squares))
    return np.take_along_axis(squares, order, 1), np.take_along_axis(points, order, 1)


def _entries(tile: Array, passes: Array) -> tuple[Array, Array, Array]:
    """The rows (ascending), columns and values of `tile` where `passes`."""
    flat = np.flatnonzero(passes)
    return *np.divmod(flat, tile.shape[1]), tile.reshape(-1)[flat]
