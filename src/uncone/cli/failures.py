"""How a command ends that could not be done: one line that says why, an exit status, and streams that fail no second time."""

import os
import sys
import traceback
from typing import Literal

from uncone.errors import UnconeError, bounded

STOPPED = 130
_OUT_OF_MEMORY = "out of memory: close other programs, or use a machine with more"


class UntoldError(Exception):
    """What a command found stands as its exit status `status`, though the result could not be written: its cause says why."""

    def __init__(self, status: int) -> None:
        super().__init__(f"the result could not be written; exit status {status} stands")
        self.status = status


def end(error: BaseException, *, debug: bool) -> SystemExit:
    """Say on standard error why a command could not be done; what to raise then, with its exit status."""
    status = STOPPED if isinstance(error, KeyboardInterrupt) else error.status if isinstance(error, UntoldError) else 1
    message = _message(error.__cause__ if isinstance(error, UntoldError) and error.__cause__ else error)
    try:
        if debug:
            traceback.print_exception(error)
        else:
            print(f"uncone: {_visible(message)}", file=sys.stderr)  # noqa: T201
    except OSError:
        pass  # nobody is told, but by the status
    release("stderr")
    return SystemExit(status)


def release(name: Literal["stdout", "stderr"]) -> bool:
    """Flush a standard stream, and give it up if that fails: at exit Python would flush it again and change the status.

    Returns:
        Whether it had to be given up.
    """
    stream = getattr(sys, name)
    if stream is None:  # was closed before the program began
        return False
    try:
        stream.flush()
    except (OSError, ValueError):
        try:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)
        except (OSError, ValueError):
            pass  # not a file, as under a test: Python flushes nothing of it
        return True
    return False


def _message(error: BaseException) -> str:
    from cyclopts import CycloptsError

    if isinstance(error, CycloptsError):
        return f"{error} See `uncone --help`."
    if isinstance(error, UnconeError):
        return str(error)
    if isinstance(error, KeyboardInterrupt):
        return "stopped"
    if isinstance(error, SystemExit):  # of rich, at a closed pipe
        return "standard output: closed before all was printed"
    if isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and "allocate" in str(error)
    ):  # torch has no MemoryError
        return _OUT_OF_MEMORY
    if isinstance(error, OSError):
        is_stdout = release("stdout") or isinstance(error, BrokenPipeError)
        return f"{error.filename or ('standard output' if is_stdout else 'input/output')}: {error.strerror or error}"
    first = (str(error).splitlines() or ["no message"])[0]  # a defect of uncone: still one line, and how to report it
    return f"unexpected {type(error).__name__}: {first}: a defect in uncone; --debug shows where"


def _visible(message: str) -> str:
    from uncone.report.text import visible

    return bounded(visible(" ".join(message.split())))
