"""One pass over the rows: the sums that a diagnosis reads, and its bins of ids."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch

from uncone.measure import GroupMoments, NormProfile, Reserved, cosine_between, mean_cosine
from uncone.measure.reading import read
from uncone.moments import Moments, NotFiniteError, row_norms
from uncone.records import Group, Groups
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
    """One pass: moments, norms, bins of ids, reserved rows. `update` is given each block with its norms.

    Raises:
        InputError: rows that are not finite.
    """
    n, d = rows.shape
    all_ids = rows.ids
    stop = n if all_ids is None else int(all_ids[-1]) + 1
    bin_size = bin_size_for(stop)
    moments, profile = Moments(d, unit_second=True, device=device), NormProfile()
    bins = GroupMoments((stop - 1) // bin_size + 1, d, device=device)
    special = GroupMoments(1, d, device=device)
    bins.work_with(moments)
    special.work_with(moments)
    in_bin, directed = torch.zeros((2, (stop - 1) // bin_size + 1), dtype=torch.int64)
    done = 0
    for block in rows.blocks():
        # Numbers and marks of a block's rows alone: of all rows they would take 9 bytes a row.
        ids = torch.arange(done, done + len(block)) if all_ids is None else all_ids[done : done + len(block)]
        is_reserved = _marked(reserved.indices, done, len(block))
        try:
            moments.update(block)
        except NotFiniteError:
            raise nonfinite_error(rows) from None
        norms = row_norms(block)
        profile.update(norms, ids)
        update(block, norms)
        in_bin += torch.bincount(ids[is_reserved] // bin_size, minlength=len(in_bin))
        directed += torch.bincount(ids[is_reserved & (norms > 0)] // bin_size, minlength=len(in_bin))
        bins.update(block, ids // bin_size)
        special.update(block, is_reserved.long() - 1)
        done += len(block)
        del block
        progress(done)
    return Sums(
        moments.finish(), profile, bin_size, bins.finish(), reserved, special.finish()[0],
        list(zip(in_bin.tolist(), directed.tolist(), strict=True)), stop,
    )  # fmt: skip


def _marked(indices: Tensor, first: int, count: int) -> Tensor:
    """Which of the rows from `first` on are at `indices` (ascending), bool (count,)."""
    start, stop = torch.searchsorted(indices, torch.tensor([first, first + count])).tolist()
    marked = torch.zeros(count, dtype=torch.bool)
    marked[indices[start:stop] - first] = True
    return marked


def bin_size_for(n: int) -> int:
    """1,000 ids a bin, or the next 2, 5, 10, ... thousand that leaves at most 200 bins."""
    size, step = 1000, 0
    while n > MOST_BINS * size:
        size = size * 5 // 2 if step % 3 == 1 else size * 2
        step += 1
    return size


def groups_of(sums: Sums) -> Groups:
    """The readings of each bin, and of the reserved rows."""
    reserved, of_reserved = sums.reserved, sums.reserved_sums
    special = _group(reserved.description, 0, 0, of_reserved, None, (len(reserved.indices), 0))
    bins = []
    for k, (m, shared) in enumerate(zip(sums.bins, sums.reserved_in_bin, strict=True)):
        if m.n:
            start, stop = k * sums.bin_size, min((k + 1) * sums.bin_size, sums.stop)
            bins.append(_group(f"ids {start:,} to {stop - 1:,}", start, stop, m, of_reserved, shared))
    return Groups(sums.bin_size, reserved.description, special, tuple(bins), reserved.by_name)


def _group(
    name: str, start: int, stop: int, m: Moments, reserved: Moments | None, shared: tuple[int, int]
) -> Group:
    mean = m.mean_norm()
    spread = max(0.0, m.norm_square_sum / m.weight - mean**2) ** 0.5
    cosine = read("mean_cosine", mean_cosine, m).value
    to_reserved = None
    if reserved is not None:
        to_reserved = read("cosine_between", partial(cosine_between, shared=shared[1]), reserved, m).value
    return Group(name, start, stop, m.n, m.zero_rows, mean, spread, cosine, to_reserved, shared[0])
