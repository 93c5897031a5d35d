"""Minimum spanning trees of many clouds by Boruvka's algorithm in torch operations: for a GPU, or without numba.

The sizes of the clouds fix all shapes, so a CUDA graph can capture everything. Only a second look at small distances,
on a CPU, waits for the device. An edge is one whole number, with its distance in the bits above its two rows: a minimum
finds both.
"""

import torch

from uncone.training.bars.clouds import Clouds, group_of_each, place_of_each
from uncone.training.bars.lengths import measured

Tensor = torch.Tensor
_NUMBERS_AT_ONCE = {"cpu": 2**24}  # of the distances of a batch of clouds
_MEDIAN_OF = 9
_NEAR = 1e-3  # of the ends' distance from the centre: below it, a product loses too many digits
_VANISHING = 2.0**-850  # of the distance of the furthest point from the centre
_NO_EDGE = 0x7FFFFFFF << 32  # after every key; its ends are the row 0, so that they can be looked up


def spanning_trees(clouds: Clouds, which: list[int], edges: Tensor, lengths: Tensor, *, exact: bool) -> None:
    """Write the trees of the clouds `which`, as `place` does. Distances, in float64 from the product of the centred
    cloud, are compared in the dtype of the points, which moves no length by more than 6e-8 of itself. `exact` measures
    near-duplicates by direct difference, and waits for the device."""
    points = clouds.points
    for batch in _batches(clouds.sizes, which, points.device):
        rows, inside = clouds.padded(batch)
        between = _told_apart(points, rows, inside) if exact else distances(points[rows], inside)[0]
        trees = trees_of(between.to(points.dtype), inside)
        trees = rows.gather(1, trees.flatten(1)).view(trees.shape)
        place(clouds, batch, trees, inside, edges, lengths)


def _batches(sizes: list[int], which: list[int], device: torch.device) -> list[list[int]]:
    """Clouds of two or more points, as far as distances fit into memory; on a CPU of like size."""
    most, batches = _NUMBERS_AT_ONCE.get(device.type, 2**26), list[list[int]]()
    for cloud in sorted((c for c in which if sizes[c] > 1), key=lambda c: -sizes[c]):
        largest = sizes[batches[-1][0]] if batches else 0
        alike = device.type != "cpu" or sizes[cloud] > largest // 2
        if batches and alike and (len(batches[-1]) + 1) * largest**2 <= most:
            batches[-1].append(cloud)
        else:
            batches.append([cloud])
    return batches


def place(
    clouds: Clouds, batch: list[int], trees: Tensor, inside: Tensor | None, edges: Tensor, lengths: Tensor
) -> None:
    """Write the edges `trees` (b, n - 1, 2) of a `batch` of clouds and their lengths, ascending by (length, smaller
    row, larger row); of m points `inside` (b, n), the first m - 1."""
    points, (count, most, _) = clouds.points, trees.shape
    key = trees[:, :, 0] * len(points) + trees[:, :, 1]
    measures = measured(points, trees.flatten(0, 1)).view(count, most)
    if inside is not None:  # rows that are no edge come last
        key = torch.where(inside[:, 1:], key, len(points) ** 2)
        measures = torch.where(inside[:, 1:], measures, torch.inf)
    order = key.sort(1).indices
    measures, by_length = measures.gather(1, order).sort(dim=1, stable=True)
    order = order.gather(1, by_length)
    trees, measures = trees.gather(1, order[:, :, None].expand_as(trees)).flatten(0, 1), measures.flatten()
    first = clouds.first_bars
    if clouds.in_turn(batch):
        part = slice(first[batch[0]], first[batch[0]] + count * most)
        edges[part], lengths[part] = trees, measures
        return
    begins, bars = torch.tensor([[first[c], clouds.bars[c]] for c in batch], device=points.device).T
    group = group_of_each(bars, sum(clouds.bars[c] for c in batch))
    turn = place_of_each(bars, group)
    to, at = begins[group] + turn, group * most + turn
    edges[to], lengths[to] = trees[at], measures[at]


def _told_apart(points: Tensor, rows: Tensor, inside: Tensor | None) -> Tensor:
    """`distances` of the clouds points[rows], by direct difference where a product cannot resolve them."""
    between, to_centre = distances(points[rows], inside)
    between = torch.minimum(between, between.mT)  # a product need not be symmetric to the last digit
    # distances that a product cannot resolve, or whose squares may have left the range
    bound = to_centre.mul_(_NEAR).clamp_(min=to_centre.amax(1, keepdim=True) * _VANISHING)
    near = between <= torch.maximum(bound[:, :, None], bound[:, None])
    if inside is not None:
        near &= inside[:, None] & inside[:, :, None]
    between = between.to(points.dtype)
    cloud, a, b = near.triu_(1).nonzero(as_tuple=True)
    ends = torch.stack([rows[cloud, a], rows[cloud, b]], 1)
    between[cloud, a, b] = between[cloud, b, a] = measured(points, ends)
    return between


def distances(points: Tensor, inside: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The distances (B, n, n) in float64 of the points `inside` (B, n) of clouds (B, n, D); and of each to the centre
    (B, n).

    From the product of the points less their centre, a distance is right to about 1e-8 of how far its ends are from
    there. Of float64 points, distances to the centre below 1e-300 of the largest coordinate are lost.
    """
    x = points.double() if inside is None else points.double().masked_fill(~inside[..., None], 0)
    factor = x.new_ones(1, 1, 1)
    if points.dtype == torch.float64 and x.numel():
        # largest coordinates near 2^500, by a power of two: no square overflows, few vanish
        largest = x.abs().amax((1, 2), keepdim=True)
        largest = torch.where(largest > 0, largest, 1)
        factor = 2.0**499 / (largest / (2 * largest.frexp().mantissa)).clamp(min=2.0**-501)
    x = x * factor
    x -= _centre(x, inside)
    norms = x.square().sum(2)
    squared = torch.baddbmm(norms[:, :, None] + norms[:, None], x, x.mT, alpha=-2)
    return squared.clamp_(min=0).sqrt_().div_(factor), norms.sqrt() / factor[:, 0]


def _centre(x: Tensor, inside: Tensor | None) -> Tensor:
    """(B, 1, D) the median by coordinates of a few points of each cloud."""
    clouds, n, d = x.shape
    if n == 0:
        return x.sum(1, keepdim=True)
    sizes = torch.full((clouds,), n, device=x.device) if inside is None else inside.sum(1).clamp(min=1)
    some = torch.arange(_MEDIAN_OF, device=x.device) * sizes[:, None] // _MEDIAN_OF
    return x.gather(1, some[:, :, None].expand(-1, -1, d)).sort(1).values[:, _MEDIAN_OF // 2, None]


def trees_of(distances: Tensor, inside: Tensor | None = None) -> Tensor:
    """Edges (B, n - 1, 2) int64 of the minimum spanning trees of clouds of n points, smaller row first.

    The tree is unique in the order (distance, smaller row, larger row). Takes up to 25 B n^2 bytes beside a
    float32 input.

    `distances` (B, n, n) or their squares, for n to 32,768: of (i, j) and (j, i) the smaller counts, and below 0 is 0.
    Of m points `inside` (B, n) the m - 1 edges come first, then zeros.
    """
    clouds, n, _ = distances.shape
    if n < 2 or clouds == 0:
        return torch.zeros(clouds, max(n - 1, 0), 2, dtype=torch.int64, device=distances.device)
    keys = _keys(distances)
    if inside is not None:
        keys.masked_fill_(~(inside[:, :, None] & inside[:, None]), _NO_EDGE)
    there = torch.ones(clouds, n, dtype=torch.bool, device=keys.device) if inside is None else inside
    component = torch.arange(n, device=keys.device).expand(clouds, n)  # of each point
    shifts = torch.arange(16, -1, -16, device=keys.device)
    chosen = list[Tensor]()
    while (count := keys.shape[1]) > 1:
        keys.diagonal(dim1=1, dim2=2).fill_(_NO_EDGE)
        first, every = keys.amin(2), torch.arange(count, device=keys.device).expand(clouds, count)
        ends = component.gather(1, _ends(first, shifts).flatten(1)).view(clouds, count, 2)
        # one of the two ends is the component itself
        joined = torch.where(first < _NO_EDGE, ends.sum(2) - every, every)
        reached = joined
        for _ in range(max(count - 3, 0).bit_length()):
            reached = reached.gather(1, reached)
        # each walk ends in two components with the same edge: the smaller represents all
        reached = torch.minimum(reached, joined.gather(1, reached))
        stands = reached == every
        chosen.append(torch.where(stands, _NO_EDGE, first))
        number = ((stands & there).cumsum(1) - 1).clamp(min=0).gather(1, reached)
        component, keys = number.gather(1, component), _joined(keys, number)
        there = torch.arange(count // 2, device=keys.device) < (stands & there).sum(1, keepdim=True)
    noted = torch.cat(chosen, 1)
    is_edge = noted < _NO_EDGE
    turn = torch.where(is_edge, is_edge.cumsum(1) - 1, n - 1)  # the last place is cut off
    return _ends(noted.new_zeros(clouds, n).scatter(1, turn, noted)[:, : n - 1], shifts)


def _joined(keys: Tensor, number: Tensor) -> Tensor:
    clouds, count, _ = keys.shape
    half = keys.new_full((clouds, count // 2, count), _NO_EDGE)
    half = half.scatter_reduce(1, number[:, :, None].expand_as(keys), keys, "amin")
    whole = keys.new_full((clouds, count // 2, count // 2), _NO_EDGE)
    return whole.scatter_reduce(2, number[:, None].expand_as(half), half, "amin")


def _keys(distances: Tensor) -> Tensor:
    """(B, n, n) int64 in the order of edges: 31 bits of distance, 15 of the smaller, 16 of the larger row."""
    distances = torch.minimum(distances, distances.mT).clamp_(min=0).add_(0.0)  # -0.0 has other bits than 0.0
    if distances.dtype == torch.float64:  # their ranks in each cloud, equal ones alike
        flat, order = distances.flatten(1).sort(1)
        steps = torch.zeros_like(order)
        steps[:, 1:] = flat[:, 1:] > flat[:, :-1]
        keys = torch.empty_like(order).scatter_(1, order, steps.cumsum(1)).view_as(distances)
    else:
        keys = distances.view(torch.int32).long()
    row = torch.arange(distances.shape[1], device=distances.device, dtype=torch.int32)
    ends = torch.minimum(row, row[:, None]).bitwise_left_shift_(16)
    ends.bitwise_or_(torch.maximum(row, row[:, None]))
    return keys.bitwise_left_shift_(32).bitwise_or_(ends)


def _ends(keys: Tensor, shifts: Tensor) -> Tensor:  # smaller row first; `shifts` are 16 and 0
    return keys[..., None] >> shifts & 0xFFFF
