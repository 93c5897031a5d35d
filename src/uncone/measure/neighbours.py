"""Which rows are nearest to each row? The exact search."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from uncone.arguments import flag, one_of, shown, whole_number
from uncone.errors import InputError, UndefinedMeasure
from uncone.measure.points import Metric, Points, first_of_each
from uncone.measure.reading import with_moments
from uncone.measure.search import in_order, nearest_points
from uncone.moments import Moments, cuts
from uncone.roles import Ticks
from uncone.rows import Array, Rows
from uncone.threads import on_one_thread

EXACT_ROWS = 65536  # up to this many rows all are queries; from more rows, a sample
SAMPLED_ROWS = 8192


@dataclass(frozen=True, eq=False)
class Neighbours:
    """The nearest rows of some rows (the queries) among all N. Row numbers are int64; under the cosine metric distances
    are those of unit rows, sqrt(2 - 2 cos)."""

    indices: Array  # (Q, k), the nearest first
    distances: Array  # (Q, k), float64
    queries: Array  # (Q,), ascending
    metric: Metric
    rows: int  # N
    searched: int  # rows that may be neighbours: no zero rows under cosine, no copies when `distinct`
    distinct: bool  # whether only the first of equal rows is kept
    duplicates: int  # rows that equal a row before them
    tied: int  # queries whose k-th and next neighbour are equally far: the lower number is listed

    @property
    def k(self) -> int:
        return int(self.indices.shape[1])

    @property
    def sampled(self) -> bool:
        """Whether only some rows were queries."""
        return len(self.queries) < self.searched

    def warnings(self, *said: tuple[Any, str]) -> tuple[str, ...]:
        """The warnings whose first part holds, and a warning where a measure read a sample."""
        sample = f"sampled: the neighbours of {len(self.queries)} rows were searched among {self.searched}"
        return tuple(words for holds, words in (*said, (self.sampled, sample)) if holds)


@on_one_thread
def nearest_neighbours(
    rows: Any,
    k: int,
    moments: Moments | None = None,
    *,
    metric: Metric = "euclidean",
    distinct: bool = False,
    sample: int | None = None,
    seed: int = 0,
    progress: Ticks = None,
    mask: Any = None,
) -> Neighbours:
    """The exact k nearest other rows of every row: the same on any number of threads, the lower of equally far rows
    first.

    Products in float32 find candidates, whose distances are computed by difference in float64. A bound on the error of
    the products proves that no other row is nearer; otherwise the row is searched again in float64. Takes about N^2 D /
    2 multiply-adds, and memory for N (k + 7) candidates.

    Args:
        rows, mask: as for `moments_of`, but no moments.
        k: fewer come back where there are fewer other rows.
        moments: of the same rows; first-order sums suffice.
        metric: "cosine" is the distance of unit rows, without all-zero rows.
        distinct: keep only the first of equal rows. Otherwise copies of a row are its nearest neighbours.
        sample: how many query rows to draw with `seed`; by default all up to 65,536 rows, else 8,192.
        progress: called with how many rows' worth of work is done.
    Undefined: fewer than two rows (that differ, when `distinct`; that have a direction, under cosine).
    """
    if whole_number(k, "k") < 1:
        raise InputError(f"expected at least one neighbour, got k = {k}: 10 is customary")
    flag(distinct, "distinct")
    one_of(metric, "the metric", ("euclidean", "cosine"))
    rows, m = with_moments(rows, moments, mask, second=False)
    cosine = metric == "cosine"
    _require(m.n - m.zero_rows * cosine, "rows with a direction" if cosine else "rows")
    points = Points(rows, m, metric=metric)
    ids, first = points.ids, first_of_each(points)
    places, place, sizes = np.unique(first, return_inverse=True, return_counts=True)
    count, duplicates = len(places), len(ids) - len(places)
    if duplicates:
        del points
        points = Points(rows, m, metric=metric, ids=ids[places])
    if distinct:
        _require(count, "different rows")
        ids = points.ids
    total = len(ids)
    queries = sampled_rows(total, sample, seed)
    k = min(k, total - 1)
    asked = queries if distinct else np.unique(place[queries])
    near, squares = np.empty((1, 0), np.int64), np.empty((1, 0))
    if count > 1:  # one place has no other
        some = None if len(asked) == count else asked
        near, squares = nearest_points(points, min(k + 1, count - 1), some, ticks(rows.shape[0], progress))
    if duplicates and not distinct:
        near, squares = _with_copies(place, sizes, queries, min(k + 1, total - 1), near, squares)
    tied = int(np.count_nonzero(squares[:, k] == squares[:, k - 1])) if squares.shape[1] > k else 0
    distances, counts = np.sqrt(squares[:, :k]) * points.unit, (rows.shape[0], total, distinct, duplicates, tied)
    return Neighbours(ids[near[:, :k]], distances, ids[queries], metric, *counts)


def _with_copies(place: Array, sizes: Array, queries: Array, k: int, near: Array, far: Array) -> tuple[Array, Array]:
    """The k nearest points of each query and squared distances, (Q, k), where points share places, from the nearest
    other places of each place that queries lie at. Ties go to the lower point."""
    row = np.unique(place[queries], return_inverse=True)[1]
    members, starts = np.argsort(place, kind="stable"), sizes.cumsum() - sizes
    within = np.arange(min(k + 1, int(sizes.max())))
    points = np.empty((len(queries), k), np.int64)
    of_points = np.empty((len(queries), k))
    step = max(1, 2**22 // (len(within) * (near.shape[1] + 1)))
    for some in cuts(len(queries), step):
        asked = queries[some, None]
        places = np.concatenate([place[asked], near[row[some]]], 1)[..., None]
        squares = np.concatenate([np.zeros(asked.shape), far[row[some]]], 1)[..., None]
        who = members[np.minimum(starts[places] + within, len(members) - 1)]
        left_out = (within >= sizes[places]) | (who == asked[..., None])
        ordered, who = in_order(*(x.reshape(len(asked), -1) for x in (np.where(left_out, np.inf, squares), who)))
        points[some], of_points[some] = who[:, :k], ordered[:, :k]
    return points, of_points


def sampled_rows(total: int, sample: int | None, seed: int) -> Array:
    whole_number(seed, "seed", 0)
    if sample is not None and whole_number(sample, "sample") < 1:
        raise InputError(f"expected a sample of at least one row, got {sample}: pass None for the default")
    if sample is None:
        sample = total if total <= EXACT_ROWS else SAMPLED_ROWS
    if sample >= total:
        return np.arange(total)
    return np.sort(np.random.default_rng(seed).choice(total, sample, replace=False))


def searched(
    rows: Any,
    moments: Moments | None,
    mask: Any,
    neighbours: Neighbours | None,
    k: int,
    sample: int | None,
    seed: int,
    progress: Ticks,
    metric: Metric = "euclidean",
    distinct: bool = False,
) -> tuple[Rows, Moments, Neighbours]:
    """The rows that `mask` keeps, their moments and neighbours, as given or computed."""
    rows, m = with_moments(rows, moments, mask, second=False)
    if neighbours is None:
        how: Any = {"metric": metric, "distinct": distinct, "sample": sample, "seed": seed, "progress": progress}
        return rows, m, nearest_neighbours(rows, k, m, **how)
    if not isinstance(neighbours, Neighbours):
        raise InputError(f"expected neighbours from nearest_neighbours, got {shown(neighbours)}: search these rows")
    if (neighbours.rows, neighbours.metric, neighbours.distinct) != (rows.shape[0], metric, distinct):
        expected = f"{rows.shape[0]} rows, {metric}, with distinct={distinct}"
        got = f"{neighbours.rows} rows, {neighbours.metric}, with distinct={neighbours.distinct}"
        raise InputError(f"expected neighbours of {expected}, got a search of {got}: search these rows again")
    return rows, m, neighbours


def _require(count: int, what: str) -> None:
    if count < 2:
        raise UndefinedMeasure(f"expected at least two {what}, got {count}: there are no neighbours")


def ticks(n: int, progress: Ticks) -> Callable[[float], None]:
    """`progress`, called with the share of the work that is done."""
    return (lambda share: None) if progress is None else (lambda share: progress(int(n * share)))
