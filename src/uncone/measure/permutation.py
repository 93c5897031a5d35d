"""Does a group of rows have more in common than a random group of its size? A permutation test."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from uncone.arguments import whole_number
from uncone.errors import InputError, UndefinedMeasure
from uncone.measure.reading import flat_array
from uncone.moments import inverse, row_norms
from uncone.records.measures import MeasureDescription
from uncone.records.parts import Measurement
from uncone.rows import Array, Rows, as_samples
from uncone.threads import on_one_thread, share

_MEMBERS_BYTES, _SUMS_BYTES = 64 * 2**20, 32 * 2**20
_PIECE, _DRAWS = 1024, 128
_SLACK = 2.0**-46  # a draw that equals the group must count, in whatever order its sum was rounded

PERMUTATION_TEST = MeasureDescription(
    "permutation_test", range=("-1/(n - 1)", 1.0), better="lower", centered=False,
    says="Whether a group of rows has more in common than random groups of its size.",
    definition="mean cosine of a group of rows, and how often random groups of its size reach it",
    formula="""\
mean cosine of the group;  `details` has p = (b + 1) / (m + 1)
b of m = 999 random groups, drawn without replacement from all rows with a direction, reach it""",
    isotropic="the mean cosine of all rows, which is the mean over random groups",
    reads_badly="the group was chosen because its rows are alike: the test then finds what you put in.",
    source="Phipson & Smyth 2010: p counts the group itself among the draws, so that it is exact and never 0.",
    interval="none: `details` has `p`, the chance that a random group reaches the value.",
)  # fmt: skip


@on_one_thread
def permutation_test(rows: Any, members: Any, *, seed: int, permutations: int = 999, mask: Any = None) -> Measurement:
    """`PERMUTATION_TEST` of a group against all rows. One-sided; the least p is 1 / (m + 1).

    A difference of less than about 1e-14 of the mean cosine is a tie, which counts against the group. Costs 2 m N D
    operations, in one pass for as many draws as fit in 64 MiB of masks and 32 MiB of sums. `PairSums.null` gives the
    mean and standard deviation of the same draws in closed form.

    Args:
        rows, mask: as for `moments_of`, but no moments.
        members: the group as row numbers (n,), or a mask (N,) of bool, among the N rows that `mask` keeps.
        permutations: m.
    `details` has `p`, and `z` in standard deviations `null_std` of the draws, None where the draws do not vary.
    Undefined: fewer than two rows with a direction.
    >>> x = np.eye(8)[[0, 0, *range(8)]]  # three copies, and seven rows orthogonal to all
    >>> found = permutation_test(x, [0, 1, 2], seed=0, permutations=99)
    >>> round(found, 12), round(found.reference, 4)  # of 45 pairs of rows, 3 have a cosine of 1
    (1.0, 0.0667)
    """
    rows = as_samples(rows, mask)
    if whole_number(permutations, "permutations", most=10**9) < 1:
        raise InputError(f"expected at least one permutation, got {permutations}: 999 are customary")
    if whole_number(seed, "seed") < 0:
        raise InputError(f"expected a seed from 0 up, got {seed}: any whole number will do")
    n, d = rows.shape
    scales, total = np.empty(n), np.zeros(d)
    for piece, block in zip(_split(scales, _PIECE), rows.blocks(_PIECE), strict=True):
        wide = block.astype(np.float64)  # with float32 norms, unit rows would be longer or shorter than 1
        piece[:] = inverse(row_norms(wide))
        total += piece @ wide
        del block
    chosen = _mask(members, n) & (scales > 0)
    directed, size = np.flatnonzero(scales > 0), int(chosen.sum())
    if size < 2:
        raise UndefinedMeasure(f"expected at least two rows with a direction in the group, got {size}: pass more rows")
    near = total / len(directed)
    (observed,) = _mean_cosines(rows, scales, near, chosen[None], size).tolist()
    slack = _SLACK * (abs(observed) + 1 / size)
    draws = _draws(seed, directed, rows.shape, size, permutations)
    null = np.concatenate([_mean_cosines(rows, scales, near, members, size) for members in draws])
    p = (int((null >= observed - slack).sum()) + 1) / (permutations + 1)
    pairs = len(directed) * (len(directed) - 1)
    everywhere = min(1.0, (float(np.square(total).sum()) - len(directed)) / pairs)
    deviation = float(null.std())
    z = (observed - everywhere) / deviation if deviation > slack else None
    details = {"p": p, "z": z, "null_std": deviation, "permutations": permutations, "seed": seed}
    rest: Any = {"lowest": -1 / (size - 1), "reference": everywhere, "details": details}
    return PERMUTATION_TEST.measured(observed, n=size, d=d, **rest)


def _mask(members: Any, n: int) -> Array:
    given = flat_array(members)
    if given.dtype == np.bool_ and given.shape == (n,):
        return given
    if given.ndim != 1 or given.dtype.kind not in "iu":
        got = f"{given.dtype} of shape {given.shape}: name the rows"
        raise InputError(f"expected row numbers (n,) or a mask ({n},), got {got}")
    if len(given) and not 0 <= given.min() <= given.max() < n:
        got = f"{given.min()} to {given.max()}: name rows that exist"
        raise InputError(f"expected row numbers from 0 to {n - 1}, got {got}")
    if len(np.unique(given)) < len(given):
        raise InputError("expected each row once, got a row number twice: name each row once")
    return np.isin(np.arange(n), given)


def _draws(seed: int, directed: Array, shape: tuple[int, int], size: int, count: int) -> Iterator[Array]:
    """Random groups as masks (draws, N), as many at a time as memory allows."""
    (n, d), generator = shape, np.random.default_rng(seed)
    most = max(1, min(_MEMBERS_BYTES // n, _SUMS_BYTES // (8 * d)))
    for start in range(0, count, most):
        members = np.zeros((min(most, count - start), n), np.bool_)
        for mask in members:
            mask[directed[generator.choice(len(directed), size, replace=False, shuffle=False)]] = True
        yield members


def _mean_cosines(rows: Rows, scales: Array, near: Array, members: Array, size: int) -> Array:
    """(|S|^2 - n) / (n (n - 1)) of each group, S its sum of unit rows, float64 (draws,).

    Sums are of u - `near`: otherwise rounding would hide the differences between groups with a shared direction, and
    would depend on how many groups are multiplied at once.
    """
    sums = np.zeros((len(members), rows.shape[1]))
    pieces = zip(_split(scales, _PIECE), _split(members, _PIECE, 1), strict=True)
    for (scale, member), block in zip(pieces, rows.blocks(_PIECE), strict=True):
        unit, draws = (block * scale[:, None] - near, zip(_split(sums, _DRAWS), _split(member, _DRAWS), strict=True))
        share(partial(_add, *some, unit) for some in draws)
        del block
    sums += size * near
    cosines: Array = (np.square(sums, out=sums).sum(1) - size) / (size * (size - 1))
    return cosines.clip(-1.0 / (size - 1), 1.0)


def _add(sums: Array, members: Array, unit: Array) -> None:
    sums += members.astype(np.float64) @ unit


def _split(x: Array, size: int, axis: int = 0) -> list[Array]:
    return np.split(x, range(size, x.shape[axis], size), axis)
