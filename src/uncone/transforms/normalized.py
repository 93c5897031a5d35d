"""A repair that gives rows the length 1 again, for an index that compares by inner product."""

import os
from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from uncone.records.parts import Fitted
from uncone.transforms.affine import Affine
from uncone.transforms.fitting import Transformation
from uncone.transforms.transformed import X, apply

Tensor = torch.Tensor


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
        affine = getattr(self.repair, "affine_", self.repair)
        if isinstance(affine, Affine):
            return apply(x, lambda z: unit(affine.cast(z.dtype, z.device)(z)), d=affine.d, k=affine.k)
        d = self.repair.fitted_.d
        return apply(x, lambda z: unit(self.repair._move(z)), d=d, k=d)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to a safetensors file, atomically; `uncone.transforms.load` reads it back.

        The file has the format "uncone.repair/2", which versions that would forget the division refuse.
        """
        replace(self.repair.state(), normalize=True).save(path)


def unit(rows: Tensor) -> Tensor:
    """Rows (n, D) divided by their norms; zero rows stay. Each is divided by its largest entry first, whose
    square may be out of range."""
    largest = rows.abs().amax(dim=1, keepdim=True)
    scaled = rows / torch.where(largest > 0, largest, 1.0)
    norms = torch.linalg.vector_norm(scaled, dim=1, keepdim=True)
    return scaled / torch.where(norms > 0, norms, 1.0)
