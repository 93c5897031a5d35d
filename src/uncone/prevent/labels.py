"""Which class a point belongs to, as labels of a batch say it."""

import torch

from uncone.errors import InputError

Tensor = torch.Tensor
_IGNORED = -100


def used(labels: Tensor) -> Tensor:
    """Which labels are classes (bool): -100 is none."""
    return labels.long() != _IGNORED  # in eight bits without a sign -100 would be 156


def labelled(points: object, labels: object) -> tuple[Tensor, Tensor | None]:
    """Points (N, D) and their labels (N,), without those labelled -100.

    Raises:
        InputError: points that are no matrix of floating point numbers, or labels that are not one integer a point.
    """
    if not isinstance(points, Tensor) or points.ndim != 2:
        got = tuple(points.shape) if isinstance(points, Tensor) else type(points).__name__
        raise InputError(f"expected points of shape (N, D), got {got}: pass a tensor with one row per point")
    if not points.is_floating_point():
        raise InputError(
            f"expected points with floating point numbers, got {points.dtype}: convert them, for instance to float32"
        )
    if labels is None:
        return points, None
    if (
        not isinstance(labels, Tensor)
        or labels.shape != points.shape[:1]
        or labels.is_floating_point()
        or labels.is_complex()
    ):
        got = (
            f"{tuple(labels.shape)} of {labels.dtype}"
            if isinstance(labels, Tensor)
            else type(labels).__name__
        )
        raise InputError(
            f"expected labels of shape ({len(points)},) with integers, got {got}: pass a tensor with one class a point, or None for one cloud"
        )
    labels = labels.to(points.device)
    kept = used(labels)
    if bool(kept.all()):
        return points, labels
    return points[kept], labels[kept]
