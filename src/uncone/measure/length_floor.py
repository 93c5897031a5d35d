"""Are many short rows of one length? So weight decay leaves rows that no gradient reaches."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from uncone.rows import Array, as_array

SHORT = 0.5  # Of the median norm: rows that are shorter than this are short
FEWEST = 10  # Fewer rows of one length come by chance
PEAK = 3.0  # So many times as many rows as in a window of the same width above, and below: a peak, and no tail
_SIGMAS = 2.0


@dataclass(frozen=True, eq=False)
class LengthFloor:
    """The rows of one short length."""

    rows: Array  # their numbers, int64 (n,)
    norm: float  # their median norm
    median: float  # that of all rows
    spread: float  # Standard deviation of their norms, over their mean


def length_floor(norms: Any, d: int) -> LengthFloor | None:
    """The largest group of short rows of nearly one length; None where there is none.

    A row that was drawn at random and then only shrunk, by the same factor at every step, keeps its direction, and the
    norms of such rows keep the relative spread of a Gaussian's, 1 / sqrt(2 D). So the group is looked for in a window
    of four such spreads, and it must be a peak: the windows above and below hold a third as many rows at most. `norms`
    (N,) are those of all rows, of `d` columns.
    >>> norms = np.concatenate([np.linspace(0.8, 1.2, 90), np.full(10, 0.1)])
    >>> length_floor(norms, 64).rows.tolist()
    [90, 91, 92, 93, 94, 95, 96, 97, 98, 99]
    """
    norms = np.asarray(as_array(norms), np.float64)
    median = float(np.median(norms)) if len(norms) else 0.0
    logs = np.sort(np.log(norms[norms > 0]))
    short = logs[logs < math.log(SHORT * median)] if median > 0 else logs[:0]
    if len(short) < FEWEST:
        return None
    width = 2 * _SIGMAS / math.sqrt(2 * d)
    ends = np.searchsorted(short, short + width, side="right")  # where the usual rows begin, no window goes on
    start = int((ends - np.arange(len(short))).argmax())
    n, first = int(ends[start]) - start, float(short[start])
    above = int(np.diff(np.searchsorted(logs, [first + width, first + 2 * width], side="right"))[0])
    below = start - int(np.searchsorted(logs, first - width))
    if n < FEWEST or n < PEAK * max(above, below):
        return None
    low, high = math.exp(first), math.exp(float(logs[ends[start] - 1]))
    rows = np.flatnonzero((norms >= low * (1 - 1e-12)) & (norms <= high * (1 + 1e-12)))
    of = norms[rows]
    return LengthFloor(rows, float(np.median(of)), median, float(of.std() / of.mean()))
