"""How certain is a mean cosine of running text? Sums of unit rows over stretches of the text."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Self

import numpy as np

from uncone.rows import Array
from uncone.rows.floats import is_tensor
from uncone.threads import one_blas_thread

STRETCH = 256  # rows of a block at first; doubled whenever there are too many blocks


class UnitBlocks:
    """For each of several layers, the sums of unit rows over at most 128 stretches of one text. Neighbours in a text
    are alike, so an interval must come from stretches and not from rows (batch means)."""

    def __init__(self, widths: Sequence[int]) -> None:
        self.sums = [np.zeros((0, d)) for d in widths]  # of each layer (blocks, D), float64
        self.counts = np.zeros(0)  # rows of each block
        self.size = STRETCH

    def update(self, layers: Sequence[Any], inverses: Sequence[Array], runs: Array) -> None:
        """Add the next rows of the text: of each layer (n, D) float32, an array or a tensor, and `inverses` (n,), 1 /
        |x| or 0. Rows of one of the `runs` (n,), ascending from 0 (sequences), stay in one block."""
        starts = list[int]()  # of blocks of at least `STRETCH` rows of whole runs
        for begin in np.flatnonzero(np.diff(runs, prepend=-1)).tolist():
            if not starts or begin - starts[-1] >= STRETCH:
                starts.append(begin)
        if not starts:
            return
        cuts = [slice(a, b) for a, b in pairwise([*starts, len(runs)])]
        with one_blas_thread():
            for layer, (x, inverse) in enumerate(zip(layers, inverses, strict=True)):
                new = np.stack([_sum(inverse[cut], x[cut]) for cut in cuts])
                self.sums[layer] = np.concatenate([self.sums[layer], new])
        self.counts = np.append(self.counts, [float(cut.stop - cut.start) for cut in cuts])
        self._make_few()

    def absorb(self, later: Self) -> None:
        """Add the blocks of the text's continuation."""
        self.sums = [np.concatenate(pair) for pair in zip(self.sums, later.sums, strict=True)]
        self.counts = np.append(self.counts, later.counts)
        self.size = max(self.size, later.size)
        self._make_few()

    def mean_cosine_interval(self, layer: int) -> tuple[float, float] | None:
        """The 95% interval of the mean cosine of a layer's rows in different blocks, by the jackknife over blocks
        (Tukey 1958), because rows of one block share a passage. None with fewer than 10 blocks."""
        b = len(self.counts)
        if b < 10:
            return None
        sums, counts = self.sums[layer], self.counts
        total, n, own = sums.sum(0), float(counts.sum()), np.square(sums).sum(1)
        pairs = n * n - float(np.square(counts).sum())
        value = (float(total @ total) - float(own.sum())) / pairs
        less = np.square(total - sums).sum(1) - (own.sum() - own)
        left = less / (np.square(n - counts) - (np.square(counts).sum() - np.square(counts)))
        error = math.sqrt((b - 1) / b * float(np.square(left - left.mean()).sum()))
        half = _student(b - 1) * error
        return value - half, value + half

    def _make_few(self) -> None:
        self._join()
        while len(self.counts) > 128:
            self.size *= 2
            self._join()

    def _join(self) -> None:
        """Join neighbours until each block but the last has `size` rows."""
        ends, held = [0], 0.0
        for at, rows in enumerate(self.counts.tolist()):
            held += rows
            if held >= self.size:
                ends.append(at + 1)
                held = 0.0
        starts = np.array(ends if ends[-1] < len(self.counts) else ends[:-1])
        if len(starts) < len(self.counts):
            self.counts = np.add.reduceat(self.counts, starts)
            self.sums = [np.add.reduceat(sums, starts) for sums in self.sums]


def _sum(inverse: Array, x: Any) -> Array:
    """The sum of unit rows (D,), float64, computed on the device of `x`."""
    if not is_tensor(x):
        return np.asarray(inverse @ x, np.float64)
    import torch

    return np.asarray((torch.from_numpy(inverse).to(x.device) @ x).cpu().numpy(), np.float64)


def _student(n: int) -> float:
    """The 97.5% quantile of Student's t (Cornish & Fisher 1938), to 0.1% from 9 degrees of freedom on."""
    z = 1.959963984540054
    return z + (z**3 + z) / (4 * n) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n * n)
