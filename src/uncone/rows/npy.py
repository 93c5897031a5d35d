"""NumPy's `.npy` and `.npz` files, read without loading and without unpickling, and their writers.

A stored array is read where it is; a deflated array is inflated as it is read.
"""

import io
import shutil
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from io import BufferedIOBase
from pathlib import Path
from typing import Any, cast

import numpy as np

from uncone.errors import InputError
from uncone.roles import Path_
from uncone.rows.base import Labels, Rows, Source, Target, Writer, check_shape
from uncone.rows.bytes import (
    MOST_INFLATED,
    File,
    FlatRows,
    LocalFile,
    SequentialFile,
    StreamedRows,
    as_file,
    member_start,
    was_cut,
)
from uncone.rows.floats import FLOATING, Array
from uncone.rows.names import named, only

LONGEST_HEADER = 65536
_COLUMNS = 16  # read at once, so that whole lines of the processor's cache are written
_ENCRYPTED = 1
_PIECE_BYTES = 2**20
_WRONG_SUM = "its checksum does not match its bytes"


@dataclass(frozen=True)
class ArrayHeader:
    """`dtype` has its byte order; `offset` counts from the beginning of the `.npy`."""

    shape: tuple[int, ...]
    column_major: bool
    dtype: np.dtype[Any]
    offset: int

    @property
    def kind(self) -> str:
        return self.dtype.newbyteorder("=").name

    @property
    def end(self) -> int:
        return self.offset + self.shape[0] * self.shape[1] * self.dtype.itemsize  # of a matrix


def open_npy(path: Path_ | File) -> Rows:
    """Open a `.npy` file of one matrix of floats. InputError: any other file."""
    source = as_file(path)
    header = _matrix_header(source.head(LONGEST_HEADER), source.name, source.size)
    if header.column_major:
        return ColumnRows(source, 0, header, source.name)
    return FlatRows(source, header.offset, header.shape, header.kind, source.name, not header.dtype.isnative)


def _matrix_header(head: bytes, name: str, size: int) -> ArrayHeader:
    header = array_header(head, name)
    shape, dtype = header.shape, header.dtype
    if dtype.hasobject:
        raise InputError(f"expected {FLOATING}, got pickled objects in {name}, which are never loaded: save floats")
    if dtype.kind != "f" or dtype.itemsize > 8:
        raise InputError(f"expected {FLOATING}, got dtype {dtype} in {name}: use x.astype('float32')")
    check_shape(shape, name)
    if size < header.end:
        raise was_cut(f"{header.end} bytes for shape {shape} of {dtype} in {name}", size)
    return header


def array_header(head: bytes, name: str) -> ArrayHeader:
    stream = io.BytesIO(head)
    try:
        first = np.lib.format.read_magic(stream) == (1, 0)
        read = np.lib.format.read_array_header_1_0 if first else np.lib.format.read_array_header_2_0
        shape, column_major, dtype = read(stream, max_header_size=LONGEST_HEADER)
    except Exception as error:
        got = f"{name} with a header that does not parse ({str(error)[:200]})"
        raise InputError(f"expected a .npy file, got {got}: save it with numpy.save") from error
    if not all(type(size) is int and 0 <= size < 2**63 for size in shape):  # NumPy takes True for 1
        got = f"{repr(shape)[:80]} in {name}: the header is wrong, save the array again"
        raise InputError(f"expected a shape of whole numbers from 0 to 2^63 - 1, got {got}")
    return ArrayHeader(shape, column_major, dtype, stream.tell())


class ColumnRows(Rows):
    """The column-major matrix at byte `start` of `source`, read a few columns at a time."""

    def __init__(self, source: File, start: int, header: ArrayHeader, name: str) -> None:
        self._source, self._offset, self._stored = source, start + header.offset, header.dtype
        self._describe(header.shape, header.kind, name)

    def fill(self, start: int, out: Array) -> None:
        (n, d), size = self.shape, self._stored.itemsize
        # Columns a power of two apart would share lines of that cache.
        columns = np.empty((min(d, _COLUMNS), len(out) + 16), self._stored)[:, : len(out)]
        for j in range(0, d, _COLUMNS):
            part = columns[: min(_COLUMNS, d - j)]
            for k, column in enumerate(part, start=j):
                self._source.read_into(self._offset + (k * n + start) * size, column.view(np.uint8).data)
            out[:, j : j + _COLUMNS] = part.T  # widened, and in the machine's byte order


class NpyWriter(Writer):
    def begin(self, target: Target, source: Source) -> None:
        descr = np.dtype(target.dtype).newbyteorder("<").str
        header = {"descr": descr, "fortran_order": False, "shape": target.shape}
        np.lib.format.write_array_header_1_0(self._handle, header)


def open_npz(path: Path, key: str | None) -> Rows:
    members = _members(LocalFile(path))
    if key is None:
        axes = {name: member.float_axes() for name, member in members.items()}
        matrices = [name for name in members if axes[name] == 2]
        # An array with more axes is refused with its shape.
        key = only(matrices or [name for name in members if axes[name] > 2][:1], path, among=f"{len(members)} arrays")
    rows = named(members, key, path, "array").rows(f"{path}#{key}")
    beside = [members[name] for name in (f"{key}_ids", "ids", "id") if name in members]
    if beside:
        rows.load_keys = lambda: next(filter(None, (one.keys(rows.shape[0]) for one in beside)), None)
    return rows


@dataclass(frozen=True)
class _Member:
    """One array of a zip file, whose directory is read once: it may list thousands."""

    source: LocalFile
    zip: zipfile.ZipFile
    info: zipfile.ZipInfo

    @property
    def is_stored(self) -> bool:
        return self.info.compress_type == zipfile.ZIP_STORED

    def lies(self, what: str) -> InputError:
        where = f"the zip {self.source.name} is wrong about {self.info.filename[:80]!r}"
        return InputError(f"{where}: {what[:160]}; copy it again")

    def stream(self) -> zipfile.ZipExtFile:
        """The checksum of the bytes is compared at their end."""
        try:
            return cast(zipfile.ZipExtFile, self.zip.open(self.info))
        except Exception as error:
            raise self.lies(str(error)) from error

    def start(self) -> int:
        self.stream().close()
        start = member_start(self.source, self.info)
        if start + self.info.compress_size > self.source.size:
            raise self.lies(f"it ends beyond the {self.source.size} bytes of the file")
        return start

    def head(self, name: str) -> bytes:
        info, packed, size = self.info, self.info.compress_size, self.info.file_size
        if info.flag_bits & _ENCRYPTED or not (self.is_stored or info.compress_type == zipfile.ZIP_DEFLATED):
            got = f"an encrypted array or another compression from {name}: save it with numpy.savez"
            raise InputError(f"expected an array stored or deflated, got {got}")
        if self.is_stored and packed != size:
            raise self.lies(f"{packed} bytes are stored for {size}")
        if size > MOST_INFLATED * (packed + 1):
            raise self.lies(f"{packed} deflated bytes cannot hold {size}")
        return bytes(_take(self.stream(), min(size, LONGEST_HEADER), name))

    def header(self, name: str) -> ArrayHeader:
        return _matrix_header(self.head(name), name, self.info.file_size)

    def float_axes(self) -> int:
        """2 for a matrix of floats that can be read, 0 for no floats."""
        with suppress(InputError):
            header = array_header(self.head(self.source.name), self.source.name)
            if len(header.shape) != 2:
                return len(header.shape) * (header.dtype.kind == "f")
            self.header(self.source.name)
            return 2
        return 0

    def rows(self, name: str) -> Rows:
        header = self.header(name)
        if header.end != self.info.file_size:
            raise self.lies(f"its array takes {header.end} bytes of {self.info.file_size}")
        if not header.column_major:
            return _StoredRows(self, header, name) if self.is_stored else InflatedRows(self, header, name)
        if not self.is_stored:
            way_out = "save it with numpy.savez, or save numpy.ascontiguousarray(x)"
            raise InputError(f"expected a row-major matrix, got a deflated column-major one from {name}: {way_out}")
        try:
            with self.stream() as stream:  # rows are not stored in order: the checksum is compared now
                while stream.read(_PIECE_BYTES):
                    pass
        except zipfile.BadZipFile as error:
            raise self.lies(_WRONG_SUM) from error
        return ColumnRows(self.source, self.start(), header, name)

    def keys(self, n: int) -> Labels:
        """The ids, or None for an array that holds no texts or whole numbers (n,)."""
        name = f"{self.source.name}#{self.info.filename}"
        header = array_header(self.head(name), name)
        if header.shape != (n,) or header.dtype.kind not in "iuU":
            return None
        if header.offset + n * header.dtype.itemsize != self.info.file_size:
            raise self.lies(f"{n} ids do not take its {self.info.file_size} bytes")
        content = _take(self.stream(), self.info.file_size, name)[header.offset :]
        if header.dtype.kind != "U":
            return list(map(str, np.frombuffer(content, header.dtype).tolist()))
        width = header.dtype.itemsize // 4
        try:  # NumPy makes characters of any number, or fails inside
            text = content.decode("utf-32-be" if header.dtype.byteorder == ">" else "utf-32-le")
        except UnicodeDecodeError as error:
            raise self.lies(f"its texts do not decode: {error.reason}") from error
        return [text[at : at + width].rstrip("\0") for at in range(0, n * width, width)]


def _members(source: LocalFile) -> dict[str, _Member]:
    try:
        archive = zipfile.ZipFile(SequentialFile(source))
    except Exception as error:  # zipfile raises errors of many kinds over damaged files
        got = f"{source.name}, which is not a zip of arrays ({error}): save it with numpy.savez"
        raise InputError(f"expected a .npz file, got {got}") from error
    members = {}
    for info in archive.infolist():
        if info.filename.endswith(".npy"):
            key, member = info.filename.removesuffix(".npy"), _Member(source, archive, info)
            if key in members:
                raise member.lies("its name occurs twice")
            if not info.flag_bits & _ENCRYPTED:
                member.start()
            members[key] = member
    return members


class InflatedRows(StreamedRows):
    """A deflated row-major matrix: rows read backwards cost a pass each."""

    def __init__(self, member: _Member, header: ArrayHeader, name: str) -> None:
        super().__init__()
        self._member, self._header = member, header
        self._describe(header.shape, header.kind, name)

    def begin(self, row: int) -> int:
        return 0

    def pieces(self, begin: int) -> Iterator[Array]:
        (n, d), dtype, stream = self.shape, self._header.dtype, self._member.stream()
        _take(stream, self._header.offset, self.name)
        size = max(1, _PIECE_BYTES // (d * dtype.itemsize))
        for start in range(0, n, size):
            content = _take(stream, min(size, n - start) * d * dtype.itemsize, self.name)
            yield np.frombuffer(content, dtype).reshape(-1, d).astype(dtype.newbyteorder("="), copy=False)


class _StoredRows(FlatRows):
    """A stored row-major matrix; its checksum is compared once all of it has been read in order."""

    def __init__(self, member: _Member, header: ArrayHeader, name: str) -> None:
        start, swapped = member.start(), not header.dtype.isnative
        super().__init__(member.source, start + header.offset, header.shape, header.kind, name, swapped)
        self._member, self._stop = member, start + member.info.file_size
        # A place, and the checksum of the bytes before it.
        self._first = self._reached = self._offset, zlib.crc32(member.source.read(start, header.offset))

    def _read_into(self, offset: int, content: Array) -> None:
        super()._read_into(offset, content)
        at, checksum = self._first if offset == self._first[0] else self._reached
        if offset != at:
            return
        self._reached = at, checksum = offset + content.nbytes, zlib.crc32(content.data, checksum)
        if at == self._stop and checksum != self._member.info.CRC:
            raise self._member.lies(_WRONG_SUM)


def _take(stream: zipfile.ZipExtFile, size: int, name: str) -> bytearray:
    content = bytearray(size)
    try:
        count = stream.readinto(content)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        got = f"got bytes that do not inflate ({error}): copy the file again"
        raise InputError(f"expected deflated bytes of {name}, {got}") from error
    if count < size:
        raise InputError(f"expected {size} more bytes of {name}, got {count}: it was cut, copy it again")
    return content


class NpzWriter(Writer):
    """The other arrays of the source, then the rows, not deflated."""

    def begin(self, target: Target, source: Source) -> None:
        self._zip = zipfile.ZipFile(self._handle, "w", zipfile.ZIP_STORED)
        if source.format == "npz" and source.path is not None:
            self._copy_others(source.path, f"{source.part}.npy", target)
        member = zipfile.ZipInfo(f"{target.part}.npy")
        self._handle = cast(BufferedIOBase, self._zip.open(member, "w", force_zip64=True))
        NpyWriter(self._handle, target, source)  # writes the header

    def close(self) -> None:
        self._handle.close()
        self._zip.close()

    def _copy_others(self, path: Path, but: str, target: Target) -> None:
        """Members are never loaded, so a pickled member stays pickled."""
        try:
            with zipfile.ZipFile(path) as archive:
                others = [info for info in archive.infolist() if info.filename != but and not info.is_dir()]
                target.check_free(info.filename.removesuffix(".npy") for info in others)
                for info in others:
                    kept = zipfile.ZipInfo(info.filename, info.date_time)
                    kept.compress_type = info.compress_type
                    with archive.open(info) as inner, self._zip.open(kept, "w", force_zip64=True) as outer:
                        shutil.copyfileobj(inner, outer, _PIECE_BYTES)
        except InputError:
            raise
        except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
            raise InputError(f"cannot copy the rest of {path} ({error}): save it with numpy.savez") from error
