"""Take away what rows share: their mean, its direction, or the mean and the different spreads of features."""

from typing import Any

import numpy as np

from uncone.moments import Moments
from uncone.transforms.affine import Affine
from uncone.transforms.fitting import Transformation, require_rows
from uncone.transforms.transformed import Array, library, like, norms_of


class Center(Transformation):
    """Subtract the mean row: y = x - mean, mean = sum_i p_i x_i with p_i = w_i / sum w.

    Euclidean distances stay the same. Cosines change, and random pairs have 0 on average.

    Attributes after `fit`:
        mean_: float64 (D,).

    Example:
        >>> Center().fit_transform(np.array([[1.0, 5.0], [3.0, 5.0]])).tolist()
        [[-1.0, 0.0], [1.0, 0.0]]
    """

    second = False
    tensors = (("mean_", "D"),)
    mean_: Array

    def _solve(self, m: Moments, counted: int) -> Affine:
        self.mean_ = m.mean()
        return Affine(self.mean_)


class ScaledCenter(Transformation):
    """Subtract the mean direction, scaled to the row: y = x - |x| m, m = the mean of x_i / |x_i|.

    Bis et al. 2021, Too Much in Common; `remove_mean(scale=True)` of their program. It centres the directions and keeps
    the weight of norms. It is not affine, so no model's weights can hold it. Zero rows have no direction: they are left
    out of m, and stay zero.

    Attributes after `fit`:
        mean_direction_: m, float64 (D,), of length at most 1.

    Example:
        >>> ScaledCenter().fit_transform(np.array([[2.0, 0.0], [0.0, 1.0]])).tolist()
        [[1.0, -1.0], [-0.5, 0.5]]
    """

    affine = False
    second = False
    unit_first = True
    tensors = (("mean_direction_", "D"),)
    mean_direction_: Array

    def _solve(self, m: Moments, counted: int) -> None:
        first, _ = m.unit_sums()
        self.mean_direction_ = first / m.unit_weight if m.unit_weight > 0 else np.zeros_like(first)

    def _move(self, rows: Any, out: Array | None = None) -> Any:
        xp = library(rows)
        return xp.subtract(rows, xp.multiply(norms_of(rows), like(self.mean_direction_, rows), out=out), out=out)


class RemoveMeanDirection(Transformation):
    """Project rows off the direction of their mean: y = x - (x . m) m, m = mean / |mean| (Ren, Sun & Liang 2026).

    The repaired rows have mean zero and no variance along m; the part orthogonal to m stays. The scale of the rows does
    not matter.

    Attributes after `fit`:
        direction_: m, float64 (D,), of length 1. Zero where the mean is only rounding, as after centring: then the rows
            stay as they are, and `fit` warns.

    Example:
        >>> RemoveMeanDirection().fit_transform(np.array([[3.0, 1.0], [1.0, -1.0]])).tolist()
        [[0.0, 1.0], [0.0, -1.0]]
    """

    tensors = (("direction_", "D"),)
    second = False
    direction_: Array

    def _can_be_undone(self) -> bool:
        return not getattr(self, "direction_", np.ones(1)).any()

    def _solve(self, m: Moments, counted: int) -> Affine:
        mean = m.mean()
        length = float(np.linalg.norm(mean))
        has_none = length <= 4 * m.epsilon * m.mean_norm()
        if has_none:
            self._warn(
                "the mean of the rows is zero to within rounding: it has no direction, and the rows do not change"
            )
        self.direction_ = np.zeros_like(mean) if has_none else mean / length
        return Affine(np.zeros_like(mean), np.eye(m.d) - np.outer(self.direction_, self.direction_))


class Standardize(Transformation):
    """Centre every feature and divide it by its deviation: y = (x - mean) / s, s^2 = sum_i p_i (x_i - mean)^2.

    It repairs rogue dimensions, which dominate every cosine (Timkey & van Schijndel 2021, All Bark and No Bite, section
    5). s is divided by N, as in scikit-learn's StandardScaler. A feature that is constant, to the rounding of its mean
    or of a usual feature's size (the median root mean square), is only centred. `fit` raises InputError for fewer than
    two rows.

    Attributes after `fit`:
        mean_, scale_: the means and s (1 where constant), float64 (D,).

    Example:
        >>> Standardize().fit_transform(np.array([[1.0, 100.0], [3.0, 500.0]])).tolist()
        [[-1.0, -1.0], [1.0, 1.0]]
    """

    tensors = (("mean_", "D"), ("scale_", "D"))
    mean_: Array
    scale_: Array

    def _solve(self, m: Moments, counted: int) -> Affine:
        require_rows(counted, 2, "deviations")
        self.mean_ = m.mean()
        variances = m.variances() * (1 - 1 / m.effective_n)
        squares = np.square(self.mean_)
        # A feature far below the others holds their rounding. The (lower) median, so that no huge one decides.
        usual = np.sort(variances + squares)[(m.d - 1) // 2]
        constant = variances <= (4 * m.epsilon) ** 2 * np.maximum(squares, usual)
        self.scale_ = np.where(constant, 1.0, np.sqrt(np.maximum(variances, 0.0)))
        return Affine(self.mean_, np.diag(1 / self.scale_))
