"""Lengths of edges between points, by direct difference, and their gradient."""

from typing import Any

import torch

from uncone import memory
from uncone.topology import compiled

Tensor = torch.Tensor
_EDGES_AT_ONCE = 2**22  # numbers of the differences of a block of edges


class _EdgeLengths(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, points: Tensor, edges: Tensor, lengths: Tensor) -> Tensor:
        ctx.save_for_backward(points, edges, lengths)
        return lengths.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        points, edges, lengths = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph: by operations that torch can differentiate again
            return (
                _pulled_in_torch(points, edges, differentiable(points, edges, lengths), grads[0]),
                None,
                None,
            )
        return _pulled(points, edges, lengths, grads[0]), None, None


def differentiable(points: Tensor, edges: Tensor, lengths: Tensor) -> Tensor:
    """`lengths` (M,) of edges (M, 2), measured already, with their gradient by the points (N, D).

    An edge e = (a, b) of length l gives (x_a - x_b) / l to a and the opposite to b; one of length 0 gives 0.
    The same numbers come out each time: no sum depends on the order in which threads arrive.
    """
    found: Tensor = _EdgeLengths.apply(points, edges, lengths)  # type: ignore[no-untyped-call]
    return found


def measured(points: Tensor, edges: Tensor) -> Tensor:
    """The lengths (M,) of edges (M, 2), of the dtype of the points (N, D), their squares added in float64."""
    lengths = points.new_empty(len(edges))
    step = max(1, _EDGES_AT_ONCE // max(1, points.shape[1]))
    for begin in range(0, len(edges), step):
        part = edges[begin : begin + step]
        difference = points[part[:, 0]] - points[part[:, 1]]
        if points.dtype == torch.float32:
            lengths[begin : begin + step] = torch.linalg.vector_norm(difference, dim=1, dtype=torch.float64)
            continue
        largest = (
            difference.abs().amax(1, keepdim=True) if points.shape[1] else difference.sum(1, keepdim=True)
        )
        unit = torch.where(largest > 0, difference / largest, 0)  # squares of float64 numbers may overflow
        lengths[begin : begin + step] = unit.square().sum(1).sqrt() * largest[:, 0]
    return lengths


def edge_lengths(points: Tensor, edges: Tensor) -> Tensor:
    """The Euclidean lengths (M,) of edges (M, 2) between points (N, D); an edge of length 0 has gradient
    0."""
    return differentiable(points, edges, measured(points.detach(), edges))


def _pulled(points: Tensor, edges: Tensor, lengths: Tensor, grads: Tensor) -> Tensor:
    """The gradient by the points (N, D) of what has gradient `grads` (M,) by the lengths of the edges."""
    if points.device.type != "cpu" or (loops := compiled.kernels()) is None:
        return _pulled_in_torch(points, edges, lengths, grads)
    out = memory.recycled(tuple(points.shape), points.dtype)
    x, tiny = points.contiguous().numpy(), torch.finfo(points.dtype).tiny
    if not loops.pull(x, edges.numpy(), lengths.numpy(), grads.contiguous().numpy(), tiny, out.numpy()):
        return _pulled_in_torch(points, edges, lengths, grads)
    return out


def _pulled_in_torch(points: Tensor, edges: Tensor, lengths: Tensor, grads: Tensor) -> Tensor:
    along = (points[edges[:, 0]] - points[edges[:, 1]]) / torch.where(lengths > 0, lengths, 1)[:, None]
    pull = torch.where(lengths > 0, grads, 0)[:, None] * along
    if not points.is_cuda:
        return torch.zeros_like(points).index_add(0, edges[:, 0], pull).index_add(0, edges[:, 1], -pull)
    ends = (
        edges.T.flatten()
    )  # index_add adds atomically there, in any order: each point sums its own edges instead
    order = torch.sort(ends, stable=True).indices
    counts = torch.zeros(len(points), dtype=torch.int64, device=ends.device).scatter_add_(
        0, ends, torch.ones_like(ends)
    )
    return torch.segment_reduce(
        torch.cat([pull, -pull])[order], "sum", lengths=counts, unsafe=True, initial=0
    )
