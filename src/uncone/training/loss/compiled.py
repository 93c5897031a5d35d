"""The loss under `torch.compile`: an operator of its own in the compiled graph.

Chunks and rare rows have sizes that only the data show, so the compiler sees the whole loss as one operator, which
returns the gradients with it. The gate's own methods are traced like the user's code. Other backends than "chunk",
and a head over several ranks, run outside of the graph.
"""

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from uncone.training.loss.chunked import Sweep
from uncone.training.loss.options import CrossEntropyOptions
from uncone.training.loss.problem import (
    Gate,
    Problem,
    check_range,
    checked_gates,
    refuse_again,
    shard_of,
    valid_targets,
)

Tensor = torch.Tensor


def cross_entropy(
    hidden: Tensor,
    weight: Tensor,
    labels: Tensor,
    gate: Gate | None,
    bias: Tensor | None,
    options: CrossEntropyOptions,
    dtype: torch.dtype,
) -> Tensor:
    """The loss of hidden (N, D) and labels (N,) as a scalar, or (N,) with the reduction "none"."""
    rare, g1, g2 = (None, None, None) if gate is None else gate.gates()
    trains = torch.is_grad_enabled()
    needs = [trains and t is not None and t.requires_grad for t in (hidden, weight, bias)]
    recorded = needs[1] and hasattr(gate, "record")
    items = options.num_items
    if items is not None and not isinstance(items, Tensor):
        items = torch.full((), items, dtype=torch.float64)
    outputs = _loss(
        hidden,
        weight,
        bias,
        labels,
        rare,
        g1,
        g2,
        items,
        options.ignore_index,
        options.label_smoothing,
        options.z_loss,
        options.softcap,
        options.logit_scale,
        options.reduction,
        options.chunk,
        dtype,
        needs,
        recorded,
    )
    if recorded:
        gate.record(outputs[5].detach(), outputs[6].detach())  # type: ignore[union-attr]
    loss: Tensor = outputs[0]
    return loss


@dataclass(frozen=True)
class _Frozen:
    """The gates of a step, as tensors of the graph."""

    given: tuple[Tensor, Tensor, Tensor]

    def gates(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.given


@torch.library.custom_op("uncone::linear_cross_entropy", mutates_args=())
def _loss(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    labels: Tensor,
    rare: Tensor | None,
    g1: Tensor | None,
    g2: Tensor | None,
    num_items: Tensor | None,
    ignore_index: int | None,
    label_smoothing: float,
    z_loss: float,
    softcap: float | None,
    logit_scale: float,
    reduction: str,
    chunk: int | None,
    dtype: torch.dtype,
    needs: Sequence[bool],
    recorded: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """(loss, share, gradients of the states, the head and the bias before the share, held back, all)."""
    options = CrossEntropyOptions(
        ignore_index=ignore_index,
        label_smoothing=label_smoothing,
        z_loss=z_loss,
        softcap=softcap,
        logit_scale=logit_scale,
        reduction=reduction,
        num_items=num_items,
        chunk=chunk,
    )
    sums = [torch.zeros((), dtype=torch.float64, device=weight.device) for _ in range(2)]
    problem = _problem(weight, labels, rare, g1, g2, options, dtype, lambda *told: sums.__setitem__(slice(None), told))
    later = reduction == "none"
    wanted = (False, False, False) if later else (needs[0], needs[1], needs[2])
    with torch.autocast(hidden.device.type, enabled=False):
        sweep = Sweep(hidden, weight, bias, problem, wanted, recorded=recorded)
        losses, gradients = sweep.run()
    share = problem.share(losses.device)
    loss = losses if later else (losses.sum(dtype=torch.float64) * share).to(losses.dtype)
    held_back, total = (x.to(torch.float64, copy=True) for x in sums)
    return loss, share.clone(), *_none_as_empty(gradients, losses), held_back, total


@torch.library.custom_op("uncone::linear_cross_entropy_gradients", mutates_args=())
def _gradients(
    factors: Tensor,
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    labels: Tensor,
    rare: Tensor | None,
    g1: Tensor | None,
    g2: Tensor | None,
    ignore_index: int | None,
    label_smoothing: float,
    z_loss: float,
    softcap: float | None,
    logit_scale: float,
    chunk: int | None,
    dtype: torch.dtype,
    needs: Sequence[bool],
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients with the reduction "none", of losses that are weighted by `factors` (N,)."""
    options = CrossEntropyOptions(
        ignore_index=ignore_index,
        label_smoothing=label_smoothing,
        z_loss=z_loss,
        softcap=softcap,
        logit_scale=logit_scale,
        reduction="none",
        chunk=chunk,
    )
    problem = _problem(weight, labels, rare, g1, g2, options, dtype, None)
    wanted = (needs[0], needs[1], needs[2])
    with torch.autocast(hidden.device.type, enabled=False):
        losses, gradients = Sweep(hidden, weight, bias, problem, wanted, factors=factors).run()
    return _none_as_empty(gradients, losses)


def _problem(
    weight: Tensor,
    labels: Tensor,
    rare: Tensor | None,
    g1: Tensor | None,
    g2: Tensor | None,
    options: CrossEntropyOptions,
    dtype: torch.dtype,
    record: Any,
) -> Problem:
    shard, valid = shard_of(weight, None), valid_targets(labels, options)
    check_range(labels, valid, shard.total, options.ignore_index)
    given = None if rare is None or g1 is None or g2 is None else _Frozen((rare, g1, g2))
    gates = None if given is None else checked_gates(given, shard, weight.device)
    return Problem(options, labels, valid, gates, dtype, shard, record)


def _none_as_empty(gradients: Sequence[Tensor | None], like: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """An operator returns tensors: of no element where no gradient was wanted."""
    a, b, c = (like.new_empty(0) if g is None else g for g in gradients)
    return a, b, c


def _shapes(hidden: Tensor, weight: Tensor, dtype: torch.dtype, needs: Sequence[bool]) -> list[Tensor]:
    exact = torch.promote_types(dtype, torch.float32)
    shapes = (tuple(hidden.shape), tuple(weight.shape), (weight.shape[0],))
    return [hidden.new_empty(s if need else (0,), dtype=exact) for s, need in zip(shapes, needs, strict=True)]


@_loss.register_fake
def _(hidden, weight, *options):  # type: ignore[no-untyped-def]
    reduction, dtype, needs = options[11], options[13], options[14]
    exact, later = torch.promote_types(dtype, torch.float32), reduction == "none"
    loss = hidden.new_empty((hidden.shape[0],) if later else (), dtype=exact)
    scalars = [hidden.new_empty((), dtype=torch.float64) for _ in range(3)]
    gradients = _shapes(hidden, weight, dtype, [False] * 3 if later else needs)
    return loss, scalars[0], *gradients, *scalars[1:]


@_gradients.register_fake
def _(factors, hidden, weight, *options):  # type: ignore[no-untyped-def]
    return tuple(_shapes(hidden, weight, options[11], options[12]))


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    tensors, ctx.numbers = inputs[:7], inputs[8:]
    ctx.dtypes = [None if t is None else t.dtype for t in tensors[:3]]
    ctx.later = inputs[13] == "none"
    ctx.save_for_backward(*(tensors if ctx.later else output[1:5]))


def _differentiate(ctx: Any, grad: Tensor, *_: Any) -> tuple[Any, ...]:
    refuse_again(given=False)
    needs = ctx.numbers[8]
    if ctx.later:
        ignored, smoothing, z_loss, softcap, scale, _, chunk, dtype = ctx.numbers[:8]
        found = _gradients(grad, *ctx.saved_tensors, ignored, smoothing, z_loss, softcap, scale, chunk, dtype, needs)
    else:
        share, *kept = ctx.saved_tensors
        factor = grad.double() * share
        found = [g * factor.to(g.dtype) for g in kept]
    given = (g.to(t) if need else None for g, t, need in zip(found, ctx.dtypes, needs, strict=True))
    return *given, *[None] * 15


_loss.register_autograd(_differentiate, setup_context=_keep)


_REASON = "only the backend 'chunk', on a head that is not cut over ranks, is compiled: use backend='chunk'"
_GIVEN: dict[str, Any] = {"reason": _REASON} if "reason" in inspect.signature(torch.compiler.disable).parameters else {}
"""Older versions of torch name the function alone."""


@torch.compiler.disable(**_GIVEN)  # type: ignore[untyped-decorator, no-untyped-call]
def loss_of_a_backend_that_is_not_compiled(loss: Any, *args: Any, **options: Any) -> Tensor:
    """The loss outside of the graph: `fullgraph=True` refuses it by this name."""
    found: Tensor = loss(*args, **options)
    return found
