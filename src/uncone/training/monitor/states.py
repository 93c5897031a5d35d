"""What a record reads from the states of a batch."""

from typing import Any

import torch

from uncone.training.cloud import anisotropy_scores, are_classes
from uncone.training.monitor.rows import Numbers, effective_rank

Tensor = torch.Tensor
K = 3  # shares of variance of a cloud's first directions


def states_numbers(points: Tensor, labels: Tensor | None = None) -> Numbers:
    """Of states (N, D), and of their classes (N,): the mean cosine of pairs, the share of their squares along their
    mean, norms, the effective rank and the participation ratio of their own cloud, and `anisotropy_scores` with its
    isotropic floor."""
    x = points.detach().double()
    norms, mean = x.norm(dim=1), x.mean(0)
    total, n = (x / norms.clamp_min(1e-300)[:, None]).sum(0), int((norms > 0).sum())
    found: Numbers = {"n": len(x), "norm_median": float(norms.quantile(0.5)), "norm_largest": float(norms.max())}
    if n >= 2:
        found["mean_cosine"] = (float(total @ total) - n) / (n * (n - 1))
    along = x @ (mean / mean.norm().clamp_min(1e-300))
    found["mean_share"] = float(along.square().sum()) / max(float(norms.square().sum()), 1e-300)
    if not bool(x.isfinite().all()):
        return found
    c = x - mean
    squares = torch.linalg.eigvalsh(c @ c.T if len(c) < c.shape[1] else c.T @ c).clamp_min(0)
    if (rank := effective_rank(squares)) is not None:
        found["effective_rank"] = rank
        found["participation_ratio"] = float(squares.sum()) ** 2 / float(squares.square().sum())
    if labels is not None and not bool(are_classes(labels).any()):
        labels = None
    scores = anisotropy_scores(points, labels, k=K)
    for name in ("raw", "centred", "within_class"):
        for kind in (name, f"{name}_floor"):
            shares: Any = getattr(scores, kind) or ()
            found |= {f"{kind}_{i}": share for i, share in enumerate(shares, 1)}
    return found
