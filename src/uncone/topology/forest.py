"""The minimum spanning tree of the edges seen so far, and the longest edge on its path between two points."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

Tensor = torch.Tensor

Indices = npt.NDArray[np.int32]
Squares = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Forest:
    """A spanning tree of m points, as Kruskal's algorithm joined them.

    Its edges are in ascending order; the place of an edge in it is its rank. When a component of points was joined to one
    that is no smaller, its root took the other's root for its parent, by an edge of that rank. Ranks rise towards the one
    root, nobody is more than log2 m steps below it, and the last edge on the way up to where two points meet is the longest
    edge on the path between them.
    """

    ends: Indices
    """(m - 1, 2) the positions that each edge joins."""
    squared: Squares
    """(m - 1,) squared lengths."""
    rank: Indices
    """(m,) the edge that joined the component of each point's to its parent's; m at the root."""
    parent: Indices
    """(m,) the root is its own."""
    reach: npt.NDArray[np.float32]
    """(m,) no less than the longest edge between a point and the root: the longest on a path is at most the greater of its ends' two."""

    def on(self, device: torch.device) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """The ends, squared lengths, ranks, parents and reaches there: copied once, as every block of a sweep asks."""
        there: tuple[Tensor, Tensor, Tensor, Tensor, Tensor] | None = self.__dict__.get("_there")
        if there is None or there[0].device != device:
            fields = (self.ends, self.squared, self.rank, self.parent, self.reach)
            ends, squared, rank, parent, reach = (torch.from_numpy(field).to(device) for field in fields)
            there = ends.long(), squared, rank.long(), parent.long(), reach
            self.__dict__["_there"] = there
        return there


def spanning(ends: Indices, squared: Squares, ids: npt.NDArray[np.int64]) -> Forest:
    """The minimum spanning tree of edges that connect all of `ids` (m,); equal lengths go by (smaller id, larger id)."""
    m = len(ids)
    order = _ascending(ends, squared, ids)
    ends, squared = ends[order], squared[order]
    root, size = np.arange(m, dtype=np.int32), np.ones(m, np.int32)
    rank, parent = np.full(m, m, np.int32), np.arange(m, dtype=np.int32)
    chosen = np.empty(m - 1, np.int32)
    count = _fastest_kruskal()(ends, root, size, rank, parent, chosen)
    assert count == m - 1, "the edges do not connect the points"
    ends, squared = ends[chosen], squared[chosen]
    return Forest(ends, squared, rank, parent, _reach(squared, rank, parent))


def _ascending(ends: Indices, squared: Squares, ids: npt.NDArray[np.int64]) -> npt.NDArray[np.intp]:
    """The total order of edges. Sorting by three keys is slow, and few lengths are equal: only those are sorted again."""
    order = np.argsort(squared)
    value = squared[order]
    same = value[1:] == value[:-1]
    if same.any():
        tied = np.flatnonzero(np.append(same, False) | np.append(False, same))
        some = order[tied]
        pair = np.sort(ids[ends[some]], axis=1)
        order[tied] = some[np.lexsort((pair[:, 1], pair[:, 0], squared[some]))]
    return order


def kruskal(ends: Indices, root: Indices, size: Indices, rank: Indices, parent: Indices, chosen: Indices) -> int:
    """Join components by edges in ascending order; the edges that did are written to `chosen`. Compiled where numba is installed."""
    count = 0
    for edge in range(len(ends)):
        a, b = ends[edge, 0], ends[edge, 1]
        while root[a] != a:
            root[a] = root[root[a]]
            a = root[a]
        while root[b] != b:
            root[b] = root[root[b]]
            b = root[b]
        if a == b:
            continue
        if size[a] < size[b]:
            a, b = b, a
        root[b] = a
        size[a] += size[b]
        rank[b] = count
        parent[b] = a
        chosen[count] = edge
        count += 1
        if count == len(chosen):
            break
    return count


def _reach(squared: Squares, rank: Indices, parent: Indices) -> npt.NDArray[np.float32]:
    top = np.arange(len(parent), dtype=np.int32)
    while True:  # up to the child of the root: log2 m steps at most
        above = parent[top]
        inner = parent[above] != above
        if not inner.any():
            break
        top = np.where(inner, above, top)
    length = np.sqrt(np.append(squared, 0.0)[np.where(parent[top] == top, len(squared), rank[top])])
    reach: npt.NDArray[np.float32] = (length * (1 + 2.0**-20)).astype(
        np.float32
    )  # a little up, as it is added to and squared in float32
    return reach


@cache
def _fastest_kruskal() -> Callable[..., Any]:
    try:
        import numba
    except ImportError:
        return kruskal
    compiled: Callable[..., Any] = numba.njit(nogil=True, cache=True)(inspect.unwrap(kruskal))
    return compiled
