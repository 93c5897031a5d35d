"""Minimum spanning trees of clouds by Prim's algorithm in torch: one step for all clouds at once."""

from collections.abc import Iterator

import torch

from uncone.topology import boruvka_batched
from uncone.topology.clouds import Clouds
from uncone.topology.lengths import measured

Tensor = torch.Tensor
_NUMBERS_AT_ONCE = 2**24
_NEAR = 1e-3  # of how far its ends are from the centre: below it, a distance from a product has lost too many digits
_VANISHING = 2.0**-850  # of that of the point furthest from it
_END = 2**16  # more points than a cloud may have here
_NEVER = 2**63 - 1


def spanning_trees(
    points: Tensor, clouds: Clouds, which: list[int], *, steps: bool = True
) -> Iterator[tuple[list[int], Tensor, Tensor]]:
    """The clouds `which`, in batches and in any order, with the edges of their Euclidean minimum spanning trees.

    Distances are taken in float64 from the product of the centred cloud, near-duplicates by direct difference; they are
    compared in the dtype of the points. Clouds of like size take their steps together; of two
    equal distances the one whose smaller row, then larger row comes first is the shorter. Without `steps` the trees come from
    the same distances in a few rounds, as suits a GPU.

    Yields:
        clouds (b,), their edges (b, n - 1, 2) as rows of points (N, D), the smaller one first, and which of these are edges (b, n - 1).
    """
    for batch in _batches(clouds.sizes, which):
        rows, inside = clouds.padded(batch, max(clouds.sizes[c] for c in batch))
        found = distances(points, rows, inside)
        tree = prim(found, inside) if steps else boruvka_batched.spanning_trees(found, inside)
        yield batch, rows.gather(1, tree.flatten(1)).view(tree.shape), inside[:, 1:]


def prim(distances: Tensor, inside: Tensor) -> Tensor:
    """Edges (B, n - 1, 2), the smaller point first, of minimum spanning trees by distances (B, n, n).

    Only the points `inside` (B, n) count, which come first; so do the edges between them. Distance and ends are one whole
    number, whose order is the total order of the edges.
    """
    clouds, n = inside.shape
    batch, every = torch.arange(clouds, device=distances.device), torch.arange(n, device=distances.device)
    keys = (distances if distances.dtype == torch.float32 else _ranks(distances)).view(
        torch.int32
    ).long() << 32
    keys |= torch.minimum(every[:, None], every) * _END + torch.maximum(every[:, None], every)
    left = torch.where(
        inside, 0, _NEVER
    )  # or-ed to a key, it puts points away that do not count, or are in the tree
    left[:, 0] = _NEVER
    best = keys[:, 0] | left
    chosen = keys.new_empty(n - 1, clouds)
    for step in range(n - 1):
        chosen[step], new = best.min(1)
        left[batch, new] = _NEVER
        best = torch.minimum(best, keys[batch, new]).bitwise_or_(left)
    ends = torch.where(inside[:, 1:], chosen.T, 0)
    return torch.stack([ends // _END % _END, ends % _END], dim=2)


def distances(points: Tensor, rows: Tensor, inside: Tensor) -> Tensor:
    """The distances (B, n, n) of clouds points[rows], (B, n) each, of which only the points `inside` (B, n) count; of the dtype of the points."""
    found, to_centre = boruvka_batched.distances(points[rows], inside)
    found = torch.minimum(found, found.mT)  # a product need not be symmetric to the last digit
    # what a product cannot tell, or whose squares may have left the range of the floats
    bound = to_centre.mul_(_NEAR).clamp_(min=to_centre.amax(1, keepdim=True) * _VANISHING)
    near = (found <= torch.maximum(bound[:, :, None], bound[:, None])) & inside[:, None] & inside[:, :, None]
    found = found.to(points.dtype)
    cloud, a, b = near.triu_(1).nonzero(as_tuple=True)
    exact = measured(points, torch.stack([rows[cloud, a], rows[cloud, b]], 1))
    found[cloud, a, b] = exact
    found[cloud, b, a] = exact
    return found


def _ranks(distances: Tensor) -> Tensor:
    """int32 numbers in the order of float64 ones (B, n, n), equal where they are."""
    values, order = distances.flatten(1).sort(dim=1)
    steps = torch.zeros_like(order, dtype=torch.int32)
    steps[:, 1:] = values[:, 1:] > values[:, :-1]
    return (
        torch.empty_like(steps).scatter_(1, order, steps.cumsum(1, dtype=torch.int32)).view(distances.shape)
    )


def _batches(sizes: list[int], which: list[int]) -> list[list[int]]:
    """Clouds of two or more points, those of like size together, as far as their distances fit into memory."""
    batches = list[list[int]]()
    for cloud in sorted((c for c in which if sizes[c] > 1), key=lambda c: -sizes[c]):
        largest = sizes[batches[-1][0]] if batches else 0
        if (
            batches
            and sizes[cloud] > largest // 2
            and (len(batches[-1]) + 1) * largest**2 <= _NUMBERS_AT_ONCE
        ):
            batches[-1].append(cloud)
        else:
            batches.append([cloud])
    return batches
