"""Parts of rows in several processes of this machine. One that is killed costs its part once more, and nothing else."""

import os
import pickle
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from itertools import islice
from multiprocessing import get_context
from typing import Any

from uncone.engines.stragglers import Stragglers
from uncone.errors import InputError, UnconeError
from uncone.rows.parts import Engine, N, U
from uncone.threads import available

TRIES = 3


class Processes(Engine):
    """With `workers` processes, by default as many as the BLAS has threads, which they share evenly."""

    def __init__(self, workers: int | None = None) -> None:
        self._threads = available()
        self.workers = workers or self._threads
        self._pool: ProcessPoolExecutor | None = None

    def each(self, make: Callable[[], Callable[[N], U]], units: Iterable[N], *, on_gpu: bool = False) -> Iterator[U]:
        """At most one result of each worker waits for its turn."""
        if on_gpu:
            raise InputError(
                "expected --engine ray with --device cuda, got processes: each worker needs a GPU of its own"
            )
        tries, slow, left = Counter[int](), Stragglers(), enumerate(units)
        open_, running = dict[int, N](), dict[Future[U], int]()  # units that were not given, and those being worked on
        ready, turn, more = dict[int, U](), 0, True
        while more or open_:
            for place, unit in islice(left, self.workers - len(open_)):
                open_[place] = unit
            more = len(open_) == self.workers
            for place in sorted(open_.keys() - ready.keys() - set(running.values())):
                running[self._submit(make, open_[place])] = place
                slow.begin(place)
            # A signal is handled within a second
            finished, _ = wait(running, timeout=1.0, return_when=FIRST_COMPLETED)
            lost = list[int]()
            for future in finished:
                place = running.pop(future)
                slow.end(place)
                try:
                    ready[place] = future.result()
                except BrokenProcessPool:
                    lost.append(place)
                except Exception:
                    wait(running)  # with the error nothing is under way any more, such as a file half written
                    raise
            if lost:  # with one process its neighbours go
                lost += running.values()
                running.clear()
                self.close()
                self._count(tries, min(lost), open_)
            while turn in ready:
                yield ready.pop(turn)
                del open_[turn]
                turn += 1
            if turn in running.values():
                slow.look(turn, open_[turn].name)

    def _count(self, tries: Counter[int], place: int, units: dict[int, Any]) -> None:
        tries[place] += 1
        if tries[place] >= TRIES:
            way = "was it killed for its memory? Take fewer workers (--workers)"
            raise UnconeError(
                f"expected a process to read {units[place].name}, got its end {TRIES} times: {way}. "
                f"{place} units of work before it were done"
            )

    def _submit(self, make: Callable[[], Callable[[N], U]], unit: N) -> "Future[U]":
        if self._pool is None:
            threads = max(1, self._threads // self.workers)
            context = get_context("spawn")  # a fork has locks that nobody opens
            self._pool = ProcessPoolExecutor(self.workers, context, _begin, (threads,))
        return self._pool.submit(_work, make, unit)

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None


_made = dict[bytes, Any]()  # the worker of this process by what made it


def _work(make: Callable[[], Callable[[N], U]], unit: N) -> U:
    key = pickle.dumps(make)
    if key not in _made:
        _made.clear()
        _made[key] = make()
    worker: Callable[[N], U] = _made[key]
    return worker(unit)


def _begin(threads: int) -> None:
    os.environ["OMP_NUM_THREADS"] = str(threads)  # of torch, where it is loaded
    import numpy  # noqa: F401 - its BLAS is what gets so many threads
    from threadpoolctl import threadpool_limits

    threadpool_limits(threads)
