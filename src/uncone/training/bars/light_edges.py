"""The spanning tree of the edges seen so far, and which pairs of a block may replace one: those below the longest edge
on the tree's path between them. Other pairs are heavy, and are in no minimum spanning tree (Karger, Klein and Tarjan
1995, section 3). Blocks are rounded for the product, with a bound on what the rounding may hide."""

import inspect
import math
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from uncone.training.bars.lengths import kernels

Tensor = torch.Tensor
Indices = npt.NDArray[np.int32]
Squares = npt.NDArray[np.float64]
Bounds = npt.NDArray[np.float32]
Light = tuple[Indices, Squares, int]
"""Edges between positions (k, 2), their squared lengths (k,), and how many pairs were measured for them."""
_CUT = 64  # clusters that are separated, and a few points far out
_AT_ONCE = 256  # rows or pairs, which stay in the cache
# what torch may round factors to: 2 x 2^-11, 2 x 2^-9, doubled
_HIDDEN_BY_MODE = {"highest": 0.0, "high": 2.0**-9, "medium": 2.0**-7}


@dataclass(frozen=True)
class Forest:
    """A spanning tree of m points, as Kruskal's algorithm joined them: edges ascend, and an edge's place is its rank.

    When a component was joined to one that is no smaller, its root took the other's root for its parent, by an edge of
    that rank. Ranks rise towards the root, at most log2 m steps up; the last edge on the way up to where two points
    meet is the longest between them.
    """

    ends: Indices  # (m - 1, 2) the positions that each edge joins
    squared: Squares  # (m - 1,) squared lengths
    rank: Indices  # (m,) the edge that joined each point's component to its parent's; m at the root
    parent: Indices  # (m,) the root is its own
    reach: Bounds  # (m,) at least the longest edge to the root, times a scale: none on a path is above its ends'
    part: Indices  # (m,) the point for its part of the tree without the `_CUT` longest edges: a tight cluster
    within: Bounds  # (m,) as `reach`, to the point that represents its part: gaps between clusters do not count
    device: torch.device

    @cached_property
    def tensors(self) -> tuple[Tensor, ...]:
        return tuple(torch.from_numpy(x).to(self.device) for x in vars(self).values() if isinstance(x, np.ndarray))


def spanning(ends: Indices, squared: Squares, ids: npt.NDArray[np.int64], scale: float, device: torch.device) -> Forest:
    """The tree of edges that join `ids` (m,); equal lengths go by (smaller, larger id)."""
    m = len(ids)
    order = _ascending(ends, squared, ids)
    ends, squared = ends[order], squared[order]
    root, parent = np.arange(m, dtype=np.int32), np.arange(m, dtype=np.int32)
    rank, chosen = np.full(m, m, np.int32), np.empty(m - 1, np.int32)
    count = _fastest_kruskal()(ends, root, np.ones(m, np.int32), rank, parent, chosen)
    assert count == m - 1, "the edges do not connect the points"
    ends, squared = ends[chosen], squared[chosen]
    lengths = np.sqrt(squared) * scale
    reach = _top(lengths, rank, parent, m)[1]
    return Forest(ends, squared, rank, parent, reach, *_top(lengths, rank, parent, m - 1 - _CUT), device)


def _ascending(ends: Indices, squared: Squares, ids: npt.NDArray[np.int64]) -> npt.NDArray[np.intp]:
    """Three keys are slow, so the few equal lengths are sorted again."""
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
    """Write the edges, in ascending order, that join components to `chosen`. Compiled by numba."""
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
    """How far up each point comes by edges of ranks below `cut` (m,), and a bound on the longest of them."""
    top, last = np.arange(len(parent), dtype=np.int32), np.full(len(parent), -1, np.int32)
    while (upward := rank[top] < cut).any():  # log2 m steps at most
        last, top = np.where(upward, rank[top], last), np.where(upward, parent[top], top)
    reach = np.append(lengths, 0.0)[last]  # the last is 0, for those that stay
    reach *= 1 + 2.0**-20  # float32 rounds where it is added to and squared
    return top, reach.astype(np.float32)


@cache
def _fastest_kruskal() -> Any:
    loops = kernels()
    return kruskal if loops is None else loops.loop()(inspect.unwrap(kruskal))


@dataclass(frozen=True)
class Rounded:
    """Positions from `first` on, moved to the centre, scaled and rounded. With g the computed product of two rows and
    s, t their `squares`, the true distance of the two points (in units of 1 / scale) is at least sqrt(max(0, s + t - 2
    g - product_error |g| - absolute_error)) less what both were `moved`."""

    first: int
    values: Tensor  # (b, d) float32 or bfloat16
    squares: Tensor  # (b,) float32: the squared norm of the rounded row, less what the arithmetic may add
    moved: Tensor  # (b,) float32: how far rounding moved the point, at most
    product_error: float  # of the product's magnitude: 2^-7 in bfloat16, which counts twice in a squared distance
    absolute_error: float  # the most that underflow may hide

    def rows(self, start: int, stop: int) -> "Rounded":
        values, squares, moved = (t[start:stop] for t in (self.values, self.squares, self.moved))
        return Rounded(self.first + start, values, squares, moved, self.product_error, self.absolute_error)


class Rounding:
    """Any centre gives the same tree, a near one leaves fewer pairs to measure: a median, which a few points far out do
    not move. The scale, a power of two, keeps squares within float32."""

    def __init__(self, points: Tensor, order: Tensor) -> None:
        low, high = map(float, torch.aminmax(points))
        self.scale = 2.0**16 / 2.0 ** math.frexp(max(abs(low), abs(high)))[1]
        self._points, self._order = points, order
        self._centre = (points[order[:_AT_ONCE]] * self.scale).median(0).values

    def block(self, start: int, stop: int, dtype: torch.dtype) -> Rounded:
        d = self._points.shape[1]
        values = torch.empty(stop - start, d, dtype=dtype, device=self._points.device)
        squares, moved = (torch.empty(stop - start, device=values.device) for _ in range(2))
        strip = _AT_ONCE if values.device.type == "cpu" else stop - start  # a GPU would wait for the many calls
        for at in range(0, stop - start, strip):
            part = slice(at, at + strip)
            squares[part], moved[part] = self._rounded(self._order[start:stop][part], values[part])
        error = 0.0 if dtype == torch.float32 else 2.0**-7
        return Rounded(start, values, squares, moved, error, d * 2.0**-120)

    def _rounded(self, rows: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Writes the rounded `rows` to `values`; returns `squares` and `moved` of `Rounded`."""
        centred = self._points[rows].mul_(self.scale).sub_(self._centre).float()
        d, coarse = centred.shape[1], values.dtype != torch.float32
        values.copy_(centred)
        kept = values.float()
        norms = torch.linalg.vector_norm(kept, dim=1, dtype=torch.float64)
        moved = norms * 2.0**-23  # twice what one rounding to float32 moves
        if coarse:
            moved += torch.linalg.vector_norm(centred.sub_(kept), dim=1) * (1 + d * 2.0**-23)
        # Each of d additions and products rounds by 2^-24 of |a||b| <= (s + t) / 2 at most: doubled for units that do
        # not round to nearest; sums of three terms add a few more.
        share = (2 * d + 32) * 2.0**-24 + (0.0 if coarse else _hidden_by_mode())
        return (norms.square_() * (1 - share)).float(), moved.float() * (1 + 2.0**-20)


def _hidden_by_mode() -> float:
    try:
        return _HIDDEN_BY_MODE[torch.get_float32_matmul_precision()]
    except RuntimeError:  # newer torch does not report it where it is set by backend
        return max(_HIDDEN_BY_MODE.values())


def squared_distances(points: Tensor, a: Tensor, b: Tensor) -> Tensor:
    # Into one tensor: small ones between large ones leave holes, which the C library keeps.
    squared = torch.empty(len(a), dtype=torch.float64, device=points.device)
    for first, second, out in zip(*(torch.split(t, _AT_ONCE) for t in (a, b, squared)), strict=True):
        torch.sum(points[first].double().sub_(points[second]).square_(), 1, out=out)
    return squared


def light_edges(
    product: Tensor, rows: Rounded, columns: Rounded, points: Tensor, order: Tensor, scale: float, forest: Forest
) -> Light:
    """The pairs (row before column) of a block below the longest edge on the forest's path between them; `product` (r,
    c) rules most out, the others are measured by difference."""
    loops = kernels() if product.device.type == "cpu" else None
    if loops is None:
        return _by_torch(product, rows, columns, points, order, forest)
    most = product.numel()
    ends, squared = np.empty((most, 2), np.int32), np.empty(most)  # unwritten pages cost nothing
    sides = [(side.first, side.squares.numpy(), side.moved.numpy()) for side in (rows, columns)]
    errors = np.float32(rows.product_error), np.float32(rows.absolute_error)
    bounds, tree = (forest.reach, forest.part, forest.within), (forest.ends, forest.squared, forest.rank, forest.parent)
    cloud = points.numpy(), order.numpy(), scale
    count, measured = loops.light_edges(product.float().numpy(), *sides, errors, bounds, *cloud, tree, ends, squared)
    return ends[:count].copy(), squared[:count].copy(), measured


def _by_torch(product: Tensor, rows: Rounded, columns: Rounded, points: Tensor, order: Tensor, forest: Forest) -> Light:
    tree_ends, tree_squared, rank, parent, reach, part, within = forest.tensors
    value, (r, c) = product.float(), product.shape
    down, across = slice(rows.first, rows.first + r), slice(columns.first, columns.first + c)
    inside, between = (torch.maximum(far[down, None], far[across]) for far in (within, reach))
    longest = torch.where(part[down, None] == part[across], inside, between)
    longest += rows.moved[:, None] + columns.moved
    excess = (rows.squares[:, None] + columns.squares).sub_(value, alpha=2)
    excess.sub_(value.abs(), alpha=rows.product_error).sub_(longest.square_())
    near = (excess <= rows.absolute_error).triu_(rows.first + 1 - columns.first)
    i, j = near.nonzero(as_tuple=True)
    i, j = i + rows.first, j + columns.first
    squared = squared_distances(points, order[i], order[j])
    last = _longest_on_path(i, j, rank, parent)
    bound, ends = tree_squared[last], torch.stack([i, j], 1)
    (a, b), (p, q) = (order[both].sort(1).values.T for both in (ends, tree_ends[last]))
    earlier = (a < p) | ((a == p) & (b < q))
    keep = (squared < bound) | ((squared == bound) & earlier)
    return ends[keep].int().cpu().numpy(), squared[keep].cpu().numpy(), len(i)


def _longest_on_path(a: Tensor, b: Tensor, rank: Tensor, parent: Tensor) -> Tensor:
    """The rank (k,) of the longest edge on the tree's path between unequal positions a (k,) and b (k,)."""
    last = torch.zeros_like(a)
    while bool((apart := a != b).any()):
        of_a = rank[a] <= rank[b]  # the one that was joined first goes up
        lower = torch.where(of_a, a, b)
        last = torch.where(apart, rank[lower], last)
        up = parent[lower]
        a, b = torch.where(apart & of_a, up, a), torch.where(apart & ~of_a, up, b)
    return last
