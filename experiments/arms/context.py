"""Losses that tell tokens of the context from others: unlikelihood (Welleck 2019) and ScaleGrad (Lin 2021)."""

import math

import torch

Tensor = torch.Tensor


def seen(targets: Tensor, vocabulary: int) -> Tensor:
    """(B, T, V) bool: the token was a target earlier in its row. Targets below 0 are none."""
    once = torch.nn.functional.one_hot(targets.clamp(min=0), vocabulary) * (targets >= 0)[..., None]
    return (once.cumsum(1) - once) > 0


def unlikelihood_loss(logits: Tensor, targets: Tensor, alpha: float = 1.0) -> Tensor:
    """Mean over targets of -log p_y - alpha sum of log(1 - p_c), at least log 1e-5, over earlier targets c other than
    y. Logits (B, T, V), targets (B, T), -100 for none."""
    candidates = seen(targets, logits.shape[-1]).scatter(2, targets.clamp(min=0)[..., None], False)
    others = torch.where(candidates, (1 - logits.softmax(-1)).clamp(min=1e-5).log(), 0).sum(-1)
    used = targets >= 0
    likely = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
    return likely - alpha * (others * used).sum() / used.sum()


def scalegrad_loss(logits: Tensor, targets: Tensor, gamma: float = 0.2) -> Tensor:
    """Cross-entropy of softmax(z + log m), m = gamma for tokens that were no target earlier in the row, else 1."""
    shifted = logits + math.log(gamma) * ~seen(targets, logits.shape[-1])
    return torch.nn.functional.cross_entropy(shifted.flatten(0, 1), targets.flatten())
