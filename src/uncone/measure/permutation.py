"""Has a group of rows more in common than a random group of its size? A permutation test."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from uncone.errors import InputError, UndefinedMeasure
from uncone.moments import inverse, row_norms
from uncone.records import MeasureDescription, Measurement
from uncone.rows import Rows, as_samples

Tensor = torch.Tensor
PERMUTATIONS = 999
_MEMBERS_BYTES, _SUMS_BYTES = 64 * 2**20, 32 * 2**20
_PIECE = 1024
_SLACK = 64 * torch.finfo(torch.float64).eps
"""A draw that equals the group must count, in whatever order its sum was rounded."""


PERMUTATION_TEST = MeasureDescription(
    name="permutation_test", range=("-1/(n - 1)", 1.0), better="lower", centered=False,
    says="Whether a group of rows has more in common than random groups of its size.",
    definition="mean cosine of a group of rows, and how often random groups of its size reach it",
    formula="""\
mean cosine of the group;  `details` has p = (b + 1) / (m + 1)
b of m = 999 random groups, drawn without replacement from all rows with a direction, reach it""",
    isotropic="the mean cosine of all rows, which is the mean over random groups",
    reads_badly="the group was chosen because its rows are alike: the test then finds what was put in.",
    source="Phipson & Smyth 2010: p counts the group itself among the draws, so that it is exact and never 0.",
)  # fmt: skip


def permutation_test(
    rows: Any, members: Any, *, seed: int, permutations: int = PERMUTATIONS, mask: Any = None
) -> Measurement:
    """`PERMUTATION_TEST` of a group against all rows. One-sided; the least p is 1 / (m + 1).

    All is computed in float64: an effect counts down to about 1e-14 of the mean cosine. What is nearer is a
    tie, and a tie counts against the group.

    Costs 2 m N D operations, in one pass for as many draws as fit 64 MiB of masks and 32 MiB of sums.
    `PairSums.null` gives mean and standard deviation of the same draws in closed form, from moments alone.

    Args:
        rows, mask: as for `moments_of`, but no moments.
        members: the group: row numbers (n,), or a mask (N,) of bool; of the N rows that `mask` keeps.
        seed: of the draws; the same seed gives the same p.
        permutations: m, at least 1.

    Returns:
        The mean cosine of the group; `details` has `p`, `z` (by the draws' standard deviation `null_std`,
        None where they do not vary), `permutations` and `seed`.

    Raises:
        InputError: row numbers that repeat or do not exist, no permutation. UndefinedMeasure: fewer than two
            rows with a direction.

    >>> x = torch.cat([torch.eye(8)[:1].expand(3, 8), torch.eye(8)[1:]])  # three copies, and seven rows orthogonal to all
    >>> found = uncone.measure.permutation_test(x, [0, 1, 2], seed=0, permutations=99)
    >>> round(float(found), 12), round(found.reference, 4)  # of 45 pairs of rows, 3 have a cosine of 1
    (1.0, 0.0667)
    """
    rows = as_samples(rows, mask)
    if permutations < 1:
        raise InputError(f"expected at least one permutation, got {permutations}: 999 are customary")
    if seed < 0:
        raise InputError(f"expected a seed from 0 up, got {seed}: any whole number will do")
    n, d = rows.shape
    scales, total = torch.empty(n, dtype=torch.float64), torch.zeros(d, dtype=torch.float64)
    for piece, block in zip(torch.split(scales, _PIECE), rows.blocks(_PIECE), strict=True):
        wide = block.double()  # by float32 norms unit rows would be longer or shorter than 1
        piece.copy_(inverse(row_norms(wide)))
        total += piece @ wide
        del block
    chosen = _mask(members, n) & (scales > 0)
    directed, size = (scales > 0).nonzero().flatten(), int(chosen.sum())
    if size < 2:
        raise UndefinedMeasure(
            f"expected at least two rows with a direction in the group, got {size}: pass more rows"
        )
    near = total / len(directed)
    (observed,) = _mean_cosines(rows, scales, near, chosen[None], size).tolist()
    slack = _SLACK * (abs(observed) + 1 / size)
    draws = _draws(seed, directed, rows.shape, size, permutations)
    null = torch.cat([_mean_cosines(rows, scales, near, members, size) for members in draws])
    p = (int((null >= observed - slack).sum()) + 1) / (permutations + 1)
    everywhere = min(1.0, (float(total @ total) - len(directed)) / (len(directed) * (len(directed) - 1)))
    deviation = float(null.std(correction=0))
    z = (observed - everywhere) / deviation if deviation > slack else None
    return PERMUTATION_TEST.measured(
        observed, n=size, d=d, lowest=-1.0 / (size - 1), reference=everywhere,
        details={"p": p, "z": z, "null_std": deviation, "permutations": permutations, "seed": seed},
    )  # fmt: skip


def _mask(members: Any, n: int) -> Tensor:
    given = torch.as_tensor(members).cpu()
    if given.dtype == torch.bool and given.shape == (n,):
        return given
    if given.ndim != 1 or given.is_floating_point() or given.is_complex() or given.dtype == torch.bool:
        raise InputError(
            f"expected row numbers (n,) or a mask ({n},), got {given.dtype} of shape {tuple(given.shape)}: name the rows"
        )
    given = given.long()
    if len(given) and not 0 <= int(given.min()) <= int(given.max()) < n:
        raise InputError(
            f"expected row numbers from 0 to {n - 1}, got {int(given.min())} to {int(given.max())}: name rows that exist"
        )
    if len(torch.unique(given)) < len(given):
        raise InputError("expected each row once, got a row number twice: name each row once")
    return torch.zeros(n, dtype=torch.bool).index_fill_(0, given, True)


def _draws(seed: int, directed: Tensor, shape: tuple[int, int], size: int, count: int) -> Iterator[Tensor]:
    """Random groups as masks (draws, N), as many at a time as memory allows."""
    n, d = shape
    generator = np.random.default_rng(seed)
    most = max(1, min(_MEMBERS_BYTES // n, _SUMS_BYTES // (8 * d)))
    for start in range(0, count, most):
        members = torch.zeros((min(most, count - start), n), dtype=torch.bool)
        for mask in members:
            mask[directed[generator.choice(len(directed), size, replace=False, shuffle=False)]] = True
        yield members


def _mean_cosines(rows: Rows, scales: Tensor, near: Tensor, members: Tensor, size: int) -> Tensor:
    """(|S|^2 - n) / (n (n - 1)) of each group, S its sum of unit rows, float64 (draws,).

    Sums are of u - `near`, any vector near to the rows: where rows share a direction the rounding of long
    sums of u would hide what groups differ by, and would depend on how many groups are multiplied at once.
    """
    sums = torch.zeros(len(members), rows.shape[1], dtype=torch.float64)
    pieces = zip(torch.split(scales, _PIECE), torch.split(members, _PIECE, dim=1), strict=True)
    for (scale, member), block in zip(pieces, rows.blocks(_PIECE), strict=True):
        sums += member.double() @ (block.double() * scale[:, None] - near)
        del block
    sums += size * near
    return ((sums.square().sum(1) - size) / (size * (size - 1))).clamp(-1.0 / (size - 1), 1.0)
