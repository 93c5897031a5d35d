"""How much of a cloud's variance its first directions carry, while it trains."""

from dataclasses import dataclass

import torch

from uncone.errors import InputError
from uncone.measure.isotropic import marchenko_pastur
from uncone.prevent.labels import labelled

Tensor = torch.Tensor
Scores = tuple[float, ...]


@dataclass(frozen=True)
class AnisotropyScores:
    """A_1 to A_k of one cloud, and what an isotropic cloud of as many points has. All in [0, 1], less is more isotropic.

    Scores are None where there is no variance to share out.
    """

    raw: Scores | None
    """Of the points as they are."""
    centred: Scores | None
    """Without their mean."""
    within_class: Scores | None
    """Each point without the mean of its class; None without labels."""
    raw_floor: Scores
    """Isotropic references, from Marchenko-Pastur: of n points,"""
    centred_floor: Scores
    """of n - 1 degrees of freedom,"""
    within_class_floor: Scores | None
    """of n - classes."""
    n: int
    d: int
    classes: int
    """0 without labels."""


def anisotropy_scores(points: Tensor, labels: Tensor | None = None, *, k: int = 3) -> AnisotropyScores:
    """A_i = s_i^2 / sum of s_j^2 for i = 1 to k, with s the singular values of the points (N, D): raw, centred, and centred within each class.

    The floor depends on n: 64 points of 768 features have A_1 of about 0.026 though isotropic, and not 1/768. Compare scores of one n only.
    Computed in float64 from the smaller of the two products, N x N or D x D; the caller waits for the device.

    Args:
        points: (N, D), floating point.
        labels: (N,) integers; points labelled -100 are left out.
        k: how many.

    Raises:
        InputError: another shape or dtype, no points, points that are not finite, or k below 1.
    """
    check_k(k)
    x, groups = labelled(points, labels)
    with torch.no_grad(), torch.autocast(x.device.type, enabled=False):
        n, d = x.shape
        if n == 0 or d == 0 or not bool(torch.isfinite(x).all()):
            raise InputError(
                f"expected finite points of shape (N, D), at least one of them labelled, got {(n, d)} of {x.dtype}: "
                "look for NaN and infinity, and for labels that are all -100"
            )
        x = x.detach().double()
        x = x / x.abs().max().clamp_min(
            torch.finfo(x.dtype).tiny
        )  # the scores have no unit, and its square shall not overflow
        within, classes = None, 0
        if groups is not None:
            labels_found, inverse = torch.unique(groups, return_inverse=True)
            classes = len(labels_found)
            means = (
                x.new_zeros(classes, d).index_add_(0, inverse, x)
                / torch.bincount(inverse, minlength=classes)[:, None]
            )
            within = _scores(x - means[inverse], k)
        return AnisotropyScores(
            _scores(x, k), _scores(x - x.mean(0), k), within,
            _floor(n, d, k), _floor(n - 1, d, k), None if groups is None else _floor(n - classes, d, k),
            n, d, classes,
        )  # fmt: skip


def check_k(k: object) -> None:
    """Refuses what is no number of scores."""
    if not isinstance(k, int) or isinstance(k, bool) or k < 1:
        raise InputError(f"expected k of at least 1, got {k!r}: pass how many scores, for instance 3")


def _scores(x: Tensor, k: int) -> Scores | None:
    x = x / x.abs().max().clamp_min(
        torch.finfo(x.dtype).tiny
    )  # what is left without a mean may be small beside it
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
