"""Whitening: give every direction the same variance, or nearer the same."""

import warnings
from collections.abc import Mapping
from typing import ClassVar, Literal

import torch

from uncone.errors import InputError
from uncone.moments.eigen import consume_to_eigen
from uncone.threads import alone
from uncone.transforms.affine import Affine
from uncone.transforms.components import refuse_equal_rows, with_signs
from uncone.transforms.fitting import Summary, Transformation, check_share, check_whole, require_rows

Tensor = torch.Tensor
LEAST_ROWS_PER_FEATURE = 5
"""With fewer rows the small eigenvalues are mostly noise, which whitening makes as large as the rest."""


class Whiten(Transformation):
    """Divide every principal direction by a power of its deviation: y = (x - mean) U L^(-power / 2) (PCA), or
    the same times U' (ZCA).

    U L U' is the covariance of the rows, divided by N - 1, with eigenvalues below `floor` times the largest
    raised to that. Power 1 makes the covariance the identity (PCA: Su et al. 2021, Whitening Sentence
    Representations; ZCA: Bell & Sejnowski 1997, which changes the rows least and keeps their coordinates);
    power 0 only centres and turns. Between, an eigenvalue l becomes l^(1 - power). Full whitening often hurts
    retrieval: it makes the directions of noise as loud as the rest.

    Args:
        kind: "zca" or "pca".
        power: from 0 to 1.
        floor: the least eigenvalue, as a share of the largest: where there is none, numbers would explode.
        n_components: keep only so many directions: PCA gives rows (N, n_components), ZCA rows (N, D) of that
            rank.
        force: fit on fewer than 5 D rows all the same.

    Attributes after `fit`:
        mean_: float64 (D,).
        components_: the unit directions as rows, float64 (k, D), the one of the largest variance first.
        variances_: their eigenvalues before the floor, float64 (k,).

    Raises:
        InputError: on `fit`, for fewer than 5 D rows unless forced, fewer than two, or rows that are all
            equal.

    Example:
        >>> import torch
        >>> x = torch.tensor([[4.0, 0.0], [-4.0, 0.0], [0.0, 1.0], [0.0, -1.0]], dtype=torch.float64)
        >>> y = Whiten(power=1, force=True).fit_transform(x)
        >>> torch.cov(y.T).round(decimals=6).tolist()
        [[1.0, 0.0], [0.0, 1.0]]
    """

    tensors: ClassVar[Mapping[str, str]] = {"mean_": "D", "components_": "KD", "variances_": "K"}
    mean_: Tensor
    components_: Tensor
    variances_: Tensor

    def __init__(
        self,
        kind: Literal["zca", "pca"] = "zca",
        power: float = 0.5,
        floor: float = 1e-4,
        n_components: int | None = None,
        force: bool = False,
    ) -> None:
        if kind not in ("zca", "pca"):
            raise InputError(f"expected kind 'zca' or 'pca', got {kind!r}: choose one of the two")
        self.kind: Literal["zca", "pca"] = kind
        self.power, self.floor = check_share(power, "power"), check_share(floor, "floor")
        self.force = bool(force)
        if self.floor == 0:
            raise InputError("expected a floor above 0, got 0: directions without variance would explode")
        self.n_components = None if n_components is None else check_whole(n_components, "n_components", 1)

    def _solve(self, summary: Summary) -> Affine:
        m = summary.moments
        k = m.d if self.n_components is None else self.n_components
        if k > m.d:
            raise InputError(
                f"expected at most {m.d} components of rows of {m.d} features, got {k}: choose fewer"
            )
        self._look_at_rows(summary)
        refuse_equal_rows(m)
        self.mean_ = m.mean().cpu()
        values, vectors = consume_to_eigen(m.covariance())
        values = values.cpu().clamp_min(0.0)
        self.variances_ = values[:k].clone()
        self.components_ = with_signs(vectors[:, :k].T.cpu())
        scale = self.variances_.clamp_min(self.floor * float(values[0])).pow(-self.power / 2)
        weight = self.components_.T * scale
        return Affine(self.mean_, weight if self.kind == "pca" else alone(lambda: weight @ self.components_))

    def _look_at_rows(self, summary: Summary) -> None:
        require_rows(summary, 2, "a covariance")
        n, d = summary.counted, summary.moments.d
        if n < LEAST_ROWS_PER_FEATURE * d and not self.force:
            raise InputError(
                f"expected at least {LEAST_ROWS_PER_FEATURE * d} rows to whiten {d} features, got {n}: its "
                "small eigenvalues would be noise; pass more rows, use AllButTheTop, or force it (--force, "
                "force=True)"
            )
        if n < d:
            message = f"whitening {d} features by {n} rows: at least {d - n + 1} directions are raised to the floor and mean nothing"
            self.warnings_ = (message,)
            warnings.warn(message, stacklevel=5)
