"""Give every feature the same say."""

from collections.abc import Mapping
from typing import ClassVar

import torch

from uncone.transforms.affine import Affine
from uncone.transforms.fitting import Summary, Transformation, require_rows

Tensor = torch.Tensor


class Standardize(Transformation):
    """Centre every feature and divide it by its deviation: y = (x - mean) / s, s^2 = sum_i p_i (x_i - mean)^2.

    The repair of rogue dimensions, single features that dominate every cosine (Timkey & van Schijndel 2021, All Bark and No
    Bite, section 5). s is the deviation of these rows and not an estimate (no N - 1), as in scikit-learn's StandardScaler. A
    feature that is constant, to the rounding of its mean, is centred and not divided.

    Attributes after `fit`:
        mean_, scale_: the means and s (1 where constant), float64 (D,).

    Raises:
        InputError: on `fit`, where there are fewer than two rows.

    Example:
        >>> import numpy
        >>> Standardize().fit_transform(numpy.array([[1.0, 100.0], [3.0, 500.0]])).tolist()
        [[-1.0, -1.0], [1.0, 1.0]]
    """

    tensors: ClassVar[Mapping[str, str]] = {"mean_": "D", "scale_": "D"}
    mean_: Tensor
    scale_: Tensor

    def _solve(self, summary: Summary) -> Affine:
        require_rows(summary, 2, "deviations")
        m = summary.moments
        self.mean_ = m.mean().cpu()
        variances = m.variances().cpu() * (1 - 1 / m.effective_n)
        constant = variances <= (4 * m.epsilon * self.mean_).square()
        self.scale_ = torch.where(constant, 1.0, variances.clamp_min(0.0).sqrt())
        return Affine(self.mean_, torch.diag(1 / self.scale_))
