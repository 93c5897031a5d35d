"""What tests let engines do: other processes import it."""

import os
import signal
import time
from pathlib import Path

from uncone.errors import InputError
from uncone.rows import Rows


def pairs(rows: Rows, first: int) -> list[tuple[int, int]]:
    return [(first, rows.shape[0])]


def killed_once(mark: str, at: int, rows: Rows, place: int) -> list[int]:
    """At one place the process kills itself, unless it did so before."""
    if place == at and not Path(mark).exists():
        Path(mark).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return [place]


def die(at: int, rows: Rows, place: int) -> list[int]:
    if place == at:
        os.kill(os.getpid(), signal.SIGKILL)
    return [place]


def fail(at: int, rows: Rows, place: int) -> list[int]:
    if place == at:
        raise InputError(f"expected something, got nothing in {place}")
    return [place]


def number_of(seconds: float, rows: Rows, place: int) -> list[int]:
    time.sleep(seconds)
    return [place]
