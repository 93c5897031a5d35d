"""A GGUF file (ggml's docs/gguf.md, versions 2 and 3, little-endian): its header, which is not trusted, and rows.

The package `gguf` dequantises tensors that are not floats, some rows at a time.
"""

import itertools
import math
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from uncone.errors import InputError, needed
from uncone.rows.base import Rows, check_shape
from uncone.rows.bytes import FlatRows, LocalFile
from uncone.rows.floats import FLOATING, Array
from uncone.rows.names import named
from uncone.threads import share

MAGIC = b"GGUF"
_MOST_KEYS, _MOST_TENSORS, _MOST_ITEMS = 2**16, 2**20, 2**24
_LONGEST_NAME, _LONGEST_VALUE, _MOST_AXES, _DEEPEST = 2**16 - 1, 2**16, 4, 4
_BUFFER = 2**20
_AT_ONCE = 2**16  # elements dequantised in one call, whose arrays stay in a cache
_STRING, _ARRAY = 8, 9
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_TRAITS = """
    0 F32 1 4, 1 F16 1 2, 2 Q4_0 32 18, 3 Q4_1 32 20, 6 Q5_0 32 22, 7 Q5_1 32 24, 8 Q8_0 32 34, 9 Q8_1 32 40,
    10 Q2_K 256 84, 11 Q3_K 256 110, 12 Q4_K 256 144, 13 Q5_K 256 176, 14 Q6_K 256 210, 15 Q8_K 256 292,
    16 IQ2_XXS 256 66, 17 IQ2_XS 256 74, 18 IQ3_XXS 256 98, 19 IQ1_S 256 50, 20 IQ4_NL 32 18, 21 IQ3_S 256 110,
    22 IQ2_S 256 82, 23 IQ4_XS 256 136, 24 I8 1 1, 25 I16 1 2, 26 I32 1 4, 27 I64 1 8, 28 F64 1 8, 29 IQ1_M 256 56,
    30 BF16 1 2, 34 TQ1_0 256 54, 35 TQ2_0 256 66, 39 MXFP4 32 17, 40 NVFP4 64 36, 41 Q1_0 128 18
"""
TYPES = {
    int(number): (name, int(elements), int(size)) for number, name, elements, size in map(str.split, _TRAITS.split(","))
}
"""By number: name, elements per block, bytes per block."""
_FLOATS = {"F32": "float32", "F16": "float16", "F64": "float64", "BF16": "bfloat16"}


class GgufTensor(NamedTuple):
    """The number and name of its type in ggml, its shape (rows first), and where it begins."""

    type: int
    kind: str
    shape: tuple[int, ...]
    start: int


@dataclass(frozen=True)
class StringArray:
    """An array of strings, read when it is used."""

    start: int
    count: int


@dataclass(frozen=True)
class ScalarArray:
    """Numbers of one of `struct`'s types, read when they are used."""

    start: int
    count: int
    type: str


class GgufHeader(NamedTuple):
    metadata: Mapping[str, Any]
    tensors: Mapping[str, GgufTensor]


def gguf_rows(source: LocalFile, tensors: Mapping[str, GgufTensor], name: str, *, where: str = "") -> Rows:
    where, tensor = where or f"{source.name}#{name}", named(tensors, name, source.name)
    if tensor.kind in ("I8", "I16", "I32", "I64"):
        raise InputError(f"expected {FLOATING}, or a quantised type, got {tensor.kind} from {where}: convert it")
    check_shape(tensor.shape, where)
    if tensor.kind in _FLOATS:
        return FlatRows(source, tensor.start, tensor.shape, _FLOATS[tensor.kind], where)
    return _QuantisedRows(source, tensor, where)


class _QuantisedRows(Rows):
    """`dtype` is the name of ggml's type; blocks are float32."""

    def __init__(self, source: LocalFile, tensor: GgufTensor, name: str) -> None:
        message = f"reading {tensor.kind} from {name} needs the package gguf: pip install 'uncone[gguf]'"
        gguf, quants = (needed(module, message) for module in ("gguf", "gguf.quants"))
        self._source, self._start, self._dequantize = source, tensor.start, quants.dequantize
        self._describe(tensor.shape, tensor.kind, name)
        _, elements, size = TYPES[tensor.type]
        self._row_bytes = self.shape[1] // elements * size
        try:
            self._type = gguf.GGMLQuantizationType(tensor.type)
            self._dequantize(np.zeros((1, size), np.uint8), self._type)
        except (NotImplementedError, ValueError) as error:
            how = "install a newer one, or convert the file to F16"
            raise InputError(f"the package gguf cannot dequantise {tensor.kind} from {name}: {how}") from error

    def fill(self, start: int, out: Array) -> None:
        step = max(1, _AT_ONCE // self.shape[1])
        share(partial(self._fill, start + at, out[at : at + step]) for at in range(0, len(out), step))

    def _fill(self, start: int, out: Array) -> None:
        raw = np.empty((1, len(out) * self._row_bytes), np.uint8)
        self._source.read_into(self._start + start * self._row_bytes, raw[0].data)
        with np.errstate(all="ignore"):  # a scale can be anything
            # as one row: the package splits many rows into groups of 16, each with its own calls
            out[:] = self._dequantize(raw, self._type).reshape(out.shape)


def read_gguf(source: LocalFile) -> GgufHeader:
    """Read the header. Every count and offset is checked against the file."""
    cursor = _Cursor(source, 0)
    if source.size < 24 or cursor.take(4) != MAGIC:
        raise InputError(f"expected a GGUF file, got {source.name} without its magic number: copy it again")
    version, n_tensors, n_keys = cursor.unpack("IQQ")
    if version not in (2, 3):
        kind = f"version {version}" if version & 0xFFFF else "a big-endian file"
        raise InputError(f"expected little-endian GGUF of version 2 or 3, got {kind} in {source.name}: use llama.cpp")
    cursor.check_count("keys", n_keys, _MOST_KEYS, 13)
    cursor.check_count("tensors", n_tensors, _MOST_TENSORS, 24)
    metadata = {}
    for _ in range(n_keys):
        key = cursor.text("a key", _LONGEST_NAME)
        (kind,) = cursor.unpack("I")
        if key in metadata:
            raise cursor.lies(f"the key {key[:80]!r} occurs twice")
        metadata[key] = _value(cursor, kind, 0)
    return GgufHeader(metadata, _tensors(cursor, n_tensors, metadata.get("general.alignment", 32)))


def strings(source: LocalFile, array: StringArray) -> Iterator[str]:
    """The strings of an array. Bytes that are not UTF-8 are replaced."""
    cursor = _Cursor(source, array.start)
    return (cursor.text("a string", source.size) for _ in range(array.count))


def numbers(source: LocalFile, array: ScalarArray, most: int) -> tuple[Any, ...]:
    """The first `most` numbers of an array."""
    count = min(array.count, most)
    content = _Cursor(source, array.start).take(count * struct.calcsize(array.type))
    return struct.unpack(f"<{count}{array.type}", content)


class _Cursor:
    """Reads the header through a small buffer; every length is checked first."""

    def __init__(self, source: LocalFile, at: int) -> None:
        self.source, self.at = source, at
        self._buffer, self._start = b"", at

    def take(self, count: int) -> bytes:
        first = self.at - self._start
        if not 0 <= first <= len(self._buffer) - count:
            self._check_left(count)
            self._start, first = self.at, 0
            self._buffer = self.source.read(self._start, min(max(_BUFFER, count), self.source.size - self._start))
        self.at += count
        return self._buffer[first : first + count]

    def skip(self, count: int) -> None:
        self._check_left(count)
        self.at += count

    def _check_left(self, count: int) -> None:
        if count > (left := self.source.size - self.at):
            expected = f"{count} bytes at offset {self.at} of {self.source.name}, got {left}"
            raise InputError(f"expected {expected}: the file was cut, or its header is wrong; copy it again")

    def unpack(self, form: str) -> tuple[Any, ...]:
        return struct.unpack(f"<{form}", self.take(struct.calcsize(f"<{form}")))

    def length(self) -> int:
        return int.from_bytes(self.take(8), "little")

    def text(self, what: str, longest: int) -> str:
        if (length := self.length()) > longest:
            raise self.lies(f"{what} has {length} bytes")
        return self.take(length).decode("utf-8", "replace")

    def lies(self, what: str) -> InputError:
        return InputError(f"the header of {self.source.name} is wrong: {what}; copy or convert the file again")

    def check_count(self, what: str, count: int, most: int, smallest: int) -> None:
        if count > most or count * smallest > self.source.size - self.at:
            raise self.lies(f"{count} {what} in {self.source.size} bytes")


def _value(cursor: _Cursor, kind: int, depth: int) -> Any:
    """A scalar, a short string, the place of an array of strings or numbers, or None (other arrays, long strings)."""
    if kind in _SCALARS:
        return cursor.unpack(_SCALARS[kind])[0]
    if kind == _STRING:
        length = cursor.length()
        return cursor.skip(length) if length > _LONGEST_VALUE else cursor.take(length).decode("utf-8", "replace")
    if kind != _ARRAY or depth > _DEEPEST:
        raise cursor.lies(f"a value of type {kind}" if kind != _ARRAY else "arrays nested too deeply")
    inner, count = cursor.unpack("IQ")
    if inner in _SCALARS:
        size = struct.calcsize(_SCALARS[inner])
        cursor.check_count("items in an array", count, 2**63, size)
        start = cursor.at
        cursor.skip(count * size)
        return ScalarArray(start, count, _SCALARS[inner])
    cursor.check_count("items in an array", count, _MOST_ITEMS, 8)
    start = cursor.at
    for _ in range(count):
        if inner == _STRING:
            cursor.skip(cursor.length())
        else:
            _value(cursor, inner, depth + 1)
    return StringArray(start, count) if inner == _STRING else None


def _tensors(cursor: _Cursor, count: int, alignment: Any) -> dict[str, GgufTensor]:
    infos = []
    for _ in range(count):
        name = cursor.text("a tensor's name", _LONGEST_NAME)
        (n_axes,) = cursor.unpack("I")
        if n_axes > _MOST_AXES:
            raise cursor.lies(f"tensor {name[:80]!r} has {n_axes} axes")
        *axes, number, offset = cursor.unpack(f"{n_axes}QIQ")
        if number not in TYPES:
            raise cursor.lies(f"tensor {name[:80]!r} is of the unknown type {number}")
        infos.append((name, number, tuple(reversed(axes)), offset))
    if type(alignment) is not int or alignment <= 0 or alignment & (alignment - 1):
        raise cursor.lies(f"its alignment is {str(alignment)[:80]!r}")
    base, end = -(-cursor.at // alignment) * alignment, cursor.source.size
    tensors, filled = {}, []
    for name, number, shape, offset in infos:
        kind, elements, size = TYPES[number]
        if name in tensors:
            raise cursor.lies(f"the tensor {name[:80]!r} occurs twice")
        if offset % alignment or (shape and shape[-1] % elements):
            raise cursor.lies(f"tensor {name[:80]!r}, {list(shape)} of {kind} at {offset}, is not aligned")
        start = base + offset
        stop = start + math.prod(shape) // elements * size
        if stop > end:
            where = f"{cursor.source.name} ends at byte {end}, tensor {name[:80]!r} at {stop}"
            raise InputError(f"{where}: it was cut, or its header is wrong; copy it again")
        tensors[name] = GgufTensor(number, kind, shape, start)
        if start < stop:
            filled.append((start, stop, name))
    for (_, stop, name), (start, _, other) in itertools.pairwise(sorted(filled)):
        if start < stop:
            raise cursor.lies(f"tensors {name[:80]!r} and {other[:80]!r} share bytes")
    return tensors
