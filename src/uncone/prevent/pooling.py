"""One state a sequence: of its first token, of its last one, or their mean."""

from collections.abc import Mapping
from typing import Any, Literal

import torch

from uncone.errors import InputError

Tensor = torch.Tensor
Pooling = Literal["cls", "mean", "last"]
POOLINGS = ("cls", "mean", "last")


def pool(hidden: Tensor, mask: Tensor | None, pooling: Pooling) -> Tensor:
    """(B, D) of hidden (B, T, D) and mask (B, T), where anything but 0 is a token; padding may lie on either side.

    A sequence without tokens is its first position with "cls" and "last", and zeros with "mean". A mean is in float32 at least: bfloat16
    cannot count to 257, and a sum of float16 numbers may overflow.
    """
    b, t, _ = hidden.shape
    wide = torch.promote_types(hidden.dtype, torch.float32)
    if mask is None:
        return hidden.mean(1, dtype=wide) if pooling == "mean" else hidden[:, 0 if pooling == "cls" else -1]
    keep = mask != 0
    if pooling == "mean":
        return torch.where(keep[:, :, None], hidden, 0).sum(1, dtype=wide) / keep.sum(
            1, keepdim=True
        ).clamp_min(1)
    order = torch.arange(1, t + 1, device=hidden.device)
    at = (keep * (order if pooling == "last" else order.flip(0))).argmax(1)
    return hidden[torch.arange(b, device=hidden.device), at]


def token_mask(inputs: Mapping[str, Any], hidden: Tensor, pad: int | None) -> Tensor | None:
    """Which positions are tokens (B, T): as the attention mask says, else the ids that are not padding; None is all of them.

    Raises:
        InputError: a mask of another shape.
    """
    mask: Tensor | None = inputs.get("attention_mask")
    ids: Tensor | None = inputs.get("input_ids")
    if mask is not None:
        if mask.ndim != 2 or mask.shape[0] != hidden.shape[0] or mask.shape[1] < hidden.shape[1]:
            raise InputError(
                f"expected an attention_mask of shape {tuple(hidden.shape[:2])}, got {tuple(mask.shape)}: pass the mask of the tokenizer"
            )
        return mask[:, -hidden.shape[1] :].to(hidden.device)  # learnt prefixes come before the states
    if ids is not None and pad is not None and ids.shape == hidden.shape[:2]:
        return (ids != pad).to(hidden.device)
    return None
