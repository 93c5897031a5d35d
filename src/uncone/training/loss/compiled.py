"""The loss under `torch.compile`: the compiler sees one operator, because only the data show the sizes of chunks and
rare rows. The operator also returns the gradients; with the reduction "none" the backward pass calls it again. The
gate's own methods are traced like the user's code. Backends other than "chunk", and a head over several ranks, run
outside the graph."""

import inspect
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch

from uncone.training.counts import counts_of
from uncone.training.loss.chunked import Sweep
from uncone.training.loss.options import CrossEntropyOptions
from uncone.training.loss.problem import (
    Gate,
    Problem,
    check_range,
    check_weights,
    checked_gates,
    refuse_again,
    shard_of,
    valid_targets,
)

Tensor = torch.Tensor
_SETTINGS = ("ignore_index", "label_smoothing", "z_loss", "softcap", "logit_scale", "reduction", "num_items", "chunk")
"""The first fields of the options, in their order."""


def cross_entropy(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    labels: Tensor,
    gate: Gate | None,
    options: CrossEntropyOptions,
    dtype: torch.dtype,
    class_weights: Tensor | None = None,
    token_weights: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The loss and the numbers of `CrossEntropyStats`."""
    gates = (None, None, None) if gate is None else gate.gates()
    trains = torch.is_grad_enabled()
    needs = [trains and t is not None and t.requires_grad for t in (hidden, weight, bias)]
    recorded = needs[1] and hasattr(gate, "record")
    settings = {name: getattr(options, name) for name in _SETTINGS}
    items = options.num_items
    if items is not None and not isinstance(items, Tensor):
        settings["num_items"] = torch.full((), items, dtype=torch.float64)
    tensors = (hidden, weight, bias, labels, *gates, class_weights, token_weights, None)
    outputs = _loss(*tensors, *settings.values(), dtype, needs, recorded)
    if recorded:
        gate.record(outputs[5].detach(), outputs[6].detach())  # type: ignore[union-attr]
    return outputs[0], outputs[7].detach()


@torch.library.custom_op("uncone::target_counts", mutates_args=())
def target_counts(labels: Tensor, ignored: int | None, tokens: int, rows: int) -> Tensor:
    """The counts for a gate, as one operator, because each read of the labels would break the graph."""
    return counts_of(labels, ignored, tokens, rows)


@target_counts.register_fake
def _(labels, ignored, tokens, rows):  # type: ignore[no-untyped-def]
    return labels.new_empty((rows,), dtype=torch.int64)


@torch.library.custom_op("uncone::linear_cross_entropy", mutates_args=())
def _loss(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    labels: Tensor,
    rare: Tensor | None,
    g1: Tensor | None,
    g2: Tensor | None,
    class_weights: Tensor | None,
    token_weights: Tensor | None,
    factors: Tensor | None,
    ignore_index: int | None,
    label_smoothing: float,
    z_loss: float,
    softcap: float | None,
    logit_scale: float,
    reduction: str,
    num_items: Tensor | None,
    chunk: int | None,
    dtype: torch.dtype,
    needs: Sequence[bool],
    recorded: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """(loss, share, gradients of the states, the head and the bias before the share, held back, all, the numbers of
    `CrossEntropyStats`). With the reduction "none" there are gradients only where `factors` (N,) weight the losses."""
    options = CrossEntropyOptions(
        ignore_index, label_smoothing, z_loss, softcap, logit_scale, reduction, num_items, chunk
    )
    shard, valid = shard_of(weight, None), valid_targets(labels, options)
    check_range(labels, valid, shard.total, ignore_index)
    check_weights(class_weights, token_weights, shard.total)
    gate: Any = SimpleNamespace(gates=lambda: (rare, g1, g2))
    gates = None if rare is None else checked_gates(gate, shard, weight.device)
    sums = [torch.zeros((), dtype=torch.float64, device=weight.device) for _ in range(2)]
    numbers = [torch.zeros(6, dtype=torch.float64, device=weight.device)]
    notes: Any = (lambda *told: sums.__setitem__(slice(None), told)), class_weights, token_weights, numbers.append
    problem = Problem(options, labels, valid, gates, dtype, shard, *notes)
    later = reduction == "none" and factors is None
    wanted = (False, False, False) if later else (needs[0], needs[1], needs[2])
    with torch.autocast(hidden.device.type, enabled=False):
        first = factors is None
        sweep = Sweep(hidden, weight, bias, problem, wanted, factors=factors, recorded=recorded, noted=first)
        losses, gradients = sweep.run()
    share = problem.share(losses.device)
    loss = losses if reduction == "none" else (losses.sum(dtype=torch.float64) * share).to(losses.dtype)
    # An operator returns tensors: empty tensors where no gradient is required.
    of_states, of_head, of_bias = (losses.new_empty(0) if g is None else g for g in gradients)
    held_back, total = (x.to(torch.float64, copy=True) for x in sums)
    return loss, share.clone(), of_states, of_head, of_bias, held_back, total, numbers[-1]


@_loss.register_fake
def _(hidden, weight, *given):  # type: ignore[no-untyped-def]
    factors, reduction, dtype, needs = given[7], given[13], given[16], given[17]
    exact, each = torch.promote_types(dtype, torch.float32), reduction == "none"
    loss = hidden.new_empty((hidden.shape[0],) if each else (), dtype=exact)
    share, held_back, total = (hidden.new_empty((), dtype=torch.float64) for _ in range(3))
    needs = [False] * 3 if each and factors is None else needs
    shapes = (tuple(hidden.shape), tuple(weight.shape), (weight.shape[0],))
    gradients = [hidden.new_empty(s if need else (0,), dtype=exact) for s, need in zip(shapes, needs, strict=True)]
    return loss, share, *gradients, held_back, total, hidden.new_empty((6,), dtype=torch.float64)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    tensors, ctx.settings, ctx.needs = inputs[:9], inputs[10:19], inputs[19]
    ctx.dtypes = [None if t is None else t.dtype for t in tensors[:3]]
    ctx.later = inputs[15] == "none"
    ctx.save_for_backward(*(tensors if ctx.later else output[1:5]))


def _differentiate(ctx: Any, grad: Tensor, *_: Any) -> tuple[Any, ...]:
    refuse_again(given=False)
    if ctx.later:
        found = _loss(*ctx.saved_tensors, grad, *ctx.settings, ctx.needs, False)[2:5]
    else:
        share, *kept = ctx.saved_tensors
        factor = grad.double() * share
        found = [g * factor.to(g.dtype) for g in kept]
    given = (g.to(t) if need else None for g, t, need in zip(found, ctx.dtypes, ctx.needs, strict=True))
    return *given, *[None] * 18


_loss.register_autograd(_differentiate, setup_context=_keep)


_GIVEN = {
    "reason": "uncone compiles only the backend 'chunk', on a head that is not sharded over ranks: use backend='chunk'"
}
if "reason" not in inspect.signature(torch.compiler.disable).parameters:  # older versions of torch
    _GIVEN.clear()


@torch.compiler.disable(**_GIVEN)  # type: ignore[untyped-decorator, no-untyped-call]
def loss_of_a_backend_that_is_not_compiled(loss: Any, *args: Any, **options: Any) -> Tensor:
    """The loss outside the graph; `fullgraph=True` names this function when it refuses."""
    found: Tensor = loss(*args, **options)
    return found
