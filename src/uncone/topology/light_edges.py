"""Which pairs of a block may lie in the spanning tree: those shorter than the longest edge on the tree's path between them.

(An edge that is not is called heavy, and lies in no minimum spanning tree: Karger, Klein and Tarjan 1995, section 3.)
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from uncone.topology.forest import Forest, Indices, Squares
from uncone.topology.rounded import Rounded

Tensor = torch.Tensor
_CHUNK = 128
_PAIRS = 2048
_REASSOCIATED = {"nnan", "ninf", "nsz", "contract", "reassoc"}  # no NaN and no infinity gets here


@dataclass(frozen=True)
class Light:
    """Edges between positions (k, 2) with their squared lengths (k,), and how many pairs were measured to find them."""

    ends: Indices
    squared: Squares
    measured: int


def squared_distances(points: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """|points[a] - points[b]|^2 (k,) in float64, by direct difference."""
    parts = [torch.empty(0, dtype=torch.float64, device=points.device)]
    for i, j in zip(torch.split(a, _PAIRS), torch.split(b, _PAIRS), strict=True):
        parts.append(points[i].double().sub_(points[j]).square_().sum(1))
    return torch.cat(parts)


def light_edges(
    product: Tensor, rows: Rounded, columns: Rounded, points: Tensor, order: Tensor, scale: float, forest: Forest
) -> Light:
    """The pairs (row before column) of a block that are shorter than the longest edge on the forest's path between them.

    `product` (r, c) may be wrong by what its rounding allows; whoever cannot be ruled out is measured by direct difference.
    """
    compiled = scan_compiled() if product.device.type == "cpu" else None
    if compiled is None:
        return _by_torch(product, rows, columns, points, order, scale, forest)
    ends, squared = (
        np.empty((product.numel(), 2), np.int32),
        np.empty(product.numel()),
    )  # pages that nobody writes to cost nothing
    count, measured = compiled(
        product.float().numpy(), rows.first, columns.first, rows.squares.numpy(), columns.squares.numpy(), rows.moved.numpy(),
        columns.moved.numpy(), np.float32(rows.product_error), np.float32(rows.absolute_error), forest.reach, points.numpy(),
        order.numpy(), scale * scale, forest.ends, forest.squared, forest.rank, forest.parent, ends, squared,
    )  # fmt: skip
    return Light(ends[:count].copy(), squared[:count].copy(), measured)


def scan(
    product: npt.NDArray[np.float32], first_row: int, first_column: int, row_squares: npt.NDArray[np.float32],
    column_squares: npt.NDArray[np.float32], row_moved: npt.NDArray[np.float32], column_moved: npt.NDArray[np.float32],
    product_error: np.float32, absolute_error: np.float32, reach: npt.NDArray[np.float32], points: npt.NDArray[Any],
    order: npt.NDArray[np.int64], unit: float, tree_ends: Indices, tree_squared: Squares, rank: Indices, parent: Indices,
    ends: Indices, squared: Squares,
) -> tuple[int, int]:  # fmt: skip
    """`light_edges` for numba: writes to `ends` and `squared`, and returns how many it wrote and how many it measured."""
    count, measured = 0, 0
    two = np.float32(2)
    rows, columns = product.shape
    for r in range(rows):
        i = first_row + r
        square, moved, far = row_squares[r], row_moved[r], reach[i]
        begin = max(0, i + 1 - first_column)
        while begin < columns:
            stop = min(begin + 128, columns)
            values, others = product[r, begin:stop], column_squares[begin:stop]
            shifts, reaches = column_moved[begin:stop], reach[first_column + begin : first_column + stop]
            least = np.float32(3e38)
            for k in range(len(values)):  # one pass in registers: does any pair of the chunk have to be looked at?
                longest = far if far > reaches[k] else reaches[k]
                longest += moved + shifts[k]
                excess = (square + others[k]) - two * values[k] - product_error * abs(values[k]) - longest * longest
                least = excess if excess < least else least
            if least > absolute_error:
                begin = stop
                continue
            for k in range(len(values)):
                longest = far if far > reaches[k] else reaches[k]
                longest += moved + shifts[k]
                if (square + others[k]) - two * values[k] - product_error * abs(values[k]) - longest * longest > absolute_error:
                    continue
                j = first_column + begin + k
                p, q = order[i], order[j]
                left, right = points[p], points[q]
                total = 0.0
                for c in range(len(left)):
                    difference = np.float64(left[c]) - np.float64(right[c])
                    total += difference * difference
                total *= unit
                measured += 1
                a, b, last = i, j, 0
                while a != b:
                    if rank[a] < rank[b]:
                        last = rank[a]
                        a = parent[a]
                    else:
                        last = rank[b]
                        b = parent[b]
                if total > tree_squared[last]:
                    continue
                if total == tree_squared[last]:
                    s, t = order[tree_ends[last, 0]], order[tree_ends[last, 1]]
                    low, high = min(s, t), max(s, t)
                    if min(p, q) > low or (min(p, q) == low and max(p, q) >= high):
                        continue
                ends[count, 0], ends[count, 1], squared[count] = i, j, total
                count += 1
            begin = stop
    return count, measured


@cache
def scan_compiled() -> Callable[..., Any] | None:
    """`scan` in machine code, or None where numba is not installed."""
    try:
        import numba
    except ImportError:
        return None
    compiled: Callable[..., Any] = numba.njit(nogil=True, cache=True, fastmath=_REASSOCIATED)(inspect.unwrap(scan))
    return compiled


def _by_torch(
    product: Tensor, rows: Rounded, columns: Rounded, points: Tensor, order: Tensor, scale: float, forest: Forest
) -> Light:
    device = product.device
    reach = torch.from_numpy(forest.reach).to(device)
    r, c = product.shape
    value = product.float()
    longest = torch.maximum(reach[rows.first : rows.first + r, None], reach[columns.first : columns.first + c])
    longest += rows.moved[:, None] + columns.moved
    excess = (rows.squares[:, None] + columns.squares).sub_(value, alpha=2).sub_(value.abs(), alpha=rows.product_error)
    near = excess.sub_(longest.square_()) <= rows.absolute_error
    i, j = near.triu_(rows.first + 1 - columns.first).nonzero(as_tuple=True)
    i, j = i + rows.first, j + columns.first
    squared = squared_distances(points, order[i], order[j]) * scale**2
    last = _longest_on_path(i, j, torch.from_numpy(forest.rank).to(device), torch.from_numpy(forest.parent).to(device))
    edge = torch.from_numpy(forest.ends).to(device)[last].long()
    bound = torch.from_numpy(forest.squared).to(device)[last]
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
        last = torch.where(apart, rank[lower].long(), last)
        up = parent[lower].long()
        a, b = torch.where(apart & (lower == a), up, a), torch.where(apart & (lower != a), up, b)
    return last
