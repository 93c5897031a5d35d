"""A repair that gives rows the length 1 again, for an index that compares by inner product."""

import os
from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from uncone.records.parts import Fitted
from uncone.transforms.affine import Affine
from uncone.transforms.fitting import Transformation, affine_of
from uncone.transforms.transformed import X, apply

Tensor = torch.Tensor
_FAR = 1e15
"""Longer rows, or shorter than its inverse, have squares that float32 cannot hold: they are scaled first."""


@dataclass(frozen=True, eq=False)
class Normalized:
    """A fitted transformation, after which each row is divided by its Euclidean norm: y = z / |z|, where z is
    the transformed row.

    The inner product of two such rows is their cosine. A row that the transformation makes zero stays zero. The
    whole is not affine, so it cannot be folded into a model's weights; `to_index` of `uncone.transforms.faiss`
    puts it before a Faiss index.

    Args:
        repair: the fitted transformation.

    Raises:
        InputError: it is not fitted.

    Example:
        >>> import numpy
        >>> from uncone.transforms import Center
        >>> x = numpy.array([[1.0, 5.0], [9.0, 5.0], [5.0, 2.0], [5.0, 8.0]])
        >>> Normalized(Center().fit(x)).transform(x).tolist()
        [[-1.0, 0.0], [1.0, 0.0], [0.0, -1.0], [0.0, 1.0]]
    """

    affine: ClassVar[bool] = False
    repair: Transformation | Affine

    def __post_init__(self) -> None:
        if isinstance(self.repair, Transformation):
            self.repair._require_fit()

    @property
    def fitted_(self) -> Fitted | None:
        """What the transformation was fitted on, where that is known."""
        return self.repair.fitted if isinstance(self.repair, Affine) else self.repair.fitted_

    def transform(self, x: X) -> X:
        """The rows of length 1: a tensor, array or `Rows` (N, D) as the same kind, dtype and device, (N, K).

        Raises:
            InputError: another width, no floats, or numbers that are not finite.
        """
        repair = self.repair
        if isinstance(repair, Transformation) and not repair.affine:
            return apply(x, lambda z: unit(repair._move(z)), d=repair.fitted_.d, k=repair.fitted_.d)
        affine = affine_of(repair, "rows of length 1")
        return apply(x, lambda z: unit(affine.cast(z.dtype, z.device)(z)), d=affine.d, k=affine.k)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to a safetensors file, atomically; `uncone.transforms.load` reads it back.

        The file has the format "uncone.repair/2", which versions that would forget the division refuse.
        """
        replace(self.repair.state(), normalize=True).save(path)


def undivided(transformation: Transformation | Affine | Normalized) -> Transformation | Affine:
    """The transformation without the division that may follow it."""
    return transformation.repair if isinstance(transformation, Normalized) else transformation


def unit(rows: Tensor) -> Tensor:
    """Rows (n, D) divided by their norms; zero rows stay."""
    norms = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    far = ~((norms > 1 / _FAR) & (norms < _FAR))
    y: Tensor = rows / norms.masked_fill(far, 1.0)
    if bool(far.any()):
        at = far[:, 0]
        largest = y[at].abs().amax(dim=1, keepdim=True)
        scaled = y[at] / torch.where(largest > 0, largest, 1.0)
        norms = torch.linalg.vector_norm(scaled, dim=1, keepdim=True)
        y[at] = scaled / torch.where(norms > 0, norms, 1.0)
    return y
