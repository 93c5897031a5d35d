"""Spread states over the sphere (GOR: Zhang et al. 2017)."""

import torch

from uncone.training.cloud import labelled
from uncone.training.penalties.checked import factor, refuse_unless_finite
from uncone.training.penalties.gram import gram

Tensor = torch.Tensor


class OrthogonalPenalty:
    """A penalty on cosines between unrelated states: `attach_states(encoder, OrthogonalPenalty())`. Over the ordered
    pairs of different points with D features,

        P = mean_weight M1^2 + second_moment_weight max(0, M2 - 1 / D)
        M1 = mean of cos(x_i, x_j),  M2 = mean of cos(x_i, x_j)^2

    This is global orthogonal regularisation ("Learning Spread-out Local Feature Descriptors", Zhang et al. 2017): for
    directions drawn evenly from the sphere M1 is 0 and M2 is 1 / D on average. With both weights 1 it has the value of
    Sentence Transformers' `GlobalOrthogonalRegularizationLoss` (6.2) on one column; EmbeddingGemma has mean_weight 0.

    Points with the same label are related and do not form a pair: give the texts of one example the same label. Without
    labels any two points form a pair, as in that loss. Points labelled -100 are left out. Without a pair P is 0.

    Cost: O(N D min(N, D)) for value and gradient, in float32 at least, whatever the dtype or autocast; with labels
    O(N^2 D), and N^2 numbers. On a GPU the host waits for the value.

    A point of zeros (shorter than 1e-19) has no direction: its cosines and its gradient count as 0. Where all points
    are alike the gradient is 0 and P is at its maximum.

    Args:
        mean_weight: from 0 up.
        second_moment_weight: from 0 up.

    InputError for settings out of range; when called, for points or labels of another shape or dtype, or used points
    that are not finite.
    """

    def __init__(self, mean_weight: float = 1.0, second_moment_weight: float = 1.0) -> None:
        self.mean_weight = factor(mean_weight, "mean_weight")
        self.second_moment_weight = factor(second_moment_weight, "second_moment_weight")

    def __repr__(self) -> str:
        return f"OrthogonalPenalty({self.mean_weight:g}, {self.second_moment_weight:g})"

    def __call__(self, points: Tensor, labels: Tensor | None = None) -> Tensor:
        """The penalty, a scalar, of points (N, D) with labels (N,) of integers, or None."""
        x, groups = labelled(points, labels)
        with torch.autocast(x.device.type, enabled=False):
            first, second, pairs = _sums(_directions(x.to(torch.promote_types(x.dtype, torch.float32))), groups)
            excess = torch.relu(second / pairs - 1 / max(1, x.shape[1]))
            value: Tensor = self.mean_weight * (first / pairs).square() + self.second_moment_weight * excess
        refuse_unless_finite(value, x)
        return value


def _directions(x: Tensor) -> Tensor:
    """Points of length 1; those without a length are 0, and so is their gradient."""
    lengths = torch.linalg.vector_norm(x, dim=1, keepdim=True)
    has_length = lengths.square() >= torch.finfo(x.dtype).tiny
    unit: Tensor = x * (has_length / torch.where(has_length, lengths, 1.0))
    return unit


def _sums(unit: Tensor, groups: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """The sums of the cosines and of their squares over all pairs, and the number of pairs, at least 1."""
    if groups is None:  # |U'U| = |UU'|, and a point's cosine with itself is no pair
        n, d = unit.shape
        own, s = (unit.detach() != 0).any(dim=1).sum(), unit.sum(0)
        squares = gram(unit.T if n < d else unit).square().sum()
        return s.dot(s) - own, squares - own, own.new_full((), max(1, n * (n - 1)))
    related = groups[:, None] == groups
    cosines = gram(unit.T).masked_fill(related, 0.0)
    return cosines.sum(), cosines.square().sum(), (~related).sum().clamp_min(1)
