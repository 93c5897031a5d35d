"""All-but-the-Top: take away the few directions that all rows share."""

import math
from collections.abc import Mapping
from typing import ClassVar

import torch

from uncone.errors import InputError
from uncone.moments import Moments
from uncone.moments.eigen import leading_pairs
from uncone.threads import on_one_thread
from uncone.transforms.affine import Affine
from uncone.transforms.fitting import Summary, Transformation, check_whole, require_rows

Tensor = torch.Tensor


class AllButTheTop(Transformation):
    """Subtract the mean and the first principal directions u_1 ... u_k of the centred rows.

    Centred (Bis et al. 2021, Too Much in Common, equation 11): y = (x - mean) - sum_j (u_j . (x - mean)) u_j.
    Original (Mu & Viswanath 2018, All-but-the-Top, algorithm 1): y = (x - mean) - sum_j (u_j . x) u_j, which
    differs by one constant vector: original - centred = -sum_j (u_j . mean) u_j. It gives the rows a mean
    again.

    Args:
        n_components: k; by default ceil(D / 100), as in both papers.
        centered: False for the original.

    Attributes after `fit`:
        mean_: float64 (D,).
        components_: the unit directions as rows, float64 (k, D), the one of the largest variance first.
        variances_: the variances of the rows along them, float64 (k,).

    Raises:
        InputError: on `fit`, where not more rows or features than directions are there, or the rows vary in
            fewer directions.

    Example:
        >>> import numpy
        >>> x = numpy.array([[7.0, 1.0], [-5.0, 1.0], [7.0, -1.0], [-5.0, -1.0]])
        >>> AllButTheTop(n_components=1).fit_transform(x).tolist()
        [[0.0, 1.0], [0.0, 1.0], [0.0, -1.0], [0.0, -1.0]]
    """

    tensors: ClassVar[Mapping[str, str]] = {"mean_": "D", "components_": "KD", "variances_": "K"}
    mean_: Tensor
    components_: Tensor
    variances_: Tensor

    def __init__(self, n_components: int | None = None, centered: bool = True) -> None:
        self.n_components = None if n_components is None else check_whole(n_components, "n_components", 1)
        self.centered = bool(centered)

    @on_one_thread
    def _solve(self, summary: Summary) -> Affine:
        m = summary.moments
        k = math.ceil(m.d / 100) if self.n_components is None else self.n_components
        if k >= m.d:
            raise InputError(
                f"expected rows of more than {k} features to remove {k} directions, got {m.d}: choose fewer"
            )
        require_rows(summary, k + 1, f"{k} principal directions")
        refuse_equal_rows(m)
        self.mean_ = m.mean().cpu()
        self.components_, self.variances_ = principal_directions(m, k)
        if len(self.components_) < k:
            raise InputError(
                f"expected rows that vary in at least {k} directions, got {len(self.components_)}: the "
                "others would be arbitrary, choose fewer"
            )
        removed = self.components_.T @ self.components_
        weight = torch.eye(m.d, dtype=torch.float64) - removed
        return Affine(self.mean_, weight, offset=None if self.centered else -self.mean_ @ removed)


def principal_directions(m: Moments, k: int) -> tuple[Tensor, Tensor]:
    """The first k unit directions of variance as rows (r, D), and the variances (r,); the rest is rounding.

    Sums of products in the dtype of the rows hold no variance below its epsilon times the largest.
    """
    values, vectors = leading_pairs(m.covariance(), k)
    known = int((values > 4 * m.epsilon * float(values[0])).sum())
    return with_signs(vectors[:, :known].T.cpu()), values[:known].cpu()


def with_signs(directions: Tensor) -> Tensor:
    """The same directions (k, D), each with its largest entry positive, so that no library chooses signs."""
    largest = directions.gather(1, directions.abs().argmax(dim=1, keepdim=True))
    return directions * torch.where(largest < 0, -1.0, 1.0)


def refuse_equal_rows(m: Moments) -> None:
    """Raise InputError where `are_equal`."""
    if are_equal(m):
        raise InputError(
            f"expected rows that differ, got {m.n} equal rows: there is no direction to find in them"
        )


def are_equal(m: Moments) -> bool:
    """Whether the rows are equal: their spread is no more than the rounding of their mean."""
    spread = math.sqrt(max(0.0, float(m.variances().sum())))
    return spread <= 4 * m.epsilon * float(m.mean().norm())
