"""Which numbers a loss that is NaN came from."""

import torch

from uncone.cross_entropy.shard import Shard
from uncone.errors import InputError

Tensor = torch.Tensor


def refuse_nan(
    losses: Tensor,
    hidden: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    shard: Shard | None = None,
) -> None:
    """Raise where NaN among the losses, one or (N,), came from the states (N, D), the head or the bias.

    They are looked through only then. Finite numbers whose products overflow are left alone: scaled training in float16 meets
    them, and skips the step.
    """
    wrong = torch.isnan(losses)
    if not bool(wrong.any()):
        return
    start = 0 if shard is None else shard.start
    states = torch.where(wrong[:, None], hidden, 0.0) if wrong.ndim else hidden
    said = _named(states, weight, bias, start)
    if shard is not None and shard.group is not None:
        elsewhere = shard.highest(torch.tensor(float(said is not None), device=losses.device))
        if said is None and bool(elsewhere):
            said = "expected a head without NaN, got NaN or infinity on another rank: its message says in which row"
    if said is not None:
        raise InputError(said)


def _named(hidden: Tensor, weight: Tensor | None, bias: Tensor | None, start: int) -> str | None:
    for kind, found, in_bias in (
        ("NaN", torch.isnan, torch.isnan),
        ("infinity", torch.isinf, torch.isposinf),
    ):
        if len(bad := found(hidden).any(dim=1).nonzero()):
            return (
                f"expected hidden states without {kind}, got {len(bad)} of {len(hidden)} with {kind}, first at position "
                f"{int(bad[0])}: look for the layer that made it (torch.autograd.set_detect_anomaly helps)"
            )
        if weight is not None and len(bad := found(weight).any(dim=1).nonzero()):
            return (
                f"expected a head without {kind}, got {len(bad)} of {len(weight)} rows with {kind}, first row "
                f"{start + int(bad[0])}: look for the step that made it (a lower learning rate or clipped gradients help)"
            )
        if bias is not None and len(bad := in_bias(bias).nonzero()):
            return (
                f"expected a bias without {kind}, got {len(bad)} of {len(bias)} with {kind}, first for id "
                f"{start + int(bad[0])}: look for the step that made it; only -inf, for an id that is never to be drawn, may stand"
            )
    return None
