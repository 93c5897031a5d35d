"""SIGReg for unit vectors: a sliced Epps-Pulley test of states against an isotropic Gaussian."""

import math
from dataclasses import dataclass, field

import torch

Tensor = torch.Tensor


def epps_pulley(x: Tensor, points: int = 17, reach: float = 5.0) -> Tensor:
    """N * integral of |mean_j exp(i t x_j) - exp(-t^2 / 2)|^2 phi(t) dt of each column of x (N, S): (S,).

    phi is the standard normal density, the integral a trapezoid rule on `points` points of [-reach, reach]. Two values
    that are pi (points - 1) / reach apart, 10 by default, look like the same value on that grid.
    """
    t = torch.linspace(-reach, reach, points, dtype=x.dtype, device=x.device)
    angles = x.unsqueeze(-1) * t
    gauss = torch.exp(-t.square() / 2)
    gap = (angles.cos().mean(0) - gauss).square() + angles.sin().mean(0).square()
    return len(x) * torch.trapezoid(gap * gauss / math.sqrt(2 * math.pi), t, dim=-1)


def sigreg(states: Tensor, directions: Tensor) -> Tensor:
    """The mean statistic of states (N, D), made unit vectors times sqrt(D), along directions (D, S) of norm 1."""
    square = states.square().sum(1, keepdim=True)
    norms = torch.where(square > 0, square, 1.0).sqrt()  # a zero row stays zero, with a gradient that is finite
    return epps_pulley(states / norms * math.sqrt(states.shape[1]) @ directions).mean()


@dataclass
class SIGReg:
    """`weight` times the mean Epps-Pulley statistic of unit states along `slices` new random directions a call.

    Formula of LeJEPA (arXiv 2511.08544), after Epps and Pulley (1983); nothing is from its code, which is CC BY-NC.
    A unit vector's entries have variance 1/D, not 1: without the factor sqrt(D) all projections look like one point and
    the statistic does not move. Price: O(N D slices + N slices points), that memory too. Directions come from a
    generator of its own on the CPU, so ranks of the same seed draw the same ones.

    The statistic has the factor N of a test: at a fixed deviation the penalty grows with the batch.
    """

    weight: float = 0.01
    slices: int = 64
    seed: int = 0
    _generator: torch.Generator = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._generator = torch.Generator().manual_seed(self.seed)

    def __call__(self, states: Tensor, labels: Tensor | None = None) -> Tensor:
        """The penalty, a scalar, of states (N, D); labels are not used."""
        states = states if states.dtype == torch.float64 else states.float()
        drawn = torch.randn(states.shape[1], self.slices, dtype=torch.float64, generator=self._generator)
        return self.weight * sigreg(states, (drawn / drawn.norm(dim=0)).to(states))
