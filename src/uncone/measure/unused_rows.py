"""The rows known to be unused, and how near all others lie to them: what untrained rows are told by."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from uncone.errors import InputError, UndefinedMeasure
from uncone.measure.false_discovery import robust_null
from uncone.measure.groups import FEWEST_RESERVED, named_reserved
from uncone.measure.reading import check_moments
from uncone.moments import Moments
from uncone.records.wording import counted
from uncone.rows import Rows

Tensor = torch.Tensor
_PIECE = 4096  # known-unused rows read at once
_ROUNDOFF = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
"""By dtype, what storing a number rounds off at most, as a share of it; a quantised row is taken for its float32 values."""


@dataclass(frozen=True)
class UntrainedAxes:
    """What rows are compared with: `axes` (D, 3) are the mean row, the sum of the centred known-unused rows, and the first
    principal component; zero where there is none. `expected` rows are known to be unused, `reference` rows make the sum."""

    rows: Rows
    axes: Tensor
    mean_norm: float
    expected: Tensor
    reference: Tensor
    why: str

    @property
    def mean(self) -> Tensor:
        """The mean row, which all others are compared about (D,)."""
        return self.axes[:, 0]


def untrained_axes(
    rows: Rows, m: Moments, *, counts: Tensor | None = None, known: tuple[Tensor, str] | None = None
) -> UntrainedAxes:
    """The rows known to be unused (`known_unused`, if not given), and what to project all rows on. Reads the known-unused rows."""
    n, d = rows.shape
    if counts is not None and counts.shape != (n,):
        raise InputError(f"expected counts of shape ({n},), got {tuple(counts.shape)}: give one a row")
    check_moments(m, n)
    expected, why = known_unused(rows.labels, n) if known is None else known
    reference, why = _reference(expected, why, counts)
    mean, unused, first = torch.zeros(3, d, dtype=torch.float64)
    mean += m.mean().cpu()
    if bool(reference.any()):
        unused += _sum_of(rows, reference, mean)
        if n > d > 1:
            first += m.leading_directions(1, centered=True)[:, 0].cpu()
    return UntrainedAxes(
        rows, torch.stack([mean, unused, first], dim=1), m.mean_norm(), expected, reference, why
    )


def known_unused(labels: Sequence[str | None] | None, n: int) -> tuple[Tensor, str]:
    """The rows that no text can have used, a mask (N,) and in words: their token is reserved by name, or they have none."""
    unused = torch.zeros(n, dtype=torch.bool)
    if labels is None:
        return unused, ""
    named, without = named_reserved(labels), [i for i, label in enumerate(labels) if label is None]
    unused[named + without] = True
    parts = [f"{counted(len(named), 'row')} whose token is reserved by name"] * bool(named)
    parts += [f"{counted(len(without), 'row')} without a token"] * bool(without)
    return unused, " and ".join(parts)


def _reference(unused: Tensor, why: str, counts: Tensor | None) -> tuple[Tensor, str]:
    """The rows that others are compared with: those known to be unused, else those of count 0; none where both are few."""
    if int(unused.sum()) >= FEWEST_RESERVED:
        return unused, why
    unseen = torch.zeros_like(unused) if counts is None else counts == 0
    if int(unseen.sum()) < FEWEST_RESERVED:
        return torch.zeros_like(unused), ""
    few = f"fewer than {FEWEST_RESERVED} are reserved by name or have no token"
    return unseen, f"{int(unseen.sum()):,} rows of count 0, because {few}"


def _sum_of(rows: Rows, members: Tensor, mean: Tensor) -> Tensor:
    """The sum of the centred rows that are members, float64 (D,)."""
    total = torch.zeros(rows.shape[1], dtype=torch.float64)
    for part in torch.split(members.nonzero().flatten(), _PIECE):
        total += (rows.take(part).double() - mean).sum(0)
    return total


@dataclass(frozen=True)
class Evidence:
    """By row, float64 (N,): the norm, and the cosines to the known-unused rows and to the mean row, None without such.
    `removed` says whether the first principal component was removed from the former."""

    norms: Tensor
    to_unused: Tensor | None
    to_mean: Tensor | None
    removed: bool

    @classmethod
    def of(cls, axes: UntrainedAxes, norms: Tensor, products: Tensor, squares: Tensor) -> "Evidence":
        """From the norms of the rows x, and of y = x - mean the products with the axes (N, 3) and the squared lengths (N,).

        Raises:
            UndefinedMeasure: the rows are so far from 0 that their dtype does not hold what they differ by.
        """
        mean, unused, first = axes.axes.T
        along_mean, along, along_first = products.T.contiguous()
        length, to_mean = float(mean.norm()), None
        if length > 1e-5 * axes.mean_norm:  # else it is rounding, as of a head whose mean row was subtracted
            to_mean = torch.where(norms > 0, (along_mean + length**2) / (norms * length), 0.0).clamp(
                -1.0, 1.0
            )
        if not bool(unused.any()):
            return cls(norms, None, to_mean, False)
        y_square = torch.where(
            squares > (_ROUNDOFF.get(axes.rows.dtype, 2.0**-24) * norms).square(), squares, 0.0
        )
        _require_differences(axes, norms, y_square)
        u_square, u_first = float(unused @ unused), float(unused @ first)
        plain = _cosines(along, y_square, u_square, axes.reference)
        if not bool(first.any()):
            return cls(norms, plain, to_mean, False)
        # z is y without its part along `first`; what is left of a row along it is the rounding of the products
        z_square = y_square - along_first.square()
        z_square = torch.where(z_square > 8 * torch.finfo(axes.rows.widened).eps * y_square, z_square, 0.0)
        without = _cosines(
            along - u_first * along_first, z_square, max(0.0, u_square - u_first**2), axes.reference
        )
        better = _stand_out(without, axes) > _stand_out(plain, axes)
        return cls(norms, without if better else plain, to_mean, better)


def _require_differences(axes: UntrainedAxes, norms: Tensor, y_square: Tensor) -> None:
    """
    Raises:
        UndefinedMeasure: most rows equal their mean within the rounding of their dtype.
    """
    directed = int((norms > 0).sum())
    lost = int(((norms > 0) & (y_square == 0)).sum())
    if 2 * lost > directed:
        raise UndefinedMeasure(
            f"expected rows that differ by more than {axes.rows.dtype} rounds off, got {lost:,} of {directed:,} equal to their mean row "
            f"(length {float(axes.mean.norm()):.3g}) within rounding: subtract the mean row before they are stored, or store float64"
        )


def _stand_out(readings: Tensor, axes: UntrainedAxes) -> float:
    """By how many standard deviations of the ordinary rows the median of the known-unused ones lies above them."""
    try:
        null = robust_null(readings[~axes.expected])
    except UndefinedMeasure:
        return -math.inf
    return (float(readings[axes.reference].median()) - null.center) / null.scale


def _cosines(along: Tensor, squares: Tensor, square: float, members: Tensor) -> Tensor:
    """cos(y, u) for every row from y . u, |y|^2 and |u|^2; a member of the sum u is compared with the sum of the others."""
    dot = torch.where(members, along - squares, along)
    rest = torch.where(members, (square - 2 * along + squares).clamp_min(0.0), square)
    length = squares.sqrt() * rest.sqrt()
    return torch.where(length > 0, dot / length, 0.0).clamp(-1.0, 1.0)
