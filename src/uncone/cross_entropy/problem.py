"""The problem that every backend solves, and two refusals: NaN, and gradients that are asked for twice."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from uncone.cross_entropy.gates import Gates
from uncone.cross_entropy.options import CrossEntropyOptions
from uncone.cross_entropy.shard import Shard
from uncone.errors import InputError

Tensor = torch.Tensor


@dataclass(frozen=True)
class Problem:
    """The loss to be computed, beside the tensors that have gradients."""

    options: CrossEntropyOptions
    labels: Tensor
    """(N,)"""
    valid: Tensor
    """(N,): which targets count."""
    gates: Gates | None
    """The rare ids of the whole vocabulary, and the factors of the head's rows at hand."""
    dtype: torch.dtype
    """Of the products."""
    shard: Shard
    """Which rows of the head are at hand."""
    record: Callable[[Tensor, Tensor], None] | None = None
    """Takes the sums of the gradient that was held back and of all, as `Gate` says."""

    def groups(self) -> tuple[Tensor, Tensor]:
        """Row numbers of the targets that are not rare, and of the rare ones; without a gate none is rare."""
        if self.gates is None:
            return self.valid.nonzero().flatten(), self.valid.new_empty(0, dtype=torch.int64)
        rare = self.gates[0][torch.where(self.valid, self.labels, 0)] & self.valid
        return (self.valid & ~rare).nonzero().flatten(), rare.nonzero().flatten()

    def share(self, device: torch.device) -> Tensor:
        """The factor of the sum of losses, float64: 1, or 1 / items, and 0 where there are none."""
        if self.options.reduction == "sum":
            return torch.ones((), dtype=torch.float64, device=device)
        items = self.valid.sum() if self.options.num_items is None else self.options.num_items
        items = torch.as_tensor(items, dtype=torch.float64).to(device).reshape(())
        return torch.where(items > 0, 1 / items, 0.0)


def refuse_again(*, given: bool) -> None:
    """Raise in a backward pass that wants second derivatives, or gradients that were `given` out already."""
    if torch.is_grad_enabled():
        raise RuntimeError(
            "the gradients of this loss are numbers without a graph of their own: create_graph=True would "
            "take them for constants; use torch.nn.functional.cross_entropy on the logits where second "
            "derivatives are wanted"
        )
    if given:
        raise RuntimeError(
            "the gradients of this loss were given out already: they are computed with the loss and kept "
            "once; compute the loss again instead of retain_graph=True"
        )


def refuse_nan(
    losses: Tensor,
    hidden: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    shard: Shard | None = None,
) -> None:
    """Raise where NaN among the losses, one or (N,), came from the states (N, D), the head or the bias.

    They are looked through only then. Finite numbers whose products overflow are left alone: scaled training
    in float16 meets them, and skips the step.
    """
    wrong = torch.isnan(losses)
    if not bool(wrong.any()):
        return
    start = 0 if shard is None else shard.start
    states = torch.where(wrong[:, None], hidden, 0.0) if wrong.ndim else hidden
    message = _not_finite(states, weight, bias, start)
    if shard is not None and shard.group is not None:
        elsewhere = shard.highest(torch.tensor(float(message is not None), device=losses.device))
        if message is None and bool(elsewhere):
            message = (
                "expected a head without NaN, got NaN or infinity on another rank: its message names the row"
            )
    if message is not None:
        raise InputError(message)


def _not_finite(hidden: Tensor, weight: Tensor | None, bias: Tensor | None, start: int) -> str | None:
    """Which tensor holds numbers that are not finite, and where first."""
    for kind, test, in_bias in (
        ("NaN", torch.isnan, torch.isnan),
        ("infinity", torch.isinf, torch.isposinf),
    ):
        if len(bad := test(hidden).any(dim=1).nonzero()):
            return (
                f"expected hidden states without {kind}, got {len(bad)} of {len(hidden)} with {kind}, first "
                f"at position {int(bad[0])}: look for the layer that made it "
                "(torch.autograd.set_detect_anomaly helps)"
            )
        if weight is not None and len(bad := test(weight).any(dim=1).nonzero()):
            return (
                f"expected a head without {kind}, got {len(bad)} of {len(weight)} rows with {kind}, first "
                f"row {start + int(bad[0])}: look for the step that made it (a lower learning rate or "
                "clipped gradients help)"
            )
        if bias is not None and len(bad := in_bias(bias).nonzero()):
            return (
                f"expected a bias without {kind}, got {len(bad)} of {len(bias)} with {kind}, first for id "
                f"{start + int(bad[0])}: look for the step that made it; only -inf may stand, for an id that "
                "is never drawn"
            )
    return None
