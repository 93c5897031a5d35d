"""Take away what all rows share: their mean, its direction, or that and the different spreads of features."""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from uncone.moments import Moments
from uncone.transforms.affine import Affine
from uncone.transforms.fitting import Transformation, require_rows
from uncone.transforms.transformed import Array, library, like, norms_of


class Center(Transformation):
    """Subtract the mean row: y = x - mean, mean = sum_i p_i x_i with p_i = w_i / sum w.

    Differences of rows stay, and so do Euclidean distances; cosines change, and random pairs have 0 on average.

    Attributes after `fit`:
        mean_: float64 (D,).

    Example:
        >>> import numpy
        >>> Center().fit_transform(numpy.array([[1.0, 5.0], [3.0, 5.0]])).tolist()
        [[-1.0, 0.0], [1.0, 0.0]]
    """

    second: ClassVar[bool] = False
    tensors: ClassVar[Mapping[str, str]] = {"mean_": "D"}
    mean_: Array

    def _solve(self, m: Moments, counted: int) -> Affine:
        self.mean_ = m.mean()
        return Affine(self.mean_)


class ScaledCenter(Transformation):
    """Subtract the mean direction, scaled to the row: y = x - |x| m, m = the mean of x_i / |x_i| (Bis et al. 2021, Too
    Much in Common; `remove_mean(scale=True)` of their program).

    It centres the directions and keeps the norms' weight: y = |x| (x / |x| - m). Not affine, so it cannot be folded
    into a model's weights. A zero row has no direction: it is left out of m, and stays zero.

    Attributes after `fit`:
        mean_direction_: m, float64 (D,), of length at most 1.

    Example:
        >>> import numpy
        >>> ScaledCenter().fit_transform(numpy.array([[2.0, 0.0], [0.0, 1.0]])).tolist()
        [[1.0, -1.0], [-0.5, 0.5]]
    """

    affine: ClassVar[bool] = False
    second: ClassVar[bool] = False
    unit_first: ClassVar[bool] = True
    tensors: ClassVar[Mapping[str, str]] = {"mean_direction_": "D"}
    mean_direction_: Array

    def _solve(self, m: Moments, counted: int) -> None:
        first, _ = m.unit_sums()
        self.mean_direction_ = first / m.unit_weight if m.unit_weight > 0 else np.zeros_like(first)

    def _move(self, rows: Any, out: Array | None = None) -> Any:
        xp = library(rows)
        along = xp.multiply(norms_of(rows), like(self.mean_direction_, rows), out=out)
        return xp.subtract(rows, along, out=out)


class RemoveMeanDirection(Transformation):
    """Project rows off the direction of their mean: y = x - (x . m) m, m = mean / |mean| (Ren, Sun & Liang 2026).

    The repaired rows have mean zero and no variance along m. All of a row that is orthogonal to m stays, so a row keeps
    its norm but for its part along m. The scale of the rows does not matter: c x has the same m, or -m, and the same
    projection.

    Attributes after `fit`:
        direction_: m, float64 (D,), of length 1. Zero where the mean is zero up to the rounding of the rows, as after
            centring: then the rows stay as they are, and a warning says so.

    Example:
        >>> import numpy
        >>> RemoveMeanDirection().fit_transform(numpy.array([[3.0, 1.0], [1.0, -1.0]])).tolist()
        [[0.0, 1.0], [0.0, -1.0]]
    """

    tensors: ClassVar[Mapping[str, str]] = {"direction_": "D"}
    second: ClassVar[bool] = False
    direction_: Array

    def _can_be_undone(self) -> bool:
        return not getattr(self, "direction_", np.ones(1)).any()

    def _solve(self, m: Moments, counted: int) -> Affine:
        mean = m.mean()
        length = float(np.linalg.norm(mean))
        if length <= 4 * m.epsilon * m.mean_norm():
            self._warn("the rows' mean is zero up to their rounding: it has no direction, and the rows stay")
            self.direction_ = np.zeros_like(mean)
        else:
            self.direction_ = mean / length
        weight = np.eye(m.d) - np.outer(self.direction_, self.direction_)
        return Affine(np.zeros_like(mean), weight)


class Standardize(Transformation):
    """Centre every feature and divide it by its deviation: y = (x - mean) / s, s^2 = sum_i p_i (x_i - mean)^2.

    The repair of rogue dimensions, single features that dominate every cosine (Timkey & van Schijndel 2021, All Bark
    and No Bite, section 5). s is the deviation of these rows and not an estimate (no N - 1), as in scikit-learn's
    StandardScaler. A feature that is constant, to the rounding of its mean or of a usual feature's size (the median of
    their root mean squares), is centred and not divided.

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
    mean_: Array
    scale_: Array

    def _solve(self, m: Moments, counted: int) -> Affine:
        require_rows(counted, 2, "deviations")
        self.mean_ = m.mean()
        variances = m.variances() * (1 - 1 / m.effective_n)
        squares = np.square(self.mean_)
        # Far below the others a feature holds their rounding; the median, so that no huge one decides.
        usual = np.sort(variances + squares)[(m.d - 1) // 2]  # the lower of two in the middle
        constant = variances <= (4 * m.epsilon) ** 2 * np.maximum(squares, usual)
        self.scale_ = np.where(constant, 1.0, np.sqrt(np.maximum(variances, 0.0)))
        return Affine(self.mean_, np.diag(1 / self.scale_))
