"""Minimum spanning trees of clouds by Prim's algorithm in torch: one step for all clouds at once."""

from collections.abc import Iterator

import torch

from uncone.topology.clouds import Clouds

Tensor = torch.Tensor
_NUMBERS_AT_ONCE = 2**24
_DIRECT = 1e-6  # of the squared norms: below it, a squared distance from a product has lost too many digits


def spanning_trees(points: Tensor, clouds: Clouds, which: list[int]) -> Iterator[tuple[int, Tensor]]:
    """Each of the clouds `which`, in any order, with the edges (n - 1, 2) of its Euclidean minimum spanning tree, in no order, as rows of points (N, D).

    Squared distances are taken in float64 from the product of the centred cloud, near-duplicates by direct difference. Clouds
    of like size take their steps together; of two equal distances the one whose smaller row, then larger row comes first is
    the shorter.
    """
    for batch in _batches(clouds.sizes, which):
        size = max(clouds.sizes[c] for c in batch)
        rows, inside = clouds.padded(batch, size)
        tree = prim(squared_distances(points[rows], inside), inside)
        for cloud, found, row in zip(batch, tree, rows, strict=True):
            yield cloud, row[found[: clouds.sizes[cloud] - 1]]


def squared_distances(points: Tensor, inside: Tensor) -> Tensor:
    """The squared distances (B, n, n) in float64 of clouds (B, n, D), of which only the points `inside` (B, n) count."""
    x = torch.where(inside[..., None], points.double(), 0)
    x = torch.where(inside[..., None], x - x.sum(1, keepdim=True) / inside.sum(1)[:, None, None].clamp(min=1), 0)
    largest = x.abs().amax((1, 2), keepdim=True) if x.shape[2] else x.sum((1, 2), keepdim=True)
    x = x / torch.where(largest > 0, largest, 1)  # no square overflows or vanishes
    norms = x.square().sum(2)
    sums = norms[:, :, None] + norms[:, None]
    squared = torch.baddbmm(sums, x, x.transpose(1, 2), alpha=-2).clamp_(min=0)
    squared = torch.minimum(squared, squared.transpose(1, 2))  # a product need not be symmetric to the last digit
    cloud, a, b = torch.nonzero((squared < _DIRECT * sums).triu_(1), as_tuple=True)
    step = max(1, _NUMBERS_AT_ONCE // max(1, x.shape[2]))
    for begin in range(0, len(a), step):
        k, i, j = (index[begin : begin + step] for index in (cloud, a, b))
        near = (x[k, i] - x[k, j]).square().sum(1)
        squared[k, i, j] = near
        squared[k, j, i] = near
    return squared


def prim(squared: Tensor, inside: Tensor) -> Tensor:
    """Edges (B, n - 1, 2) of minimum spanning trees by squared distances (B, n, n); those of the points `inside` (B, n) come first."""
    clouds, n = inside.shape
    every, batch = torch.arange(n, device=squared.device), torch.arange(clouds, device=squared.device)
    waiting = inside.clone()
    waiting[:, 0] = False
    best = torch.where(waiting, squared[:, 0], torch.inf)
    parent = torch.zeros_like(waiting, dtype=torch.int64)
    edges = torch.zeros(clouds, n - 1, 2, dtype=torch.int64, device=squared.device)
    for step in range(n - 1):
        ends = torch.minimum(parent, every) * n + torch.maximum(parent, every)
        nearest = (best == best.amin(1, keepdim=True)) & waiting
        new = torch.where(nearest, ends, n * n).argmin(1)
        edges[:, step, 0], edges[:, step, 1] = parent[batch, new], new
        waiting[batch, new] = False
        row = squared[batch, new]
        nearer = ((row < best) | ((row == best) & (new[:, None] < parent))) & waiting
        best = torch.where(waiting, torch.where(nearer, row, best), torch.inf)
        parent = torch.where(nearer, new[:, None], parent)
    return edges


def _batches(sizes: list[int], which: list[int]) -> list[list[int]]:
    """Clouds of two or more points, those of like size together, as far as their distances fit into memory."""
    batches = list[list[int]]()
    for cloud in sorted((c for c in which if sizes[c] > 1), key=lambda c: -sizes[c]):
        largest = sizes[batches[-1][0]] if batches else 0
        if batches and sizes[cloud] > largest // 2 and (len(batches[-1]) + 1) * largest**2 <= _NUMBERS_AT_ONCE:
            batches[-1].append(cloud)
        else:
            batches.append([cloud])
    return batches
