"""ScaleGrad: in training, tokens that are new in a sequence have their probability scaled down, and so gain more."""

import math

import torch
from seen import seen_before
from torch.nn import functional as F  # noqa: N812

Tensor = torch.Tensor


def scalegrad(logits: Tensor, targets: Tensor, gamma: float = 0.5, ignore_index: int = -100) -> Tensor:
    """Mean -log p~_y, p~_v = m_v p_v / sum_u m_u p_u, m = 1 for earlier targets of the sequence and gamma for others.

    logits (B, T, V) and targets (B, T) are aligned: position t predicts targets[:, t]. Lin et al. (2021), gamma .2, .5
    or .8 there; gamma 1 is cross-entropy. p~ is softmax(z + log m), so this is a cross-entropy with an offset on the
    logits. Its minimum is p~ = data: the model's own p then gives new tokens odds 1 / gamma too high, so compare
    perplexities without the offset only, and expect them worse. Price: B T V bytes of mask.
    """
    if not 0 < gamma <= 1:
        raise ValueError(
            f"expected gamma in (0, 1], got {gamma}: the paper has 0.2, 0.5 and 0.8, and 1 changes nothing"
        )
    seen = seen_before(targets, logits.shape[-1], ignore_index)
    offset = logits.new_zeros(()).where(seen, math.log(gamma))
    loss = F.cross_entropy(
        (logits + offset).flatten(0, 1), targets.flatten(), ignore_index=ignore_index, reduction="sum"
    )
    return loss / (targets != ignore_index).sum().clamp(min=1)
