"""The process that reads damaged files: one after the other, each with the memory it took."""

import contextlib
import os
import random
import resource
import shutil
import traceback
import warnings
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path

import torch

from tests.fuzz.corpus import Seed, copied, make
from tests.fuzz.mutators import damaged
from tests.fuzz.use import WRONG, use
from uncone import UnconeError

SPARE_BYTES = 200 * 2**20
_ADDRESSES = 4 * 2**30


@dataclass
class Case:
    """One damaged file: how it was made, and how it ended."""

    seed: int
    number: int
    reader: str
    origin: int
    opened: str
    ended: str = ""
    told: str = ""


def work(pipe: Connection, folder: Path) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    shutil.rmtree(folder / "seeds", ignore_errors=True)
    seeds = make(folder / "seeds")
    for seed in seeds:  # what is loaded when it is first used is no part of the cost of a damaged file
        use(seed, seed.folder / seed.opened if seed.opened else seed.folder)()
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (_status("VmSize") + _ADDRESSES,) * 2)
    pipe.send(("ready", [seed.reader for seed in seeds]))
    while True:
        case: Case = pipe.recv()
        path = _damage(case, seeds, folder / "case")
        pipe.send(("ended", _run(case, seeds[case.origin], path, pipe)))


def _damage(case: Case, seeds: list[Seed], target: Path) -> Path:
    rng = random.Random(f"{case.seed}:{case.number}")
    seed = seeds[case.origin]
    others = [other for other in seeds if other.reader == seed.reader]
    path = copied(seed, target)
    chosen = target / rng.choice(seed.files).relative_to(seed.folder)
    another = rng.choice(rng.choice(others).files)
    chosen.write_bytes(damaged(chosen.name, chosen.read_bytes(), another.read_bytes(), rng))
    return path


def _run(case: Case, seed: Seed, path: Path, pipe: Connection | None) -> Case:
    size = sum(file.stat().st_size for file in ([path] if path.is_file() else path.rglob("*")) if file.is_file())
    before = _forget_peak()
    try:
        compare = use(seed, path)
        ended, told = "opened", ""
    except UnconeError as error:
        compare, ended, told = None, "refused", str(error)
        if len(told) > 1000:
            return replace(case, ended="failed", told=f"a message of {len(told)} characters")
    except BaseException as error:
        return replace(case, ended="failed", told=_brief(error))
    taken = _status("VmHWM") - before
    if before and taken > 4 * size + SPARE_BYTES:
        return replace(case, ended="failed", told=f"memory: took {taken >> 20} MiB for a file of {size} bytes")
    if compare is not None:
        if pipe is not None:
            pipe.send(("comparing", None))
        try:
            compare()
        except WRONG as error:
            return replace(case, ended="failed", told=f"WrongError: {error}"[:300])
        except BaseException as error:
            ended, told = "alone", _brief(error)
    return replace(case, ended=ended, told=told)


def _brief(error: BaseException) -> str:
    ours = [frame for frame in traceback.extract_tb(error.__traceback__) if f"{os.sep}uncone{os.sep}" in frame.filename]
    place = f"{Path(ours[-1].filename).name}:{ours[-1].lineno}" if ours else "outside"
    return f"{type(error).__name__} at {place}: {str(error)[:200]}"


def _status(field: str) -> int:
    with contextlib.suppress(OSError), open("/proc/self/status", encoding="ascii") as lines:
        return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:")), 0)
    return 0


def _forget_peak() -> int:
    """Set the peak of resident memory back to what is resident now, in bytes; 0 where the system cannot."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return 0
    return _status("VmRSS")
