"""Contrastive weight tying (Godey et al. 2023): the classes are the batch's targets, not the vocabulary."""

import torch

Tensor = torch.Tensor


def contrastive_loss(hidden: Tensor, weight: Tensor, targets: Tensor, mask: bool = False) -> Tensor:
    """Mean over i of logsumexp_j(h_i w_(y_j)) - h_i w_(y_i), states (N, D), rows (V, D), targets (N,), -100 for none.
    `mask` leaves out j != i with y_j = y_i, whose row is the answer too."""
    used = targets >= 0
    hidden, targets = hidden[used], targets[used]
    scores = hidden @ weight[targets].T
    own = torch.arange(len(targets), device=targets.device)
    if mask:
        twice = (targets[:, None] == targets) & (own[:, None] != own)
        scores = scores.masked_fill(twice, -torch.inf)
    return torch.nn.functional.cross_entropy(scores, own)
