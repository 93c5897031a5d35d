"""Which tokens occurred earlier in a sequence: for unlikelihood and ScaleGrad."""

import torch

Tensor = torch.Tensor


def seen_before(targets: Tensor, vocabulary: int, ignore_index: int = -100) -> Tensor:
    """(B, T, V): whether token v is a target of sequence b before position t. Sequences do not see each other.

    Price: B T V bytes.
    """
    length = targets.shape[1]
    places = torch.arange(length, device=targets.device).expand_as(targets)
    counted = targets != ignore_index
    first = places.new_full((len(targets), vocabulary), length)  # a token's first position
    first.scatter_reduce_(1, targets.where(counted, 0), places.where(counted, length), "amin")
    return first[:, None, :] < places[:, :, None]
