"""A NumPy `.npy` file: its rows, read without loading it and without unpickling, and its writer."""

import io
import os
from collections.abc import Callable
from dataclasses import dataclass
from io import BufferedIOBase
from typing import Any

import numpy as np
import torch

from uncone.errors import InputError
from uncone.rows.base import FLOATING, Rows, check_shape
from uncone.rows.bytes import FlatRows, LocalFile
from uncone.rows.target import Source, Target, raw_bytes

LONGEST_HEADER = 65536
_MOST = 2**63 - 1
_COLUMNS = 16  # read before they are put into the rows: then whole lines of the processor's cache are written
_APART = 16  # elements: columns a power of two apart would share lines of that cache


@dataclass(frozen=True)
class ArrayHeader:
    """The header of a `.npy` file. `offset` of the numbers counts from the begin of the header."""

    shape: tuple[int, ...]
    column_major: bool
    dtype: np.dtype[Any]
    """As stored, with its byte order."""
    offset: int

    @property
    def end(self) -> int:
        """One more than the last byte of the numbers of a matrix, from where the header begins."""
        return self.offset + self.shape[0] * self.shape[1] * self.dtype.itemsize


def open_npy(path: str | os.PathLike[str]) -> Rows:
    """Open a `.npy` file that holds one matrix of floats.

    Raises:
        InputError: no such file, not `.npy`, truncated, pickled objects, another dtype or another rank.
    """
    source = LocalFile(path)
    header = matrix_header(source.head(LONGEST_HEADER), source.name, source.size)
    return rows_at(source, 0, header, source.name)


def matrix_header(head: bytes, name: str, size: int) -> ArrayHeader:
    """The header at the begin of `head`, of a matrix of floats with `size` bytes in all.

    Raises:
        InputError: no header, or one of pickled objects, of another dtype or rank, or of more than `size` bytes.
    """
    header = array_header(head, name)
    shape, dtype = header.shape, header.dtype
    if dtype.hasobject:
        raise InputError(
            f"expected an array of {FLOATING}, got pickled objects in {name}: they are never loaded, save floats instead"
        )
    if dtype.kind != "f" or dtype.itemsize > 8:
        raise InputError(
            f"expected an array of {FLOATING}, got dtype {dtype} in {name}: convert it, for instance x.astype('float32')"
        )
    check_shape(shape, name)
    if size < header.end:
        raise InputError(
            f"expected {header.end} bytes for shape {shape} of {dtype} in {name}, got {size}: "
            "the file was cut, copy it again"
        )
    return header


def rows_at(
    source: LocalFile, start: int, header: ArrayHeader, name: str, flat: Callable[..., FlatRows] = FlatRows
) -> Rows:
    """The rows of the `.npy` at byte `start` of `source`; a row-major one is opened by `flat`."""
    if header.column_major:
        return ColumnRows(source, start + header.offset, header, name)
    return flat(
        source,
        offset=start + header.offset,
        shape=(header.shape[0], header.shape[1]),
        dtype=_dtype_name(header),
        name=name,
        swapped=not header.dtype.isnative,
    )


def array_header(head: bytes, name: str) -> ArrayHeader:
    """The header at the begin of `head`, of any array.

    Raises:
        InputError: no header, or one of a shape that no array has.
    """
    stream = io.BytesIO(head)
    try:
        first = np.lib.format.read_magic(stream) == (1, 0)
        read = np.lib.format.read_array_header_1_0 if first else np.lib.format.read_array_header_2_0
        shape, column_major, dtype = read(stream, max_header_size=LONGEST_HEADER)
    except Exception as error:
        raise InputError(
            f"expected a .npy file, got {name} with a header that does not parse ({str(error)[:200]}): "
            "save it with numpy.save"
        ) from error
    if not all(type(size) is int and 0 <= size <= _MOST for size in shape):  # NumPy takes True for 1
        raise InputError(
            f"expected a shape of whole numbers from 0 to 2^63 - 1, got {repr(shape)[:80]} in {name}: "
            "the header lies, save the array again"
        )
    return ArrayHeader(shape, column_major, dtype, stream.tell())


class ColumnRows(Rows):
    """A column-major matrix that starts at `offset` of `source`. A few columns are read at a time."""

    def __init__(self, source: LocalFile, offset: int, header: ArrayHeader, name: str) -> None:
        self._source, self._offset, self._stored = source, offset, header.dtype
        self.shape, self.dtype, self.name = (header.shape[0], header.shape[1]), _dtype_name(header), name

    def read(self, start: int, stop: int, out: torch.Tensor | None = None) -> torch.Tensor:
        if out is None:
            out = torch.empty((stop - start, self.shape[1]), dtype=self.widened)
        (n, d), x, size = self.shape, out.numpy(), self._stored.itemsize
        columns = np.empty((min(d, _COLUMNS), stop - start + _APART), self._stored)[:, : stop - start]
        for j in range(0, d, _COLUMNS):
            part = columns[: min(_COLUMNS, d - j)]
            for k, column in enumerate(part, start=j):
                self._source.read_into(self._offset + (k * n + start) * size, column.view(np.uint8).data)
            x[:, j : j + _COLUMNS] = part.T  # widened, and in the machine's byte order
        return out


def _dtype_name(header: ArrayHeader) -> str:
    return np.dtype(header.dtype.newbyteorder("=")).name


class NpyWriter:
    """A `.npy` file, row-major and little-endian."""

    def __init__(self, handle: BufferedIOBase, target: Target, source: Source | None = None) -> None:
        self._handle = handle
        dtype = np.dtype(target.dtype).newbyteorder("<").str
        np.lib.format.write_array_header_1_0(
            handle, {"descr": dtype, "fortran_order": False, "shape": target.shape}
        )

    def write(self, rows: torch.Tensor) -> None:
        self._handle.write(raw_bytes(rows))

    def close(self) -> None:
        """Nothing follows the last row."""
