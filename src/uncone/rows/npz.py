"""A NumPy `.npz` file, which is a zip of `.npy` files: the rows of one, and the writer. Nothing is unpickled.

An array that `numpy.savez` stored is read where it lies. One that `numpy.savez_compressed` deflated is
inflated as it is read, and never held whole.
"""

import os
import struct
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from io import BufferedIOBase
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch

from uncone.errors import InputError
from uncone.rows.base import Rows
from uncone.rows.bytes import FlatRows, LocalFile, SequentialFile
from uncone.rows.names import nearest, only
from uncone.rows.npy import LONGEST_HEADER, ArrayHeader, NpyWriter, matrix_header, rows_at
from uncone.rows.streamed import StreamedRows
from uncone.rows.target import Source, Target

_LOCAL_HEADER = struct.Struct("<26xHH")
_ENCRYPTED = 1
_SUFFIX = ".npy"
_PIECE_BYTES = 2**20
_MOST_DEFLATED = 1032
"""Bytes that one byte of a deflated stream can stand for at most."""
_SHOWN = 80
_WRONG_SUM = "its checksum is not that of its bytes"


def open_npz(path: str | os.PathLike[str], key: str | None = None) -> Rows:
    """Open the array `key` of a `.npz` file, or its only matrix of floats.

    Raises:
        InputError: no such file, no `.npz`, cut; no such array, or several matrices and no key; pickled objects, another dtype
            or rank; a deflated column-major matrix; sizes that contradict one another.
    """
    archive = _Archive.open(LocalFile(path))
    members = archive.members()
    if key is not None:
        if key not in members:
            raise InputError(f"no array {key!r} in {path}{nearest(key, members)}")
    else:
        matrices = [name for name, member in members.items() if _is_matrix(archive, member)]
        key = only(matrices, Path(path), among=f"{len(members)} arrays")
    return _rows(archive, members[key], f"{path}#{key}")


class InflatedRows(StreamedRows):
    """A deflated row-major matrix, inflated from its first byte on: rows read backwards cost a pass each."""

    def __init__(self, archive: "_Archive", member: zipfile.ZipInfo, header: ArrayHeader, name: str) -> None:
        super().__init__()
        self._archive, self._member, self._header = archive, member, header
        self.shape, self.name = (header.shape[0], header.shape[1]), name
        self.dtype = np.dtype(header.dtype.newbyteorder("=")).name

    def begin(self, row: int) -> int:
        return 0

    def pieces(self, begin: int) -> Iterator[torch.Tensor]:
        (n, d), dtype = self.shape, self._header.dtype
        row_bytes, left = d * dtype.itemsize, n
        stream = self._archive.stream(self._member)
        _take(stream, self._header.offset, self.name)
        while left:
            count = min(left, max(1, _PIECE_BYTES // row_bytes))
            x = np.frombuffer(_take(stream, count * row_bytes, self.name), dtype).reshape(count, d)
            yield torch.from_numpy(x.astype(dtype.newbyteorder("="), copy=False))
            left -= count


class _StoredRows(FlatRows):
    """A stored row-major matrix. Its checksum is compared once all of it was read in order."""

    def __init__(self, source: LocalFile, *, member: zipfile.ZipInfo, start: int, **where: Any) -> None:
        super().__init__(source, **where)
        self._member, self._stop = member, start + member.file_size
        head = source.read(start, self._offset - start)
        # A place, and the checksum of all before it.
        self._first = self._reached = self._offset, zlib.crc32(head)

    def _read_into(self, offset: int, content: npt.NDArray[np.uint8]) -> None:
        super()._read_into(offset, content)
        at, checksum = self._first if offset == self._first[0] else self._reached
        if offset != at:
            return
        self._reached = at, checksum = offset + content.nbytes, zlib.crc32(content.data, checksum)
        if at == self._stop and checksum != self._member.CRC:
            raise _lies(self._source, self._member, _WRONG_SUM)


@dataclass(frozen=True)
class _Archive:
    """A zip file with its directory read: once, as it may list thousands of members."""

    source: LocalFile
    zip: zipfile.ZipFile

    @classmethod
    def open(cls, source: LocalFile) -> "_Archive":
        try:
            return cls(source, zipfile.ZipFile(SequentialFile(source)))
        except Exception as error:  # zipfile raises errors of many kinds over damaged files
            raise InputError(
                f"expected a .npz file, got {source.name} which is no zip of arrays ({error}): save it with numpy.savez"
            ) from error

    def members(self) -> dict[str, zipfile.ZipInfo]:
        """The arrays of the file by key."""
        members = dict[str, zipfile.ZipInfo]()
        for entry in self.zip.infolist():
            if not entry.filename.endswith(_SUFFIX):
                continue
            key = entry.filename.removesuffix(_SUFFIX)
            if key in members:
                raise _lies(self.source, entry, "its name stands twice")
            if not entry.flag_bits & _ENCRYPTED:
                self.content_at(entry)
            members[key] = entry
        return members

    def stream(self, member: zipfile.ZipInfo) -> zipfile.ZipExtFile:
        """The bytes of a member, named alike in its own header; the checksum is compared at the end."""
        try:
            return self.zip.open(member)  # type: ignore[return-value]
        except Exception as error:
            raise _lies(self.source, member, str(error)) from error

    def content_at(self, member: zipfile.ZipInfo) -> int:
        """Where the bytes of a member begin: its own header may be longer than the directory says."""
        self.stream(member).close()
        lengths = _LOCAL_HEADER.unpack(self.source.read(member.header_offset, _LOCAL_HEADER.size))
        start: int = member.header_offset + _LOCAL_HEADER.size + sum(lengths)
        if start + member.compress_size > self.source.size:
            raise _lies(self.source, member, f"it ends beyond the {self.source.size} bytes of the file")
        return start

    def check(self, member: zipfile.ZipInfo) -> None:
        """Read a stored member to its end, where its checksum is compared."""
        try:
            with self.stream(member) as stream:
                while stream.read(_PIECE_BYTES):
                    pass
        except zipfile.BadZipFile as error:
            raise _lies(self.source, member, _WRONG_SUM) from error


def _rows(archive: _Archive, member: zipfile.ZipInfo, name: str) -> Rows:
    header = _header(archive, member, name)
    if header.end != member.file_size:
        raise _lies(archive.source, member, f"its array takes {header.end} bytes of {member.file_size}")
    if member.compress_type == zipfile.ZIP_STORED:
        start = archive.content_at(member)
        if header.column_major:  # its rows are not stored in order: the checksum is compared now
            archive.check(member)
        stored = partial(_StoredRows, member=member, start=start)
        return rows_at(archive.source, start, header, name, stored)
    if header.column_major:
        raise InputError(
            f"expected a row-major matrix, got a column-major one in deflated form from {name}, whose rows cannot be read "
            "in turn: save it with numpy.savez, or numpy.ascontiguousarray of it"
        )
    return InflatedRows(archive, member, header, name)


def _is_matrix(archive: _Archive, member: zipfile.ZipInfo) -> bool:
    try:
        _header(archive, member, archive.source.name)
    except InputError:
        return False
    return True


def _header(archive: _Archive, member: zipfile.ZipInfo, name: str) -> ArrayHeader:
    stored = member.compress_type == zipfile.ZIP_STORED
    if member.flag_bits & _ENCRYPTED or not (stored or member.compress_type == zipfile.ZIP_DEFLATED):
        raise InputError(
            f"expected an array stored or deflated as numpy saves it, got one encrypted or compressed otherwise from {name}: "
            "save it with numpy.savez"
        )
    packed, size = member.compress_size, member.file_size
    if stored and packed != size:
        raise _lies(archive.source, member, f"{packed} bytes are stored for {size}")
    if size > _MOST_DEFLATED * (packed + 1):
        raise _lies(archive.source, member, f"{packed} deflated bytes cannot stand for {size}")
    head = _take(archive.stream(member), min(size, LONGEST_HEADER), name)
    return matrix_header(bytes(head), name, size)


def _take(stream: zipfile.ZipExtFile, size: int, name: str) -> bytearray:
    """The next `size` bytes."""
    content = bytearray(size)
    try:
        count = stream.readinto(content)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        raise InputError(
            f"expected deflated bytes of {name}, got what does not inflate ({error}): copy the file again"
        ) from error
    if count < size:
        raise InputError(
            f"expected {size} more bytes of {name}, got {count}: the file was cut, copy it again"
        )
    return content


def _lies(source: LocalFile, member: zipfile.ZipInfo, what: str) -> InputError:
    return InputError(
        f"the zip {source.name} lies about {member.filename[:_SHOWN]!r}: {what[: 2 * _SHOWN]}; copy the file again"
    )


class NpzWriter:
    """A `.npz` file: the other arrays of the source, then the rows, not deflated."""

    def __init__(self, handle: BufferedIOBase, target: Target, source: Source) -> None:
        self._zip = zipfile.ZipFile(handle, "w", zipfile.ZIP_STORED)
        if source.format == "npz" and source.path is not None:
            self._copy_others(source.path, f"{source.part}{_SUFFIX}", target)
        member = zipfile.ZipInfo(f"{target.part}{_SUFFIX}")
        self._stream = cast(BufferedIOBase, self._zip.open(member, "w", force_zip64=True))
        self._rows = NpyWriter(self._stream, target)

    def write(self, rows: torch.Tensor) -> None:
        self._rows.write(rows)

    def close(self) -> None:
        self._stream.close()
        self._zip.close()

    def _copy_others(self, path: Path, but: str, target: Target) -> None:
        try:
            with zipfile.ZipFile(path) as archive:
                others = [
                    entry for entry in archive.infolist() if entry.filename != but and not entry.is_dir()
                ]
                target.check_free(entry.filename.removesuffix(_SUFFIX) for entry in others)
                for entry in others:
                    self._copy(archive, entry)
        except InputError:
            raise
        except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
            raise InputError(
                f"cannot copy the other arrays of {path} ({error}): save it again with numpy.savez"
            ) from error

    def _copy(self, archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> None:
        """One member as it is: never loaded, so that a pickled one stays so."""
        kept = zipfile.ZipInfo(entry.filename, entry.date_time)
        kept.compress_type = entry.compress_type
        with archive.open(entry) as inner, self._zip.open(kept, "w", force_zip64=True) as outer:
            while piece := inner.read(_PIECE_BYTES):
                outer.write(piece)
