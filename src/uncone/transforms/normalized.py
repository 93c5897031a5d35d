"""A repair that gives rows length 1, for an index that compares by inner product."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from uncone.arguments import shown
from uncone.errors import InputError
from uncone.records.parts import Fitted
from uncone.roles import Path_
from uncone.transforms.affine import Affine
from uncone.transforms.fitting import Transformation
from uncone.transforms.transformed import Array, Map, X, apply, library, norms_of

_FAR = 1e15  # rows longer than this, or shorter than its inverse, have squares beyond float32


@dataclass(frozen=True, eq=False)
class Normalized:
    """A fitted transformation (InputError if not), after which each row is divided by its norm: y = z / |z|.

    The inner product of two such rows is their cosine. A row that the transformation makes zero stays zero. This repair
    is not affine, so no model's weights can hold it; `to_index` of `uncone.transforms.faiss` puts it before an index.

    Example:
        >>> import numpy as np
        >>> from uncone.transforms import Center
        >>> x = np.array([[1.0, 5.0], [9.0, 5.0], [5.0, 2.0], [5.0, 8.0]])
        >>> Normalized(Center().fit(x)).transform(x).tolist()
        [[-1.0, 0.0], [1.0, 0.0], [0.0, -1.0], [0.0, 1.0]]
    """

    affine: ClassVar[bool] = False
    repair: Transformation | Affine

    def __post_init__(self) -> None:
        if isinstance(self.repair, Transformation):
            self.repair._require_fit()
        elif not isinstance(self.repair, Affine):
            raise InputError(f"expected a transformation to normalise after, got {shown(self.repair)}: fit one first")

    @property
    def fitted_(self) -> Fitted | None:
        return self.repair.fitted if isinstance(self.repair, Affine) else self.repair.fitted_

    def transform(self, x: X) -> X:
        """The repaired rows at length 1. Raises what `transform` of the repair raises."""
        return apply(x, self.map())

    def map(self) -> Map:
        move, d, k = self.repair.map()
        return Map(lambda rows, out=None: unit(move(rows, out), out), d, k)

    def save(self, path: Path_) -> None:
        """Write it to a safetensors file, atomically; `uncone.transforms.load` reads it back."""
        replace(self.repair.state(), normalize=True).save(path)


Repair = Transformation | Affine | Normalized


def undivided(repair: Repair) -> Transformation | Affine:
    return repair.repair if isinstance(repair, Normalized) else repair


def unit(rows: Any, out: Array | None = None) -> Any:
    """Rows (n, D) divided by their norms, into any `out`; zero rows stay."""
    xp, norms = library(rows), norms_of(rows)
    far = ~((norms > 1 / _FAR) & (norms < _FAR))
    y = xp.divide(rows, xp.where(far, 1.0, norms), out=out)
    if bool(far.any()):
        at = far[:, 0]
        largest = xp.amax(abs(y[at]), axis=1, keepdims=True)
        scaled = y[at] / xp.where(largest > 0, largest, 1.0)
        norms = norms_of(scaled)
        y[at] = scaled / xp.where(norms > 0, norms, 1.0)
    return y
