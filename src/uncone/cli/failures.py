"""How a failed command ends: one line with the reason, an exit status, and streams that do not fail again."""

import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Literal

from uncone.errors import UnconeError, bounded, without_package

STOPPED = 130


class NotWrittenError(Exception):
    """The exit status holds, although the result could not be written: the cause has the reason."""

    def __init__(self, status: int) -> None:
        super().__init__(f"the result could not be written; the exit status is still {status}")
        self.status = status


class SignalError(BaseException):
    """Not an Exception, so that no handler of failures continues."""

    def __init__(self, number: int) -> None:
        super().__init__(f"ended by {signal.Signals(number).name}")
        self.status = 128 + number


@contextmanager
def ending_cleanly() -> Iterator[None]:
    """Signals that end us raise `SignalError`, to remove half-written files; an ignored signal stays ignored."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, _: object) -> None:
        raise SignalError(number)

    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    before = {number: signal.getsignal(number) for number in numbers}
    for number, handler in before.items():
        if handler == signal.SIG_DFL:
            signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def open_closed_streams() -> None:
    """Open the null device for closed standard streams: otherwise the next file gets their number and text."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free


def end(error: BaseException, *, debug: bool) -> SystemExit:
    status = STOPPED if isinstance(error, KeyboardInterrupt) else getattr(error, "status", 1)
    cause = error.__cause__ if isinstance(error, NotWrittenError) else None
    with suppress(OSError):  # then only the status shows the failure
        if debug:
            traceback.print_exception(error)
        else:
            from uncone.records.text import visible

            message = bounded(visible(" ".join(_message(cause or error).split())))
            print(f"uncone: {message}", file=sys.stderr)  # noqa: T201
    release("stderr")
    return SystemExit(status)


def release(name: Literal["stdout", "stderr"]) -> bool:
    """Flush a stream, or close it and return True: at exit Python would flush it again, with another status."""
    stream = getattr(sys, name)
    try:
        if stream is not None:  # else closed before the program began
            stream.flush()
        return False
    except (OSError, ValueError):
        with suppress(OSError, ValueError):  # no file, as under a test: Python does not flush it
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)
        return True


def nobody_reads(error: BaseException) -> bool:
    """Whether the reader of standard output left, as `head` does: then nothing is wrong."""
    cause = error.__context__ if isinstance(error, SystemExit) else error  # rich leaves the program at it
    if not isinstance(cause, BrokenPipeError) or cause.filename is not None:
        return False
    release("stdout")
    return True


def _message(error: BaseException) -> str:
    from cyclopts import CoercionError, CycloptsError

    if isinstance(error, CycloptsError):
        commas = isinstance(error, CoercionError) and "," in (error.token.value if error.token else "")
        return f"{error}{' Put spaces between values.' * commas} See `uncone --help`."
    error = without_package(error, "this command") or error
    if isinstance(error, UnconeError | SignalError):
        return str(error)
    if isinstance(error, KeyboardInterrupt):
        return "stopped"
    if isinstance(error, SystemExit):  # of rich, at a closed pipe
        return "standard output: closed before everything was printed"
    if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and "allocate" in str(error)):  # of torch
        return "out of memory: close other programs, or use a machine with more"
    if isinstance(error, OSError):
        is_stdout = release("stdout") or isinstance(error, BrokenPipeError)
        place = error.filename or ("standard output" if is_stdout else "input/output")
        return f"{place}: {error.strerror or error}"
    first = (str(error).splitlines() or ["no message"])[0]
    return f"unexpected {type(error).__name__}: {first}: a defect in uncone; --debug shows where"
