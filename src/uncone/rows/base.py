"""`Rows`: a matrix that is read block by block, never whole."""

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

GRID = 8192
"""Rows in one unit of work. Block k holds the rows [k * GRID, (k + 1) * GRID) of the whole matrix, on any engine."""


class Rows:
    """N rows of D features, read in blocks.

    A reader sets `shape`, `dtype`, `name`, and implements `read`. Rows are float32 on the CPU, or float64 where the
    source is float64; float16 and bfloat16 are widened.
    """

    shape: tuple[int, int]
    """(N, D)"""
    dtype: str
    """The dtype as stored: "float64", "float32", "float16", "bfloat16", or a quantised type of GGUF such as "Q4_K"."""
    name: str
    """Where the rows come from, for messages and reports."""
    left_out: tuple[int, ...] = ()
    """Row numbers of the source that were left out because they are not finite."""

    load_labels: Callable[[], Sequence[str | None] | None] | None = None
    """How to get `labels`, asked once, when they are first wanted."""
    _labels: Sequence[str | None] | None = None

    @property
    def labels(self) -> Sequence[str | None] | None:
        """What each row stands for (token strings), or None where nothing is known. A label can be None."""
        if self._labels is None and self.load_labels is not None:
            self._labels = self.load_labels()
            self.load_labels = None
        return self._labels

    @property
    def ids(self) -> torch.Tensor | None:
        """The row numbers in the source, int64 (N,); None means 0, 1, ..., N - 1."""
        return None

    @property
    def widened(self) -> torch.dtype:
        """The dtype of the blocks."""
        return torch.float64 if self.dtype == "float64" else torch.float32

    def read(self, start: int, stop: int, out: torch.Tensor | None = None) -> torch.Tensor:
        """Rows [start, stop) as a CPU tensor (stop - start, D), written into `out` where it is given.

        Without `out` the tensor may share memory with the source: do not write to it.
        """
        raise NotImplementedError

    def blocks(self, size: int = GRID) -> Iterator[torch.Tensor]:
        """The rows in order, one tensor (at most GRID, D) per cell of the grid. Do not write to the tensors.

        Another `size` is for work that depends on no grid and wants less memory.
        """
        for start in range(0, self.shape[0], size):
            yield self.read(start, min(start + size, self.shape[0]))

    def take(self, indices: torch.Tensor) -> torch.Tensor:
        """The rows at `indices` (int64, ascending) as a new tensor (len(indices), D); of a cell of the grid, only the span is read."""
        parts = []
        for cell in torch.unique_consecutive(indices // GRID).tolist():
            wanted = indices[indices // GRID == cell]
            start, stop = int(wanted[0]), int(wanted[-1]) + 1
            block = self.read(start, stop)
            parts.append(block[wanted - start])
        return torch.cat(parts) if parts else torch.empty((0, self.shape[1]), dtype=self.widened)


def blocks_in_one_buffer(rows: Rows, size: int) -> Iterator[torch.Tensor]:
    """`rows.blocks(size)` for rows that `read` copies: the blocks follow one another in the same memory.

    A fresh tensor a block costs a page fault for every 4 KiB. The buffer is used again, but only once nobody else holds
    it: a caller that keeps blocks gets blocks that never change.
    """
    n, d = rows.shape

    def allocate() -> npt.NDArray[np.floating[Any]]:
        return np.empty((min(size, n), d), np.float64 if rows.widened == torch.float64 else np.float32)

    buffer = allocate()
    alone = sys.getrefcount(buffer)  # what the count is while nobody else holds it
    for start in range(0, n, size):
        if sys.getrefcount(buffer) > alone:
            buffer = allocate()
        count = min(size, n - start)
        yield rows.read(start, start + count, out=torch.from_numpy(buffer[:count]))
