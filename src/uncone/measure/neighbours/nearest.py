"""`nearest_neighbours`: the k nearest rows of every row, or of a sample of the rows, among all rows."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from uncone.errors import InputError, UndefinedMeasure
from uncone.measure.neighbours.duplicates import Places, first_of_each
from uncone.measure.neighbours.points import Metric, Points
from uncone.measure.neighbours.search import nearest_points
from uncone.measure.reading import check_moments
from uncone.moments import Moments
from uncone.rows import Rows, as_rows
from uncone.threads import alone

Tensor = torch.Tensor
EXACT_ROWS = 65536
"""Up to this many rows all are asked for their neighbours: every pair once, N^2 D multiply-adds over two.
Beyond, a sample is."""
SAMPLED_ROWS = 8192


@dataclass(frozen=True, eq=False)
class Neighbours:
    """The nearest rows of some rows (the queries) among all N.

    `indices` and `distances` are (Q, k): row numbers, int64, and distances, float64, from the nearest to the
    farthest; under the cosine metric distances are those of unit rows, sqrt(2 - 2 cos). `queries` (Q,) are
    row numbers, ascending.
    """

    indices: Tensor
    distances: Tensor
    queries: Tensor
    metric: Metric
    rows: int
    """How many rows there are."""
    searched: int
    """How many of them were searched: without zero rows under cosine, and without copies when `distinct`."""
    distinct: bool
    """Whether only the first of equal rows is there."""
    duplicates: int
    """How many rows equal a row before them."""
    tied: int
    """For how many queries the k-th and the next neighbour are equally far: which of the two is listed is its
    number's doing."""

    @property
    def k(self) -> int:
        """Neighbours of each query."""
        return self.indices.shape[1]

    @property
    def sampled(self) -> bool:
        """Whether only some rows were asked."""
        return len(self.queries) < self.searched

    def sampling_warnings(self) -> tuple[str, ...]:
        """That a measure read a sample, where it did."""
        asked = f"{len(self.queries)} rows were asked for their neighbours among {self.searched}"
        return (f"sampled: {asked}",) if self.sampled else ()


def nearest_neighbours(
    rows: Any,
    k: int,
    moments: Moments | None = None,
    *,
    metric: Metric = "euclidean",
    distinct: bool = False,
    sample: int | None = None,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
) -> Neighbours:
    """The k nearest other rows of every row, exact: the same on any number of threads, equally far rows in
    the order of their numbers.

    Products in float32 find candidates; their distances are then taken by difference in float64, and a bound
    on what products err proves for each row that no other row is nearer. Rows for which it does not (ties,
    copies, clusters far apart) are searched again in float64. Takes about N^2 D multiply-adds over two, and
    memory for N (k + 7) candidates beside the rows.

    Args:
        rows: Rows, or a tensor or array (N, D).
        k: neighbours of each row; fewer come back where there are fewer other rows.
        moments: the moments of the same rows, first-order sums suffice; computed when not given.
        metric: "euclidean", or "cosine": the distance of unit rows; all-zero rows are then left out.
        distinct: only the first of equal rows is there. Else copies of a row are its nearest neighbours.
        sample: how many rows to ask, drawn with `seed`; all rows are searched. By default all up to 65,536 rows, else 8,192.
        progress: called with the number of rows' worth of work done, out of N.

    Raises:
        InputError: k or sample below 1, an unknown metric, rows that are not finite, moments of other rows.
        UndefinedMeasure: fewer than two rows (that differ, when `distinct`; that have a direction, under cosine).
    """
    rows = as_rows(rows)
    if k < 1:
        raise InputError(f"expected at least one neighbour, got k = {k}: 10 is customary")
    if metric not in ("euclidean", "cosine"):
        raise InputError(f"expected the metric euclidean or cosine, got {metric!r}: choose one of them")
    if sample is not None and sample < 1:
        raise InputError(f"expected a sample of at least one row, got {sample}: pass None for the default")
    m = Moments.of(rows, second=False) if moments is None else moments
    check_moments(m, rows.shape[0])
    return alone(lambda: _nearest(rows, k, m, metric, distinct, sample, seed, ticks(rows.shape[0], progress)))


def _nearest(
    rows: Rows, k: int, m: Moments, metric: Metric, distinct: bool, sample: int | None, seed: int,
    tick: Callable[[float], None],
) -> Neighbours:  # fmt: skip
    if metric == "cosine":
        _require(m.n - m.zero_rows, "rows with a direction")
    else:
        _require(m.n, "rows")
    points = Points(rows, m, metric=metric)
    ids = points.ids
    places = Places(first_of_each(points))
    count = len(places.distinct)
    duplicates = len(ids) - count
    if distinct:
        _require(count, "different rows")
    if duplicates:
        del points
        points = Points(rows, m, metric=metric, ids=ids[places.distinct])
    if distinct:
        ids = points.ids
    total = len(ids)
    queries = sampled_rows(total, sample, seed)
    k = min(k, total - 1)
    asked = queries if distinct else places.place[queries].unique()
    if count > 1:
        some = None if len(asked) == count else asked
        near, squares = nearest_points(points, min(k + 1, count - 1), some, tick)
    else:  # one place has no other
        near, squares = torch.empty((1, 0), dtype=torch.int64), torch.empty((1, 0), dtype=torch.float64)
    if duplicates and not distinct:
        near, squares = places.expand(queries, min(k + 1, total - 1), near, squares)
    tied = int((squares[:, k] == squares[:, k - 1]).sum()) if squares.shape[1] > k else 0
    return Neighbours(
        indices=ids[near[:, :k]], distances=squares[:, :k].sqrt() * points.unit, queries=ids[queries], metric=metric,
        rows=rows.shape[0], searched=total, distinct=distinct, duplicates=duplicates, tied=tied,
    )  # fmt: skip


def sampled_rows(total: int, sample: int | None, seed: int) -> Tensor:
    """Which of `total` rows are asked, ascending: all, or `sample` (by default 8,192 of over 65,536)."""
    if sample is None:
        sample = total if total <= EXACT_ROWS else SAMPLED_ROWS
    if sample >= total:
        return torch.arange(total)
    return torch.randperm(total, generator=torch.Generator().manual_seed(seed))[:sample].sort().values


def searched(
    rows: Rows, moments: Moments | None, neighbours: Neighbours | None, k: int, *, metric: Metric = "euclidean",
    distinct: bool = False, **rest: Any,
) -> tuple[Moments, Neighbours]:  # fmt: skip
    """The moments and the neighbours of the rows, as given or made; `rest` is as for `nearest_neighbours`.

    Raises:
        InputError: neighbours of another search.
    """
    m = Moments.of(rows, second=False) if moments is None else moments
    if neighbours is None:
        return m, nearest_neighbours(rows, k, m, metric=metric, distinct=distinct, **rest)
    if (neighbours.rows, neighbours.metric, neighbours.distinct) != (rows.shape[0], metric, distinct):
        raise InputError(
            f"expected neighbours of {rows.shape[0]} rows, {metric}, with distinct={distinct}, got a search of "
            f"{neighbours.rows} rows, {neighbours.metric}, with distinct={neighbours.distinct}: search these rows so"
        )
    return m, neighbours


def _require(count: int, what: str) -> None:
    if count < 2:
        raise UndefinedMeasure(f"expected at least two {what}, got {count}: there are no neighbours")


def ticks(n: int, progress: Callable[[int], None] | None) -> Callable[[float], None]:
    """What is to be told the share that is done, from `progress`, which is told the number of rows."""
    if progress is None:
        return lambda share: None
    return lambda share: progress(int(n * share))
