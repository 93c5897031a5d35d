"""Which pairs of a block may lie in the spanning tree: those shorter than the longest edge on the tree's path between them.

(An edge that is not is called heavy, and lies in no minimum spanning tree: Karger, Klein and Tarjan 1995, section 3.)
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from uncone.topology import jit
from uncone.topology.forest import Forest, Indices, Squares
from uncone.topology.rounded import Rounded

Tensor = torch.Tensor
_PAIRS = 256


@dataclass(frozen=True)
class Light:
    """Edges between positions (k, 2) with their squared lengths (k,), and how many pairs were measured to find them."""

    ends: Indices
    squared: Squares
    measured: int


def squared_distances(points: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """|points[a] - points[b]|^2 (k,) in float64, by direct difference."""
    # Results go where there is room for them: small tensors between large ones leave holes, which the C library then keeps.
    squared = torch.empty(len(a), dtype=torch.float64, device=points.device)
    for start in range(0, len(a), _PAIRS):
        some = slice(start, start + _PAIRS)
        torch.sum(points[a[some]].double().sub_(points[b[some]]).square_(), 1, out=squared[some])
    return squared


def light_edges(
    product: Tensor,
    rows: Rounded,
    columns: Rounded,
    points: Tensor,
    order: Tensor,
    scale: float,
    forest: Forest,
) -> Light:
    """The pairs (row before column) of a block that are shorter than the longest edge on the forest's path between them.

    `product` (r, c) may be wrong by what its rounding allows; whoever cannot be ruled out is measured by direct difference.
    """
    loops = kernels() if product.device.type == "cpu" else None
    if loops is None:
        return _by_torch(product, rows, columns, points, order, forest)
    ends, squared = (
        np.empty((product.numel(), 2), np.int32),
        np.empty(product.numel()),
    )  # pages that nobody writes to cost nothing
    count, measured = loops.light_edges(
        product.float().numpy(),
        (rows.first, rows.squares.numpy(), rows.moved.numpy()),
        (columns.first, columns.squares.numpy(), columns.moved.numpy()),
        (np.float32(rows.product_error), np.float32(rows.absolute_error)),
        (forest.reach, forest.part, forest.within),
        points.numpy(),
        order.numpy(),
        scale,
        (forest.ends, forest.squared, forest.rank, forest.parent),
        ends,
        squared,
    )
    return Light(ends[:count].copy(), squared[:count].copy(), measured)


def kernels() -> Any | None:
    """The compiled search; None where numba is missing or does not work here."""
    return jit.loops("light_kernels")


def _by_torch(
    product: Tensor, rows: Rounded, columns: Rounded, points: Tensor, order: Tensor, forest: Forest
) -> Light:
    device = product.device
    tree_ends, tree_squared, rank, parent, reach, part, within = forest.on(device)
    r, c = product.shape
    value = product.float()
    down, across = slice(rows.first, rows.first + r), slice(columns.first, columns.first + c)
    longest = torch.where(
        part[down, None] == part[across],
        torch.maximum(within[down, None], within[across]),
        torch.maximum(reach[down, None], reach[across]),
    )
    longest += rows.moved[:, None] + columns.moved
    excess = (
        (rows.squares[:, None] + columns.squares)
        .sub_(value, alpha=2)
        .sub_(value.abs(), alpha=rows.product_error)
    )
    near = excess.sub_(longest.square_()) <= rows.absolute_error
    i, j = near.triu_(rows.first + 1 - columns.first).nonzero(as_tuple=True)
    i, j = i + rows.first, j + columns.first
    squared = squared_distances(points, order[i], order[j])
    last = _longest_on_path(i, j, rank, parent)
    edge, bound = tree_ends[last], tree_squared[last]
    pair, other = (torch.sort(order[both], 1).values for both in (torch.stack([i, j], 1), edge))
    earlier = (pair[:, 0] < other[:, 0]) | ((pair[:, 0] == other[:, 0]) & (pair[:, 1] < other[:, 1]))
    keep = (squared < bound) | ((squared == bound) & earlier)
    ends = torch.stack([i[keep], j[keep]], 1).int().cpu().numpy()
    return Light(ends, squared[keep].cpu().numpy(), len(i))


def _longest_on_path(a: Tensor, b: Tensor, rank: Tensor, parent: Tensor) -> Tensor:
    """The rank (k,) of the longest edge on the tree's path between positions a (k,) and b (k,), which differ."""
    last = torch.zeros_like(a)
    while bool((a != b).any()):
        lower = torch.where(rank[a] <= rank[b], a, b)  # whoever was joined first goes up
        apart = a != b
        last = torch.where(apart, rank[lower], last)
        up = parent[lower]
        a, b = torch.where(apart & (lower == a), up, a), torch.where(apart & (lower != a), up, b)
    return last
