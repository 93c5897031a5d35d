"""Minimum spanning trees of clouds by Prim's algorithm in torch: one step for all clouds at once."""

from collections.abc import Iterator

import torch

from uncone.topology import boruvka_batched
from uncone.topology.clouds import Clouds

Tensor = torch.Tensor
_NUMBERS_AT_ONCE = 2**24
_NEAR = 1e-6  # of the squared norms: below it, a squared distance from a product has lost too many digits
_END = 2**16  # more points than a cloud may have here
_NEVER = 2**63 - 1


def spanning_trees(
    points: Tensor, clouds: Clouds, which: list[int], *, steps: bool = True
) -> Iterator[tuple[list[int], Tensor, Tensor]]:
    """The clouds `which`, in batches and in any order, with the edges of their Euclidean minimum spanning trees.

    Squared distances are taken in float64 from the product of the centred cloud, near-duplicates by direct difference; they are
    compared as float32 numbers, or as they are for points in float64. Clouds of like size take their steps together; of two
    equal distances the one whose smaller row, then larger row comes first is the shorter. Without `steps` the trees come from
    the same distances in a few rounds, as suits a GPU.

    Yields:
        clouds (b,), their edges (b, n - 1, 2) as rows of points (N, D), the smaller one first, and which of these are edges (b, n - 1).
    """
    for batch in _batches(clouds.sizes, which):
        rows, inside = clouds.padded(batch, max(clouds.sizes[c] for c in batch))
        x = points[rows]
        squared = squared_distances(x, inside)
        squared = squared.float() if points.dtype == torch.float32 else squared
        tree = prim(squared, inside) if steps else boruvka_batched.spanning_trees(squared, inside)
        yield batch, rows.gather(1, tree.flatten(1)).view(tree.shape), inside[:, 1:]


def prim(squared: Tensor, inside: Tensor) -> Tensor:
    """Edges (B, n - 1, 2), the smaller point first, of minimum spanning trees by squared distances (B, n, n).

    Only the points `inside` (B, n) count, which come first; so do the edges between them. Distance and ends are one whole
    number, whose order is the total order of the edges.
    """
    clouds, n = inside.shape
    batch, every = torch.arange(clouds, device=squared.device), torch.arange(n, device=squared.device)
    keys = (squared if squared.dtype == torch.float32 else _ranks(squared)).view(torch.int32).long() << 32
    keys |= torch.minimum(every[:, None], every) * _END + torch.maximum(every[:, None], every)
    left = torch.where(inside, 0, _NEVER)  # or-ed to a key, it puts points away that do not count, or are in the tree
    left[:, 0] = _NEVER
    best = keys[:, 0] | left
    chosen = keys.new_empty(n - 1, clouds)
    for step in range(n - 1):
        chosen[step], new = best.min(1)
        left[batch, new] = _NEVER
        best = torch.minimum(best, keys[batch, new]).bitwise_or_(left)
    ends = torch.where(inside[:, 1:], chosen.T, 0)
    return torch.stack([ends // _END % _END, ends % _END], dim=2)


def squared_distances(points: Tensor, inside: Tensor) -> Tensor:
    """The squared distances (B, n, n) in float64 of clouds (B, n, D), of which only the points `inside` (B, n) count; each cloud in a unit of its own."""
    x, count = points.double(), inside.sum(1)[:, None, None].clamp(min=1)
    outside = ~inside[..., None]
    x = x.masked_fill(outside, 0) if bool(outside.any()) else x
    x = (x - x.sum(1, keepdim=True) / count).masked_fill_(outside, 0)
    largest = torch.linalg.vector_norm(x, torch.inf, dim=(1, 2), keepdim=True) if x.shape[2] else x.sum((1, 2), keepdim=True)
    x *= torch.ldexp(
        torch.ones_like(largest), -torch.frexp(largest).exponent
    )  # no square overflows or vanishes; equal ones stay equal
    squared = torch.bmm(x, x.mT)
    norms = squared.diagonal(dim1=1, dim2=2).clone()
    sums = norms[:, :, None] + norms[:, None]
    squared = squared.mul_(-2).add_(sums).clamp_(min=0)
    squared = torch.minimum(squared, squared.mT)  # a product need not be symmetric to the last digit
    near = (squared <= sums.mul_(_NEAR)) & inside[:, None] & inside[:, :, None]
    cloud, a, b = near.triu_(1).nonzero(as_tuple=True)
    step = max(1, _NUMBERS_AT_ONCE // max(1, x.shape[2]))
    for begin in range(0, len(a), step):
        k, i, j = (index[begin : begin + step] for index in (cloud, a, b))
        exact = (x[k, i] - x[k, j]).square().sum(1)
        squared[k, i, j] = exact
        squared[k, j, i] = exact
    return squared


def _ranks(squared: Tensor) -> Tensor:
    """int32 numbers in the order of float64 ones (B, n, n), equal where they are."""
    values, order = squared.flatten(1).sort(dim=1)
    steps = torch.zeros_like(order, dtype=torch.int32)
    steps[:, 1:] = values[:, 1:] > values[:, :-1]
    return torch.empty_like(steps).scatter_(1, order, steps.cumsum(1, dtype=torch.int32)).view(squared.shape)


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
