"""A repair as a LinearTransform of Faiss, for an IndexPreTransform. Needs the extra `faiss`."""

from typing import Any

import numpy as np

from uncone import atomic
from uncone.errors import expect, needed
from uncone.roles import Path_
from uncone.transforms.fitting import affine_of
from uncone.transforms.normalized import Normalized, Repair, undivided


def to_faiss(transformation: Repair, path: Path_ | None = None) -> Any:
    """The repair as a `faiss.LinearTransform` of (d_in, d_out) = (D, K): A = weight', b = -shift @ weight.

    Faiss computes A x + b in float32: about |mean| / spread times 6e-8 of the result is rounding, unlike in
    `transform`, which subtracts first. If Faiss 1.15 has read a transform from a file, call `set_is_orthonormal()` on
    it before `reverse_transform`, which is otherwise wrong without an error.

    Args:
        transformation: fitted and affine.
        path: also write it here, atomically, as `faiss.write_VectorTransform` does.

    Returns:
        The trained transform. `faiss.IndexPreTransform(transform, index)` repairs queries and the vectors added to an
        index of K features.

    Raises:
        InputError: no faiss, a transformation that is not affine, not fitted, or normalises (use `to_index`), or a file
            that cannot be written.

    Example:
        >>> from uncone.transforms import Center
        >>> fitted = Center().fit(np.array([[1.0, 5.0], [3.0, 5.0]], dtype="float32"))
        >>> to_faiss(fitted).apply(np.array([[1.0, 5.0]], dtype="float32")).tolist()
        [[-1.0, 0.0]]
    """
    faiss = need_faiss("a Faiss transform")
    way = "use to_index(repair, index), which adds faiss.NormalizationTransform after the matrix"
    got = f"got one that then divides rows by their norm: {way}"
    expect(not isinstance(transformation, Normalized), f"a repair that is one matrix for a Faiss transform, {got}")
    affine = affine_of(transformation, "a Faiss transform")
    matrix, bias = affine.as_linear()
    transform = faiss.LinearTransform(affine.d, affine.k, True)
    faiss.copy_array_to_vector(np.ascontiguousarray(matrix.T, np.float32).ravel(), transform.A)
    faiss.copy_array_to_vector(bias.astype(np.float32), transform.b)
    transform.is_trained = True
    transform.set_is_orthonormal()
    if path is not None:
        writer = faiss.VectorIOWriter()
        faiss.write_VectorTransform(transform, writer)
        atomic.write_bytes(path, faiss.vector_to_array(writer.data).data)
    return transform


def to_index(transformation: Repair, index: Any) -> Any:
    """`index` with the repair in front, for added vectors and for queries: a `faiss.IndexPreTransform`.

    Args:
        transformation: fitted; affine, or `Normalized` of an affine one.
        index: an index of K features, which should still be empty.

    Raises:
        InputError: as `to_faiss`, or an index of another width.

    Example:
        >>> from uncone.transforms import Center
        >>> faiss = need_faiss("an example")
        >>> x = np.array([[1.0, 5.0], [9.0, 5.0], [5.0, 2.0], [5.0, 8.0]], dtype="float32")
        >>> index = to_index(Normalized(Center().fit(x)), faiss.IndexFlatIP(2))
        >>> index.add(x)
        >>> index.search(x[:1], 1)[0].tolist()
        [[1.0]]
    """
    faiss = need_faiss("a Faiss index")
    linear = to_faiss(undivided(transformation))
    got = f"got one of {index.d}: make another index"
    expect(index.d == linear.d_out, f"an index of {linear.d_out} features, the width of repaired rows, {got}")
    whole = faiss.IndexPreTransform(index)
    if isinstance(transformation, Normalized):
        whole.prepend_transform(faiss.NormalizationTransform(index.d, 2.0))
    whole.prepend_transform(linear)
    return whole


def need_faiss(what: str) -> Any:
    return needed("faiss", f"expected faiss for {what}, got none installed: pip install 'uncone[faiss]'")
