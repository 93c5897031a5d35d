"""The first few principal directions."""

import torch

from uncone.moments import Moments
from uncone.moments.eigen import leading_pairs

Tensor = torch.Tensor


def principal_directions(m: Moments, k: int) -> tuple[Tensor, Tensor]:
    """The first k unit directions of variance as rows (r, D) and the variances (r,); r < k where the rest is
    rounding.

    Sums of products in the dtype of the rows hold no variance below its epsilon times the largest.
    """
    values, vectors = leading_pairs(m.covariance(), k)
    known = int((values > 4 * m.epsilon * float(values[0])).sum())
    return with_signs(vectors[:, :known].T.cpu()), values[:known].cpu()


def with_signs(directions: Tensor) -> Tensor:
    """The same directions (k, D), each with its largest entry positive, so that no library chooses signs."""
    largest = directions.gather(1, directions.abs().argmax(dim=1, keepdim=True))
    return directions * torch.where(largest < 0, -1.0, 1.0)
