"""What tests let engines do: other processes import it."""

import hashlib
import os
import signal
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import uncone
from uncone.engines.choose import engine_of
from uncone.errors import InputError
from uncone.model.text_sources import open_texts
from uncone.rows import Rows
from uncone.rows.parts import Engine, Task

if TYPE_CHECKING:
    from uncone.model.layer_states import LayerStates


def asked(folder: Path, **options: object) -> tuple[str, str, bytes]:
    spec = f"{folder}/*.npy"
    found = uncone.diagnose(spec, **options).to_json()
    scores = uncone.calibrate(spec, most_pairs=10_000, **options).to_json()
    rows = uncone.open_rows(spec)
    rows.engine = engine_of(options.get("workers"), options.get("engine"), None)  # type: ignore[arg-type]
    return found, scores, uncone.Moments.of(rows, unit_second=True).to_bytes()


def digest(found: tuple[str, str, bytes]) -> str:
    scores = found[0] + found[1]
    return hashlib.sha256(scores.encode() + found[2]).hexdigest()


def tasks(folder: Path, work: Callable[..., object]) -> list[Task[object]]:
    return [Task(work, (part,), k) for k, part in enumerate(uncone.open_rows(folder).parts)]


def pair_sum(one: list[int], other: list[int]) -> list[int]:
    return one + other


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


def killed_while_it_answers(mark: str, at: int, rows: Rows, place: int) -> list[int]:
    """As `killed_once`, with half an answer in its pipe."""
    if place == at and not Path(mark).exists():
        frame: FrameType | None = sys._getframe()
        while frame is not None and frame.f_code.co_name != "_serve":
            frame = frame.f_back
        assert frame is not None
        os.write(frame.f_locals["pipe"].fileno(), struct.pack("!i", 100) + b"half")
    return killed_once(mark, at, rows, place)


def fail(at: int, rows: Rows, place: int) -> list[int]:
    if place == at:
        raise InputError(f"expected something, got nothing in {place}")
    return [place]


class TwoError(Exception):
    """As errors of other libraries, it is not made again from its message."""

    def __init__(self, one: str, other: str) -> None:
        super().__init__(f"{one} and {other}")


def fail_otherwise(rows: Rows, place: int) -> list[int]:
    raise TwoError("this", "that")


def number_of(seconds: float, rows: Rows, place: int) -> list[int]:
    time.sleep(seconds)
    return [place]


def mark_at_the_end(marks: str, rows: Rows, place: int) -> list[int]:
    """Works for a minute."""
    (Path(marks) / f"{place} begun").touch()
    try:
        time.sleep(60)
    finally:
        (Path(marks) / f"{place} ended").touch()
    return [place]


def layers_of(model: Path, text: Path, engine: Engine | None, **more: object) -> "LayerStates":
    """Of a text in short stretches, so that there are several units."""
    from uncone.model import hidden_states  # loads torch, which other processes do not need

    hidden_states._STRETCH_BYTES = 2**17
    return hidden_states.hidden_states_of(model, open_texts(text), width=None, last=True, engine=engine, **more)  # type: ignore[arg-type]


def layers_digest(found: "LayerStates") -> str:
    made = hashlib.sha256(repr((found.layers, found.intervals, found.sequences, found.notes)).encode())
    for moments in found.moments:
        made.update(moments.to_bytes())
    last, sample = found.last, found.sample
    assert last is not None
    arrays = [
        *sample.layers,
        sample.ids,
        sample.sequences,
        sample.positions,
        sample.segments,
        found.counts,
        found.apart,
    ]
    for array in (*arrays, last.states.numpy(), last.labels.numpy(), last.windows.numpy()):
        made.update(array.tobytes())
    return made.hexdigest()


def kill_one(title: str) -> None:
    """A process of this session whose command line begins so."""
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and (entry / "cmdline").read_bytes().startswith(title.encode()):
                os.kill(int(entry.name), signal.SIGKILL)
                return
        except OSError:
            continue
    raise AssertionError(f"no process {title}")


def gpus_of_worker() -> Callable[[object], str]:
    return lambda _: os.environ["CUDA_VISIBLE_DEVICES"]
