"""Parts of rows in several processes of this machine. One that is killed costs its part once more, and nothing else.

Each process has a pipe of its own. In the pool of `concurrent.futures` all share one, and the others would wait for
ever for a process that was killed while it wrote there.
"""

import os
import pickle
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from typing import Any

from uncone.engines.stragglers import Stragglers
from uncone.errors import InputError, UnconeError, first_line
from uncone.rows.parts import Engine, N, U
from uncone.threads import available

TRIES = 3


class Processes(Engine):
    """With `workers` processes, by default as many as the BLAS has threads, which they share evenly."""

    def __init__(self, workers: int | None = None) -> None:
        self._threads = available()
        self.workers = workers or self._threads
        self._processes = list[_Process]()

    def each(self, make: Callable[[], Callable[[N], U]], units: Iterable[N], *, on_gpu: bool = False) -> Iterator[U]:
        """At most one result of each worker waits for its turn."""
        if on_gpu:
            raise InputError(
                "expected --engine ray with --device cuda, got processes: each worker needs a GPU of its own"
            )
        made, tries, slow, left = pickle.dumps(make), Counter[int](), Stragglers(), enumerate(units)
        open_, running = dict[int, N](), dict[_Process, int]()  # units that were not given, and those being worked on
        ready, turn, more = dict[int, U](), 0, True
        try:
            while more or open_:
                for place, unit in islice(left, self.workers - len(open_)):
                    open_[place] = unit
                more = len(open_) == self.workers
                places = sorted(open_.keys() - ready.keys() - set(running.values()))
                for place, process in zip(places, self._free(len(places)), strict=True):
                    running[process] = place
                    slow.begin(place)
                    process.give(made, open_[place])
                for process in _answered(running):
                    place = running.pop(process)
                    slow.end(place)
                    answer = process.answer()
                    if answer is None:
                        self._end(process)
                        self._count(tries, place, open_)
                        continue
                    is_result, found = answer
                    if not is_result:
                        self._let_finish(running)
                        raise found
                    ready[place] = found
                while turn in ready:
                    yield ready.pop(turn)
                    del open_[turn]
                    turn += 1
                if turn in running.values():
                    slow.look(turn, open_[turn].name)
        finally:  # where the caller stopped before the end
            for process in running:
                self._end(process)

    def _let_finish(self, running: "dict[_Process, int]") -> None:
        """With an error nothing is under way any more, such as a file half written."""
        while running:
            for process in _answered(running):
                del running[process]
                if process.answer() is None:
                    self._end(process)

    def _count(self, tries: Counter[int], place: int, units: dict[int, Any]) -> None:
        tries[place] += 1
        if tries[place] >= TRIES:
            way = "was it killed for its memory? Take fewer workers (--workers)"
            raise UnconeError(
                f"expected a process to read {units[place].name}, got its end {TRIES} times: {way}. "
                f"{place} units of work before it were done"
            )

    def _free(self, n: int) -> "list[_Process]":
        """All are started before one is waited for."""
        threads = max(1, self._threads // self.workers)
        free = [process for process in self._processes if not process.is_busy]
        new = [_Process(threads) for _ in range(n - len(free))]
        self._processes += new
        return [*free, *new][:n]

    def close(self) -> None:
        for process in [*self._processes]:
            self._end(process)

    def _end(self, process: "_Process") -> None:
        if process in self._processes:
            self._processes.remove(process)
        process.end()


class _Process:
    """A worker, and this process's end of its pipe."""

    def __init__(self, threads: int) -> None:
        context = get_context("spawn")  # a fork has locks that nobody opens
        self.pipe, its = context.Pipe()
        self.is_busy = False
        self.process = context.Process(target=_serve, args=(its, threads), daemon=True)
        self.process.start()
        its.close()  # so that its end is seen here

    def give(self, made: bytes, unit: Any) -> None:
        content, self.is_busy = pickle.dumps((made, unit)), True
        with suppress(OSError):  # it has ended: no answer comes
            self.pipe.send_bytes(content)

    def answer(self) -> tuple[bool, Any] | None:
        """Whether it is a result or an error, and that; None once the process has ended."""
        self.is_busy = False
        try:
            content = self.pipe.recv_bytes()
        except (EOFError, OSError):
            return None
        found: tuple[bool, Any] = pickle.loads(content)  # of our own process
        return found

    def end(self) -> None:
        if self.is_busy:
            self.process.terminate()
        self.pipe.close()


def _answered(running: dict[_Process, int]) -> list[_Process]:
    """Those which have answered or ended within a second."""
    by_pipe = {process.pipe: process for process in running}
    return [by_pipe[pipe] for pipe in wait([*by_pipe], timeout=1.0)]  # type: ignore[index]


def _serve(pipe: Connection, threads: int) -> None:
    """What a worker does until the other end of its pipe is closed, or it is told to end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # one from the keyboard is for the first process
    signal.signal(signal.SIGTERM, _leave)
    os.environ["OMP_NUM_THREADS"] = str(threads)  # of torch, where it is loaded
    import numpy  # noqa: F401 - its BLAS is what gets so many threads
    from threadpoolctl import threadpool_limits

    threadpool_limits(threads)
    made = b""
    worker: Any = None
    with suppress(EOFError, OSError):
        while True:
            wanted, unit = pickle.loads(pipe.recv_bytes())  # of the process that started this one
            try:
                if wanted != made:
                    worker = None  # two models at once may be more than the memory
                    made, worker = wanted, pickle.loads(wanted)()
                answer = pickle.dumps((True, worker(unit)), pickle.HIGHEST_PROTOCOL)
            except Exception as error:
                answer = pickle.dumps((False, _sendable(error)))
            pipe.send_bytes(answer)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it leaves already


def _sendable(error: Exception) -> Exception:
    if not isinstance(error, UnconeError):
        error.add_note(traceback.format_exc())
    try:
        pickle.loads(pickle.dumps(error))  # an error of another library may take other arguments
    except Exception:
        return UnconeError(f"{first_line(error)}\n{traceback.format_exc()}")
    return error


def _leave(*_: object) -> None:
    """What is under way is left as by an interrupt, so that it removes what it has half written."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit()
