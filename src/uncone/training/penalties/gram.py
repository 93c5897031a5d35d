"""The inner products of columns."""

from typing import Any

import torch
from torch.autograd.function import once_differentiable

Tensor = torch.Tensor


class _Gram(torch.autograd.Function):
    """x' x is symmetric, so its gradient takes one product; autograd would take one for each of the two factors."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.T @ x

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        with torch.autocast(x.device.type, enabled=False):  # of a backward pass within the user's
            return x @ (grad + grad.T)  # type: ignore[no-any-return]


def gram(x: Tensor) -> Tensor:
    """x' x (D, D) of x (N, D)."""
    product: Tensor = _Gram.apply(x)  # type: ignore[no-untyped-call]
    return product
