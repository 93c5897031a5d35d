"""Token-level unlikelihood: earlier tokens of a sequence are made less likely where they are not the target."""

import torch
from seen import seen_before
from torch.nn import functional as F  # noqa: N812

Tensor = torch.Tensor


def unlikelihood(
    logits: Tensor, targets: Tensor, alpha: float = 1.0, ignore_index: int = -100, smallest: float = 1e-5
) -> Tensor:
    """Mean over targets of -log p_y - alpha sum_c log(1 - p_c), c in the set of earlier targets without y.

    logits (B, T, V) and targets (B, T) are aligned: position t predicts targets[:, t]. Welleck et al. (2019), token
    level; alpha 1 and 1 - p clamped at 1e-5 are the authors'. Where the clamp acts (p_c > 1 - 1e-5) a candidate has no
    gradient. Candidates are a set within one sequence; the authors' code takes a whole flattened batch, so a batch of
    one gives the same. Price: a mask of B T V bytes and the probabilities, which a fused loss never holds.
    """
    log_p = F.log_softmax(logits, -1)
    kept = targets != ignore_index
    own = targets.where(kept, 0).unsqueeze(-1)
    wrong = seen_before(targets, logits.shape[-1], ignore_index).scatter(-1, own, False)
    against = -(1 - log_p.exp()).clamp(min=smallest).log().masked_fill(~wrong, 0.0).sum(-1)
    loss = -log_p.gather(-1, own).squeeze(-1) + alpha * against
    return loss.masked_fill(~kept, 0.0).sum() / kept.sum().clamp(min=1)
