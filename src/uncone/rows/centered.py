"""Rows with one vector subtracted from each: the gauge-fixed view of an output head."""

from collections.abc import Iterator, Sequence

import torch

from uncone.rows.base import GRID, Rows, blocks_in_one_buffer


class CenteredRows(Rows):
    """`rows` minus `mean` (float64, (D,)). The mean is rounded to the dtype of the blocks first."""

    def __init__(self, rows: Rows, mean: torch.Tensor) -> None:
        self._rows, self._mean = rows, mean.to("cpu", torch.float64)
        self.shape, self.dtype, self.name, self.left_out = rows.shape, rows.dtype, rows.name, rows.left_out

    @property
    def labels(self) -> Sequence[str | None] | None:
        return self._rows.labels

    @property
    def ids(self) -> torch.Tensor | None:
        return self._rows.ids

    def read(self, start: int, stop: int, out: torch.Tensor | None = None) -> torch.Tensor:
        if out is None:
            out = torch.empty((stop - start, self.shape[1]), dtype=self.widened)
        return self._rows.read(start, stop, out=out).sub_(self._mean.to(out.dtype))

    def blocks(self, size: int = GRID) -> Iterator[torch.Tensor]:
        return blocks_in_one_buffer(self, size)
