"""Opening a file to read it: a regular file and nothing else, at once."""

import os
import stat
from typing import BinaryIO

from uncone.errors import InputError


def open_regular(path: str | os.PathLike[str]) -> BinaryIO:
    """Open the regular file `path` for reading. A named pipe is refused without waiting for a writer, a device without a read.

    Raises:
        InputError: no such file, one that may not be read, a loop of links, a name with a NUL; a folder, a pipe, a socket or a device.
    """
    try:
        # Without O_NONBLOCK, to open a named pipe waits for its writer. A regular file is read as without it.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise InputError(
            f"cannot read {os.fspath(path)}: {error.strerror or error}: give a file that exists and can be read"
        ) from error
    except ValueError as error:  # a name with a NUL, or one that the file system's encoding has no bytes for
        raise InputError(f"cannot read {os.fspath(path)!r}: {error}: give the name of a file") from error
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise InputError(
                f"expected a file, got {os.fspath(path)} which is a folder, a pipe or a device: give a file, or write the content to one"
            )
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise
