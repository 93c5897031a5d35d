"""Spectrum control (Wang et al. 2020) as a penalty: the head's singular values are pulled to a slow decay."""

from typing import Literal

import torch

Tensor = torch.Tensor


def prior(count: int, kind: Literal["exponential", "polynomial"], top: float, rate: float, power: float) -> Tensor:
    """(count,) float64: top exp(-rate k^power) for k = 0, 1, ..., or top k^-power + rate for k = 1, 2, ..."""
    k = torch.arange(count, dtype=torch.float64)
    return top * torch.exp(-rate * k**power) if kind == "exponential" else top * (k + 1) ** -power + rate


class SpectrumPenalty:
    """weight sum_k (sigma_k - prior_k)^2 of a matrix (V, D), V >= D, by its D x D Gram matrix.

    Singular values lost to rounding (below sqrt(D eps) of the largest) count as 0 and get no gradient.
    """

    def __init__(
        self,
        top: float,
        kind: Literal["exponential", "polynomial"] = "exponential",
        rate: float = 0.01,
        power: float = 1.0,
        weight: float = 1.0,
    ) -> None:
        self.top, self.kind, self.rate, self.power, self.weight = top, kind, rate, power, weight

    def __call__(self, matrix: Tensor) -> Tensor:
        rows = matrix if matrix.dtype == torch.float64 else matrix.float()
        squares = torch.linalg.eigvalsh(rows.T @ rows).flip(0)
        kept = squares > squares[0].detach() * rows.shape[1] * torch.finfo(rows.dtype).eps
        sigma = torch.where(kept, torch.where(kept, squares, 1).sqrt(), 0)
        target = prior(len(sigma), self.kind, self.top, self.rate, self.power).to(sigma)
        return self.weight * (sigma - target).square().sum()
