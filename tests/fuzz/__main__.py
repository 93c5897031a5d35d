"""`python -m tests.fuzz`: damaged files of every format, read in full in a process with limits of time and memory.

Allowed are an UnconeError, or an answer: that of an independent reader, where there is one and it answers.
"""

import argparse
import json
import multiprocessing
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict, replace
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from tests.fuzz.corpus import make
from tests.fuzz.use import use
from tests.fuzz.worker import Case, work

SECONDS = 20.0
_KEPT = 3
"""Files kept of one failure."""


class _Worker:
    """A process that reads damaged files, one at a time, and a new one where it died or took too long."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.readers, self.lost = folder, list[str](), False
        self.start()

    def start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, other = context.Pipe()
        self.process = context.Process(target=work, args=(other, self.folder), daemon=True)
        self.process.start()
        other.close()
        self.case: Case | None = None

    def wait_until_ready(self) -> None:
        try:
            _, self.readers = self.pipe.recv()
        except EOFError:
            raise SystemExit("a file that is not damaged was not read: see above") from None

    def give(self, case: Case) -> None:
        self.case, self.comparing, self.since = case, False, time.monotonic()
        self.pipe.send(case)

    def ended(self) -> Case | None:
        """The case with its end; None while it runs."""
        assert self.case is not None
        if self.pipe.poll():
            try:
                what, found = self.pipe.recv()
            except (EOFError, ConnectionResetError):
                self.process.join()
                return self._lost(f"the process died ({self.process.exitcode})")
            if what == "comparing":
                self.comparing, self.since = True, time.monotonic()
                return None
            return found
        return self._lost(f"took longer than {SECONDS:g} s") if time.monotonic() - self.since > SECONDS else None

    def _lost(self, why: str) -> Case:
        """Of an independent reader's crash uncone is not to blame."""
        assert self.case is not None
        self.process.kill()
        self.process.join()
        found = replace(self.case, ended="alone" if self.comparing else "failed", told=why)
        self.lost = True
        return found


def _again(folder: Path) -> int:
    """Read one kept file again, with the whole traceback."""
    case = Case(**json.loads((folder / "case.json").read_text()))
    with tempfile.TemporaryDirectory() as root:
        seed = make(Path(root) / "seeds")[case.origin]
        print(case.told)
        found = folder / "case"
        use(seed, found / case.opened if case.opened else found)()
    print("it is read now")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--readers", nargs="*", help="only these, by default all")
    parser.add_argument("--found", type=Path, default=Path("build/fuzz-found"), help="the folder for files that fail")
    parser.add_argument("--again", type=Path, metavar="FOLDER", help="read one kept file again")
    asked = parser.parse_args()
    if asked.again is not None:
        return _again(asked.again)
    with tempfile.TemporaryDirectory(prefix="uncone-fuzz-") as root:
        workers = [_Worker(Path(root, str(number))) for number in range(asked.workers)]
        try:
            for worker in workers:
                worker.wait_until_ready()
            return _fuzz(workers, asked)
        finally:
            for worker in workers:
                worker.process.kill()


def _fuzz(workers: list[_Worker], asked: argparse.Namespace) -> int:
    readers = workers[0].readers
    origins = [i for i, reader in enumerate(readers) if not asked.readers or reader in asked.readers]
    kinds = sorted({readers[i] for i in origins})
    counts: dict[str, Counter[str]] = {kind: Counter() for kind in kinds}
    seconds, failures, alone = Counter[str](), Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    end, number = time.monotonic() + 60 * asked.minutes, 0
    while time.monotonic() < end or any(worker.case for worker in workers):
        for worker in workers:
            if worker.case is None and time.monotonic() < end:
                rng = random.Random(f"{asked.seed}:{number}:origin")
                kind = kinds[number % len(kinds)]  # every format as often, however many seeds it has
                origin = rng.choice([i for i in origins if readers[i] == kind])
                worker.give(Case(asked.seed, number, kind, origin, ""))
                number += 1
        busy = [worker for worker in workers if worker.case is not None]
        wait([worker.pipe for worker in busy], timeout=0.5)
        for worker in busy:
            case = worker.ended()
            if case is None:
                continue
            counts[case.reader][case.ended] += 1
            seconds[case.reader] += time.monotonic() - worker.since
            worker.case = None
            if case.ended == "failed":
                failures[case.reader, case.told.split(": ")[0]] += 1
                if failures[case.reader, case.told.split(": ")[0]] <= _KEPT:
                    _keep(case, worker, asked.found)
            elif case.ended == "alone":
                alone[case.reader, case.told[:100]] += 1
            if worker.lost:
                worker.lost = False
                worker.start()
                worker.wait_until_ready()
    return _table(counts, seconds, failures, alone)


def _keep(case: Case, worker: _Worker, found: Path) -> None:
    target = found / f"{case.reader.replace(' ', '_')}-{case.seed}-{case.number}"
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(worker.folder / "case", target / "case")
    names = sorted(path.name for path in (target / "case").iterdir())
    folder = next((worker.folder / "seeds").glob(f"*_{case.origin}"))
    is_folder = case.reader in ("model", "results")
    opened = "" if is_folder else next(name for name in names if name != "tokenizer.bin" or len(names) == 1)
    assert folder.is_dir()
    (target / "case.json").write_text(json.dumps(asdict(replace(case, opened=opened)), indent=1))
    print(f"FAILED {case.reader}: {case.told}\n  python -m tests.fuzz --again {target}", flush=True)


def _table(counts: dict[str, Counter[str]], seconds: Counter[str], failures: Counter[Any], alone: Counter[Any]) -> int:
    print(f"\n{'reader':<16}{'files':>8}{'opened':>8}{'refused':>9}{'alone':>7}{'failures':>10}{'files/s':>9}")
    for kind, ended in counts.items():
        files = sum(ended.values())
        opened = ended["opened"] + ended["alone"]
        counted = f"{ended['refused']:>9}{ended['alone']:>7}{ended['failed']:>10}"
        print(f"{kind:<16}{files:>8}{opened:>8}{counted}{files / max(seconds[kind], 1e-9):>9.1f}")
    print("alone: opened by uncone, and not by the independent reader")
    for (kind, told), times in alone.most_common(12):
        print(f"  {times} {kind}: {told}")
    for (kind, told), times in failures.most_common():
        print(f"{times} failures of {kind}: {told}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
