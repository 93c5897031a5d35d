"""Lengths of edges by direct difference, with a gradient; the compiled loops."""

import warnings
from functools import cache
from importlib import import_module
from typing import Any

import torch

from uncone.tensors import empty

Tensor = torch.Tensor


@cache
def kernels() -> Any | None:
    """None without numba, and, with a warning, where it does not work here."""
    try:
        return import_module("uncone.training.bars.kernels")
    except ImportError:
        return None
    except Exception as problem:  # a numba that does not fit its numpy or LLVM fails in many ways
        said = f"numba is installed but fails, so spanning trees are slower: {type(problem).__name__}: {problem}"
        warnings.warn(said, RuntimeWarning, stacklevel=2)
        return None


class _EdgeLengths(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, points: Tensor, edges: Tensor, lengths: Tensor) -> Tensor:
        ctx.save_for_backward(points, edges, lengths)
        return lengths.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        points, edges, lengths = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph: by operations that torch can differentiate again
            lengths = differentiable(points, edges, lengths)
        elif (pulled := _pulled(points, edges, lengths, grads[0])) is not None:
            return pulled, None, None
        return _pulled_in_torch(points, edges, lengths, grads[0]), None, None


def differentiable(points: Tensor, edges: Tensor, lengths: Tensor) -> Tensor:
    """`lengths` (M,) of edges (M, 2) with their gradient by the points (N, D): (x_a - x_b) / l to a and the opposite to
    b of an edge of length l, or 0 where l is 0; no sum depends on the order of threads."""
    with_gradient: Tensor = _EdgeLengths.apply(points, edges, lengths)  # type: ignore[no-untyped-call]
    return with_gradient


def measured(points: Tensor, edges: Tensor) -> Tensor:
    """The lengths (M,) of edges (M, 2), of the dtype of the points (N, D), by sums in float64."""
    lengths = points.new_empty(len(edges))
    step = max(1, 2**22 // max(1, points.shape[1]))
    for part, out in zip(torch.split(edges, step), torch.split(lengths, step), strict=True):
        difference = points[part[:, 0]] - points[part[:, 1]]
        if points.dtype == torch.float32 or not points.shape[1]:
            out.copy_(torch.linalg.vector_norm(difference, dim=1, dtype=torch.float64))
        else:  # squares of float64 numbers may overflow
            largest = difference.abs().amax(1, keepdim=True)
            unit = torch.where(largest > 0, difference / largest, 0)
            torch.mul(unit.square().sum(1).sqrt(), largest[:, 0], out=out)
    return lengths


def _pulled(points: Tensor, edges: Tensor, lengths: Tensor, grads: Tensor) -> Tensor | None:
    if points.device.type != "cpu" or (loops := kernels()) is None:
        return None
    out, tiny = empty(tuple(points.shape), points.dtype), torch.finfo(points.dtype).tiny
    arrays = (t.contiguous().numpy() for t in (points, edges, lengths, grads))
    return out if loops.pull(*arrays, tiny, out.numpy()) else None


def _pulled_in_torch(points: Tensor, edges: Tensor, lengths: Tensor, grads: Tensor) -> Tensor:
    along = (points[edges[:, 0]] - points[edges[:, 1]]) / torch.where(lengths > 0, lengths, 1)[:, None]
    pull = torch.where(lengths > 0, grads, 0)[:, None] * along
    if not points.is_cuda:
        return torch.zeros_like(points).index_add(0, edges[:, 0], pull).index_add(0, edges[:, 1], -pull)
    ends = edges.T.flatten()
    # index_add adds atomically there, in any order: each point sums its own edges instead
    pulls = torch.cat([pull, -pull])[torch.sort(ends, stable=True).indices]
    counts = torch.zeros(len(points), dtype=torch.int64, device=ends.device)
    counts.scatter_add_(0, ends, torch.ones_like(ends))
    return torch.segment_reduce(pulls, "sum", lengths=counts, unsafe=True, initial=0)
