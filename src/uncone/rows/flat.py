"""Rows that lie one after another in a file: the reading shared by every format that stores a plain matrix."""

from collections.abc import Iterator

import torch

from uncone.rows.base import GRID, Rows, blocks_in_one_buffer
from uncone.rows.bytes import ByteSource

TORCH_DTYPES = {
    "float64": torch.float64,
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
}


class FlatRows(Rows):
    """A row-major (N, D) matrix of one dtype that starts at `offset` of `source`."""

    def __init__(
        self,
        source: ByteSource,
        *,
        offset: int,
        shape: tuple[int, int],
        dtype: str,
        name: str,
        swapped: bool = False,
    ) -> None:
        self._source, self._offset, self._swapped = source, offset, swapped
        self.shape, self.dtype, self.name = shape, dtype, name

    def read(self, start: int, stop: int, out: torch.Tensor | None = None) -> torch.Tensor:
        if out is None:
            out = torch.empty((stop - start, self.shape[1]), dtype=self.widened)
        stored = TORCH_DTYPES[self.dtype]
        raw = out if stored == out.dtype else torch.empty(out.shape, dtype=stored)
        content = raw.view(torch.uint8).numpy().reshape(-1)
        row_bytes = self.shape[1] * stored.itemsize
        self._source.read_into(self._offset + start * row_bytes, content.data)
        if self._swapped:
            content.view(f"u{stored.itemsize}").byteswap(inplace=True)
        return out if raw is out else out.copy_(raw)

    def blocks(self, size: int = GRID) -> Iterator[torch.Tensor]:
        return blocks_in_one_buffer(self, size)
