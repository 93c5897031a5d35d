"""Spectrum penalty: the head's singular values are drawn to a slowly decaying prior."""

from dataclasses import dataclass
from typing import Literal

import torch

Tensor = torch.Tensor


@dataclass(frozen=True)
class SpectrumPenalty:
    """`weight` * sum_k (sigma_k - prior_k)^2 over the singular values sigma_1 >= ... >= sigma_D of the head (V, D).

    After Wang et al., "Improving Neural Language Generation with Spectrum Control" (ICLR 2020). The priors are
    "exponential", c1 exp(-c2 k^g), and "polynomial", c1 k^g + c2 (it decays with g < 0), k = 1 ... D. NOT VERIFIED:
    both forms were read through others only, a second note has c1 k^-g, and the paper's constants are not known here.
    The paper learns U, sigma and V as parameters and penalises |U'U - I|^2 + |V'V - I|^2 too. This penalty instead
    takes the singular values of the head as it is, through its D x D Gram matrix: O(V D^2 + D^3), no new parameters.

    Singular values below sqrt(D eps) sigma_1 are lost in the Gram matrix. They count as 0 and have no gradient, as
    that of a singular value at 0 has no direction: an exactly collapsed head stays collapsed under the penalty alone.
    """

    prior: Literal["exponential", "polynomial"] = "exponential"
    c1: float = 1.0
    c2: float = 0.1
    g: float = 0.5
    weight: float = 1.0

    def target(self, d: int) -> Tensor:
        """The prior of d singular values (d,), in float64; ValueError where it rises or is negative."""
        k = torch.arange(1, d + 1, dtype=torch.float64)
        if self.prior == "exponential":
            values = self.c1 * torch.exp(-self.c2 * k**self.g)
        elif self.prior == "polynomial":
            values = self.c1 * k**self.g + self.c2
        else:
            raise ValueError(f"expected prior 'exponential' or 'polynomial', got {self.prior!r}: use one of them")
        if bool((values < 0).any()) or bool((values.diff() > 0).any()):
            got = f"c1={self.c1}, c2={self.c2}, g={self.g}"
            raise ValueError(
                f"expected a prior that falls and stays >= 0, got {got}: try polynomial with g < 0, c2 >= 0"
            )
        return values

    def __call__(self, rows: Tensor) -> Tensor:
        """The penalty, a scalar, of rows (V, D)."""
        rows = rows if rows.dtype == torch.float64 else rows.float()  # eigenvalues of 16-bit matrices do not exist
        values = torch.linalg.eigvalsh(rows.T @ rows).flip(0)  # its gradient divides by no gap between eigenvalues
        floor = values[0].detach() * torch.finfo(values.dtype).eps * len(values)
        kept = values > floor
        sigma = torch.where(kept, torch.where(kept, values, 1.0).sqrt(), 0.0)
        return self.weight * (sigma - self.target(len(values)).to(sigma)).square().sum()
