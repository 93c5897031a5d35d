"""Rows of a NumPy `.npy` file, read without loading it and without unpickling."""

import io
import os
from typing import Any

import numpy as np
import torch

from uncone.errors import InputError
from uncone.rows.array import FLOATING, check_shape
from uncone.rows.base import Rows
from uncone.rows.bytes import LocalFile
from uncone.rows.flat import FlatRows

_LONGEST_HEADER = 65536


def open_npy(path: str | os.PathLike[str]) -> Rows:
    """Open a `.npy` file that holds one matrix of floats.

    Raises:
        InputError: no such file, not `.npy`, truncated, pickled objects, another dtype or another rank.
    """
    source = LocalFile(path)
    head = bytearray(min(source.size, _LONGEST_HEADER))
    source.read_into(0, memoryview(head))
    shape, fortran, dtype, offset = _header(bytes(head), source.name)
    if dtype.hasobject:
        raise InputError(
            f"expected an array of {FLOATING}, got pickled objects in {source.name}: they are never loaded, save floats instead"
        )
    if dtype.kind != "f" or dtype.itemsize > 8:
        raise InputError(
            f"expected an array of {FLOATING}, got dtype {dtype} in {source.name}: convert it, for instance x.astype('float32')"
        )
    check_shape(shape, source.name)
    expected = offset + shape[0] * shape[1] * dtype.itemsize
    if source.size < expected:
        raise InputError(
            f"expected {expected} bytes for shape {shape} of {dtype} in {source.name}, got {source.size}: the file was cut, copy it again"
        )
    if fortran:
        return _ColumnRows(path, offset, (shape[0], shape[1]), dtype, source.name)
    name = np.dtype(dtype.newbyteorder("=")).name
    return FlatRows(source, offset=offset, shape=(shape[0], shape[1]), dtype=name, name=source.name, swapped=not dtype.isnative)


def _header(head: bytes, name: str) -> tuple[tuple[int, ...], bool, np.dtype[Any], int]:
    stream = io.BytesIO(head)
    try:
        version = np.lib.format.read_magic(stream)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = read(stream, max_header_size=_LONGEST_HEADER)
    except Exception as error:
        raise InputError(
            f"expected a .npy file, got {name} with a header that does not parse ({error}): save it with numpy.save"
        ) from error
    if any(size < 0 for size in shape):
        raise InputError(f"expected a shape of sizes from 0 up, got {shape} in {name}: the header lies, save the array again")
    return shape, fortran, dtype, stream.tell()


class _ColumnRows(Rows):
    """A column-major matrix. Its rows are strided over the whole file, so it is mapped and not read."""

    def __init__(
        self, path: str | os.PathLike[str], offset: int, shape: tuple[int, int], dtype: np.dtype[Any], name: str
    ) -> None:
        self._x = np.memmap(path, dtype=dtype, mode="r", offset=offset, shape=shape, order="F")
        self.shape, self.dtype, self.name = shape, np.dtype(dtype.newbyteorder("=")).name, name

    def read(self, start: int, stop: int, out: torch.Tensor | None = None) -> torch.Tensor:
        wide = np.float64 if self.dtype == "float64" else np.float32
        block = torch.from_numpy(np.ascontiguousarray(self._x[start:stop], dtype=wide))
        return block if out is None else out.copy_(block)
