"""Minimum spanning trees of many clouds by Boruvka's algorithm in plain torch operations, made for a GPU.

The number of rounds and the shape of every tensor are fixed by the shape of the input. So nothing waits for the device, and the whole can be captured in a
CUDA graph. An edge is one whole number, its distance above its two rows: a minimum finds both, and the same input gives the same tree each time.
"""

import torch

from uncone.topology.clouds import Clouds
from uncone.topology.grouped import group_of_each, place_of_each
from uncone.topology.lengths import measured

Tensor = torch.Tensor


LARGEST = 8192
"""Points of a cloud: beyond, n x n distances take more than a gigabyte."""
_NUMBERS_AT_ONCE = 2**26
_MEDIAN_OF = 9


def suits(points: Tensor, clouds: Clouds) -> bool:
    """Whether `shortest_first` is for these clouds: on a GPU, where the distances of the padded clouds fit into memory."""
    size = max(clouds.sizes, default=0)
    fits = size <= LARGEST and (_one_size(clouds) or len(clouds.sizes) * size**2 <= _NUMBERS_AT_ONCE)
    return fits and points.device.type != "cpu"


def shortest_first(points: Tensor, clouds: Clouds) -> tuple[Tensor, Tensor]:
    """Edges (M, 2) of the Euclidean minimum spanning tree of each cloud of points (N, D), and their lengths (M,), without a gradient.

    Smaller row first; those of one cloud together, in ascending order of (length, smaller row, larger row). Clouds of one size that lie one after another
    can be captured in a CUDA graph; with others their sizes are copied to the device.
    """
    count, size = len(clouds.sizes), max(clouds.sizes, default=0)
    if size < 2:
        return torch.empty(0, 2, dtype=torch.int64, device=points.device), points.new_empty(0)
    rows, inside = torch.arange(count * size, device=points.device).view(count, size), None
    if not _one_size(clouds):
        rows, inside = clouds.padded(list(range(count)), size)
    trees = _trees(points, rows, inside)
    edges = rows.gather(1, trees.flatten(1)).view_as(trees)
    key, lengths = (
        edges[:, :, 0] * len(points) + edges[:, :, 1],
        measured(points, edges.flatten(0, 1)).view(count, size - 1),
    )
    if inside is not None:  # what is no edge comes last
        key = torch.where(inside[:, 1:], key, len(points) ** 2)
        lengths = torch.where(inside[:, 1:], lengths, torch.inf)
    order = key.sort(1).indices
    lengths, by_length = lengths.gather(1, order).sort(dim=1, stable=True)
    order = order.gather(1, by_length)
    edges = edges.gather(1, order[:, :, None].expand_as(edges)).flatten(0, 1)
    if inside is None:
        return edges, lengths.flatten()
    bars = clouds.bar_counts()
    group = group_of_each(bars, sum(clouds.bars))
    place = group * (size - 1) + place_of_each(bars, group)
    return edges[place], lengths.flatten()[place]


def _one_size(clouds: Clouds) -> bool:
    return clouds.order is None and len(set(clouds.sizes)) == 1


def _trees(points: Tensor, rows: Tensor, inside: Tensor | None) -> Tensor:
    """`spanning_trees` of the clouds points[rows], as many at once as fit into memory."""
    trees = list[Tensor]()
    at_once = max(1, _NUMBERS_AT_ONCE // rows.shape[1] ** 2)
    for begin in range(0, len(rows), at_once):
        part = slice(begin, begin + at_once)
        within = None if inside is None else inside[part]
        # rounded like the points, which moves no length by more than 6e-8 of itself, so that those of float32 need no sort
        trees.append(spanning_trees(distances(points[rows[part]], within)[0].to(points.dtype), within))
    return torch.cat(trees)


def distances(points: Tensor, inside: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The distances (B, n, n) in float64 of clouds (B, n, D), of which only the points `inside` (B, n) count; and of each point to the centre (B, n).

    From the product of the points less their centre, a median of a few of them, which a point far out does not move. Taken in float64 since
    near-duplicates cannot be told from the rest without waiting: a distance is right to about 1e-8 of how far its ends are from the
    centre, which is below the rounding of float32 points. Distances of float64 points to the centre of less than 1e-300 of the largest coordinate are lost.
    """
    x = points.double() if inside is None else points.double().masked_fill(~inside[..., None], 0)
    factor = (
        _factor(x) if points.dtype == torch.float64 else torch.ones(1, 1, 1, dtype=x.dtype, device=x.device)
    )
    x = x * factor
    x -= _centre(x, inside)
    norms = x.square().sum(2)
    squared = torch.baddbmm(norms[:, :, None] + norms[:, None], x, x.mT, alpha=-2)
    return squared.clamp_(min=0).sqrt_().div_(factor), norms.sqrt() / factor[:, 0]


def _factor(x: Tensor) -> Tensor:
    """(B, 1, 1) a power of two that takes the largest coordinates of clouds of float64 points to about 2^500: no square overflows, few vanish."""
    largest = x.abs().amax((1, 2), keepdim=True) if x.shape[1] and x.shape[2] else x.sum((1, 2), keepdim=True)
    largest = torch.where(largest > 0, largest, 1)
    return 2.0**499 / (largest / (2 * largest.frexp().mantissa)).clamp(min=2.0**-501)


def _centre(x: Tensor, inside: Tensor | None) -> Tensor:
    """(B, 1, D) the median by coordinates of a few points of each cloud."""
    clouds, n, d = x.shape
    if n == 0:
        return x.sum(1, keepdim=True)
    sizes = torch.full((clouds,), n, device=x.device) if inside is None else inside.sum(1).clamp(min=1)
    some = torch.arange(_MEDIAN_OF, device=x.device) * sizes[:, None] // _MEDIAN_OF
    return x.gather(1, some[:, :, None].expand(-1, -1, d)).sort(1).values[:, _MEDIAN_OF // 2, None]


def spanning_trees(distances: Tensor, inside: Tensor | None = None) -> Tensor:
    """Edges (B, n - 1, 2) of the minimum spanning trees of clouds of n points, smaller row first.

    Edges are in the total order (distance, smaller row, larger row), in which the tree is unique: it is the one that Prim's algorithm finds on the
    same numbers. In each of ceil(log2 n) rounds every component takes its first edge outward, and components that these join become one. Each component
    that is joined to another notes the edge at the vertex that stands for it, and only the last one notes none.

    Args:
        distances: (B, n, n), float32 or float64, or their squares, for n to 65,536. Where (i, j) and (j, i) differ in their last digits the smaller
            counts, and what is below 0 counts as 0. NaN is not looked for.
        inside: (B, n) bool, the points that count. None is all of them.

    Returns:
        int64; for a cloud of m points inside its m - 1 edges come first, and rows of zeros follow. Takes up to 25 B n^2 bytes beside a float32 input.
    """
    clouds, n, _ = distances.shape
    if n < 2 or clouds == 0:
        return torch.zeros(clouds, max(n - 1, 0), 2, dtype=torch.int64, device=distances.device)
    keys = _keys(distances)
    if inside is not None:
        keys.masked_fill_(~(inside[:, :, None] & inside[:, None]), _NO_EDGE)
    vertex = torch.arange(n, device=distances.device).expand(clouds, n)
    component, noted = vertex, torch.full((clouds, n), _NO_EDGE, device=distances.device)
    shifts = torch.arange(16, -1, -16, device=distances.device)
    for turn in range((n - 1).bit_length()):
        keys.masked_fill_(component[:, :, None] == component[:, None], _NO_EDGE)
        first = torch.full_like(noted, _NO_EDGE).scatter_reduce(1, component, keys.amin(2), "amin")
        ends = component.gather(1, _ends(first, shifts).flatten(1)).view(clouds, n, 2)
        joined = torch.where(
            first < _NO_EDGE, ends.sum(2) - vertex, vertex
        )  # one of the two ends is the component itself
        reached = joined
        at_most = n >> turn  # components, since each round at least halves them
        for _ in range(max(at_most - 3, 0).bit_length()):
            reached = reached.gather(1, reached)
        # each walk ends in two components that chose the same edge: the smaller stands for all
        reached = torch.minimum(reached, joined.gather(1, reached))
        noted = torch.where(reached == vertex, noted, first)
        component = reached.gather(1, component)
    there = noted < _NO_EDGE
    place = torch.where(there, there.cumsum(1) - 1, n - 1)  # the last place is cut off
    return _ends(torch.zeros_like(noted).scatter(1, place, noted)[:, : n - 1], shifts)


_NO_EDGE = 0x7FFFFFFF << 32
"""After every key; its ends are the row 0, so that they can be looked up."""


def _keys(distances: Tensor) -> Tensor:
    """(B, n, n) int64 in the total order of the edges: 31 bits for the distance, then 16 for the smaller and 16 for the larger row."""
    n = distances.shape[1]
    distances = torch.minimum(distances, distances.mT)
    distances = torch.where(distances > 0, distances, 0)
    keys = (
        _ranks(distances) if distances.dtype == torch.float64 else distances.view(torch.int32).long()
    ).bitwise_left_shift_(32)
    row = torch.arange(n, device=distances.device)
    return keys.bitwise_or_(torch.minimum(row, row[:, None]) << 16 | torch.maximum(row, row[:, None]))


def _ranks(distances: Tensor) -> Tensor:
    """(B, n, n) int64 in the order of the numbers of each cloud, equal ones alike."""
    flat, order = distances.flatten(1).sort(1)
    steps = torch.zeros_like(order)
    steps[:, 1:] = flat[:, 1:] > flat[:, :-1]
    return torch.empty_like(order).scatter_(1, order, steps.cumsum(1)).view_as(distances)


def _ends(keys: Tensor, shifts: Tensor) -> Tensor:
    """(..., 2) the rows that the edges of keys (...) join, the smaller one first; `shifts` are 16 and 0."""
    return keys[..., None] >> shifts & 0xFFFF
