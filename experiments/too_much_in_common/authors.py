"""The procedure of the authors' program, written anew in NumPy from what it does, as the oracle of Table 1.

float32 throughout; all rows, special and unused ones too; the general solver `numpy.linalg.eig` on W'W, whose eigenvectors have
whatever sign LAPACK leaves; exp without any care for its range; PCA from scikit-learn on the centred rows.
"""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
_COLUMNS = 64


def eigenvectors(w: Array) -> Array:
    """Of W'W, as columns (D, D), with the signs of the general solver."""
    return np.linalg.eig(w.T @ w)[1]


def isotropy(w: Array, c: Array) -> float:
    """min Z(c) / max Z(c) over the columns of `c`, one sign each, with Z(c) = sum_i exp(w_i . c)."""
    parts = [np.exp(w @ c[:, start : start + _COLUMNS]).sum(axis=0) for start in range(0, c.shape[1], _COLUMNS)]
    z = np.concatenate(parts)
    return float(z.min() / z.max())


def centred(w: Array) -> Array:
    return w - w.mean(axis=0)


def scaled_centred(w: Array) -> Array:
    """w - |w| m, with m the mean of w / |w|."""
    norms = np.linalg.norm(w, axis=1, keepdims=True)
    return w - norms * (w / norms).mean(axis=0, keepdims=True)


def without_top(w: Array, directions: int, *, of_centred: bool = True) -> Array:
    """The centred rows without their first principal directions; with `of_centred` False those of the rows as they are are subtracted."""
    from sklearn.decomposition import PCA

    c = centred(w)
    u = PCA(n_components=directions).fit(c).components_
    return c - (c if of_centred else w) @ u.T @ u


def table_1(w: Array) -> dict[str, tuple[float, Array]]:
    """I(W) of the rows as they are, centred, and without ceil(D / 100) directions, each with the eigenvectors it was read along."""
    made = {"raw": w, "centred": centred(w), "removed": without_top(w, math.ceil(w.shape[1] / 100))}
    along = {name: eigenvectors(x) for name, x in made.items()}
    return {name: (isotropy(x, along[name]), along[name]) for name, x in made.items()}
