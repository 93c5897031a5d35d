"""One pass over the rows: the sums that all but the second pass reads."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from uncone.measure import GroupMoments, NormProfile, Reserved
from uncone.moments import Moments, NotFiniteError, row_norms
from uncone.rows import Rows, nonfinite_error

Tensor = torch.Tensor
MOST_BINS = 200


@dataclass(frozen=True)
class Sums:
    """What one pass over the rows leaves."""

    moments: Moments
    norms: NormProfile
    bin_size: int
    bins: list[Moments]
    reserved: Reserved
    reserved_sums: Moments
    reserved_in_bin: list[tuple[int, int]]
    """For each bin: how many of its rows are reserved, and how many of those are not zero."""
    stop: int
    """One more than the last id."""


def sum_rows(
    rows: Rows,
    reserved: Reserved,
    *,
    device: str,
    update: Callable[[Tensor, Tensor], None],
    progress: Callable[[int], None],
) -> Sums:
    """One pass: moments, norms, bins of ids, and the reserved rows. `update` is given each block with its norms.

    Raises:
        InputError: rows that are not finite.
    """
    n, d = rows.shape
    ids = torch.arange(n) if rows.ids is None else rows.ids
    bin_size = bin_size_for(int(ids[-1]) + 1)
    is_reserved = torch.zeros(n, dtype=torch.bool)
    is_reserved[reserved.indices] = True
    moments, profile = Moments(d, unit_second=True, device=device), NormProfile()
    bins = GroupMoments(int(ids[-1]) // bin_size + 1, d, device=device)
    special = GroupMoments(1, d, device=device)
    bins.work_with(moments)
    special.work_with(moments)
    in_bin, directed = torch.zeros((2, int(ids[-1]) // bin_size + 1), dtype=torch.int64)
    done = 0
    for block in rows.blocks():
        part = slice(done, done + len(block))
        try:
            moments.update(block)
        except NotFiniteError:
            raise nonfinite_error(rows) from None
        norms = row_norms(block)
        profile.update(norms, ids[part])
        update(block, norms)
        in_bin += torch.bincount(ids[part][is_reserved[part]] // bin_size, minlength=len(in_bin))
        directed += torch.bincount(ids[part][is_reserved[part] & (norms > 0)] // bin_size, minlength=len(in_bin))
        bins.update(block, ids[part] // bin_size)
        special.update(block, is_reserved[part].long() - 1)
        done += len(block)
        del block
        progress(done)
    return Sums(
        moments.finish(), profile, bin_size, bins.finish(), reserved, special.finish()[0],
        list(zip(in_bin.tolist(), directed.tolist(), strict=True)), int(ids[-1]) + 1,
    )  # fmt: skip


def bin_size_for(n: int) -> int:
    """1,000 ids a bin, or the next 2, 5, 10, ... thousand that leaves at most 200 bins."""
    size, step = 1000, 0
    while n > MOST_BINS * size:
        size = size * 5 // 2 if step % 3 == 1 else size * 2
        step += 1
    return size
