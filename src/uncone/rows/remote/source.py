"""A remote file, read by ranges of its bytes, which are requested again if a connection breaks."""

import time
from collections.abc import Iterator
from pathlib import Path

from uncone.errors import InputError
from uncone.rows.bytes import File

WAITS = (0.5, 1.0, 2.0, 4.0, 8.0)
"""Seconds to wait before each repetition of a request that brought no byte."""


class NotThere(InputError):  # noqa: N818 - of some files it is no error
    """No file has this name."""


class Dropped(Exception):  # noqa: N818 - no error yet
    """The connection broke, or the server is busy and requests a `wait` in seconds. The bytes of a `damaged` answer do
    not count."""

    def __init__(self, why: str, wait: float = 0.0, *, damaged: bool = False) -> None:
        super().__init__(why)
        self.wait, self.damaged = wait, damaged


class RemoteFile(File):
    """`received` counts the bytes of bodies that arrived, including bytes that had to be sent twice."""

    def __init__(self, name: str) -> None:
        self.name, self.path, self.received, self.first = name, Path(name), 0, b""
        self.begin()

    def begin(self) -> None:
        """Set `size`, and whatever distinguishes the file from a file that may take its place. `first`, its first
        bytes, may be set too."""
        raise NotImplementedError

    def pieces(self, start: int, stop: int) -> Iterator[bytes]:
        """The bytes [start, stop) in order. `Dropped`: there are no more for now."""
        raise NotImplementedError

    def read_into(self, offset: int, buffer: memoryview) -> None:
        view, done, tries = buffer.cast("B"), 0, 0
        if offset + len(view) > self.size:
            raise InputError(
                f"expected {len(view)} bytes at offset {offset} of {self.name}, got a file of {self.size}: it was cut"
            )
        if offset < len(self.first):
            done = min(len(view), len(self.first) - offset)
            view[:done] = self.first[offset : offset + done]
        while done < len(view):
            begun, before = done, tries
            try:
                for piece in self.pieces(offset + done, offset + len(view)):
                    self.received += len(piece)
                    if done + len(piece) > len(view):
                        raise InputError(
                            f"expected {len(view)} bytes of {self.name}, got more: the server handles ranges wrongly"
                        )
                    view[done : done + len(piece)] = piece
                    done, tries = done + len(piece), 0
                if done < len(view):
                    raise Dropped("it ended early")
            except Dropped as error:
                if error.damaged:
                    done, tries = begun, before
                tries = self.wait(tries, error, f"{done} of {len(view)} bytes at offset {offset}")

    def wait(self, tries: int, error: Dropped, got: str) -> int:
        """Wait, and return the number of tries so far. InputError: it was the last try."""
        if tries == len(WAITS):
            way = "check the connection, and try again"
            raise InputError(
                f"expected to read {self.name}, got {got} in {tries + 1} tries ({error}): {way}"
            ) from error
        time.sleep(max(WAITS[tries], error.wait))
        return tries + 1
