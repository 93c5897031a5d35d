"""Persistent entropy: how even the bars are."""

from typing import Any

import torch

Tensor = torch.Tensor


class _PersistentEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, lengths: Tensor) -> Tensor:
        total = lengths.sum()
        logs = torch.where(lengths > 0, (lengths / total).log(), 0)
        entropy = -(lengths / total * logs).sum()
        ctx.save_for_backward(lengths, logs, entropy, total)
        return entropy

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        lengths, logs, entropy, total = ctx.saved_tensors
        return torch.where(lengths > 0, -(entropy + logs) / total, 0) * grads[0]


def persistent_entropy(lengths: Tensor) -> Tensor:
    """H = -sum p_i ln p_i with p_i = l_i / sum l, in nats: 0 for one bar, ln m for m equal bars; no bars give 0.

    Bars of length 0 count for nothing and get gradient 0. The gradient is dH/dl_i = -(H + ln p_i) / sum l, in closed form.
    """
    if lengths.numel() == 0 or not bool((lengths > 0).any()):
        return lengths.sum() * 0
    entropy: Tensor = _PersistentEntropy.apply(lengths)  # type: ignore[no-untyped-call]
    return entropy
