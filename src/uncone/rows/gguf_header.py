"""The header of a GGUF file: the metadata and where the tensors lie. Nothing in it is trusted.

The format: ggml's docs/gguf.md, versions 2 and 3, little-endian. Sizes in messages are bytes.
"""

import itertools
import math
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from uncone.errors import InputError
from uncone.rows.bytes import ByteSource

MAGIC = b"GGUF"
_MOST_KEYS, _MOST_TENSORS, _MOST_ITEMS = 2**16, 2**20, 2**24
_LONGEST_NAME, _LONGEST_VALUE, _MOST_AXES, _DEEPEST = 2**16 - 1, 2**16, 4, 4
_BUFFER = 2**20
_STRING, _ARRAY = 8, 9
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
# Name, elements a block, bytes a block: ggml's type traits.
TYPES = {
    0: ("F32", 1, 4), 1: ("F16", 1, 2), 2: ("Q4_0", 32, 18), 3: ("Q4_1", 32, 20), 6: ("Q5_0", 32, 22), 7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34), 9: ("Q8_1", 32, 40), 10: ("Q2_K", 256, 84), 11: ("Q3_K", 256, 110), 12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176), 14: ("Q6_K", 256, 210), 15: ("Q8_K", 256, 292), 16: ("IQ2_XXS", 256, 66), 17: ("IQ2_XS", 256, 74),
    18: ("IQ3_XXS", 256, 98), 19: ("IQ1_S", 256, 50), 20: ("IQ4_NL", 32, 18), 21: ("IQ3_S", 256, 110), 22: ("IQ2_S", 256, 82),
    23: ("IQ4_XS", 256, 136), 24: ("I8", 1, 1), 25: ("I16", 1, 2), 26: ("I32", 1, 4), 27: ("I64", 1, 8), 28: ("F64", 1, 8),
    29: ("IQ1_M", 256, 56), 30: ("BF16", 1, 2), 34: ("TQ1_0", 256, 54), 35: ("TQ2_0", 256, 66), 39: ("MXFP4", 32, 17),
    40: ("NVFP4", 64, 36), 41: ("Q1_0", 128, 18),
}  # fmt: skip


@dataclass(frozen=True)
class GgufTensor:
    """One tensor: its type's number in ggml, its shape (rows first), and absolute byte range."""

    type: int
    shape: tuple[int, ...]
    start: int
    stop: int

    @property
    def kind(self) -> str:
        """The type's name, such as F16 or Q4_K."""
        return TYPES[self.type][0]


@dataclass(frozen=True)
class StringArray:
    """Where an array of strings lies in the header; it is read when it is wanted."""

    start: int
    count: int


@dataclass(frozen=True)
class GgufHeader:
    """The scalars, short strings and arrays of strings of the metadata, and the tensors."""

    metadata: Mapping[str, Any]
    tensors: Mapping[str, GgufTensor]


def read_gguf(source: ByteSource) -> GgufHeader:
    """The header of a GGUF file, every count and offset checked against the file.

    Raises:
        InputError: not GGUF, version 1 or big-endian, cut, or a header that lies about the file.
    """
    cursor = _Cursor(source, 0)
    if source.size < 24 or cursor.take(4) != MAGIC:
        raise InputError(f"expected a GGUF file, got {source.name} without its magic number: copy it again")
    version, n_tensors, n_keys = cursor.unpack("IQQ")
    if version not in (2, 3):
        kind = "a big-endian file" if version & 0xFFFF == 0 else f"version {version}"
        raise InputError(
            f"expected GGUF of version 2 or 3, little-endian, got {kind} in {source.name}: convert it with llama.cpp"
        )
    _check_count("keys", n_keys, _MOST_KEYS, 13, cursor)
    _check_count("tensors", n_tensors, _MOST_TENSORS, 24, cursor)
    metadata = dict[str, Any]()
    for _ in range(n_keys):
        key = cursor.text("a key", _LONGEST_NAME)
        (kind,) = cursor.unpack("I")
        if key in metadata:
            raise cursor.lies(f"the key {key[:80]!r} stands twice")
        metadata[key] = _value(cursor, kind, 0)
    found = [_tensor(cursor) for _ in range(n_tensors)]
    return GgufHeader(metadata, _placed(found, cursor, metadata.get("general.alignment", 32)))


def strings(source: ByteSource, array: StringArray) -> Iterator[str]:
    """The strings of an array in the header, in order; bytes that are no UTF-8 are replaced."""
    cursor = _Cursor(source, array.start)
    for _ in range(array.count):
        yield cursor.text("a string", source.size)


class _Cursor:
    """Reads the header from front to back through one small buffer; no length is believed before the file is known to be so long."""

    def __init__(self, source: ByteSource, at: int) -> None:
        self.source, self.at = source, at
        self._buffer, self._start = b"", at

    def take(self, count: int) -> bytes:
        self._check(count)
        first = self.at - self._start
        if first + count > len(self._buffer):
            content = bytearray(min(max(_BUFFER, count), self.source.size - self.at))
            self.source.read_into(self.at, memoryview(content))
            self._buffer, self._start, first = bytes(content), self.at, 0
        self.at += count
        return self._buffer[first : first + count]

    def skip(self, count: int) -> None:
        self._check(count)
        self.at += count
        if self.at > self._start + len(self._buffer):
            self._buffer, self._start = b"", self.at

    def unpack(self, form: str) -> tuple[Any, ...]:
        return struct.unpack(f"<{form}", self.take(struct.calcsize(f"<{form}")))

    def text(self, what: str, longest: int) -> str:
        (length,) = self.unpack("Q")
        if length > longest:
            raise self.lies(f"{what} has {length} bytes")
        return self.take(length).decode("utf-8", "replace")

    def lies(self, what: str) -> InputError:
        return InputError(f"the header of {self.source.name} lies: {what}; copy or convert the file again")

    def _check(self, count: int) -> None:
        if count > self.source.size - self.at:
            raise InputError(
                f"expected {count} bytes at offset {self.at} of {self.source.name}, got {self.source.size - self.at}: "
                "the file was cut, or its header lies; copy it again"
            )


def _check_count(what: str, count: int, most: int, smallest: int, cursor: _Cursor) -> None:
    if count > most or count * smallest > cursor.source.size - cursor.at:
        raise cursor.lies(f"{count} {what} in {cursor.source.size} bytes")


def _value(cursor: _Cursor, kind: int, depth: int) -> Any:
    """A scalar, a short string or where an array of strings lies; None for what is passed over."""
    if kind in _SCALARS:
        return cursor.unpack(_SCALARS[kind])[0]
    if kind == _STRING:
        (length,) = cursor.unpack("Q")
        if length > _LONGEST_VALUE:
            return cursor.skip(length)
        return cursor.take(length).decode("utf-8", "replace")
    if kind != _ARRAY or depth > _DEEPEST:
        raise cursor.lies(f"a value of type {kind}" if kind != _ARRAY else "arrays in arrays without end")
    inner, count = cursor.unpack("IQ")
    if inner in _SCALARS:
        _check_count("items in an array", count, 2**63, struct.calcsize(_SCALARS[inner]), cursor)
        return cursor.skip(count * struct.calcsize(f"<{_SCALARS[inner]}"))
    _check_count("items in an array", count, _MOST_ITEMS, 8, cursor)
    start = cursor.at
    for _ in range(count):
        if inner == _STRING:
            cursor.skip(cursor.unpack("Q")[0])
        else:
            _value(cursor, inner, depth + 1)
    return StringArray(start, count) if inner == _STRING else None


def _tensor(cursor: _Cursor) -> tuple[str, int, tuple[int, ...], int]:
    """Name, type, shape and offset, as the header says."""
    name = cursor.text("a tensor's name", _LONGEST_NAME)
    (n_axes,) = cursor.unpack("I")
    if n_axes > _MOST_AXES:
        raise cursor.lies(f"tensor {name[:80]!r} has {n_axes} axes")
    axes = cursor.unpack(f"{n_axes}Q")
    kind, offset = cursor.unpack("IQ")
    if kind not in TYPES:
        raise cursor.lies(f"tensor {name[:80]!r} is of the unknown type {kind}")
    return name, kind, tuple(reversed(axes)), offset


def _placed(
    found: list[tuple[str, int, tuple[int, ...], int]], cursor: _Cursor, alignment: Any
) -> dict[str, GgufTensor]:
    if type(alignment) is not int or alignment <= 0 or alignment & (alignment - 1):
        raise cursor.lies(f"its alignment is {str(alignment)[:80]!r}")
    base = -(-cursor.at // alignment) * alignment
    tensors = dict[str, GgufTensor]()
    for name, kind, shape, offset in found:
        label, elements, size = TYPES[kind]
        if name in tensors:
            raise cursor.lies(f"the tensor {name[:80]!r} stands twice")
        if offset % alignment or (shape and shape[-1] % elements):
            raise cursor.lies(f"tensor {name[:80]!r}, {list(shape)} of {label} at {offset}, is not aligned")
        stop = base + offset + math.prod(shape) // elements * size
        if stop > cursor.source.size:
            raise InputError(
                f"tensor {name[:80]!r} of {cursor.source.name} ends at byte {stop}, the file at {cursor.source.size}: "
                "it was cut, or its header lies; copy it again"
            )
        tensors[name] = GgufTensor(kind, shape, base + offset, stop)
    _check_overlap(tensors, cursor)
    return tensors


def _check_overlap(tensors: Mapping[str, GgufTensor], cursor: _Cursor) -> None:
    filled = sorted(
        (tensor.start, tensor.stop, name) for name, tensor in tensors.items() if tensor.start < tensor.stop
    )
    for (_, stop, name), (start, _, other) in itertools.pairwise(filled):
        if start < stop:
            raise cursor.lies(f"tensors {name[:80]!r} and {other[:80]!r} share bytes")
