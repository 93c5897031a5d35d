"""A repair as Faiss has them: a LinearTransform, for an IndexPreTransform. Needs faiss, the extra `faiss`."""

import os
from typing import Any

import numpy as np

from uncone import atomic
from uncone.errors import InputError
from uncone.transforms.affine import Affine
from uncone.transforms.fitting import Transformation, affine_of


def to_faiss(transformation: Transformation | Affine, path: str | os.PathLike[str] | None = None) -> Any:
    """`faiss.LinearTransform` of (d_in, d_out) = (D, K) with A = weight' and b = -shift @ weight, so that an
    index repairs what is added to it and what it is asked.

    Faiss computes A x + b in float32: where the mean is much longer than the rows' spread, about |mean| /
    spread times 6e-8 of the result is rounding, which `transform` avoids by subtracting first.

    Args:
        transformation: fitted and affine.
        path: also write it to this file, atomically, as `faiss.write_VectorTransform` does.

    Returns:
        The trained transform. `faiss.IndexPreTransform(it, index)` with an index of K features uses it on
        both sides.

    Raises:
        InputError: faiss is missing, the transformation is not affine or not fitted, or the file cannot be
            written.

    Example:
        >>> from uncone.transforms import Center
        >>> fitted = Center().fit(np.array([[1.0, 5.0], [3.0, 5.0]], dtype="float32"))
        >>> to_faiss(fitted).apply(np.array([[1.0, 5.0]], dtype="float32")).tolist()
        [[-1.0, 0.0]]
    """
    faiss = need_faiss("a Faiss transform")
    affine = affine_of(transformation, "a Faiss transform")
    matrix, bias = affine.as_linear()
    transform = faiss.LinearTransform(affine.d, affine.k, True)
    faiss.copy_array_to_vector(np.ascontiguousarray(matrix.T.float().numpy()).ravel(), transform.A)
    faiss.copy_array_to_vector(bias.float().numpy(), transform.b)
    transform.is_trained = True
    transform.set_is_orthonormal()
    if path is not None:
        writer = faiss.VectorIOWriter()
        faiss.write_VectorTransform(transform, writer)
        atomic.write_bytes(path, faiss.vector_to_array(writer.data).data)
    return transform


def need_faiss(what: str) -> Any:
    """The library faiss, or InputError."""
    try:
        import faiss
    except ImportError as error:
        raise InputError(
            f"expected faiss for {what}, got none installed: pip install 'uncone[faiss]'"
        ) from error
    return faiss
