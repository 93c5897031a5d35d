"""The minimum spanning tree of the edges seen so far, and the longest edge on its path between two points."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from uncone.topology.lengths import kernels

Tensor = torch.Tensor
_CUT = 64  # clusters that are told apart, and a few points far out; each is one of n points that nothing is gained for

Indices = npt.NDArray[np.int32]
Squares = npt.NDArray[np.float64]
Bounds = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Forest:
    """A spanning tree of m points, as Kruskal's algorithm joined them.

    Its edges are in ascending order; the place of an edge in it is its rank. When a component of points was
    joined to one that is no smaller, its root took the other's root for its parent, by an edge of that rank.
    Ranks rise towards the one root, no point is more than log2 m steps below it, and the last edge on the way
    up to where two points meet is the longest edge on the path between them.
    """

    ends: Indices
    """(m - 1, 2) the positions that each edge joins."""
    squared: Squares
    """(m - 1,) squared lengths."""
    rank: Indices
    """(m,) the edge that joined the component of each point's to its parent's; m at the root."""
    parent: Indices
    """(m,) the root is its own."""
    reach: Bounds
    """(m,) no less than the longest edge to the root, times a scale: a path has none above its ends' greater."""
    part: Indices
    """(m,) the point that stands for its part of the tree without the `_CUT` longest edges: a tight cluster."""
    within: Bounds
    """(m,) as `reach`, to the point that stands for its part: gaps between clusters do not count."""
    device: torch.device

    @cached_property
    def tensors(self) -> tuple[Tensor, ...]:
        """All fields in order, on the `device`: copied once, as every block of a sweep asks."""
        fields = (self.ends, self.squared, self.rank, self.parent, self.reach, self.part, self.within)
        return tuple(torch.from_numpy(field).to(self.device) for field in fields)


def spanning(
    ends: Indices, squared: Squares, ids: npt.NDArray[np.int64], scale: float, device: torch.device
) -> Forest:
    """The minimum spanning tree of edges that connect `ids` (m,); equal lengths go by (smaller, larger id)."""
    m = len(ids)
    order = _ascending(ends, squared, ids)
    ends, squared = ends[order], squared[order]
    root, size = np.arange(m, dtype=np.int32), np.ones(m, np.int32)
    rank, parent = np.full(m, m, np.int32), np.arange(m, dtype=np.int32)
    chosen = np.empty(m - 1, np.int32)
    count = _fastest_kruskal()(ends, root, size, rank, parent, chosen)
    assert count == m - 1, "the edges do not connect the points"
    ends, squared = ends[chosen], squared[chosen]
    lengths = np.sqrt(squared) * scale
    reach = _top(lengths, rank, parent, m)[1]
    return Forest(ends, squared, rank, parent, reach, *_top(lengths, rank, parent, m - 1 - _CUT), device)


def _ascending(ends: Indices, squared: Squares, ids: npt.NDArray[np.int64]) -> npt.NDArray[np.intp]:
    """The total order of edges. Three keys are slow, and few lengths are equal: only those are sorted again."""
    order = np.argsort(squared)
    value = squared[order]
    same = value[1:] == value[:-1]
    if same.any():
        tied = np.flatnonzero(np.append(same, False) | np.append(False, same))
        some = order[tied]
        pair = np.sort(ids[ends[some]], axis=1)
        order[tied] = some[np.lexsort((pair[:, 1], pair[:, 0], squared[some]))]
    return order


def kruskal(
    ends: Indices, root: Indices, size: Indices, rank: Indices, parent: Indices, chosen: Indices
) -> int:
    """Join components by edges in ascending order; those that did are written to `chosen`. Compiled by numba."""
    count = 0
    for edge in range(len(ends)):
        a, b = ends[edge, 0], ends[edge, 1]
        while root[a] != a:
            root[a] = a = root[root[a]]
        while root[b] != b:
            root[b] = b = root[root[b]]
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


def _top(lengths: Squares, rank: Indices, parent: Indices, cut: int) -> tuple[Indices, Bounds]:
    """How far up each point comes by edges of ranks below `cut` (m,), and a bound on the longest of these (m,)."""
    top, last = np.arange(len(parent), dtype=np.int32), np.full(len(parent), -1, np.int32)
    while (upward := rank[top] < cut).any():  # log2 m steps at most
        last, top = np.where(upward, rank[top], last), np.where(upward, parent[top], top)
    reach = np.append(lengths, 0.0)[last]  # the last is 0, for those that stay
    reach *= 1 + 2.0**-20  # a little up, as it is added to and squared in float32
    return top, reach.astype(np.float32)


@cache
def _fastest_kruskal() -> Callable[..., Any]:
    loops = kernels()
    compiled: Callable[..., Any] = kruskal if loops is None else loops.loop()(inspect.unwrap(kruskal))
    return compiled
