"""What an isotropic cloud of the same size gives: the reference beside every number, never by simulation."""

import math
from functools import lru_cache

import torch

_ANGLES = 8192


def marchenko_pastur(n: float, d: int) -> torch.Tensor:
    """The eigenvalues of the covariance of n isotropic rows of d features with unit variance, largest first.

    Marchenko & Pastur (1967): with g = d/n, the eigenvalues fill [(1 - sqrt g)^2, (1 + sqrt g)^2] with
    density sqrt((l+ - l)(l - l-)) / (2 pi g l); when g > 1, a share 1 - 1/g of them is zero. Returned are the
    d quantiles at (k - 1/2) / d, float64 (d,); their mean is 1.
    """
    return _quantiles(float(n), d).clone()


@lru_cache(maxsize=8)  # one diagnosis asks for the same two or three again and again
def _quantiles(n: float, d: int) -> torch.Tensor:
    g = d / n
    # With l = 1 + g - 2 sqrt(g) cos(t), the density in t is 2 sin(t)^2 / (pi l), free of square-root edges.
    t = torch.linspace(0.0, math.pi, _ANGLES, dtype=torch.float64)
    values = 1 + g - 2 * math.sqrt(g) * torch.cos(t)
    density = 2 * torch.sin(t).square() / (math.pi * values.clamp_min(1e-12))
    mass = torch.cumulative_trapezoid(density, t)
    mass = torch.cat([torch.zeros(1, dtype=torch.float64), mass]) * (min(1.0, 1 / g) / mass[-1])
    wanted = (torch.arange(d, dtype=torch.float64) + 0.5) / d - max(0.0, 1 - 1 / g)
    at = torch.searchsorted(mass, wanted.clamp_min(0.0)).clamp(1, _ANGLES - 1)
    low, high = mass[at - 1], mass[at]
    part = ((wanted - low) / (high - low).clamp_min(1e-300)).clamp(0.0, 1.0)
    quantiles = torch.lerp(values[at - 1], values[at], part)
    quantiles = torch.where(wanted <= 0, 0.0, quantiles).flip(0)
    return quantiles * (d / quantiles.sum())


def participation_ratio(n: float, d: int) -> float:
    """E tr(C)^2 / E |C|_F^2 of an isotropic Gaussian cloud with n degrees of freedom, at least one."""
    n = max(n, 1.0)  # under weights one row may have nearly all of it
    return (d + 2 / n) / (1 + (d + 1) / n)
