"""Train the cells of a config that have no result yet, those of the first priority first.

    python experiments/rare_tokens/fill.py core.toml --data FOLDER [--jobs 2] [--threads 1] [--minutes 120] [--list]
    python experiments/rare_tokens/fill.py core.toml --pause       # and --go; --stop ends it, and cells go on later

A cell whose rate is "best" waits for its arm's cells of seed 0. Several of these commands share the work.
"""

import argparse
import fcntl
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

from arms import ARMS, Arm
from train import HERE, Cell, parser, read_config

from uncone.errors import InputError

Find = Callable[[dict[str, Any]], Iterator[Cell]]
LOOK_EVERY = 60.0  # seconds: to see what is missing, all results are read


def cells(config: dict[str, Any], make: type[Cell] = Cell, arms: dict[str, Arm] = ARMS) -> Iterator[Cell]:
    """Those whose rate is known, each once, in order of priority."""
    found = set[str]()
    for block in config["cells"]:
        more = {name: block[name] for name in ("tied", "batch") if name in block}
        more.setdefault("batch", config["training"]["batch"])
        for seed, arm, rate in product(block["seeds"], block["arms"], block["rates"]):
            known = best_rate(config, arms[arm].base or arm, make) if rate == "best" else rate
            if known is not None and (cell := make(config["name"], arm, known, seed, **more)).name not in found:
                found.add(cell.name)
                yield cell


def best_rate(config: dict[str, Any], arm: str, make: type[Cell] = Cell) -> float | None:
    """That of an arm's plain cells of seed 0 with the lowest validation loss, or over the last tenth of training."""
    found = []
    for block in config["cells"]:
        if arm in block["arms"] and "best" not in block["rates"]:
            for rate in block["rates"]:
                cell = make(config["name"], arm, rate, 0, batch=config["training"]["batch"])
                if not cell.result.exists():
                    return None
                result = json.loads(cell.result.read_text())
                last = [loss for step, loss in result["losses"] if step > 0.9 * result["config"]["training"]["steps"]]
                if last and not result["diverged"]:
                    found.append((result.get("validation_loss", sum(last) / len(last)), rate))
    return min(found)[1] if found else None


def path_of(config: str) -> Path:
    return HERE / f"{config}.toml"


def fill(asked: Any, path: Path, find: Find, script: Path) -> None:
    """Until all is done, the time is over, or it is told to stop."""
    end = time.monotonic() + 60 * asked.minutes
    running: dict[Cell, tuple[subprocess.Popen[bytes], Any]] = {}
    failed = set[Cell]()
    asked.work.mkdir(parents=True, exist_ok=True)
    (asked.work / "fill.pid").write_text(str(os.getpid()))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped: the same command goes on"))
    looked = -math.inf
    try:
        while time.monotonic() < end:
            for cell, (process, lock) in list(running.items()):
                if process.poll() is not None:
                    looked = -math.inf
                    lock.close()
                    del running[cell]
                    failed |= {cell} if process.returncode else set()
                    print(
                        f"{time.strftime('%H:%M')} {cell.name} {'failed' if process.returncode else 'done'}", flush=True
                    )
            if time.monotonic() - looked < LOOK_EVERY:
                time.sleep(1)
                continue
            looked = time.monotonic()
            waiting = [one for one in find(read_config(path)) if not one.result.exists() and one not in failed]
            for cell in waiting:
                if len(running) >= asked.jobs:
                    break
                if cell not in running and (lock := locked(asked.work, cell)) is not None:
                    running[cell] = started(cell, path, asked, script), lock
            if not running and not waiting:
                return
            time.sleep(1)
    finally:
        for process, _ in running.values():
            process.terminate()


def locked(work: Path, cell: Cell) -> Any:
    """None where another process trains it."""
    folder = work / "cells"
    folder.mkdir(parents=True, exist_ok=True)
    lock = (folder / f"{cell.name}.lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        return None
    return lock


def started(cell: Cell, path: Path, asked: Any, script: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, str(script), str(path), *cell.options]
    command += ["--data", str(asked.data), "--work", str(asked.work)]
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(asked.threads))
    with (asked.work / "cells" / f"{cell.name}.log").open("ab") as log:
        return subprocess.Popen(command, env=os.environ | threads, stdout=log, stderr=log)


def main(
    arguments: list[str] | None = None,
    *,
    made: argparse.ArgumentParser | None = None,
    find: Find = cells,
    script: Path = HERE / "train.py",
) -> None:
    made = made or parser()
    made.add_argument("--jobs", type=int, default=2, help="cells at a time")
    made.add_argument("--threads", type=int, default=1, help="of each")
    made.add_argument("--minutes", type=float, default=float("inf"))
    for word, text in (
        ("list", "print what is missing"),
        ("pause", "stand still"),
        ("go", "go on"),
        ("stop", "end it"),
    ):
        made.add_argument(f"--{word}", action="store_true", help=text)
    asked = made.parse_args(arguments)
    path = asked.config if asked.config.exists() else script.parent / asked.config
    config = read_config(path)
    kind = {"pause": signal.SIGSTOP, "go": signal.SIGCONT, "stop": signal.SIGTERM}
    if asked.list:
        for cell in find(config):
            print(f"{'done   ' if cell.result.exists() else 'missing'} {cell.name}")
        return
    for word, sent in kind.items():
        if getattr(asked, word):
            tell(asked.work, sent)
            return
    fill(asked, path, find, script)


def tell(work: Path, sent: signal.Signals) -> None:
    """The filling command and the cells that it trains."""
    try:
        pid = int((work / "fill.pid").read_text())
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except (OSError, ValueError) as error:
        raise InputError(f"expected a running fill.py with the work folder {work}, got none") from error
    for one in (pid, *map(int, children)):
        with suppress(ProcessLookupError):
            os.kill(one, sent)
    if sent == signal.SIGTERM:
        os.kill(pid, signal.SIGCONT)


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        sys.exit(str(error))
