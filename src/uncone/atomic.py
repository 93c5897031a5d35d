"""Files written whole or not at all: a kill leaves the old content or the new, never half of it."""

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from uncone.errors import InputError


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a temporary file beside `path`; on a clean exit flush it to disk and move it over `path`.

    Raises:
        InputError: the folder does not exist or cannot be written, or `path` is a folder.
    """
    target = writable(path)
    temporary = target.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        handle = open(temporary, "xb")  # noqa: SIM115 - closed below, before the move
    except OSError as error:
        raise InputError(f"cannot write {target}: {error.strerror}: give a folder that exists and can be written") from error
    try:
        with handle:
            yield handle
            handle.flush()
            os.fsync(handle.fileno())
        _keep_mode(target, temporary)
        os.replace(temporary, target)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
    _sync(target.parent)


def write_bytes(path: str | os.PathLike[str], content: bytes | memoryview) -> None:
    """Write `content`, atomically.

    Raises:
        InputError: what `replacing` raises, or a disk that takes no more.
    """
    try:
        with replacing(path) as handle:
            handle.write(content)
    except OSError as error:
        raise unwritten(path, error) from error


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write `text` as UTF-8, atomically.

    Raises:
        InputError: as `write_bytes` does.
    """
    write_bytes(path, text.encode("utf-8"))


def unwritten(path: str | os.PathLike[str], error: OSError) -> InputError:
    """What to say of a file that could not be written in the middle."""
    told = error.strerror or str(error)
    return InputError(
        f"cannot write {os.fspath(path)}: {told}: nothing of it was written; free some space, or give another folder"
    )


def writable(path: str | os.PathLike[str]) -> Path:
    """The file that `path` names, links followed, so that the file they lead to is what is replaced.

    Raises:
        InputError: a folder, a device or a pipe, or no folder to write into, or one that is read-only.
    """
    target = resolved(path)
    if target.is_dir():
        raise InputError(f"expected a file to write, got the folder {path}: give a file name in it")
    if target.exists() and not target.is_file():
        raise InputError(f"expected a file to write, got {path} which is a device or a pipe: give a file name")
    if not target.parent.is_dir():
        raise InputError(f"cannot write {path}: there is no folder {target.parent}: give a folder that exists")
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise InputError(f"cannot write {path}: the folder {target.parent} is read-only: give a folder that can be written")
    return target


def resolved(path: str | os.PathLike[str]) -> Path:
    """The absolute path, links followed.

    Raises:
        InputError: a loop of links, or a name with a NUL.
    """
    try:
        return Path(path).resolve()
    except (OSError, RuntimeError, ValueError) as error:  # a loop is a RuntimeError before Python 3.13
        raise InputError(
            f"expected the name of a file, got {os.fspath(path)!r}, which leads to none ({error}): give another"
        ) from error


def creatable(path: str | os.PathLike[str], *, outside: str | os.PathLike[str] | None = None) -> Path:
    """The new folder that `path` names; `outside` is a folder that is read, of which it would become a part.

    Raises:
        InputError: it exists or lies in `outside`, or there is no folder to make it in, or none that can be written.
    """
    target = Path(path)
    if os.path.lexists(target):
        raise InputError(f"expected a new folder, got {target} which exists: choose another name or remove it")
    if not target.parent.is_dir():
        raise InputError(
            f"cannot create {target}: there is no folder {target.parent}: give a parent folder that can be written"
        )
    if outside is not None and target.resolve().is_relative_to(Path(outside).resolve()):
        raise InputError(
            f"expected a new folder outside the model, got {target}, which lies in {outside}: choose another place"
        )
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise InputError(
            f"cannot create {target}: the folder {target.parent} is read-only: give a parent folder that can be written"
        )
    return target


@contextmanager
def new_directory(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Fill a temporary folder beside `path`; on a clean exit it becomes `path`, which must not exist yet."""
    target = creatable(path)
    temporary = target.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        temporary.mkdir()
    except OSError as error:
        raise InputError(f"cannot create {target}: {error.strerror}: give a parent folder that can be written") from error
    try:
        yield temporary
        for file in temporary.rglob("*"):
            if file.is_file():
                _sync(file)
        os.rename(temporary, target)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    _sync(target.parent)


def _keep_mode(target: Path, temporary: Path) -> None:
    with suppress(OSError):
        os.chmod(temporary, target.stat().st_mode & 0o777)


def _sync(path: Path) -> None:
    with suppress(OSError):  # some file systems refuse to sync a folder
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
