"""Rows of a matrix in a NumPy `.npz` file, which is a zip of `.npy` files; nothing is unpickled.

What `numpy.savez` stored is read where it lies. What `numpy.savez_compressed` deflated is inflated as it is read, and never
held whole.
"""

import math
import os
import struct
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from uncone.errors import InputError
from uncone.rows.base import Rows
from uncone.rows.bytes import LocalFile
from uncone.rows.names import listing, nearest
from uncone.rows.npy import LONGEST_HEADER, MatrixHeader, matrix_header, rows_at
from uncone.rows.sequential import SequentialFile
from uncone.rows.streamed import StreamedRows

_LOCAL_HEADER = struct.Struct("<4s22xHH")
_LOCAL_MAGIC = b"PK\3\4"
_ENCRYPTED, _UTF_8 = 1, 0x800
_SUFFIX = ".npy"
_PIECE_BYTES = 2**20
_MOST_DEFLATED = 1032
"""Bytes that one byte of a deflated stream can stand for at most."""
_SHOWN = 80


def open_npz(path: str | os.PathLike[str], key: str | None = None) -> Rows:
    """Open the array `key` of a `.npz` file, or its only matrix of floats.

    Raises:
        InputError: no such file, no `.npz`, cut; no such array, or several matrices and no key; pickled objects, another dtype
            or rank; a deflated column-major matrix; sizes that contradict one another.
    """
    archive = _open(LocalFile(path))
    members = _members(archive)
    if key is not None:
        if key not in members:
            raise InputError(f"no array {key!r} in {path}{nearest(key, members)}")
        return _rows(archive, members[key], f"{path}#{key}")
    found = [name for name, member in members.items() if _is_matrix(archive, member)]
    if len(found) == 1:
        return _rows(archive, members[found[0]], f"{path}#{found[0]}")
    if not found:
        raise InputError(
            f"expected a matrix of floats in {path}, got none among {len(members)} arrays: there are no rows to read"
        )
    raise InputError(
        f"expected one matrix in {path}, got {len(found)}: say which with {os.path.basename(path)}#NAME; it holds {listing(found)}"
    )


class InflatedRows(StreamedRows):
    """A deflated row-major matrix. It can only be inflated from its first byte on: rows read backwards cost a pass each."""

    def __init__(self, archive: "_Archive", member: zipfile.ZipInfo, header: MatrixHeader, name: str) -> None:
        super().__init__()
        self._archive, self._member, self._header = archive, member, header
        self.shape, self.dtype, self.name = header.shape, header.name, name

    def begin(self, row: int) -> int:
        return 0

    def pieces(self, begin: int) -> Iterator[torch.Tensor]:
        (n, d), dtype = self.shape, self._header.dtype
        row_bytes, left = d * dtype.itemsize, n
        stream = _inflating(self._archive, self._member)
        _take(stream, self._header.offset, self.name)
        while left:
            count = min(left, max(1, _PIECE_BYTES // row_bytes))
            x = np.frombuffer(_take(stream, count * row_bytes, self.name), dtype).reshape(count, d)
            yield torch.from_numpy(x.astype(dtype.newbyteorder("="), copy=False))
            left -= count


class _CheckedBytes:
    """The file of a stored member. Once the member was read in order, from its first number to its end, its checksum is compared."""

    def __init__(self, source: LocalFile, member: zipfile.ZipInfo, start: int, header: int) -> None:
        self.name, self.size = source.name, source.size
        self._source, self._member, self._stop = source, member, start + member.file_size
        head = bytearray(header)
        source.read_into(start, memoryview(head))
        self._first = self._reached = (
            start + header,
            zlib.crc32(head),
        )  # a place, and the checksum of all before it

    def check(self) -> None:
        """Read the numbers once, in order, for a matrix whose rows are not stored in order."""
        buffer = memoryview(bytearray(_PIECE_BYTES))
        for at in range(self._first[0], self._stop, _PIECE_BYTES):
            self.read_into(at, buffer[: self._stop - at])

    def read_into(self, offset: int, buffer: memoryview) -> None:
        self._source.read_into(offset, buffer)
        at, checksum = self._first if offset == self._first[0] else self._reached
        if offset != at:
            return
        self._reached = at, checksum = offset + buffer.nbytes, zlib.crc32(buffer, checksum)
        if at == self._stop and checksum != self._member.CRC:
            raise _lies(self._source, self._member, "its checksum is not that of its bytes")


@dataclass(frozen=True)
class _Archive:
    """A zip file with its directory read: once, as it may list thousands of members."""

    source: LocalFile
    zip: zipfile.ZipFile


def _open(source: LocalFile) -> _Archive:
    try:
        return _Archive(source, zipfile.ZipFile(SequentialFile(source)))
    except Exception as error:  # zipfile raises errors of many kinds over damaged files
        raise InputError(
            f"expected a .npz file, got {source.name} which is no zip of arrays ({error}): save it with numpy.savez"
        ) from error


def _members(archive: _Archive) -> dict[str, zipfile.ZipInfo]:
    """The arrays of the file by key, their places and sizes checked against the file."""
    source, found = archive.source, dict[str, zipfile.ZipInfo]()
    for entry in archive.zip.infolist():
        if not entry.filename.endswith(_SUFFIX):
            continue
        key = entry.filename.removesuffix(_SUFFIX)
        if key in found:
            raise _lies(source, entry, "its name stands twice")
        if (
            entry.header_offset + _LOCAL_HEADER.size + entry.compress_size > source.size
            or entry.header_offset < 0
        ):
            raise _lies(source, entry, f"it ends beyond the {source.size} bytes of the file")
        _content_at(source, entry)
        found[key] = entry
    return found


def _rows(archive: _Archive, member: zipfile.ZipInfo, name: str) -> Rows:
    header = _header(archive, member, name)
    size = header.offset + math.prod(header.shape) * header.dtype.itemsize
    if size != member.file_size:
        raise _lies(archive.source, member, f"its array takes {size} bytes of {member.file_size}")
    if member.compress_type == zipfile.ZIP_STORED:
        start = _content_at(archive.source, member)
        source = _CheckedBytes(archive.source, member, start, header.offset)
        if header.column_major:
            source.check()
        return rows_at(source, start, header, name)
    if header.column_major:
        raise InputError(
            f"expected a row-major matrix, got a column-major one in deflated form from {name}, whose rows cannot be read in turn: "
            "save it with numpy.savez, or numpy.ascontiguousarray of it"
        )
    return InflatedRows(archive, member, header, name)


def _is_matrix(archive: _Archive, member: zipfile.ZipInfo) -> bool:
    try:
        _header(archive, member, archive.source.name)
    except InputError:
        return False
    return True


def _header(archive: _Archive, member: zipfile.ZipInfo, name: str) -> MatrixHeader:
    source = archive.source
    if member.flag_bits & _ENCRYPTED or member.compress_type not in (
        zipfile.ZIP_STORED,
        zipfile.ZIP_DEFLATED,
    ):
        raise InputError(
            f"expected an array stored or deflated as numpy saves it, got one encrypted or compressed otherwise from {name}: "
            "save it with numpy.savez"
        )
    if member.compress_type == zipfile.ZIP_STORED:
        if member.compress_size != member.file_size:
            raise _lies(source, member, f"{member.compress_size} bytes are stored for {member.file_size}")
        head = bytearray(min(member.file_size, LONGEST_HEADER))
        source.read_into(_content_at(source, member), memoryview(head))
    else:
        if member.file_size > _MOST_DEFLATED * (member.compress_size + 1):
            raise _lies(
                source, member, f"{member.compress_size} deflated bytes cannot stand for {member.file_size}"
            )
        head = _take(_inflating(archive, member), min(member.file_size, LONGEST_HEADER), name)
    return matrix_header(bytes(head), name, member.file_size)


def _content_at(source: LocalFile, member: zipfile.ZipInfo) -> int:
    """Where the bytes of a member begin: its own header may be longer than the directory says, and must be that of the same name."""
    head = bytearray(_LOCAL_HEADER.size)
    source.read_into(member.header_offset, memoryview(head))
    magic, name_length, extra_length = _LOCAL_HEADER.unpack(head)
    start = member.header_offset + _LOCAL_HEADER.size + int(name_length) + int(extra_length)
    if magic != _LOCAL_MAGIC or start + member.compress_size > source.size:
        raise _lies(source, member, "it does not lie where the directory of the zip says")
    name = bytearray(name_length)
    source.read_into(member.header_offset + _LOCAL_HEADER.size, memoryview(name))
    called = name.decode("utf-8" if member.flag_bits & _UTF_8 else "cp437", "replace")
    if called != member.orig_filename:
        raise _lies(source, member, f"its own header calls it {called!r}")
    return start


def _inflating(archive: _Archive, member: zipfile.ZipInfo) -> zipfile.ZipExtFile:
    """The member as a stream. Its checksum is compared at its end."""
    try:
        return archive.zip.open(member)  # type: ignore[return-value]
    except Exception as error:
        raise _lies(archive.source, member, str(error)) from error


def _take(stream: zipfile.ZipExtFile, size: int, name: str) -> bytearray:
    """The next `size` bytes."""
    found = bytearray(size)
    try:
        count = stream.readinto(found)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        raise InputError(
            f"expected deflated bytes of {name}, got what does not inflate ({error}): copy the file again"
        ) from error
    if count < size:
        raise InputError(
            f"expected {size} more bytes of {name}, got {count}: the file was cut, copy it again"
        )
    return found


def _lies(source: LocalFile, member: zipfile.ZipInfo, what: str) -> InputError:
    return InputError(
        f"the zip {source.name} lies about {member.filename[:_SHOWN]!r}: {what[: 2 * _SHOWN]}; copy the file again"
    )
