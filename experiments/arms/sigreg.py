"""SIGReg (LeJEPA, 2511.08544), from its formula alone: sliced Epps-Pulley tests against N(0, I)."""

import math

import torch

Tensor = torch.Tensor


class SIGReg:
    """weight times the mean over random directions of the integral over t, with the normal density as window, of
    |mean_n exp(i t x_n) - exp(-t^2 / 2)|^2. Rows x (N, D) are scaled to norm sqrt(D) where `unit`: rows of norm 1 have
    a variance of 1/D along a direction, and so never fit N(0, I). Directions are new at each call."""

    def __init__(self, weight: float = 1.0, slices: int = 64, unit: bool = True, seed: int = 0) -> None:
        self.weight, self.slices, self.unit = weight, slices, unit
        self.generator = torch.Generator().manual_seed(seed)

    def __call__(self, points: Tensor, labels: Tensor | None = None) -> Tensor:
        rows = points if points.dtype == torch.float64 else points.float()
        if self.unit:
            rows = torch.nn.functional.normalize(rows, dim=1) * math.sqrt(rows.shape[1])
        drawn = torch.randn(rows.shape[1], self.slices, generator=self.generator, dtype=torch.float64).to(rows)
        return self.weight * epps_pulley(rows @ torch.nn.functional.normalize(drawn, dim=0)).mean()


def epps_pulley(values: Tensor) -> Tensor:
    """(N, S) -> (S,): the integral for each column, by the trapezoid rule on 65 points of [-6, 6]."""
    t = torch.linspace(-6, 6, 65, dtype=values.dtype, device=values.device)
    normal = torch.exp(-t.square() / 2)
    angles = values[..., None] * t
    gap = (angles.cos().mean(0) - normal).square() + angles.sin().mean(0).square()
    return (gap * normal).sum(-1) * (12 / 64) / math.sqrt(2 * math.pi)
