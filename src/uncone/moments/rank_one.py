"""Eigenvalues after a rank-one change, so that one decomposition answers for rows about their mean and about the origin.

With C = V diag(d) V' and z = V' m, the eigenvalues of C + m m' are those of diag(d) + z z': the roots of the secular
equation f(l) = 1 + sum_j z_j^2 / (d_j - l), one between each two neighbouring poles d_j and one beyond the last (Golub 1973).
All roots are found at once, to the rounding of their distance from a pole: D^2 divisions a step for some nine steps,
where a second decomposition takes D^3.
"""

import math
from functools import partial

import torch

from uncone.threads import share

Tensor = torch.Tensor
_TILE = 256
"""Roots searched for at once: enough that a step is arithmetic and not calls."""
_TURNS = 100
_EPS = torch.finfo(torch.float64).eps


def add_rank_one(values: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues of diag(values) + z z', and |z . q| for the unit eigenvector q of each.

    Args:
        values: eigenvalues from 0 up in any order, float64 (D,).
        z: float64 (D,).

    Returns:
        Eigenvalues, largest first, and |z . q| in that order, float64 (D,) each, on the device of `values`.
    """
    order = values.argsort()
    poles, weights, settled = _deflated(values[order].cpu(), z[order].cpu())
    found = [(settled, torch.zeros_like(settled))]
    if len(poles):
        tiles = range(0, len(poles), _TILE)
        found += share(
            partial(_roots, poles, weights, first, min(first + _TILE, len(poles))) for first in tiles
        )
    roots, along = (torch.cat(parts) for parts in zip(*found, strict=True))
    roots, order = roots.sort(descending=True)
    return roots.to(values.device), along[order].to(values.device)


def _deflated(d: Tensor, z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The poles of the secular equation, ascending, their weights z^2, and the eigenvalues that z does not move.

    A pole without weight stays where it is, and of two poles as good as equal a rotation gives all weight to one, as in
    LAPACK's dlaed2; what is neglected is below 8 roundings of the largest number in the matrix.
    """
    total = float(z.square().sum())
    tolerance = 8 * _EPS * max(float(d[-1]), total)
    values, parts = d.tolist(), z.tolist()
    poles: list[float] = []
    kept: list[float] = []
    settled: list[float] = []
    for value, part in zip(values, parts, strict=True):
        if abs(part) * math.sqrt(total) <= tolerance:
            settled.append(value)
            continue
        if poles:
            both = math.hypot(kept[-1], part)
            cosine, sine = part / both, kept[-1] / both
            if abs((value - poles[-1]) * cosine * sine) <= tolerance:
                settled.append(poles[-1] * cosine**2 + value * sine**2)
                poles[-1], kept[-1] = poles[-1] * sine**2 + value * cosine**2, both
                continue
        poles.append(value)
        kept.append(part)
    as_tensor = partial(torch.tensor, dtype=torch.float64)
    return as_tensor(poles), as_tensor(kept).square(), as_tensor(settled)


def _roots(poles: Tensor, weights: Tensor, first: int, stop: int) -> tuple[Tensor, Tensor]:
    """Roots first to stop, root k between poles k and k + 1, and 1 / sqrt(f') at each: what is |z . q| of its eigenvector.

    A step solves c + s / (left - l) + S / (right - l) = 0 for the two poles beside a root, with the nearer pole's own weight
    and the rest of f and f' in c and in the other weight (the fixed weight method, Li 1994); beyond the last pole there is one
    pole to fit. What leaves the bracket is bisected.
    """
    last = stop == len(poles)
    k = torch.arange(first, stop)
    beyond = (k + 1).clamp_max(len(poles) - 1)
    gap = torch.where(k + 1 < len(poles), poles[beyond] - poles[k], weights.sum())
    equation = _Secular(weights, first, stop)
    middle = equation.at(poles - poles[k][:, None], 0.5 * gap)[0]
    to_right = (middle < 0) & (k + 1 < len(poles))
    origin, beside = torch.where(to_right, beyond, k), torch.where(to_right, k, beyond)
    offsets = (
        poles - poles[origin][:, None]
    )  # every root is a distance from its nearer pole: no digits cancel
    own, other = weights[origin], offsets.gather(1, beside[:, None])[:, 0]
    low = torch.where(to_right, -0.5 * gap, torch.where(middle < 0, 0.5 * gap, 0.0))
    high = torch.where(to_right, 0.0, torch.where(middle < 0, gap, 0.5 * gap))
    tau = torch.where(to_right, -0.5 * gap, 0.5 * gap)
    for _ in range(_TURNS):
        f, slope, size = equation.at(offsets, tau)
        low, high = torch.where(f < 0, tau, low), torch.where(f > 0, tau, high)
        done = (f.abs() <= 2 * _EPS * size) | (high - low <= 2 * _EPS * tau.abs())
        if bool(done.all()):
            break
        step = _step(f, slope, own, -tau, other - tau)
        if last:
            near = -tau[-1]
            step[-1] = near + slope[-1] * near**2 / (f[-1] - slope[-1] * near)
        moved = tau + step
        inside = (moved > low) & (moved < high)
        tau = torch.where(done, tau, torch.where(inside, moved, 0.5 * (low + high)))
    return poles[origin] + tau, slope.rsqrt()


class _Secular:
    """f and f' for roots first to stop, in memory that every step uses again."""

    def __init__(self, weights: Tensor, first: int, stop: int) -> None:
        self._inverse = torch.empty(stop - first, len(weights), dtype=torch.float64)
        self._weights, self._first, self._stop = weights, first, stop

    def at(self, offsets: Tensor, tau: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """f, f' and 1 + the sum of the sizes of f's terms, at distances `tau` from the poles that `offsets` are measured from."""
        inverse, weights = torch.sub(offsets, tau[:, None], out=self._inverse).reciprocal_(), self._weights
        below, between, above = slice(self._first), slice(self._first, self._stop), slice(self._stop, None)
        mixed = inverse[:, between]
        negative, positive = inverse[:, below] @ weights[below], inverse[:, above] @ weights[above]
        f = 1 + negative + positive + mixed @ weights[between]
        size = 1 - negative + positive + mixed.abs() @ weights[between]
        return f, inverse.square_() @ weights, size


def _step(f: Tensor, slope: Tensor, own: Tensor, near: Tensor, far: Tensor) -> Tensor:
    """How far to move, beside poles at distances `near` (of weight `own`) and `far`."""
    rest = (far.square() * (slope - own / near.square())).clamp_min(0.0)
    c = f - own / near - rest / far
    b, product = c * (near + far) + own + rest, f * near * far
    root = (b.square() - 4 * c * product).clamp_min(0.0).sqrt()
    return torch.where(b <= 0, (b - root) / (2 * c), 2 * product / (b + root))
