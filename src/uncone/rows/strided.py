"""Rows whose numbers do not lie one after another in a file: a transpose, a slice, a column-major array.

They are read and not mapped: a mapped file that is cut while it is open ends the process, and no error can be raised.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from uncone.rows.base import GRID, Rows, blocks_in_one_buffer
from uncone.rows.bytes import ByteSource
from uncone.rows.flat import TORCH_DTYPES

_AT_ONCE = 2**24  # bytes read at once for the sake of rows with gaps between them
_COLUMNS = (
    16  # read before they are put into the rows: what is written there is a line of the processor's cache
)
_APART = 16  # elements: columns a power of two apart would share lines of that cache

Integers = npt.NDArray[np.signedinteger[Any]]
"""Numbers as they are stored: of what type does not matter here."""


class StridedRows(Rows):
    """An (N, D) matrix of one dtype in `source`: element (i, j) is the one of number i * strides[0] + j * strides[1] from byte `offset` on.

    Strides are from 0 up, and no two elements may share a place. What lies between two rows is read too where rows lie apart, and a column
    at a time where they lie across.
    """

    def __init__(
        self,
        source: ByteSource,
        *,
        offset: int,
        shape: tuple[int, int],
        strides: tuple[int, int],
        dtype: str,
        name: str,
        swapped: bool = False,
    ) -> None:
        self._source, self._offset, self._strides, self._swapped = source, offset, strides, swapped
        self.shape, self.dtype, self.name = shape, dtype, name

    def read(self, start: int, stop: int, out: torch.Tensor | None = None) -> torch.Tensor:
        if out is None:
            out = torch.empty((stop - start, self.shape[1]), dtype=self.widened)
        stored = TORCH_DTYPES[self.dtype]
        raw = out if stored == out.dtype and out.is_contiguous() else torch.empty(out.shape, dtype=stored)
        x = raw.view(getattr(torch, f"int{8 * stored.itemsize}")).numpy()
        across = self._strides[1] > self._strides[0]
        (self._columns_into if across else self._rows_into)(x, start)
        if self._swapped:
            x.byteswap(inplace=True)
        return out if raw is out else out.copy_(raw)

    def blocks(self, size: int = GRID) -> Iterator[torch.Tensor]:
        return blocks_in_one_buffer(self, size)

    def _rows_into(self, x: Integers, start: int) -> None:
        """Rows from `start` on, some at a time with what lies between them."""
        (step, inner), d, size = self._strides, self.shape[1], x.itemsize
        most = max(1, _AT_ONCE // (max(step, 1) * size))
        for at in range(0, len(x), most):
            part = x[at : at + most]
            content = np.empty((len(part) - 1) * step + (d - 1) * inner + 1, x.dtype)
            self._read((start + at) * step, content)
            part[:] = np.lib.stride_tricks.as_strided(
                content, part.shape, (step * size, inner * size), writeable=False
            )

    def _columns_into(self, x: Integers, start: int) -> None:
        """Rows from `start` on, some columns at a time, each from its first to its last number."""
        (step, inner), d = self._strides, self.shape[1]
        length = max(0, len(x) - 1) * step + min(1, len(x))
        columns = np.empty((min(d, _COLUMNS), length + _APART), x.dtype)[:, :length]
        for j in range(0, d, _COLUMNS):
            part = columns[: min(_COLUMNS, d - j)]
            for k, column in enumerate(part):
                self._read((j + k) * inner + start * step, column)
            x[:, j : j + _COLUMNS] = part[:, :: max(step, 1)].T

    def _read(self, first: int, out: Integers) -> None:
        self._source.read_into(self._offset + first * out.itemsize, out.view(np.uint8).data)
