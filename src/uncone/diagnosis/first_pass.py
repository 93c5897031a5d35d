"""What the first pass over a matrix gathers: sums, norms, bins of ids, and odd rows."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from uncone import measure
from uncone.measure.groups import Reserved
from uncone.moments import Moments, row_norms
from uncone.moments.drawn import DrawnRows
from uncone.roles import Ticks
from uncone.rows import Array, Rows


@dataclass
class FirstPass:
    moments: Moments
    norms: measure.NormProfile
    bins: measure.GroupMoments
    special: measure.GroupMoments  # of the reserved rows
    in_bin: Array  # reserved rows of each bin, int64
    directed: Array  # those of them that are not zero
    odd_rows: measure.OddRowFinder

    def absorb(self, later: "FirstPass") -> "FirstPass":
        """Both passes merged, in the memory of this one."""
        self.moments, self.norms = self.moments.absorb(later.moments), self.norms.absorb(later.norms)
        self.bins, self.special = self.bins.absorb(later.bins), self.special.absorb(later.special)
        self.in_bin, self.directed = self.in_bin + later.in_bin, self.directed + later.directed
        self.odd_rows = self.odd_rows.absorb(later.odd_rows)
        return self


def first_pass(
    rows: Rows, reserved: Reserved, bin_size: int, tokens: Any, progress: Ticks, *, zero: Array | None = None, **of: Any
) -> FirstPass:
    """One pass over all rows, or over each part of them, merged; `tokens` get each block, in order. `zero`: where a
    zero row of the source went, if it is no longer zero here. `of`: see `_pass`."""
    stop = rows.shape[0] if rows.ids is None else int(rows.ids[-1]) + 1
    work: Any = partial(_pass, reserved, bin_size, stop, rows.shape[0], zero=zero, **of)
    if not rows.parts or tokens.is_asked:
        found: FirstPass = work(rows, 0, tokens=tokens, progress=progress)
        return found
    total: FirstPass = rows.over_parts(work, FirstPass.absorb, progress)
    return total


def _pass(
    reserved: Reserved,
    bin_size: int,
    stop: int,
    n: int,
    rows: Rows,
    first: int,
    *,
    zero: Array | None,
    second: bool = True,
    odd_rows: measure.OddRowFinder | None = None,
    tokens: Any = None,
    progress: Ticks = None,
) -> FirstPass:
    """One pass over the rows from number `first` on, of `n`, whose ids end at `stop`. It looks for odd rows itself if
    no `odd_rows` are given."""
    d, count, all_ids = rows.shape[1], (stop - 1) // bin_size + 1, rows.ids
    moments, norms = Moments(d, second=second, unit_second=True, drawn=True), measure.NormProfile()
    moments.drawn = DrawnRows(d, seed=first)
    bins, special = measure.GroupMoments(count, d), measure.GroupMoments(1, d)
    for sums in (bins, special):
        sums.work_with(moments)
    in_bin, directed = np.zeros((2, count), np.int64)
    finder = odd_rows or measure.OddRowFinder(d, n)
    for start, block in moments.add_all(rows, progress=progress):
        # for one block at a time: for all rows at once they would take 9 bytes a row
        begin = first + start
        ids = np.arange(begin, begin + len(block)) if all_ids is None else all_ids[start : start + len(block)]
        is_reserved, lengths = marked(reserved.indices, begin, len(block)), row_norms(block)
        named, zeros = is_reserved & reserved.by_name, lengths == 0
        norms.update(lengths, ids)
        if odd_rows is None:
            finder.add_rows(begin, block, zeros, named)
        else:  # odd rows were sought among the rows as stored
            zeros = np.zeros_like(zeros) if zero is None else (block == zero.astype(block.dtype)).all(axis=1)
        if tokens is not None:
            tokens.update(block, lengths, zeros)
        finder.add_norms(begin, lengths, zeros | named)
        of_bin = ids // bin_size
        in_bin += np.bincount(of_bin[is_reserved], minlength=count)
        directed += np.bincount(of_bin[is_reserved & (lengths > 0)], minlength=count)
        bins.update(block, of_bin)
        special.update(block, is_reserved.astype(np.int64) - 1)
        del block
    return FirstPass(moments, norms, bins, special, in_bin, directed, finder)


def marked(indices: Array, first: int, count: int) -> Array:
    """Which of `count` rows from `first` on are at `indices` (ascending)."""
    start, stop = np.searchsorted(indices, [first, first + count])
    found = np.zeros(count, np.bool_)
    found[indices[start:stop] - first] = True
    return found
