"""Which class a point belongs to, as labels of a batch say it."""

import torch

from uncone.errors import InputError

Tensor = torch.Tensor
IGNORED = -100


def labelled(points: Tensor, labels: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Points (N, D) and their labels (N,), without those labelled -100.

    Raises:
        InputError: points that are no matrix, or labels that are not one integer a point.
    """
    if not isinstance(points, Tensor) or points.ndim != 2:
        got = tuple(points.shape) if isinstance(points, Tensor) else type(points).__name__
        raise InputError(f"expected points of shape (N, D), got {got}: pass a tensor with one row per point")
    if labels is None:
        return points, None
    if labels.shape != points.shape[:1] or labels.is_floating_point() or labels.is_complex():
        raise InputError(
            f"expected labels of shape ({len(points)},) with integers, got {tuple(labels.shape)} of {labels.dtype}: pass one class a "
            "point, or None for one cloud"
        )
    labels = labels.to(points.device)
    used = labels != IGNORED
    return points[used], labels[used]
