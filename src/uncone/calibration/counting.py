"""Scores of pairs counted in fine bins, block by block, and apart for each of a few random groups of rows."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import torch

from uncone.threads import share

Tensor = torch.Tensor
Ints = npt.NDArray[np.int64]
GROUPS = 32
"""Random groups of rows counted apart: enough to know the spread between groups within an eighth."""


@dataclass(frozen=True)
class Grid:
    """`bins` bins of `width` from `low`; scores beyond either end fall into its bin."""

    low: float
    width: float
    bins: int

    def numbers(self, scores: Tensor) -> Tensor:
        """The bin of each score, int32 of the same shape; `scores` is used up."""
        scores.sub_(self.low).div_(self.width).clamp_(0, self.bins - 1)
        return scores.to(torch.int32)


@dataclass(frozen=True)
class Counts:
    """Pairs by bin, for each group of rows and each group of queries (None within one set): (G, bins) int64.

    A pair within one set is counted in the groups of both its rows, so that `of_rows` sums to twice the
    pairs.
    """

    grid: Grid
    of_rows: Ints
    of_queries: Ints | None

    def total(self) -> Ints:
        """All pairs by bin, (bins,)."""
        total: Ints = self.of_rows.sum(axis=0)
        return total // 2 if self.of_queries is None else total


def count_pairs(
    x: Tensor,
    queries: Tensor | None,
    grid: Grid,
    *,
    left_out: tuple[Tensor, Tensor] | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> Counts:
    """Count the scores of all pairs of rows of `x` (n, D), or of `queries` (m, D) with rows of `x`.

    Args:
        x: rows in random order, float32.
        queries: as many features, in random order; None for the n (n - 1) / 2 pairs within `x`.
        grid: the bins.
        left_out: pairs that are not counted, as their places (in `queries` or `x`, in `x`), int64 (K,) each.
        progress: called with (what is done, pairs done, pairs in all).

    Returns:
        The counts, the same on any number of threads.
    """
    within = queries is None
    of_rows = np.zeros((min(GROUPS, len(x)), grid.bins), np.int64)
    of_queries = None if queries is None else np.zeros((min(GROUPS, len(queries)), grid.bins), np.int64)
    columns = _cuts(len(x), len(of_rows))
    strips = columns if of_queries is None or queries is None else _cuts(len(queries), len(of_queries))
    dropped = _by_block(left_out, strips, columns, within=within)
    total, done = (len(x) * (len(x) - 1) // 2 if queries is None else len(x) * len(queries)), 0
    for g, strip in enumerate(strips):
        rows = x[strip] if queries is None else queries[strip]
        wanted = range(g, len(columns)) if within else range(len(columns))
        tasks = [
            partial(_count, rows, x[columns[h]], grid, within and g == h, dropped.get((g, h))) for h in wanted
        ]
        for h, counted in zip(wanted, share(tasks), strict=True):
            of_rows[h] += counted
            (of_rows if of_queries is None else of_queries)[g] += counted
            done += int(counted.sum())
        if progress is not None:
            progress("counting pairs", done, total)
    return Counts(grid, of_rows, of_queries)


def _count(
    a: Tensor, b: Tensor, grid: Grid, is_diagonal: bool, left_out: tuple[Tensor, Tensor] | None
) -> Ints:
    """Pairs of rows of `a` and `b` by bin, (bins,); on the diagonal those of a row with a later one."""
    numbers = grid.numbers(a @ b.T)
    chosen = numbers[tuple(torch.triu_indices(len(a), len(b), offset=1))] if is_diagonal else numbers.view(-1)
    counted = torch.bincount(chosen, minlength=grid.bins)
    if left_out is not None:
        counted -= torch.bincount(numbers[left_out], minlength=grid.bins)
    return np.asarray(counted.numpy())


def _cuts(n: int, groups: int) -> list[slice]:
    """Consecutive groups of nearly equal sizes."""
    edges = [n * number // groups for number in range(groups + 1)]
    return [slice(start, stop) for start, stop in pairwise(edges)]


def _by_block(
    pairs: tuple[Tensor, Tensor] | None, strips: list[slice], columns: list[slice], *, within: bool
) -> dict[tuple[int, int], tuple[Tensor, Tensor]]:
    """The pairs that lie in each block, as places in it; each pair once."""
    if pairs is None or len(pairs[0]) == 0:
        return {}
    both = torch.stack(pairs)
    first, second = torch.unique(both.sort(dim=0).values if within else both, dim=1).contiguous()
    g = torch.bucketize(first, torch.tensor([cut.stop for cut in strips]), right=True)
    h = torch.bucketize(second, torch.tensor([cut.stop for cut in columns]), right=True)
    blocks = {}
    for a, b in set(zip(g.tolist(), h.tolist(), strict=True)):
        mine = (g == a) & (h == b)
        blocks[a, b] = (first[mine] - strips[a].start, second[mine] - columns[b].start)
    return blocks
