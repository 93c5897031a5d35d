"""Files written whole or not at all: a kill leaves the old content or the new, never half of it.

A file or folder is filled under a temporary name beside its target and moved there. The name holds a digest
of the target's name, and its writer keeps it locked: so the next writer of the same target finds what a
killed one left, and removes it.
"""

import hashlib
import os
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from uncone.errors import InputError

try:
    import fcntl
except ImportError:  # a system without locks of this kind: what a killed writer left stays
    fcntl = None  # type: ignore[assignment]


_RESULTS = (".json", ".html")


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a temporary file beside `path`; on a clean exit flush it to disk and move it over `path`.

    Raises:
        InputError: the folder does not exist or cannot be written, or `path` is a folder.
    """
    target = writable(path)
    with _moved_to(target, lambda name: open(name, "xb").close(), "write") as temporary:
        with open(temporary, "wb") as handle:
            yield handle
            handle.flush()
            os.fsync(handle.fileno())
        with suppress(OSError):  # nothing is there, or the mode is not ours to set
            os.chmod(temporary, target.stat().st_mode & 0o777)


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
        InputError: a folder, a device or a pipe, or no folder to write into, or one that is read-only; a link that leads to itself.
    """
    target = resolved(path)
    if target.is_dir():
        raise InputError(f"expected a file to write, got the folder {path}: give a file name in it")
    if target.exists() and not target.is_file():
        raise InputError(
            f"expected a file to write, got {path} which is a device or a pipe: give a file name"
        )
    _check_folder(target.parent, f"cannot write {path}")
    return target


def _check_folder(folder: Path, failure: str) -> None:
    if not folder.is_dir():
        raise InputError(f"{failure}: there is no folder {folder}: give a folder that exists")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InputError(f"{failure}: the folder {folder} is read-only: give a folder that can be written")


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
        raise InputError(
            f"expected a new folder, got {target} which exists: choose another name or remove it"
        )
    if outside is not None:
        _check_outside(target, outside)
    _check_folder(target.parent, f"cannot create {target}")
    return target


@contextmanager
def new_directory(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Fill a temporary folder beside `path`; on a clean exit it becomes `path`, which must not exist yet."""
    target = creatable(path)
    with _moved_to(target, os.mkdir, "create") as temporary:
        yield temporary
        for file in temporary.rglob("*"):
            if file.is_file():
                _sync(file)


@contextmanager
def _moved_to(target: Path, make: Callable[[Path], object], verb: str) -> Iterator[Path]:
    """A temporary file or folder that `make` makes: moved to `target` on a clean exit, removed otherwise."""
    try:
        temporary, lock = _beside(target, make)
    except OSError as error:
        raise InputError(
            f"cannot {verb} {target}: {error.strerror}: give a folder that can be written"
        ) from error
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
    """A new file or folder beside `target` that `make` makes, locked; what killed writers of the same target
    left is removed first.

    Raises:
        OSError: what `make` raises.
    """
    stem = f".{hashlib.sha256(os.fsencode(target.name)).hexdigest()[:16]}"
    for left in target.parent.glob(f"{stem}.*.tmp"):
        _remove_unlocked(left)
    while True:
        temporary = target.with_name(f"{stem}.{secrets.token_hex(8)}.tmp")
        make(temporary)
        with suppress(BlockingIOError):  # another writer found it before it was locked, and removes it
            lock = _locked(temporary)
            if temporary.exists():
                return temporary, lock
            _release(lock)


def _remove_unlocked(left: Path) -> None:
    """Remove a temporary file or folder whose writer is gone."""
    try:
        lock = _locked(left)
    except BlockingIOError:
        return
    if lock is None:
        return
    _remove(left)
    _release(lock)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


def _locked(path: Path) -> int | None:
    """A descriptor that holds the lock of `path` until it is closed or its process ends; None where there is
    no such file, or there are no locks.

    Raises:
        BlockingIOError: another holds it.
    """
    if fcntl is None:
        return None
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise
    except OSError:  # a file system without locks
        os.close(descriptor)
        return None
    return descriptor


def _release(lock: int | None) -> None:
    if lock is not None:
        os.close(lock)


def check_apart(
    targets: Iterable[str | os.PathLike[str]],
    sources: Iterable[str | os.PathLike[str]],
    models: Iterable[str | os.PathLike[str]] = (),
) -> None:
    """Refuse to write what is read: links, relative names and names in another case are followed to the file they lead to.

    Args:
        targets: files and folders to write; those that are not there yet too.
        sources: files that are read, and folders of which files are read. What ends in `.json` or `.html` is none of them: it is what an earlier
            run wrote there.
        models: folders into which nothing is written at all.

    Raises:
        InputError: two targets are one file; a target is a source, lies among the files of one, or lies in the folder of a model.
    """
    named, folders = [Path(target) for target in targets], [Path(model) for model in models]
    for i, target in enumerate(named):
        if any(_is_same(target, other) or _in_any_case(target) == _in_any_case(other) for other in named[:i]):
            raise InputError(
                f"expected two files to write, got {target.name} twice: the second would replace the first"
            )
    for target in named:
        is_result = is_new_result(target)
        if any(
            _is_same(target, source) or (not is_result and _is_part(target, source))
            for source in map(Path, sources)
        ) or any(_is_same(target, model) or _is_part(target, model) for model in folders):
            raise InputError(
                f"expected another file to write than what is read, got {target}: it would be replaced; give another name"
            )
        for model in folders:
            _check_outside(target, model)


def _check_outside(target: Path, model: str | os.PathLike[str]) -> None:
    if lies_in(target, model):
        raise InputError(
            f"expected a place outside the model to write to, got {target}, which lies in {model}: choose another"
        )


def is_new_result(target: Path) -> bool:
    """A name that results have and data have not, of a file that has no other name."""
    try:
        names = target.stat().st_nlink
    except OSError:  # nothing is there
        names = 1
    return names == 1 and resolved(target).name.endswith(_RESULTS)


def _is_same(one: Path, other: Path) -> bool:
    """Both names lead to one file that is there."""
    try:
        return one.samefile(other)
    except (OSError, ValueError):  # as of a name with a NUL
        return False


def _is_part(target: Path, source: Path) -> bool:
    """The target is a file of the folder `source`, also one that a link there leads to."""
    return target.exists() and any(_is_same(target, part) for part in _files_in(source))


def _files_in(folder: Path) -> Iterator[Path]:
    """All files below a folder; links to folders are followed, each folder once."""
    seen = set[str]()
    for place, folders, files in os.walk(folder, followlinks=True):
        seen.add(os.path.realpath(place))
        folders[:] = [name for name in folders if os.path.realpath(os.path.join(place, name)) not in seen]
        yield from (Path(place, name) for name in files)


def lies_in(target: Path, folder: str | os.PathLike[str]) -> bool:
    """The target is the folder, or would stand in it."""
    place = resolved(target)
    for parent in (place, *place.parents):
        with suppress(OSError):
            if parent.samefile(folder):
                return True
    return False


def _in_any_case(path: Path) -> str:
    """One text for all names that some file systems take for the same."""
    return str(resolved(path)).casefold()


def _sync(path: Path) -> None:
    with suppress(OSError):  # some file systems refuse to sync a folder
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
