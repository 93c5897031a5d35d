"""How many numbers the chunks of a Parquet column hold, before any is decoded: from the footer, and from the headers of pages.

A run of equal values takes a few bytes, however long it is, so that a file of 2 kB can hold lists of a million numbers, and
pyarrow makes room for all of them before anybody can count. The counts are read here and not by pyarrow, which ends the
process over some column metadata that is damaged. The format: parquet-format's parquet.thrift, in Thrift's compact protocol.
"""

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from uncone.errors import InputError
from uncone.rows.bytes import ByteSource

_MAGIC = b"PAR1"
_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(1, 13)
_DEEPEST = 16
_ROW_GROUPS, _COLUMNS, _METADATA = 4, 1, 3  # fields of FileMetaData, RowGroup and ColumnChunk
_PATH, _VALUES, _COMPRESSED, _DATA_AT, _DICTIONARY_AT = 3, 5, 7, 9, 11  # fields of ColumnMetaData
_UNPACKED, _PACKED, _DATA, _DICTIONARY, _DATA_V2 = 2, 3, 5, 7, 8  # fields of PageHeader
# What is read of these structs: the type of a field, a list of it, or the fields of a struct in it. As in generated code, a field of
# another type is passed over.
_FOOTER = {_ROW_GROUPS: [{_COLUMNS: [{_METADATA: {
    _PATH: [_BINARY], _VALUES: _I64, _COMPRESSED: _I64, _DATA_AT: _I64, _DICTIONARY_AT: _I64}}]}]}  # fmt: skip
_PAGE = {_UNPACKED: _I32, _PACKED: _I32, _DATA: {1: _I32}, _DICTIONARY: {1: _I32}, _DATA_V2: {1: _I32}}
_LONGEST_HEADER = 2**24  # pyarrow's own limit for the header of a page
_HEADER = 256
_BYTES_A_VALUE = 16
"""More than a number and its levels take in any encoding, before compression."""
_SMALLEST_PAGE = 2**16
MOST_SURPLUS = 2**21
"""Numbers for which there is always room: if a chunk holds at most so many too much, it is decoded, and the bad row is named."""


@dataclass(frozen=True)
class Chunk:
    """One column of one row group: how many values it says it holds (a null or an empty list is one), and where its pages lie."""

    values: int
    start: int
    stop: int


def column_chunks(source: ByteSource, column: str) -> list[Chunk]:
    """The chunks of `column`, one a row group, as the footer of `source` has them.

    Raises:
        InputError: a footer that does not parse, or that says what cannot be: no chunk of that column, several, or one outside the file.
    """
    groups = _Thrift(_footer(source), source.name).struct(_FOOTER).get(_ROW_GROUPS, [])
    return [_chunk(group, column.encode(), source) for group in groups]


def check_pages(source: ByteSource, chunk: Chunk, rows: int, d: int) -> None:
    """Hold the headers of a chunk's pages against its footer, so that decoding makes room for no more than it says.

    Where there are far more numbers than fit beside a file, `rows` lists of `d` numbers must also take as many bytes as it takes to mark
    where each begins: a single list of them all would take a few.

    Raises:
        InputError: pages of other values than the footer says, of more bytes than their values can take, or of too few.
    """
    seen = held = 0
    for header in _pages(source, chunk):
        page = header.get(_DATA) or header.get(_DATA_V2) or header.get(_DICTIONARY) or {}
        count, unpacked = page.get(1, 0), header.get(_UNPACKED, 0)
        if not 0 <= count <= chunk.values or not 0 <= unpacked <= _SMALLEST_PAGE + _BYTES_A_VALUE * count:
            raise _lies(source, f"a page of {count} values in {unpacked} bytes, in a chunk of {chunk.values} values")
        if _DICTIONARY not in header:
            seen, held = seen + count, held + unpacked
    if seen != chunk.values:
        raise _lies(source, f"{chunk.values} values in pages of {seen}")
    # A list of two or more begins where one bit of the levels differs from the next: a byte holds eight bits, or a run of equal ones.
    if min(chunk.values, rows * d) > MOST_SURPLUS and d > 1 and 8 * held < rows * min(d, 8):
        raise InputError(
            f"expected {rows} lists of {d} numbers in a row group of {source.name}, got {chunk.values} numbers in {held} bytes, "
            "which cannot be lists of one length: write one vector a row"
        )


def _footer(source: ByteSource) -> bytes:
    tail = bytearray(8)
    if source.size >= 12:
        source.read_into(source.size - 8, memoryview(tail))
    length = int.from_bytes(tail[:4], "little")
    if tail[4:] != _MAGIC or length > source.size - 12:
        raise _lies(source, f"{length} bytes of it in a file of {source.size}")
    content = bytearray(length)
    source.read_into(source.size - 8 - length, memoryview(content))
    return bytes(content)


def _chunk(group: dict[int, Any], column: bytes, source: ByteSource) -> Chunk:
    told = [chunk.get(_METADATA, {}) for chunk in group.get(_COLUMNS, [])]
    found = [chunk for chunk in told if (chunk.get(_PATH) or [None])[0] == column]
    if len(found) != 1:
        raise _lies(source, f"{len(found)} chunks in a row group for a column of lists")
    values, size, data = (found[0].get(key, -1) for key in (_VALUES, _COMPRESSED, _DATA_AT))
    first = found[0].get(_DICTIONARY_AT, 0)
    start = first if 0 < first < data else data  # as pyarrow takes it: some writers say 0 where there is no dictionary
    if values < 0 or start < 0 or size < 0 or start + size > source.size:
        raise _lies(source, f"a chunk of {values} values in {size} bytes at {start} of a file of {source.size}")
    return Chunk(values, start, start + size)


def _pages(source: ByteSource, chunk: Chunk) -> Iterator[dict[int, Any]]:
    """The headers of the pages of a chunk: a page has no size but that in its header."""
    at, room = chunk.start, _HEADER
    while at < chunk.stop:
        content = bytearray(min(room, chunk.stop - at))
        source.read_into(at, memoryview(content))
        thrift = _Thrift(bytes(content), source.name)
        try:
            header = thrift.struct(_PAGE)
        except InputError:
            if len(content) < room or room >= _LONGEST_HEADER:
                raise
            room *= 8  # statistics make headers long
            continue
        if header.get(_PACKED, -1) < 0:
            raise _lies(source, f"a page of {header.get(_PACKED)} bytes")
        yield header
        at, room = at + thrift.at + header[_PACKED], _HEADER


def _lies(source: ByteSource, what: str) -> InputError:
    return InputError(f"the footer of {source.name} lies: {what}; copy or write the file again")


class _Thrift:
    """Reads Thrift's compact protocol. No length is believed that is longer than what is left."""

    def __init__(self, content: bytes, name: str) -> None:
        self._content, self._name, self.at = content, name, 0

    def struct(self, wanted: Mapping[int, Any], depth: int = 0) -> dict[int, Any]:
        """Those fields of the next struct that are in `wanted`, by number."""
        found, field = dict[int, Any](), 0
        while head := self._byte():
            field = field + (head >> 4) if head >> 4 else self._zigzag()
            value = self._value(head & 15, wanted.get(field), depth)
            if value is not None:
                found[field] = value
        return found

    def _value(self, kind: int, wanted: Any, depth: int) -> Any:
        """The next value; None where it is not wanted, or of another type."""
        if depth > _DEEPEST:
            raise self._broken("structs in structs without end")
        if kind in (_TRUE, _FALSE):
            return None
        if kind == _STRUCT:
            found = self.struct(wanted if isinstance(wanted, dict) else {}, depth + 1)
            return found if isinstance(wanted, dict) else None
        if kind in (_LIST, _SET):
            head = self._byte()
            inner, count = (
                wanted[0] if isinstance(wanted, list) else None,
                self._count(head >> 4 if head >> 4 < 15 else self._varint()),
            )
            items = [self._item(head & 15, inner, depth) for _ in range(count)]
            return items if isinstance(wanted, list) and None not in items else None
        if kind == _MAP:
            count = self._count(self._varint())
            kinds = self._byte() if count else 0
            for _ in range(count):
                self._item(kinds >> 4, None, depth)
                self._item(kinds & 15, None, depth)
            return None
        value = (
            self._zigzag()
            if kind in (_I16, _I32, _I64)
            else self._take(self._varint() if kind == _BINARY else self._size(kind))
        )
        return value if kind == wanted else None

    def _item(self, kind: int, wanted: Any, depth: int) -> Any:
        """A value in a list: there a truth value has a byte of its own."""
        return self._take(1) and None if kind in (_TRUE, _FALSE) else self._value(kind, wanted, depth + 1)

    def _size(self, kind: int) -> int:
        if kind not in (_BYTE, _DOUBLE):
            raise self._broken(f"a value of type {kind}")
        return 1 if kind == _BYTE else struct.calcsize("d")

    def _count(self, count: int) -> int:
        if count > len(self._content) - self.at:  # an item takes a byte or more
            raise self._broken(f"{count} items in {len(self._content) - self.at} bytes")
        return count

    def _take(self, count: int) -> bytes:
        start = self.at
        self.at += self._count(count)
        return self._content[start : self.at]

    def _byte(self) -> int:
        if self.at >= len(self._content):
            raise self._broken("its end")
        self.at += 1
        return self._content[self.at - 1]

    def _varint(self) -> int:
        value = shift = 0
        while (byte := self._byte()) > 127:
            value |= (byte & 127) << shift
            shift += 7
            if shift > 63:
                raise self._broken("a number without end")
        return value | byte << shift

    def _zigzag(self) -> int:
        value = self._varint()
        return value >> 1 ^ -(value & 1)

    def _broken(self, came: str) -> InputError:
        return InputError(
            f"expected a Parquet file, got {self._name} whose metadata does not parse ({came}): copy or write it again"
        )
