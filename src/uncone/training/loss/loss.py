"""The public functions, which check their input."""

from typing import Any, Literal, overload

import torch

from uncone.arguments import shown
from uncone.errors import InputError
from uncone.training.loss import chunked, wrapped
from uncone.training.loss.options import CrossEntropyOptions
from uncone.training.loss.problem import (
    Gate,
    Problem,
    check_range,
    check_weights,
    checked_gates,
    shard_of,
    valid_targets,
)
from uncone.training.loss.stats import CrossEntropyStats

Tensor = torch.Tensor
WithStats = tuple[Tensor, CrossEntropyStats]
_BACKENDS = {"chunk": chunked.cross_entropy, "triton": wrapped.by_triton}
"""Backends that report to a gate how much it held back, weight targets and return stats."""
_FLOATING = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


@overload
def linear_cross_entropy(
    hidden: Tensor, weight: Tensor, labels: Tensor, *, return_stats: Literal[True], **given: Any
) -> WithStats: ...
@overload
def linear_cross_entropy(
    hidden: Tensor, weight: Tensor, labels: Tensor, *, return_stats: Literal[False] = False, **given: Any
) -> Tensor: ...
def linear_cross_entropy(  # type: ignore[misc]  # overloads name what decides
    hidden: Tensor,
    weight: Tensor,
    labels: Tensor,
    *,
    bias: Tensor | None = None,
    class_weights: Tensor | None = None,
    token_weights: Tensor | None = None,
    options: CrossEntropyOptions | None = None,
    return_stats: bool = False,
) -> Tensor | WithStats:
    """The cross-entropy of softmax(hidden weight' + bias) against `labels`, without ever holding all logits.

    Gradients ("mean" and "sum") are computed in the forward pass, chunk by chunk; the backward pass only scales them.
    The weight's gradient is summed in float32 (float64 for float64).

    Args:
        hidden: (..., D) final hidden states.
        weight: (V, D) output rows.
        labels: (...) int64 targets in [0, V) or the options' `ignore_index`, aligned with `hidden`: nothing is shifted.
        bias: (V,).
        class_weights: (V,), at least 0, like `weight` of `torch.nn.functional.cross_entropy`, also with label
            smoothing.
        token_weights: shaped like `labels`; each multiplies its target's loss.
        return_stats: return `(loss, CrossEntropyStats)`: the plain cross-entropy, the accuracy and the log-sum-exp of
            the same pass, without weights. Backends "chunk" and "triton".

    Returns:
        The mean negative log-likelihood in nats, float32 (float64 for float64); the sum; or, with the reduction "none",
        one value per target, shaped like `labels`, 0 where ignored. Without any target the result is 0. With weights,
        the mean divides by the sum of the targets' weights, or by `num_items` where it is given.

    InputError where shapes, dtypes or devices do not fit, for a label out of range, NaN in `hidden`, or a backend whose
    package is missing or that does not support the option, dtype or device.
    """
    given: dict[str, Any] = {"bias": bias, "class_weights": class_weights, "token_weights": token_weights}
    found: Tensor | WithStats = gated_linear_cross_entropy(
        hidden, weight, labels, gate=None, options=options, return_stats=return_stats, **given
    )
    return found


@overload
def gated_linear_cross_entropy(
    hidden: Tensor, weight: Tensor, labels: Tensor, *, return_stats: Literal[True], **given: Any
) -> WithStats: ...
@overload
def gated_linear_cross_entropy(
    hidden: Tensor, weight: Tensor, labels: Tensor, *, return_stats: bool = False, **given: Any
) -> Tensor: ...
def gated_linear_cross_entropy(  # type: ignore[misc]  # overloads name what decides
    hidden: Tensor,
    weight: Tensor,
    labels: Tensor,
    *,
    gate: Gate | None = None,
    bias: Tensor | None = None,
    class_weights: Tensor | None = None,
    token_weights: Tensor | None = None,
    options: CrossEntropyOptions | None = None,
    return_stats: bool = False,
) -> Tensor | WithStats:
    """`linear_cross_entropy` with adaptive gradient gating (Yu et al. 2022): rare rows are pushed less.

    With delta the gradient of the loss by the logits, `weight` gets sum_i G_iv delta_iv h_i, where G_iv is g1[v] for
    targets that are not rare and g2[v] for rare ones, and 1 for the row of the target itself; `hidden` and `bias` get
    the plain gradient. A tied table gets its lookup gradient ungated.

    Args:
        gate: an object with `gates()`, such as `RareTokenGate`; None is `linear_cross_entropy`. Where it has `record`,
            the loss reports how much of the gradient the gate held back (backends "chunk" and "triton").

    InputError as for `linear_cross_entropy`; for a gate of another vocabulary, or a gate that amplifies.
    """
    options = CrossEntropyOptions() if options is None else options
    if not isinstance(options, CrossEntropyOptions):
        raise InputError(f"expected CrossEntropyOptions, got {shown(options)}: make uncone.CrossEntropyOptions(...)")
    if gate is not None and not hasattr(gate, "gates"):
        raise InputError(f"expected a gate with gates(), got {shown(gate)}: make a RareTokenGate")
    _check(hidden, weight, labels, bias)
    _check_weights(hidden, labels, class_weights, token_weights)
    if options.backend not in _BACKENDS and (return_stats or class_weights is not None or token_weights is not None):
        got = f"got them with {options.backend!r}: use backend='chunk' or 'triton'"
        raise InputError(f"expected neither weights nor return_stats with another package's kernel, {got}")
    dtype = _computed_in(hidden, weight)
    states, flat = hidden.reshape(-1, hidden.shape[-1]), labels.reshape(-1).long()
    of_tokens = None if token_weights is None else token_weights.reshape(-1)
    if torch.compiler.is_compiling():
        from uncone.training.loss import compiled  # loads the compiler, which takes seconds: only here

        if options.backend != "chunk" or options.group is not None:
            given = {"class_weights": class_weights, "token_weights": token_weights, "return_stats": return_stats}
            outside: Any = compiled.loss_of_a_backend_that_is_not_compiled(
                gated_linear_cross_entropy, hidden, weight, labels, gate=gate, bias=bias, options=options, **given
            )
            return outside  # type: ignore[no-any-return]
        loss, numbers = compiled.cross_entropy(
            states, weight, bias, flat, gate, options, dtype, class_weights, of_tokens
        )
    else:
        shard, valid = shard_of(weight, options.group), valid_targets(flat, options)
        check_range(flat, valid, shard.total, options.ignore_index)
        check_weights(class_weights, of_tokens, shard.total)
        gates = None if gate is None else checked_gates(gate, shard, weight.device)
        record, noted = getattr(gate, "record", None) if options.backend in _BACKENDS else None, list[Tensor]()
        note = noted.append if return_stats else None
        problem = Problem(options, flat, valid, gates, dtype, shard, record, class_weights, of_tokens, note)
        loss = _BACKENDS.get(options.backend, wrapped.cross_entropy)(states, weight, bias, problem)
        numbers = noted[0] if return_stats else loss
    loss = loss.view(labels.shape) if options.reduction == "none" else loss
    return (loss, CrossEntropyStats(numbers)) if return_stats else loss


def _check(hidden: Tensor, weight: Tensor, labels: Tensor, bias: Tensor | None) -> None:
    for name, given in (("hidden", hidden), ("weight", weight), ("labels", labels), ("bias", bias)):
        if not isinstance(given, Tensor) and not (name == "bias" and given is None):
            raise InputError(f"expected a tensor for {name}, got {shown(given)}: use torch.as_tensor")
    if weight.ndim != 2 or hidden.ndim < 2 or hidden.shape[-1] != weight.shape[1]:
        got = f"got {tuple(hidden.shape)} and {tuple(weight.shape)}: give the states that the head reads and its rows"
        raise InputError(f"expected hidden of shape (..., D) and weight of shape (V, D), {got}")
    if labels.shape != hidden.shape[:-1]:
        got = f"got {tuple(labels.shape)}: align them first (nothing is shifted here)"
        raise InputError(f"expected labels of shape {tuple(hidden.shape[:-1])}, one per hidden state, {got}")
    if labels.dtype.is_floating_point or labels.dtype in (torch.bool, torch.uint8):
        raise InputError(f"expected labels as int64 ids, got {labels.dtype}: convert them")
    if bias is not None and bias.shape != (weight.shape[0],):
        raise InputError(f"expected a bias of shape ({weight.shape[0]},), got {tuple(bias.shape)}: give one per id")
    for name, tensor in (("hidden", hidden), ("weight", weight), ("bias", bias)):
        if tensor is not None and tensor.dtype not in _FLOATING:
            got = f"got {tensor.dtype}: convert it first"
            raise InputError(f"expected {name} in float64, float32, bfloat16 or float16, {got}")
    devices = {str(t.device) for t in (hidden, weight, labels, bias) if t is not None}
    if len(devices) > 1:
        raise InputError(f"expected everything on one device, got {' and '.join(sorted(devices))}: move it")
    if "meta" in devices:
        raise InputError("expected tensors with values, got one on meta, which has none: load the weights")


def _check_weights(hidden: Tensor, labels: Tensor, class_weights: Tensor | None, token_weights: Tensor | None) -> None:
    for name, weights in (("class_weights", class_weights), ("token_weights", token_weights)):
        if weights is None:
            continue
        if not isinstance(weights, Tensor) or weights.is_complex() or weights.device != hidden.device:
            raise InputError(
                f"expected {name} as a tensor of numbers on {hidden.device}, got {shown(weights)}: move it"
            )
        if weights.requires_grad and torch.is_grad_enabled():
            how = "detach it, or multiply the losses of reduction='none' by weights that train"
            raise InputError(f"expected {name} without gradients, got a tensor that requires one: {how}")
    if token_weights is not None and token_weights.shape != labels.shape:
        got = f"got {tuple(token_weights.shape)}: give one per label"
        raise InputError(f"expected token_weights of shape {tuple(labels.shape)}, {got}")


def _computed_in(hidden: Tensor, weight: Tensor) -> torch.dtype:
    kind = hidden.device.type
    if torch.is_autocast_enabled(kind) and torch.float64 not in (hidden.dtype, weight.dtype):
        return torch.get_autocast_dtype(kind)
    if hidden.dtype != weight.dtype:
        got = f"got {hidden.dtype} and {weight.dtype}: convert one of them"
        raise InputError(f"expected hidden and weight of the same dtype, {got}")
    return hidden.dtype
