"""Scores of pairs counted in bins, by random groups of rows, whose spread gives intervals."""

import math
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from uncone import threads
from uncone.calibration.scores.record import Share, edge_of
from uncone.roles import Progress

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Rows32 = npt.NDArray[np.float32]
Pairs = tuple[Ints, Ints]  # places on either side, (K,) each
_GROUPS = 32  # random groups of rows: enough to know the spread between them within an eighth
_PIECE = 256  # rows whose scores a core's cache holds
_T = {math.inf: 1.959964, 120: 1.979930, 60: 2.000298, 30: 2.042272, 20: 2.085963, 15: 2.131450, 10: 2.228139}
_T |= {8: 2.306004, 6: 2.446912, 5: 2.570582, 4: 2.776445, 3: 3.182446, 2: 4.302653, 1: 12.706205}
"""Student's t of a two-sided 95% interval, by degrees of freedom."""


@dataclass(frozen=True)
class Grid:
    """Scores beyond either end fall into its bin."""

    low: float
    width: float
    bins: int

    def edge(self, number: int) -> float:
        return edge_of(self.low, self.width, number)

    def numbers(self, scores: Rows32) -> Ints:
        """The bin of each score; `scores` is overwritten."""
        scores -= self.low
        scores /= self.width
        return np.clip(scores, 0, self.bins - 1, out=scores).astype(np.intp)


@dataclass(frozen=True)
class Counts:
    """Pairs by bin, for each group of rows and each group of queries: (G, bins) int64. Within one set a pair counts in
    the groups of both rows."""

    grid: Grid
    of_rows: Ints
    of_queries: Ints | None

    def total(self) -> Ints:
        total: Ints = self.of_rows.sum(axis=0)
        return total // 2 if self.of_queries is None else total


def count_pairs(
    x: Rows32, queries: Rows32 | None, grid: Grid, *, left_out: Pairs | None = None, progress: Progress | None = None
) -> Counts:
    """Count the scores of all pairs of rows of `x` (n, D), or of `queries` (m, D) with rows of `x`, in random order,
    except those at `left_out`: places in `queries` or `x` and in `x`."""
    within, first = queries is None, x if queries is None else queries
    of_rows = np.zeros((min(_GROUPS, len(x)), grid.bins), np.int64)
    of_first = of_rows if within else np.zeros((min(_GROUPS, len(first)), grid.bins), np.int64)
    columns, strips = _cuts(len(x), len(of_rows)), _cuts(len(first), len(of_first))
    dropped = _by_block(left_out, strips, columns, within)
    total, done = (len(x) * (len(x) - 1) // 2 if within else len(x) * len(first)), 0
    for g, strip in enumerate(strips):
        wanted = range(g if within else 0, len(columns))
        count = partial(_count, first[strip], grid)
        tasks = [partial(count, x[columns[h]], within and g == h, dropped.get((g, h))) for h in wanted]
        for h, counted in zip(wanted, threads.share(tasks), strict=True):
            of_rows[h] += counted
            of_first[g] += counted
            done += int(counted.sum())
        if progress is not None:
            progress("counting pairs", done, total)
    return Counts(grid, of_rows, None if within else of_first)


def _count(a: Rows32, grid: Grid, b: Rows32, is_diagonal: bool, left_out: Pairs | None) -> Ints:
    """Counts by bin, (bins,); on the diagonal, only pairs of a row with a later row."""
    counted = np.zeros(grid.bins, np.int64)
    for start in range(0, len(a), _PIECE):
        numbers = grid.numbers(a[start : start + _PIECE] @ b.T)
        later = ~np.tri(len(numbers), len(b), start, dtype=np.bool_) if is_diagonal else ...
        counted += np.bincount(numbers[later].ravel(), minlength=grid.bins)
        if left_out is not None:
            first, second = left_out
            here = (start <= first) & (first < start + _PIECE)
            counted -= np.bincount(numbers[first[here] - start, second[here]], minlength=grid.bins)
    return counted


def _cuts(n: int, groups: int) -> list[slice]:
    return [slice(n * number // groups, n * (number + 1) // groups) for number in range(groups)]


def _by_block(
    pairs: Pairs | None, strips: list[slice], columns: list[slice], within: bool
) -> dict[tuple[int, int], Pairs]:
    """The pairs of each block, as places in it; each pair once."""
    if pairs is None or len(pairs[0]) == 0:
        return {}
    first, second = np.sort(pairs, axis=0) if within else pairs
    first, second = np.divmod(np.unique(first * columns[-1].stop + second), columns[-1].stop)
    sides = ((strips, first), (columns, second))
    g, h = (np.searchsorted([cut.stop for cut in cuts], places, side="right") for cuts, places in sides)
    blocks = {}
    for a, b in set(zip(g.tolist(), h.tolist(), strict=True)):
        mine = (g == a) & (h == b)
        blocks[a, b] = (first[mine] - strips[a].start, second[mine] - columns[b].start)
    return blocks


@dataclass(frozen=True)
class Curve:
    """The share of pairs at or above each edge, with its 95% interval, (bins + 1,) each."""

    grid: Grid
    share: Floats
    low: Floats
    high: Floats

    def at(self, score: float) -> Share:
        """The share at the nearest edge."""
        number = round(min(max((score - self.grid.low) / self.grid.width, 0), len(self.share) - 1))
        return Share(*(float(edges[number]) for edges in (self.share, self.low, self.high)))

    def span(self, rate: float) -> tuple[float, float]:
        """The 95% interval of the score that the share `rate` reaches (Woodruff 1952)."""
        first = int(np.argmax(self.low <= rate))
        last = max(first, len(self.high) - 1 - int(np.argmax(self.high[::-1] >= rate)))
        return self.grid.edge(first), self.grid.edge(last)


def curve_of(counts: Counts) -> Curve:
    """The share of pairs at or above each edge, with an interval for other rows drawn in the same way.

    The share is a two-sample U-statistic (Hoeffding 1948; Lee 1990, section 2.2):
        Var = z_q / m + z_x / n + a term of single pairs; within one set 4 z / n.
    Each z / n is the spread of the shares of random groups of rows, less the term of single pairs, which the spread
    counts once too often; the variance is at least the variance of independent pairs. The interval is Wilson's for as
    many independent pairs as would have this variance (Korn & Graubard 1998), with Student's t for the groups.
    """
    pairs = float((total := counts.total()).sum())
    share = _reaching(total) / pairs
    spread, freedom = _spread(counts.of_rows, share)
    if counts.of_queries is None:
        spread = 4 * spread
    else:
        other, other_freedom = _spread(counts.of_queries, share)
        both, squares = spread + other, spread**2 / freedom + other**2 / other_freedom
        fewest = np.full_like(both, min(freedom, other_freedom))
        freedom = np.divide(both**2, squares, out=fewest, where=squares > 0)  # type: ignore[assignment]
        spread = both
    product, effective = share * (1 - share), np.ones_like(share)
    variance = np.maximum(spread - product / pairs, product / pairs)
    known = np.flatnonzero(variance > 0)
    if len(known):  # where none or all reach an edge, as many independent pairs as at the next edge
        following = np.searchsorted(known, np.arange(len(share))).clip(max=len(known) - 1)
        effective = np.minimum(product[known] / variance[known], pairs)[following]
    low, high = wilson(share, effective, freedom)
    return Curve(counts.grid, share, low, high)


def clustered(values: Floats, groups: Ints) -> Share:
    """The mean of `values` (K,) in [0, 1], with its interval; values of one group (a query) may be dependent.

    The variance is that of a ratio of group sums (Cochran 1977, section 11.7). Of values all 0 or all 1, a group counts
    as one observation.
    """
    mean = float(values.mean())
    sums = np.bincount(np.unique(groups, return_inverse=True)[1], weights=values - mean)
    number = len(sums)
    variance = number / max(number - 1, 1) * float(sums @ sums) / len(values) ** 2
    product = mean * (1 - mean)
    effective = product / variance if variance > 0 and product > 0 else float(number)
    (low,), (high,) = wilson(np.array([mean]), np.array([effective]), max(number - 1, 1))
    return Share(mean, min(float(low), mean), max(float(high), mean))


def wilson(share: Floats, effective: Floats, freedom: Floats | float) -> tuple[Floats, Floats]:
    """Wilson's 95% interval of shares of `effective` independent observations, with Student's t."""
    square = student(freedom) ** 2 / effective
    middle = (share + square / 2) / (1 + square)
    half = np.sqrt(np.maximum(square * (share * (1 - share) + square / 4), 0)) / (1 + square)
    return np.clip(np.minimum(middle - half, share), 0, 1), np.clip(np.maximum(middle + half, share), 0, 1)


def student(freedom: Floats | float) -> Floats:
    """Student's t of a two-sided 95% interval, interpolated: within 1% from 3 degrees of freedom on."""
    at = 1 / np.asarray(freedom, dtype=np.float64)
    return np.asarray(np.interp(at, [1 / number for number in _T], list(_T.values())))


def hoeffding(independent: int) -> float:
    """Half the width of a distribution-free 95% interval of a share: sqrt(ln(2 / 0.05) / (2 k)) for U-statistics with k
    = min(m, n) or n // 2 `independent` pairs that share no row (Hoeffding 1963, section 5)."""
    return min(1.0, math.sqrt(math.log(2 / 0.05) / (2 * max(independent, 1))))


def _spread(by_group: Ints, share: Floats) -> tuple[Floats, float]:
    """The variance of the mean of the groups' shares at each edge, and its degrees of freedom."""
    groups, squares = len(by_group), np.zeros_like(share)
    sizes = by_group.sum(axis=1).astype(np.float64)
    for counts, size in zip(by_group, sizes, strict=True):
        if size:
            squares += (size / sizes.sum() * (_reaching(counts) / size - share)) ** 2
    return squares * groups / (groups - 1), float(groups - 1)


def _reaching(counts: Ints) -> Floats:
    """How many pairs are in each bin or a later bin, (bins + 1,)."""
    return np.concatenate((np.cumsum(counts[::-1])[::-1], [0])).astype(np.float64)
