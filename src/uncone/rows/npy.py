"""Rows of a NumPy `.npy` file, read without loading it and without unpickling."""

import io
import os
from dataclasses import dataclass
from typing import Any

import numpy as np

from uncone.errors import InputError
from uncone.rows.array import FLOATING, check_shape
from uncone.rows.base import Rows
from uncone.rows.bytes import ByteSource, LocalFile
from uncone.rows.flat import FlatRows
from uncone.rows.strided import StridedRows

LONGEST_HEADER = 65536
_MOST = 2**63 - 1


@dataclass(frozen=True)
class ArrayHeader:
    """What the header of a `.npy` file says of any array. `offset` is the first byte of the numbers, from where the header begins."""

    shape: tuple[int, ...]
    column_major: bool
    dtype: np.dtype[Any]
    offset: int


@dataclass(frozen=True)
class MatrixHeader:
    """What the header of a `.npy` file says, where that is a matrix of floats."""

    shape: tuple[int, int]
    dtype: np.dtype[Any]
    """As stored, with its byte order."""
    column_major: bool
    offset: int
    """The first byte of the numbers, from where the header begins."""

    @property
    def end(self) -> int:
        """One more than the last byte of the numbers, from where the header begins."""
        return self.offset + self.shape[0] * self.shape[1] * self.dtype.itemsize

    @property
    def name(self) -> str:
        """The dtype without its byte order."""
        return np.dtype(self.dtype.newbyteorder("=")).name


def open_npy(path: str | os.PathLike[str]) -> Rows:
    """Open a `.npy` file that holds one matrix of floats.

    Raises:
        InputError: no such file, not `.npy`, truncated, pickled objects, another dtype or another rank.
    """
    source = LocalFile(path)
    return rows_at(
        source, 0, matrix_header(source.head(LONGEST_HEADER), source.name, source.size), source.name
    )


def matrix_header(head: bytes, name: str, size: int) -> MatrixHeader:
    """The header at the begin of `head`, of an array with `size` bytes in all.

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
    found = MatrixHeader((shape[0], shape[1]), dtype, header.column_major, header.offset)
    if size < found.end:
        raise InputError(
            f"expected {found.end} bytes for shape {shape} of {dtype} in {name}, got {size}: the file was cut, copy it again"
        )
    return found


def rows_at(source: ByteSource, start: int, header: MatrixHeader, name: str) -> Rows:
    """The rows of an array that lies at byte `start` of `source` as `.npy`."""
    offset = start + header.offset
    if header.column_major:
        strides, swapped = (1, header.shape[0]), not header.dtype.isnative
        return ColumnRows(
            source,
            offset=offset,
            shape=header.shape,
            strides=strides,
            dtype=header.name,
            name=name,
            swapped=swapped,
        )
    return FlatRows(
        source,
        offset=offset,
        shape=header.shape,
        dtype=header.name,
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
        version = np.lib.format.read_magic(stream)
        read = (
            np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        )
        shape, fortran, dtype = read(stream, max_header_size=LONGEST_HEADER)
    except Exception as error:
        raise InputError(
            f"expected a .npy file, got {name} with a header that does not parse ({str(error)[:200]}): save it with numpy.save"
        ) from error
    if not all(type(size) is int and 0 <= size <= _MOST for size in shape):  # NumPy takes True for 1
        raise InputError(
            f"expected a shape of whole numbers from 0 to 2^63 - 1, got {repr(shape)[:80]} in {name}: the header lies, save the array again"
        )
    return ArrayHeader(shape, fortran, dtype, stream.tell())


class ColumnRows(StridedRows):
    """A column-major matrix."""
