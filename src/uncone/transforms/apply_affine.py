"""The affine map of a transformation, for what can hold nothing else: a layer of a model, an index."""

from uncone.errors import InputError
from uncone.transforms.affine import Affine
from uncone.transforms.fitting import Transformation


def affine_of(transformation: Transformation | Affine, where: str) -> Affine:
    """Its `Affine`.

    Raises:
        InputError: not fitted, or not affine: `where` says what could not hold it.
    """
    if isinstance(transformation, Affine):
        return transformation
    if not transformation.affine:
        raise InputError(
            f"expected an affine transformation for {where}, which computes x @ weight + bias and nothing else, got "
            f"{type(transformation).__name__}, which depends on each row's norm or cluster: apply it to the vectors, or choose another"
        )
    if not hasattr(transformation, "affine_"):
        raise InputError(
            f"expected a fitted {type(transformation).__name__}, got one that is not: call fit(x) first"
        )
    return transformation.affine_
