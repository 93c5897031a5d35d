"""A file in an object store (`s3://`, `gs://`, `abfs://` ...), read with fsspec and its package for that store."""

from collections.abc import Iterator
from typing import Any

from uncone.errors import InputError, first_line, needed
from uncone.rows.remote.address import Address
from uncone.rows.remote.source import Dropped, NotThere, RemoteFile

_PIECE = 2**24
_MARKS = ("ETag", "etag", "mtime", "LastModified", "last_modified", "created")


class StoreFile(RemoteFile):
    def __init__(self, address: Address) -> None:
        self._address = address
        super().__init__(address.name)

    def begin(self) -> None:
        self._store, self._path = store_of(self._address)
        tries = 0
        while True:
            try:
                return self._look()
            except Dropped as error:
                tries = self.wait(tries, error, "nothing")

    def _look(self) -> None:
        told = asked(self._address, lambda: self._store.info(self._path))
        if told.get("type", "file") != "file" or told.get("size") is None:
            raise InputError(
                f"expected a file at {self.name}, got a {told.get('type', 'thing without a size')}: name a file"
            )
        self.size = int(told["size"])
        self._mark = next((str(told[mark]) for mark in _MARKS if told.get(mark)), "")

    def pieces(self, start: int, stop: int) -> Iterator[bytes]:
        for at in range(start, stop, _PIECE):
            ends = {"start": at, "end": min(at + _PIECE, stop)}  # by name: s3fs takes a version first
            yield asked(self._address, lambda ends=ends: self._store.cat_file(self._path, **ends))

        size, mark = self.size, self._mark
        self._store.invalidate_cache(self._store._parent(self._path))  # its memory of the folder
        self._look()
        if (size, mark) != (self.size, self._mark):
            raise InputError(f"expected {self.name} to stay the same while it is read, got a change: read it again")


def store_of(address: Address) -> tuple[Any, str]:
    """The file system of an address, and the path there."""
    fsspec = needed("fsspec.core", f"reading {address.name} needs fsspec, got none: pip install 'uncone[remote]'")
    scheme = address.url.partition("://")[0].lower()
    try:
        store, path = fsspec.url_to_fs(address.url)
    except ImportError as error:
        extra = (
            "'uncone[s3]'" if scheme in ("s3", "s3a") else getattr(error, "name", None) or f"the package of {scheme}://"
        )
        raise InputError(
            f"reading {address.name} needs a package of its store ({first_line(error)}): pip install {extra}"
        ) from error
    except ValueError as error:
        raise InputError(
            f"expected hf://, https://, s3:// or another scheme of fsspec, got {address.name}: {first_line(error)}"
        ) from error
    return store, path


def asked(address: Address, ask: Any) -> Any:
    """The answer of a store. `Dropped`: it may answer later."""
    try:
        return ask()
    except FileNotFoundError as error:
        raise NotThere(f"no file {address.name}: check the name") from error
    except PermissionError as error:
        raise InputError(_no_permission(address)) from error
    except Exception as error:
        if "credential" in type(error).__name__.lower():
            raise InputError(_no_permission(address)) from error
        if isinstance(error, OSError | TimeoutError) or "timeout" in type(error).__name__.lower():
            raise Dropped(type(error).__name__) from error
        raise InputError(
            f"expected {address.name}, got {type(error).__name__}: check the name and the credentials"
        ) from error


def _no_permission(address: Address) -> str:
    scheme = address.url.partition("://")[0].lower()
    how = (
        "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
        if scheme in ("s3", "s3a")
        else "set the credentials of its store"
    )
    return f"expected permission to read {address.name}, got none: {how}"
