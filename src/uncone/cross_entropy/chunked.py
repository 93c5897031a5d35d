"""The chunk backend: plain PyTorch, on the CPU and on a GPU. Gradients are computed with the loss, and scaled backward."""

from typing import Any

import torch

from uncone.cross_entropy.finite import refuse_nan
from uncone.cross_entropy.sweep import Problem, Sweep

__all__ = ["Problem", "Sweep", "cross_entropy", "refuse_nan", "share"]
Tensor = torch.Tensor


# Chunks and rare rows are of sizes that only the data tells: a compiled model calls this as it is.
@torch.compiler.disable  # type: ignore[untyped-decorator]
def cross_entropy(hidden: Tensor, weight: Tensor, bias: Tensor | None, problem: Problem) -> Tensor:
    """The loss of hidden (N, D) as a scalar, or (N,) with the reduction "none"."""
    if not torch.is_grad_enabled():  # inside of apply it is off either way
        hidden, weight, bias = hidden.detach(), weight.detach(), None if bias is None else bias.detach()
    loss: Tensor = _CrossEntropy.apply(hidden, weight, bias, problem)  # type: ignore[no-untyped-call]
    return loss


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, problem: Problem) -> Tensor:
        ctx.needs, ctx.problem = ctx.needs_input_grad[:3], problem
        later = problem.options.reduction == "none"
        needs = (False, False, False) if later else ctx.needs
        recorded = problem.record is not None and ctx.needs[1]
        with torch.autocast(hidden.device.type, enabled=False):
            found = (problem.sweep or Sweep)(hidden, weight, bias, problem, needs, recorded=recorded).run()
        if later:
            ctx.save_for_backward(hidden, weight, bias)
            return found.losses
        ctx.found, ctx.share = found, share(problem, found.losses.device)
        ctx.dtypes = tuple(None if t is None else t.dtype for t in (hidden, weight, bias))
        total: Tensor = found.losses.sum(dtype=torch.float64) * ctx.share
        return total.to(found.losses.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise RuntimeError(
                "the gradients of this loss are numbers without a graph of their own: create_graph=True would take them for "
                "constants; use torch.nn.functional.cross_entropy on the logits where second derivatives are wanted"
            )
        if ctx.problem.options.reduction == "none":
            hidden, weight, bias = ctx.saved_tensors
            dtypes = tuple(None if t is None else t.dtype for t in (hidden, weight, bias))
            with torch.autocast(hidden.device.type, enabled=False):
                found = (ctx.problem.sweep or Sweep)(
                    hidden, weight, bias, ctx.problem, ctx.needs, factors=grad
                ).run()
            return *_cast(found.gradients(), dtypes), None
        if ctx.found is None:
            raise RuntimeError(
                "the gradients of this loss were given out already: they are computed with the loss and kept once; "
                "compute the loss again instead of retain_graph=True"
            )
        found, ctx.found = ctx.found, None
        scale = grad.double() * ctx.share
        if scale.device.type != "cpu" or float(scale) != 1:
            for gradient in found.gradients():
                if gradient is not None:
                    gradient.mul_(scale.to(gradient.dtype))
        return *_cast(found.gradients(), ctx.dtypes), None


def share(problem: Problem, device: torch.device) -> Tensor:
    """What the sum is multiplied with, float64: 1, or 1 / items, and 0 where there are none."""
    if problem.options.reduction == "sum":
        return torch.ones((), dtype=torch.float64, device=device)
    items = problem.valid.sum() if problem.options.num_items is None else problem.options.num_items
    items = torch.as_tensor(items, dtype=torch.float64).to(device).reshape(())
    return torch.where(items > 0, 1 / items, 0.0)


def _cast(
    gradients: tuple[Tensor | None, ...], dtypes: tuple[torch.dtype | None, ...]
) -> tuple[Tensor | None, ...]:
    return tuple(None if g is None or t is None else g.to(t) for g, t in zip(gradients, dtypes, strict=True))
