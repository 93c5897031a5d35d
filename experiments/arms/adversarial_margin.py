"""Adversarial MLE: cross-entropy against the worst small noise on each target's output row."""

import torch
from torch.nn import functional as F  # noqa: N812

Tensor = torch.Tensor


def noise(hidden: Tensor, rows: Tensor, eps: float) -> Tensor:
    """-eps |w_y| h / |h| where cos(h, w_y) > 0, else 0: the worst noise (N, D) on the target rows (N, D), detached."""
    hidden, rows = hidden.detach(), rows.detach()
    size = torch.linalg.vector_norm(hidden, dim=1, keepdim=True)
    toward = (hidden * rows).sum(1, keepdim=True) > 0  # so size > 0 too
    length = eps * torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    return torch.where(toward, -length * hidden / torch.where(toward, size, 1.0), 0.0)


def adversarial_margin(
    hidden: Tensor, weight: Tensor, targets: Tensor, eps: float = 0.005, ignore_index: int = -100
) -> Tensor:
    """Mean cross-entropy of hidden (N, D), weight (V, D), targets (N,), each target's logit lowered by eps |w_y| |h|.

    Wang, Gong and Liu (ICML 2019), equation of the worst case in closed form. Each position has noise of its own: the
    authors' code writes it into the rows, where the last of equal targets wins. The noise is a constant vector, so the
    target's logit is (w_y + noise) . h and the gradient of h sees it. Price: O(N D) beside the logits.
    """
    kept = targets != ignore_index
    hidden, targets = hidden[kept], targets[kept]
    moved = (noise(hidden, weight[targets], eps) * hidden).sum(1, keepdim=True)
    logits = (hidden @ weight.T).scatter_add(1, targets[:, None], moved)
    return F.cross_entropy(logits, targets, reduction="sum") / max(len(targets), 1)
