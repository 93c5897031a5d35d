"""Adversarial softmax (Wang, Gong, Liu 2019): the target's row moves against the state, by a share of its norm."""

import torch

Tensor = torch.Tensor


def noise(hidden: Tensor, weight: Tensor, targets: Tensor, eps: float) -> Tensor:
    """(N, D), detached: -eps |w_y| h / |h| where cos(h, w_y) > 0, else 0."""
    with torch.no_grad():
        rows = weight[targets.clamp(min=0)]
        moved = -eps * rows.norm(dim=1, keepdim=True) * torch.nn.functional.normalize(hidden, dim=1)
        return moved * ((hidden * rows).sum(1, keepdim=True) > 0)


def adversarial_loss(
    hidden: Tensor, weight: Tensor, targets: Tensor, eps: float = 0.05, moved: Tensor | None = None
) -> Tensor:
    """Mean cross-entropy in nats of states (N, D), head (V, D) and targets (N,), with the target's logit h (w_y +
    noise). Targets of -100 do not count. `moved` is a noise of before."""
    moved = noise(hidden, weight, targets, eps) if moved is None else moved
    lowered = (hidden * moved).sum(1, keepdim=True)
    logits = (hidden @ weight.T).scatter_add(1, targets.clamp(min=0)[:, None], lowered)
    return torch.nn.functional.cross_entropy(logits, targets)
