"""Parts of rows in several processes of this machine. One that is killed costs its part once more, and nothing else."""

from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import Any, TypeVar

from uncone.errors import UnconeError
from uncone.rows.parts import Engine, Fold, Task
from uncone.threads import available

T = TypeVar("T")
TRIES = 3


class Processes(Engine):
    """With `workers` processes, by default as many as the BLAS has threads, which they share evenly."""

    def __init__(self, workers: int | None = None) -> None:
        self._threads = available()
        self.workers = workers or self._threads
        self._pool: ProcessPoolExecutor | None = None

    def fold(self, tasks: Sequence[Task[T]], merge: Callable[[T, T], T], done: Callable[[int], None]) -> T:
        """At most one result a worker waits for its turn to be merged."""
        fold, tries, rows = Fold(merge), Counter[int](), 0
        ready, running = dict[int, T](), dict[Future[T], int]()
        todo, turn = list(range(len(tasks)))[::-1], 0
        while turn < len(tasks):
            while todo and len(running) + len(ready) < self.workers:
                place = todo.pop()
                running[self._submit(tasks[place])] = place
            finished, _ = wait(running, timeout=1.0, return_when=FIRST_COMPLETED)  # a signal is handled within a second
            lost = list[int]()
            for future in finished:
                place = running.pop(future)
                try:
                    ready[place] = future.result()
                except BrokenProcessPool:
                    lost.append(place)
            if lost:  # with one process its neighbours go
                todo += sorted([*lost, *running.values()], reverse=True)
                running.clear()
                self.close()
                self._count(tries, todo[-1], tasks)
            while turn in ready:
                fold.add(ready.pop(turn))
                rows += tasks[turn].rows
                turn += 1
                done(rows)
        return fold.result()

    def _count(self, tries: Counter[int], place: int, tasks: Sequence[Task[Any]]) -> None:
        tries[place] += 1
        if tries[place] >= TRIES:
            way = "was it killed for its memory? Take fewer workers (--workers)"
            raise UnconeError(
                f"expected a process to read {tasks[place].name}, got its end {TRIES} times: {way}. "
                f"{place} of {len(tasks)} units of work before it were done"
            )

    def _submit(self, task: Task[T]) -> "Future[T]":
        if self._pool is None:
            threads = max(1, self._threads // self.workers)
            context = get_context("spawn")  # a fork has locks that nobody opens
            self._pool = ProcessPoolExecutor(self.workers, context, _begin, (threads,))
        return self._pool.submit(task)

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None


def _begin(threads: int) -> None:
    import numpy  # noqa: F401 - its BLAS is what gets so many threads
    from threadpoolctl import threadpool_limits

    threadpool_limits(threads)
