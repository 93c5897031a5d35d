"""Opening a regular file, and nothing else, to read it."""

import gzip
import io
import itertools
import json
import lzma
import os
import stat
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from io import BufferedIOBase
from typing import Any, BinaryIO

from uncone.errors import InputError, nearest, needed
from uncone.roles import Path_

LONGEST_LINE = 64 * 2**20


class _Unzstd(io.RawIOBase):
    """A .zst file as bytes: zstandard's own reader ends silently where a file was cut."""

    def __init__(self, file: BinaryIO) -> None:
        how = "reading .zst needs zstandard, got none: pip install 'uncone[zst]'"
        self._file, self._zstandard = file, needed("zstandard", how)
        self._frame: Any = None
        self._packed, self._rest, self._whole = b"", b"", False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._rest:
            self._packed = self._packed or self._file.read(4096)  # at most some 100 MB, unpacked
            if not self._packed:
                if not self._whole:
                    raise EOFError("the file ends within its data")
                return 0
            if self._frame is None:
                self._frame = self._zstandard.ZstdDecompressor().decompressobj()
            try:
                self._rest = self._frame.decompress(self._packed)
            except self._zstandard.ZstdError as error:
                raise OSError(str(error)) from error
            self._packed, self._whole = self._frame.unused_data, self._frame.eof
            if self._whole:
                self._frame = None
        n = min(len(buffer), len(self._rest))
        buffer[:n], self._rest = self._rest[:n], self._rest[n:]
        return n


_UNPACKED: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".xz": lzma.open}
_UNPACKED[".zst"] = lambda file: io.BufferedReader(_Unzstd(file), 2**20)
PACKED = tuple(_UNPACKED)


def json_object(line: str | bytes) -> dict[str, Any] | None:
    """The object in a line; None if the line is anything else, or was cut."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def misspelt(path: Path_) -> str:
    """ "did you mean 'docs.npy'? " for a file that does not exist; "" if no name next to it is similar."""
    folder, name = os.path.split(os.fspath(path))
    names = []
    with suppress(OSError, ValueError), os.scandir(folder or ".") as entries:
        names += [entry.name for entry in itertools.islice(entries, 10_000)]
    meant = "" if not name or name in names else nearest(name, names, "")
    return f"{meant} " if meant else ""


def open_regular(path: Path_, *, how: str = "give a file that exists and can be read") -> BinaryIO:
    """`how` ends each message: what to give instead. A pipe is refused without waiting for a writer, a device without a
    read."""
    try:
        # Without O_NONBLOCK a named pipe waits for its writer; regular files do not mind it.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        meant = misspelt(path) if isinstance(error, FileNotFoundError) else ""
        raise InputError(f"cannot read {os.fspath(path)}: {error.strerror or error}: {meant}{how}") from error
    except ValueError as error:  # a name with a NUL, or that the file system cannot encode
        raise InputError(f"cannot read {os.fspath(path)!r}: {error}: {how}") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise InputError(f"cannot read {os.fspath(path)}: expected a file, got a folder, a pipe or a device: {how}")
    return os.fdopen(descriptor, "rb")


def starts_with(path: Path_, mark: bytes) -> bool:
    """A file can be read, and begins with `mark` after any white space."""
    with suppress(InputError), open_regular(path) as file:
        return file.read(4096).lstrip().startswith(mark)
    return False


@contextmanager
def open_unpacked(path: Path_, *, how: str) -> Iterator[BufferedIOBase]:
    """`open_regular`, with the bytes of a .gz, .xz or .zst unpacked as they are read."""
    unpacked = _UNPACKED.get(os.path.splitext(os.fspath(path))[1].lower(), nullcontext)
    with open_regular(path, how=how) as file:
        try:
            with unpacked(file) as inner:
                yield inner
        except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
            why = getattr(error, "strerror", None) or error
            raise InputError(f"cannot read {os.fspath(path)}: {why}: {how}") from error


def table_lines(path: Path_, *, how: str) -> Iterator[str]:
    """Lines of up to 512 MiB; a carriage return alone ends a line too."""
    return (part for _, line in lines_of(path, how=how, longest=2**29) for part in line.split("\r"))


def number_in(field: str) -> float | None:
    with suppress(ValueError):
        return float(field)
    return None


def lines_of(path: Path_, *, how: str, longest: int = LONGEST_LINE) -> Iterator[tuple[int, str]]:
    """(number from 1, text without its end) of each line in UTF-8, also of a packed file."""
    with open_unpacked(path, how=how) as file:
        for number in itertools.count(1):
            line = file.readline(longest + 1)
            if not line:
                return
            if len(line) > longest:
                raise InputError(
                    f"expected lines of at most {longest} bytes in {path}, got a longer line {number}: {how}"
                )
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise InputError(f"expected UTF-8, got {path}, whose line {number} is not: {how}") from error
            yield number, text.removesuffix("\n").removesuffix("\r")
