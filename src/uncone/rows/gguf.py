"""Rows of a tensor in a GGUF file: floats as they lie there, quantised ones dequantised by the package `gguf`, some rows at a time."""

from collections.abc import Iterator, Mapping

import numpy as np
import torch

from uncone.errors import InputError
from uncone.rows.array import FLOATING, check_shape
from uncone.rows.base import GRID, Rows, blocks_in_one_buffer
from uncone.rows.bytes import ByteSource
from uncone.rows.flat import FlatRows
from uncone.rows.gguf_header import TYPES, GgufTensor
from uncone.rows.names import nearest

INSTALL = "pip install 'uncone[gguf]'"
_AT_ONCE = 2**20  # elements dequantised in one call
_FLOATS = {0: "float32", 1: "float16", 28: "float64", 30: "bfloat16"}
_INTEGERS = (24, 25, 26, 27)


def gguf_rows(
    source: ByteSource, tensors: Mapping[str, GgufTensor], name: str, *, where: str | None = None
) -> Rows:
    """The rows of the tensor called `name`; quantised ones are dequantised block of rows by block of rows.

    Raises:
        InputError: no tensor of that name (the nearest are named), not a matrix, of integers, or quantised and the package gguf is
            missing or does not know how.
    """
    where = f"{source.name}#{name}" if where is None else where
    if name not in tensors:
        raise InputError(f"no tensor {name!r} in {source.name}{nearest(name, tensors)}")
    tensor = tensors[name]
    if tensor.type in _INTEGERS:
        raise InputError(
            f"expected a tensor of {FLOATING}, or a quantised one, got {tensor.kind} from {where}: convert it first"
        )
    check_shape(tensor.shape, where)
    shape = (tensor.shape[0], tensor.shape[1])
    if tensor.type in _FLOATS:
        return FlatRows(source, offset=tensor.start, shape=shape, dtype=_FLOATS[tensor.type], name=where)
    return _QuantisedRows(source, tensor, shape, where)


class _QuantisedRows(Rows):
    """Blocks of ggml's quantised types. `dtype` is the type's name; blocks are float32."""

    def __init__(self, source: ByteSource, tensor: GgufTensor, shape: tuple[int, int], name: str) -> None:
        try:
            from gguf import GGMLQuantizationType
            from gguf.quants import dequantize
        except ImportError as error:
            raise InputError(
                f"reading {tensor.kind} from {name} needs the package gguf: {INSTALL}"
            ) from error
        self._source, self._start, self._dequantize = source, tensor.start, dequantize
        self.shape, self.dtype, self.name = shape, tensor.kind, name
        _, elements, size = TYPES[tensor.type]
        self._row_bytes = shape[1] // elements * size
        try:
            self._type = GGMLQuantizationType(tensor.type)
            self._dequantize(np.zeros((1, size), np.uint8), self._type)
        except (NotImplementedError, ValueError) as error:
            raise InputError(
                f"the package gguf cannot dequantise {tensor.kind} from {name}: install a newer one, or convert the file to F16"
            ) from error

    def read(self, start: int, stop: int, out: torch.Tensor | None = None) -> torch.Tensor:
        if out is None:
            out = torch.empty((stop - start, self.shape[1]), dtype=torch.float32)
        target = out.numpy()
        step = max(1, _AT_ONCE // self.shape[1])
        raw = np.empty((min(step, stop - start), self._row_bytes), np.uint8)
        for at in range(start, stop, step):
            part = raw[: min(step, stop - at)]
            self._source.read_into(self._start + at * self._row_bytes, part.reshape(-1).data)
            with np.errstate(
                all="ignore"
            ):  # a scale can be anything; rows that are not finite are said elsewhere
                target[at - start : at - start + len(part)] = self._dequantize(part, self._type)
        return out

    def blocks(self, size: int = GRID) -> Iterator[torch.Tensor]:
        return blocks_in_one_buffer(self, size)
