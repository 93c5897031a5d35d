"""Contrastive weight tying: a headless model finds the input embedding of its target among those of the batch."""

import torch
from torch.nn import functional as F  # noqa: N812

Tensor = torch.Tensor


def contrastive_weight_tying(
    hidden: Tensor,
    embeddings: Tensor,
    targets: Tensor,
    temperature: float = 1.0,
    *,
    mask_duplicates: bool = False,
    ignore_index: int = -100,
) -> Tensor:
    """Mean_i of logsumexp_j(h_i . e_{y_j} / tau) - h_i . e_{y_i} / tau over the targets j of the batch.

    hidden (N, D), input embeddings (V, D), targets (N,). Godey et al. (2023), tau 1, raw dot products. Equal targets
    are negatives of each other there, so the loss cannot reach 0: it is at least log(count) for a target that occurs
    count times. `mask_duplicates` leaves them out. The embeddings get gradients, as there. Price: N x N logits in place
    of N x V. The model has no head: fit one before it is to generate or to have a perplexity.
    """
    kept = targets != ignore_index
    hidden, targets = hidden[kept], targets[kept]
    logits = hidden @ embeddings[targets].T / temperature
    own = torch.arange(len(targets), device=targets.device)
    if mask_duplicates:
        equal = targets[:, None] == targets
        logits = logits.masked_fill(equal & (own[:, None] != own), -torch.inf)
    return F.cross_entropy(logits, own, reduction="sum") / max(len(targets), 1)
