"""The cloud that a penalty sees, and how anisotropic it is."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.distributed as dist

from uncone.arguments import shown
from uncone.errors import InputError
from uncone.measure.spectrum import marchenko_pastur
from uncone.training.bars.clouds import kind

Tensor = torch.Tensor
Scores = tuple[float, ...]
Pooling = Literal["cls", "mean", "last"]


def pool(hidden: Tensor, mask: Tensor | None, pooling: Pooling) -> Tensor:
    """States (B, D) from hidden (B, T, D) and mask (B, T), 0 where there is no token; padding may be on either side. A
    sequence without tokens gives its first position, or zeros with "mean". A mean is in float32 at least: bfloat16
    cannot count to 257, and sums of float16 may overflow."""
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
    """(B, T) from the attention mask, or else from ids that are not padding; None is all."""
    mask: Tensor | None = inputs.get("attention_mask")
    ids: Tensor | None = inputs.get("input_ids")
    if mask is not None:
        if mask.ndim != 2 or mask.shape[0] != hidden.shape[0] or mask.shape[1] < hidden.shape[1]:
            got = f"got {tuple(mask.shape)}: pass the mask of the tokenizer"
            raise InputError(f"expected an attention_mask of shape {tuple(hidden.shape[:2])}, {got}")
        return mask[:, -hidden.shape[1] :].to(hidden.device)  # learnt prefixes come before the states
    if ids is not None and pad is not None and ids.shape == hidden.shape[:2]:
        return (ids != pad).to(hidden.device)
    return None


def are_classes(labels: Tensor) -> Tensor:
    return labels.long() != -100  # in eight bits without a sign -100 would be 156


def labelled(points: object, labels: object) -> tuple[Tensor, Tensor | None]:
    """Points (N, D) and labels (N,), without points labelled -100."""
    if not isinstance(points, Tensor) or points.ndim != 2:
        raise InputError(f"expected points of shape (N, D), got {kind(points)}: pass a tensor of points")
    if not points.is_floating_point():
        raise InputError(f"expected points in floating point, got {points.dtype}: convert them to float32")
    if points.is_meta:
        raise InputError("expected points with values, got some on meta, which has none: load the weights")
    if labels is None:
        return points, None
    one_each = isinstance(labels, Tensor) and labels.shape == points.shape[:1]
    if not isinstance(labels, Tensor) or not one_each or labels.is_floating_point() or labels.is_complex():
        got = f"got {kind(labels)}: pass a tensor with one class per point, or None for one cloud"
        raise InputError(f"expected labels of shape ({len(points)},) with integers, {got}")
    labels = labels.to(points.device)
    kept = are_classes(labels)
    return (points, labels) if bool(kept.all()) else (points[kept], labels[kept])


def world(group: Any = None) -> int:
    return dist.get_world_size(group) if dist.is_available() and dist.is_initialized() else 1


def is_first() -> bool:
    return world() == 1 or dist.get_rank() == 0


def joined(
    points: Tensor, labels: Tensor | None, part: Tensor, group: Any = None
) -> tuple[Tensor, Tensor | None, Tensor]:
    """The points (sum of N, D) and labels of all ranks in their order, and the mean of their parts; N may differ.
    Gradients reach a rank's own points, times the number of ranks: DDP and FSDP average them, which then gives the
    gradient of one process."""
    ranks = world(group)
    if ranks < 1:
        raise InputError("expected a group that this rank is in, got another: give each rank its own group")
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
    padded = x.new_zeros(max(sizes), *x.shape[1:])
    padded[: len(x)] = x
    every = [torch.empty_like(padded) for _ in sizes]
    dist.all_gather(every, padded, group=group)
    return [rows[:n] for rows, n in zip(every, sizes, strict=True)]


@dataclass(frozen=True)
class AnisotropyScores:
    """A_1 to A_k of one cloud and of an isotropic cloud with as many points, in [0, 1]; lower is more isotropic. None
    where there is no variance."""

    raw: Scores | None
    centred: Scores | None  # less the mean of all points
    within_class: Scores | None  # each point less the mean of its class; None without labels
    raw_floor: Scores  # isotropic references, from Marchenko-Pastur: for n points,
    centred_floor: Scores  # for n - 1 degrees of freedom,
    within_class_floor: Scores | None  # for n - classes
    n: int
    d: int
    classes: int  # 0 without labels


def anisotropy_scores(points: Tensor, labels: Tensor | None = None, *, k: int = 3) -> AnisotropyScores:
    """The shares of variance of a cloud's first k directions: raw, centred, and centred within each class.

        A_i = s_i^2 / sum of s_j^2,  s the singular values of the points (N, D)

    Compare only scores with the same n, because the floor depends on it: 64 isotropic points with 768 features have A_1
    of about 0.026. Computed in float64; the caller waits for the device.

    Args:
        points: (N, D), floating point.
        labels: (N,) integers; points labelled -100 are left out.

    InputError for another shape or dtype, no points, points that are not finite, or k below 1.
    """
    check_k(k)
    x, groups = labelled(points, labels)
    with torch.no_grad(), torch.autocast(x.device.type, enabled=False):
        n, d = x.shape
        if n == 0 or d == 0 or not bool(torch.isfinite(x).all()):
            got = f"got {(n, d)} of {x.dtype}: look for NaN and infinity, and for labels that are all -100"
            raise InputError(f"expected finite points of shape (N, D), at least one of them labelled, {got}")
        x = _scaled(x.detach().double())
        within, within_floor, classes = None, None, 0
        if groups is not None:
            _, inverse, sizes = torch.unique(groups, return_inverse=True, return_counts=True)
            classes = len(sizes)
            means = x.new_zeros(classes, d).index_add_(0, inverse, x) / sizes[:, None]
            within, within_floor = _scores(x - means[inverse], k), _floor(n - classes, d, k)
        scores = _scores(x, k), _scores(x - x.mean(0), k), within
        return AnisotropyScores(*scores, _floor(n, d, k), _floor(n - 1, d, k), within_floor, n, d, classes)


def check_k(k: object) -> None:
    if not isinstance(k, int) or isinstance(k, bool) or not 1 <= k <= 10**6:
        raise InputError(f"expected k of at least 1, got {shown(k)}: pass how many scores, for instance 3")


def _scaled(x: Tensor) -> Tensor:
    """The points scaled so that squares do not overflow."""
    return x / x.abs().max().clamp_min(torch.finfo(x.dtype).tiny)


def _scores(x: Tensor, k: int) -> Scores | None:
    x = _scaled(x)  # without a mean it may be small
    product = x @ x.T if len(x) < x.shape[1] else x.T @ x
    total = float(product.trace())
    if not total > 0:
        return None
    largest = torch.linalg.eigvalsh(product).flip(0)[:k].clamp_min(0) / total
    return tuple(largest.tolist()) + (0.0,) * (k - len(largest))


def _floor(freedom: int, d: int, k: int) -> Scores:
    if freedom < 1:
        return (0.0,) * k
    quantiles = marchenko_pastur(freedom, d)[:k] / d
    return tuple(quantiles.tolist()) + (0.0,) * (k - len(quantiles))
