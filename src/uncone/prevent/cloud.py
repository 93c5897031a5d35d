"""The cloud that a penalty sees: one state a sequence, its class, and the points of all ranks."""

from collections.abc import Mapping
from typing import Any, Literal

import torch
import torch.distributed as dist

from uncone.errors import InputError

Tensor = torch.Tensor
Pooling = Literal["cls", "mean", "last"]
POOLINGS = ("cls", "mean", "last")
_IGNORED = -100


def pool(hidden: Tensor, mask: Tensor | None, pooling: Pooling) -> Tensor:
    """(B, D) of hidden (B, T, D) and mask (B, T), 0 where there is no token; padding may lie on either side.

    A sequence without tokens gives its first position with "cls" and "last", and zeros with "mean". A mean is
    in float32 at least: bfloat16 cannot count to 257, and a sum of float16 numbers may overflow.
    """
    b, t, _ = hidden.shape
    wide = torch.promote_types(hidden.dtype, torch.float32)
    if mask is None:
        return hidden.mean(1, dtype=wide) if pooling == "mean" else hidden[:, 0 if pooling == "cls" else -1]
    keep = mask != 0
    if pooling == "mean":
        sums = torch.where(keep[:, :, None], hidden, 0).sum(1, dtype=wide)
        return sums / keep.sum(1, keepdim=True).clamp_min(1)
    order = torch.arange(1, t + 1, device=hidden.device)
    at = (keep * (order if pooling == "last" else order.flip(0))).argmax(1)
    return hidden[torch.arange(b, device=hidden.device), at]


def token_mask(inputs: Mapping[str, Any], hidden: Tensor, pad: int | None) -> Tensor | None:
    """The tokens (B, T): where the attention mask says so, else where ids are not padding; None is all."""
    mask: Tensor | None = inputs.get("attention_mask")
    ids: Tensor | None = inputs.get("input_ids")
    if mask is not None:
        if mask.ndim != 2 or mask.shape[0] != hidden.shape[0] or mask.shape[1] < hidden.shape[1]:
            raise InputError(
                f"expected an attention_mask of shape {tuple(hidden.shape[:2])}, got {tuple(mask.shape)}: "
                "pass the mask of the tokenizer"
            )
        return mask[:, -hidden.shape[1] :].to(hidden.device)  # learnt prefixes come before the states
    if ids is not None and pad is not None and ids.shape == hidden.shape[:2]:
        return (ids != pad).to(hidden.device)
    return None


def are_classes(labels: Tensor) -> Tensor:
    """Which labels are classes (bool): -100 is none."""
    return labels.long() != _IGNORED  # in eight bits without a sign -100 would be 156


def labelled(points: object, labels: object) -> tuple[Tensor, Tensor | None]:
    """Points (N, D) and their labels (N,), checked, without those labelled -100."""
    if not isinstance(points, Tensor) or points.ndim != 2:
        raise InputError(
            f"expected points of shape (N, D), got {described(points)}: pass a tensor with one row a point"
        )
    if not points.is_floating_point():
        raise InputError(
            f"expected points with floating point numbers, got {points.dtype}: convert them to float32"
        )
    if labels is None:
        return points, None
    one_each = isinstance(labels, Tensor) and labels.shape == points.shape[:1]
    if not isinstance(labels, Tensor) or not one_each or labels.is_floating_point() or labels.is_complex():
        raise InputError(
            f"expected labels of shape ({len(points)},) with integers, got {described(labels)}: pass a "
            "tensor with one class a point, or None for one cloud"
        )
    labels = labels.to(points.device)
    kept = are_classes(labels)
    return (points, labels) if bool(kept.all()) else (points[kept], labels[kept])


def described(given: object) -> str:
    """A tensor by its shape and dtype, all else by its type."""
    return f"{tuple(given.shape)} of {given.dtype}" if isinstance(given, Tensor) else type(given).__name__


def world(group: Any = None) -> int:
    """How many ranks share the work; 1 where torch.distributed is not in use."""
    return dist.get_world_size(group) if dist.is_available() and dist.is_initialized() else 1


def is_first() -> bool:
    """Whether this is the rank that writes files, the first of all."""
    return world() == 1 or dist.get_rank() == 0


def joined(
    points: Tensor, labels: Tensor | None, part: Tensor, group: Any = None
) -> tuple[Tensor, Tensor | None, Tensor]:
    """The points (sum of N, D) and labels of all ranks in their order, and the mean of their parts.

    Every rank sees the same cloud. Gradients reach a rank's own points only, times the number of ranks: DDP
    and FSDP take the mean of gradients over ranks, and that mean is the gradient of one process with the
    joined batch. Ranks may have different numbers of points.
    """
    ranks = world(group)
    if ranks < 1:
        raise InputError(
            "expected a group of torch.distributed that this rank is in, got another: give each rank its own group"
        )
    if ranks == 1:
        return points, labels, part
    about = torch.stack([part.new_tensor(len(points)), part]).to(points.device, torch.float32)
    every = about.new_empty(ranks, 2)
    dist.all_gather_into_tensor(every.view(-1), about, group=group)
    sizes = [int(n) for n in every[:, 0].tolist()]
    clouds = _gathered(points.detach(), sizes, group)
    mine = clouds[dist.get_rank(group)] = points.view_as(points)
    if mine.requires_grad:
        mine.register_hook(lambda grad: grad * ranks)  # type: ignore[no-untyped-call]
    classes = None if labels is None else torch.cat(_gathered(labels, sizes, group))
    return torch.cat(clouds), classes, every[:, 1].mean()


def _gathered(x: Tensor, sizes: list[int], group: Any) -> list[Tensor]:
    """Each rank's rows."""
    padded = x.new_zeros(max(sizes), *x.shape[1:])
    padded[: len(x)] = x
    every = [torch.empty_like(padded) for _ in sizes]
    dist.all_gather(every, padded, group=group)
    return [rows[:n] for rows, n in zip(every, sizes, strict=True)]
