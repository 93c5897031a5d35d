"""Lengths of edges between points, by direct difference, and their gradient."""

from typing import Any

import torch

Tensor = torch.Tensor


class _EdgeLengths(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, points: Tensor, edges: Tensor) -> Tensor:
        lengths: Tensor = (points[edges[:, 0]] - points[edges[:, 1]]).norm(dim=1)
        ctx.save_for_backward(points, edges, lengths)
        return lengths

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        points, edges, lengths = ctx.saved_tensors
        scale = torch.where(lengths > 0, grads[0] / lengths, 0)  # a bar of length 0 has no direction to grow in
        pull = scale[:, None] * (points[edges[:, 0]] - points[edges[:, 1]])
        return torch.zeros_like(points).index_add_(0, edges[:, 0], pull).index_add_(0, edges[:, 1], -pull), None


def edge_lengths(points: Tensor, edges: Tensor) -> Tensor:
    """The Euclidean lengths (M,) of edges (M, 2) between points (N, D); an edge of length 0 has gradient 0."""
    lengths: Tensor = _EdgeLengths.apply(points, edges)  # type: ignore[no-untyped-call]
    return lengths
