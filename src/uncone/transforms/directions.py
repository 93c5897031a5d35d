"""Remove the first principal directions of rows, or bring the variances of all directions closer together."""

import math
from typing import Any, Literal

import numpy as np

from uncone.arguments import flag, one_of, share, whole_number
from uncone.errors import expect
from uncone.moments import Moments
from uncone.moments.eigen import consume_to_eigen, leading_pairs
from uncone.threads import on_one_thread
from uncone.transforms.affine import Affine
from uncone.transforms.fitting import Transformation, require_rows
from uncone.transforms.transformed import Array

_TENSORS = (("mean_", "D"), ("components_", "KD"), ("variances_", "K"))


class AllButTheTop(Transformation):
    """Subtract the mean and the first principal directions u_1 ... u_k of the centred rows.

    Centred (Bis et al. 2021, Too Much in Common, equation 11): y = (x - mean) - sum_j (u_j . (x - mean)) u_j.
    Original (Mu & Viswanath 2018, All-but-the-Top, algorithm 1): y = (x - mean) - sum_j (u_j . x) u_j, which gives the
    rows a mean again, -sum_j (u_j . mean) u_j. `fit` raises InputError for fewer than k + 1 rows or features, or rows
    that vary in fewer than k directions.

    Args:
        n_components: k; by default ceil(D / 100), as in both papers.
        centered: False for the original.

    Attributes after `fit`:
        mean_: float64 (D,).
        components_: unit directions as rows, float64 (k, D), the largest variance first.
        variances_: the variances along them, float64 (k,).

    Example:
        >>> x = np.array([[7.0, 1.0], [-5.0, 1.0], [7.0, -1.0], [-5.0, -1.0]])
        >>> AllButTheTop(n_components=1).fit_transform(x).tolist()
        [[0.0, 1.0], [0.0, 1.0], [0.0, -1.0], [0.0, -1.0]]
    """

    tensors = _TENSORS
    mean_: Array
    components_: Array
    variances_: Array

    def __init__(self, n_components: int | None = None, centered: bool = True) -> None:
        self.n_components, self.centered = n_components, centered

    def checked_options(self) -> dict[str, Any]:
        return {"n_components": _whole_or_none(self.n_components), "centered": flag(self.centered, "centered")}

    def _can_be_undone(self) -> bool:
        return False

    @on_one_thread
    def _solve(self, m: Moments, counted: int) -> Affine:
        k = self.checked_options()["n_components"] or math.ceil(m.d / 100)
        got = f"got {m.d} feature(s): choose fewer"
        expect(k < m.d, f"rows of more than {k} features to remove {k} directions, {got}")
        require_rows(counted, k + 1, f"{k} principal directions")
        _refuse_equal_rows(m)
        self.mean_ = m.mean()
        self.components_, self.variances_ = principal_directions(m, k)
        got = f"got {len(self.components_)}: the others would be arbitrary, choose fewer"
        expect(len(self.components_) == k, f"rows that vary in at least {k} directions, {got}")
        removed = self.components_.T @ self.components_
        return Affine(self.mean_, np.eye(m.d) - removed, offset=None if self.centered else -self.mean_ @ removed)


class Whiten(Transformation):
    """Divide every principal direction by a power of its deviation: y = (x - mean) U L^(-power / 2), ZCA times U'.

    U L U' is the covariance of the rows, divided by N - 1, with eigenvalues raised to at least `floor` times the
    largest. An eigenvalue l becomes l^(1 - power). Power 1 makes the covariance the identity (PCA: Su et al. 2021,
    Whitening Sentence Representations; ZCA: Bell & Sejnowski 1997, which changes the rows least and keeps their
    coordinates); power 0 only centres and turns. Full whitening often hurts retrieval: it makes noise as loud as the
    rest. `fit` raises InputError for fewer than two rows, equal rows, or without `force` fewer than 5 D rows.

    Args:
        kind: "zca" or "pca".
        power: from 0 to 1.
        floor: the least eigenvalue, as a share of the largest.
        n_components: keep only this many directions: PCA gives rows (N, n_components), ZCA rows (N, D) of this rank.
        force: warn about fewer than 5 D rows, as scikit-learn does; False refuses them, as `repair` and `evaluate` do.

    Attributes after `fit`:
        mean_: float64 (D,).
        components_: unit directions as rows, float64 (k, D), the largest variance first.
        variances_: their eigenvalues before the floor, float64 (k,).

    Example:
        >>> x = np.array([[4.0, 0.0], [-4.0, 0.0], [0.0, 1.0], [0.0, -1.0]] * 3)
        >>> np.cov(Whiten(power=1).fit_transform(x).T).round(6).tolist()
        [[1.0, 0.0], [0.0, 1.0]]
    """

    tensors = _TENSORS
    mean_: Array
    components_: Array
    variances_: Array

    def __init__(
        self,
        kind: Literal["zca", "pca"] = "zca",
        power: float = 0.5,
        floor: float = 1e-4,
        n_components: int | None = None,
        force: bool = True,
    ) -> None:
        self.kind, self.power, self.floor = kind, power, floor
        self.n_components, self.force = n_components, force

    def checked_options(self) -> dict[str, Any]:
        floor = share(self.floor, "floor")
        expect(floor > 0, "a floor above 0, got 0: directions without variance would explode")
        return {
            "kind": one_of(self.kind, "kind", ("zca", "pca")),
            "power": share(self.power, "power"),
            "floor": floor,
            "n_components": _whole_or_none(self.n_components),
            "force": flag(self.force, "force"),
        }

    def _keeps_axes(self) -> bool:
        return self.kind == "zca"

    def _can_be_undone(self) -> bool:
        kept = len(getattr(self, "components_", ())) or self.n_components
        return kept is None or kept == getattr(self, "n_features_in_", kept)

    @on_one_thread
    def _solve(self, m: Moments, counted: int) -> Affine:
        options = self.checked_options()
        d, k, power, floor = m.d, options["n_components"] or m.d, options["power"], options["floor"]
        expect(k <= d, f"at most {d} components of rows of {d} features, got {k}: choose fewer")
        require_rows(counted, 2, "a covariance")
        least = 5 * d  # fewer make small eigenvalues mostly noise, which whitening makes as large as the rest
        way = "pass more rows, use AllButTheTop, or force it (--force, force=True)"
        got = f"got {counted}: the small eigenvalues would be noise; {way}"
        expect(counted >= least or self.force, f"at least {least} rows to whiten {d} features, {got}")
        if counted < least:
            few = f"at least {d - counted + 1} directions are raised to the floor and mean nothing"
            doubt = few if counted < d else f"below {least} rows, small eigenvalues are noise"
            self._warn(f"whitening {d} features from {counted} rows: {doubt}")
        _refuse_equal_rows(m)
        self.mean_ = m.mean()
        values, vectors = consume_to_eigen(m.covariance())
        self.variances_ = np.maximum(values[:k], 0.0)
        self.components_ = with_signs(vectors[:, :k].T)
        weight = self.components_.T * np.maximum(self.variances_, floor * self.variances_[0]) ** (-power / 2)
        return Affine(self.mean_, weight if self.kind == "pca" else weight @ self.components_)


def principal_directions(m: Moments, k: int) -> tuple[Array, Array]:
    """The first k unit directions of variance as rows (r, D), and the variances (r,). r may be below k: variances below
    the epsilon of the rows' dtype times the largest are rounding."""
    values, vectors = leading_pairs(m.covariance(), k)
    known = int((values > 4 * m.epsilon * values[0]).sum())
    return with_signs(vectors[:, :known].T), values[:known]


def with_signs(directions: Array) -> Array:
    """The directions (k, D), each with its largest entry positive, so that signs do not depend on a library."""
    largest = np.take_along_axis(directions, np.abs(directions).argmax(axis=1, keepdims=True), axis=1)
    return np.multiply(directions, np.where(largest < 0, -1.0, 1.0), order="C")


def _whole_or_none(n_components: Any) -> int | None:
    return None if n_components is None else whole_number(n_components, "n_components", 1)


def _refuse_equal_rows(m: Moments) -> None:
    expect(not are_equal(m), f"rows that differ, got {m.n} equal rows: there is no direction to find in them")


def are_equal(m: Moments) -> bool:
    """Whether the rows spread no more than their mean is rounded."""
    return math.sqrt(max(0.0, float(m.variances().sum()))) <= 4 * m.epsilon * float(np.linalg.norm(m.mean()))
