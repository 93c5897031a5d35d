"""Work shared out to threads, with the same bytes on any number of them.

One thread computes each task, with a BLAS of one thread: a BLAS that splits a product adds in another order for
each number of threads.
"""

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, ParamSpec, TypeVar

from threadpoolctl import ThreadpoolController

T = TypeVar("T")
P = ParamSpec("P")


class _Blas:
    """The threads of NumPy's BLAS: one while any work of ours runs, as many as before afterwards."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._libraries: list[Any] | None = None
        self._running, self._before = 0, list[int]()

    def enter(self) -> int:
        with self._lock:
            if self._libraries is None:  # takes some milliseconds
                found = ThreadpoolController().lib_controllers
                self._libraries = [library for library in found if library.user_api == "blas"]
            if not self._running:
                self._before = [library.num_threads for library in self._libraries]
                for library in self._libraries:
                    _set_threads(library, 1)
            self._running += 1
            # macOS does not report which cores this process may use.
            cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
            return max(self._before, default=0) or cores or 1

    def leave(self) -> None:
        with self._lock:
            self._running -= 1
            if not self._running:
                for library, threads in zip(self._libraries or (), self._before, strict=True):
                    _set_threads(library, threads)


def _set_threads(library: Any, threads: int) -> None:
    """From any thread: threadpoolctl lets only the first that set a number of an OpenBLAS of pthreads set it again."""
    clear = getattr(library, "clear_controlling_thread", None)
    if clear is not None:
        clear(force=True)
    library.set_num_threads(threads)
    if clear is not None:
        clear(force=True)


class Mine(threading.local):
    threads = 0  # that the work on this thread may use; 0 outside `one_blas_thread` or `tensors.alone`


def available() -> int:
    """As many threads as the BLAS of NumPy was given."""
    with one_blas_thread():
        return _mine.threads


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Algebra on this thread takes one thread, and `share` the rest."""
    if _mine.threads:
        yield
        return
    _mine.threads = _blas.enter()
    try:
        yield
    finally:
        _mine.threads = 0
        _blas.leave()


def on_one_thread(function: Callable[P, T]) -> Callable[P, T]:
    """`function`, whose algebra takes one thread: the rounding of sums of whole matrices depends on the threads."""
    return one_blas_thread()(function)


def waited(job: Future[T]) -> T:
    """The result, once there is one; a signal is handled within a second."""
    while not job.done():
        with suppress(TimeoutError):
            job.result(timeout=1)
    return job.result()


def interruptible(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run `function`, one long call, on another thread: signals are handled meanwhile."""
    return waited(pool(_workers, 1).submit(function, *args, **kwargs))


def pieces(work: Callable[..., object], *arrays: Any) -> Iterator[Callable[[], object]]:
    """`work` on 1,024 rows of each array or tensor at once."""
    cuts = (slice(start, start + 1024) for start in range(0, len(arrays[0]), 1024))
    return (partial(work, *(array[cut] for array in arrays)) for cut in cuts)


def share_rows(work: Callable[..., object], *arrays: Any) -> None:
    share(pieces(work, *arrays))


def share(tasks: Iterable[Callable[[], T]]) -> list[T]:
    """The results in order, each of a task on one thread; or the first exception, once all tasks ended."""
    tasks = list(tasks)
    with one_blas_thread():
        return shared(tasks, _mine.threads, _help)


def _help(work: Callable[[], None]) -> Future[None]:
    def run() -> None:
        _mine.threads = 1  # what it calls shares nothing out again
        try:
            work()
        finally:
            _mine.threads = 0

    return pool(_workers, _mine.threads).submit(run)


def shared(tasks: list[Callable[[], T]], threads: int, submit: Callable[[Callable[[], None]], Future[None]]) -> list[T]:
    """`submit` gives work to another thread, of up to `threads` with this one."""
    results: list[Any] = [None] * len(tasks)
    waiting = deque(enumerate(tasks))

    def work() -> None:
        while waiting:
            try:
                i, task = waiting.popleft()
            except IndexError:  # another worker took the last one
                return
            results[i] = task()

    # One job per worker: a future for each task would wake this thread each time.
    jobs = [submit(work) for _ in range(min(threads, len(tasks)) - 1)]
    try:
        work()
    finally:
        waiting.clear()
        # Do not wait for a job that has not begun: all workers may be waiting, as this worker is.
        errors = [job.exception() for job in jobs if not job.cancel()]
    if failed := next(filter(None, errors), None):
        raise failed
    return results


_blas, _mine = _Blas(), Mine()
_lock = threading.Lock()
_pools: dict[Any, ThreadPoolExecutor] = {}
_workers = partial(ThreadPoolExecutor, thread_name_prefix="uncone")


def pool(make: Callable[[int], ThreadPoolExecutor], threads: int) -> ThreadPoolExecutor:
    """What `make` made for so many threads, once in a process."""
    with _lock:
        if (make, threads) not in _pools:
            _pools[make, threads] = make(threads)
        return _pools[make, threads]


def _forget() -> None:
    """A forked child has no threads of its parent, and one of them may have held a lock."""
    global _lock, _blas
    _lock, _blas = threading.Lock(), _Blas()
    _mine.threads = 0
    _pools.clear()


os.register_at_fork(after_in_child=_forget)
