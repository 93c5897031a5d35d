"""The file of a run: one JSON object per line. It survives a kill, a full disk and a resume."""

import errno
import json
import math
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from uncone.errors import InputError
from uncone.regular import json_object, open_regular
from uncone.roles import Path_

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

SCHEMA = "uncone.run/1"
_MOST_SHOWN = 3  # differing names of a header


class RunFile:
    """Appends to one run's file and locks it: a second process is refused. Nothing is written before `begin`."""

    def __init__(self, path: Path_, header: Mapping[str, Any]) -> None:
        """InputError where the folder of `path` does not exist, or the file is another run's or another program's."""
        self.path, self.header = Path(path), {"schema": SCHEMA, **header}
        self._descriptor: int | None = None
        self._end = 0
        if not self.path.parent.is_dir() or (self.path.exists() and not self.path.is_file()):
            raise InputError(f"expected a file in a folder that exists, got {self.path}: make the folder first")
        if self.path.exists():
            self._own_steps()

    @property
    def is_open(self) -> bool:
        return self._descriptor is not None

    def begin(self, step: int) -> None:
        """Open a run that has done so many optimiser steps: later lines, and a line that a kill cut, are removed.

        InputError where another process writes, or where the run begins at 0 and the file has records already.
        """
        if self.is_open:
            self.close()
        try:
            self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise InputError(f"cannot write {self.path}: {error.strerror}: name a file that can be written") from error
        try:
            if fcntl is not None:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            steps, size = self._own_steps()
            if step == 0 and steps:
                how = "name a new file, or, if your own loop resumes, call monitor.resume(step)"
                got = f"got one with records up to step {steps[-1][0]:,}"
                raise InputError(f"expected no run in {self.path.name} yet, {got}: {how}")
            self._end = next((at for done, at in steps if done > step), size)
            os.ftruncate(self._descriptor, self._end)
            if not self._end:
                self._write(self.header)
        except BlockingIOError as error:
            self.close()
            got = "got another process or monitor that writes to it: name a file for each run"
            raise InputError(f"expected {self.path.name} for this run alone, {got}") from error
        except OSError as error:
            self.close()
            raise InputError(f"cannot write {self.path}: {error.strerror}: name a file that can be written") from error
        except InputError:
            self.close()
            raise

    def append(self, step: int, numbers: Mapping[str, Any], **more: Any) -> None:
        """Append a line, in one write; numbers that are not finite become null, as JSON has no such numbers. OSError
        where the write fails: nothing of the line is left."""
        known = {name: None if isinstance(x, float) and not math.isfinite(x) else x for name, x in numbers.items()}
        self._write({"step": step, **more, **known})

    def record(self, step: int, numbers: Mapping[str, float]) -> None:
        self.append(step, numbers, time=round(time.time(), 3))

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)  # and with it the lock
            self._descriptor = None

    def _write(self, line: Mapping[str, Any]) -> None:
        assert self._descriptor is not None
        text = f"{json.dumps(line, allow_nan=False)}\n".encode()
        try:
            written = os.pwrite(self._descriptor, text, self._end)
            if written < len(text):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError:
            with suppress(OSError):  # the first error is more informative
                os.ftruncate(self._descriptor, self._end)
            raise
        self._end += len(text)

    def _own_steps(self) -> tuple[list[tuple[int, int]], int]:
        """The step of each whole line after the header, where it begins, and where the last whole line ends."""
        with open_regular(self.path) as file:
            *lines, torn = file.read().split(b"\n")
        if not lines:
            if torn and not torn.startswith(b'{"schema"'[: len(torn)]):
                raise self._another(1)
            return [], 0
        self._check_header(json_object(lines[0]))
        found, at = list[tuple[int, int]](), len(lines[0]) + 1
        for number, line in enumerate(lines[1:], 2):
            step = (json_object(line) or {}).get("step")
            if type(step) is not int or (found and step < found[-1][0]):
                raise self._another(number)
            found.append((step, at))
            at += len(line) + 1
        return found, at

    def _check_header(self, header: dict[str, Any] | None) -> None:
        if header is None or header.get("schema") != SCHEMA:
            raise self._another(1)
        if differ := [name for name, value in self.header.items() if header.get(name) != value and name != "groups"]:
            named = differ[:_MOST_SHOWN]
            theirs, ours = (", ".join(f"{name} {of.get(name)!r}" for name in named) for of in (header, self.header))
            raise InputError(f"expected the run of {self.path.name} ({theirs}), got {ours}: name a new file")

    def _another(self, line: int) -> InputError:
        got = f"got something else in line {line}: name a new file"
        return InputError(f"expected the lines of a run ({SCHEMA}) in {self.path.name}, {got}")
