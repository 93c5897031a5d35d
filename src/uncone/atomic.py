"""Files written whole or not at all: a kill leaves the old content or the new.

The name of the temporary file next to a target holds a digest of the target's name, and its writer keeps it locked: so
the next writer removes what a killed writer left.
"""

import hashlib
import os
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO

from uncone.errors import InputError
from uncone.roles import Path_

try:
    import fcntl
except ImportError:  # no locks of this kind: what a killed writer left stays
    fcntl = None  # type: ignore[assignment]


@contextmanager
def replacing(path: Path_) -> Iterator[BinaryIO]:
    """A temporary file to fill; a clean exit flushes it to disk and moves it over `path`."""
    try:
        target = writable(path)
        with _moved_to(target, partial(Path.touch, exist_ok=False), "write") as temporary:
            with open(temporary, "wb") as handle:
                yield handle
                handle.flush()
                os.fsync(handle.fileno())
            with suppress(OSError):  # nothing is there, or the mode is not ours to set
                os.chmod(temporary, target.stat().st_mode & 0o777)
    except OSError as error:
        way_out = "nothing was written; free some space, or give another folder"
        raise InputError(f"cannot write {os.fspath(path)}: {error.strerror or error}: {way_out}") from error


def write_bytes(path: Path_, content: bytes | memoryview) -> None:
    with replacing(path) as handle:
        handle.write(content)


def write_text(path: Path_, text: str) -> None:
    write_bytes(path, text.encode())


def writable(path: Path_) -> Path:
    """The file that `path` names, links followed. InputError: it or its folder cannot be written."""
    target = resolved(path)
    if target.is_dir():
        raise InputError(f"expected a file to write, got the folder {path}: give a file name in it")
    if target.exists() and not target.is_file():
        raise InputError(f"expected a file to write, got {path}, a device or a pipe: give a file name")
    _check_folder(target.parent, f"cannot write {path}")
    return target


def unused(path: Path_, *, overwrite: bool) -> Path:
    target = writable(path)
    if os.path.lexists(path) and not overwrite:
        way_out = "choose another name, or add --overwrite (overwrite=True)"
        raise InputError(f"expected a new file, got {os.fspath(path)} which exists: {way_out}")
    return target


def _check_folder(folder: Path, failure: str) -> None:
    if not folder.is_dir():
        raise InputError(f"{failure}: there is no folder {folder}: give a folder that exists")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InputError(f"{failure}: the folder {folder} is read-only: give a writable folder")


def resolved(path: Path_) -> Path:
    try:
        return Path(path).resolve()
    except (OSError, RuntimeError, ValueError) as error:  # RuntimeError before Python 3.13: a loop
        got = f"{os.fspath(path)!r}, which leads to no file ({error})"
        raise InputError(f"expected a file name, got {got}: give another") from error


def creatable(path: Path_, *, outside: Path_ | None = None) -> Path:
    target = Path(path)
    if os.path.lexists(target):
        raise InputError(f"expected a new folder, got {target} which exists: choose another or remove it")
    if outside is not None:
        _check_outside(target, outside)
    _check_folder(target.parent, f"cannot create {target}")
    return target


@contextmanager
def new_directory(path: Path_) -> Iterator[Path]:
    """A temporary folder to fill; a clean exit makes it `path`, which must not exist yet."""
    with _moved_to(creatable(path), Path.mkdir, "create") as temporary:
        yield temporary
        for file in temporary.rglob("*"):
            if file.is_file():
                _sync(file)


@contextmanager
def _moved_to(target: Path, make: Callable[[Path], object], verb: str) -> Iterator[Path]:
    """What `make` makes next to `target`: moved there by a clean exit, else removed."""
    try:
        temporary, lock = _beside(target, make)
    except OSError as error:
        raise InputError(f"cannot {verb} {target}: {error.strerror}: give a writable folder") from error
    try:
        yield temporary
        os.replace(temporary, target)
    except BaseException:
        _remove(temporary)
        raise
    finally:
        _release(lock)
    _sync(target.parent)


def _beside(target: Path, make: Callable[[Path], object]) -> tuple[Path, int | None]:
    """A new file or folder and its lock; what killed writers of `target` left is removed."""
    stem = f".{hashlib.sha256(os.fsencode(target.name)).hexdigest()[:16]}"
    for left in target.parent.glob(f"{stem}.*.tmp"):
        with suppress(BlockingIOError):  # its writer is still there
            lock = _locked(left)
            if lock is not None:
                _remove(left)
                _release(lock)
    while True:
        temporary = target.with_name(f"{stem}.{secrets.token_hex(8)}.tmp")
        make(temporary)
        with suppress(BlockingIOError):  # another writer found it first, and removes it
            lock = _locked(temporary)
            if temporary.exists():
                return temporary, lock
            _release(lock)


def _remove(path: Path) -> None:
    shutil.rmtree(path, ignore_errors=True)  # leaves a file as it is
    with suppress(OSError):
        path.unlink()


def _locked(path: Path) -> int | None:
    """A descriptor with the lock; None without a file or locks. BlockingIOError: another has it."""
    descriptor = None
    try:
        if fcntl is not None:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        _release(descriptor)
        if isinstance(error, BlockingIOError):
            raise
        return None  # no file, or a file system without locks
    return descriptor


def _release(lock: int | None) -> None:
    if lock is not None:
        os.close(lock)


def check_apart(targets: Iterable[Path_], sources: Iterable[Path_], models: Iterable[Path_] = ()) -> None:
    """Refuse to write over a file that is read, by any name, to write two files as one, or to write into `models`. In a
    folder of `sources` results may be replaced: an earlier run wrote them."""
    named, read, folders = [*map(Path, targets)], [*map(Path, sources)], [*map(Path, models)]
    cased = [str(resolved(target)).casefold() for target in named]  # some file systems ignore case
    for i, target in enumerate(named):
        if cased[i] in cased[:i] or any(_is_same(target, other) for other in named[:i]):
            raise InputError(f"expected two files to write, got {target.name} twice: name another")
    for target in named:
        parted = folders if is_new_result(target) else [*read, *folders]
        if any(_is_same(target, one) for one in [*read, *folders]) or _lies_among_files(target, parted):
            got = f"{target}: it would be replaced; give another name"
            raise InputError(f"expected an output file other than the input, got {got}")
        for model in folders:
            _check_outside(target, model)


def _check_outside(target: Path, model: Path_) -> None:
    if lies_in(target, model):
        raise InputError(f"expected a place outside the model, got {target}, in {model}: choose another")


def is_new_result(target: Path) -> bool:
    """It has a name that results have and data do not, and no other name."""
    with suppress(OSError):  # nothing is there
        if target.stat().st_nlink != 1:
            return False
    return resolved(target).name.endswith((".json", ".html"))


def _is_same(one: Path, other: Path) -> bool:
    with suppress(OSError, ValueError):  # such as a name with a NUL
        return one.samefile(other)
    return False


def _lies_among_files(target: Path, folders: Iterable[Path]) -> bool:
    seen = set()
    for folder in folders if target.exists() else ():
        for place, inner, files in os.walk(folder, followlinks=True):
            seen.add(os.path.realpath(place))
            inner[:] = [name for name in inner if os.path.realpath(os.path.join(place, name)) not in seen]
            if any(_is_same(target, Path(place, name)) for name in files):
                return True
    return False


def lies_in(target: Path, folder: Path_) -> bool:
    """The target is the folder, or would be in it."""
    place = resolved(target)
    return any(_is_same(parent, Path(folder)) for parent in (place, *place.parents))


def _sync(path: Path) -> None:
    with suppress(OSError):  # some file systems refuse to sync a folder
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
