"""Work shared out to threads, with the same bytes on any number of them.

A library that splits one operation over its threads adds in another order for each number of threads. Here each task is
computed by one thread, from start to end, and more threads only share the tasks out. The threads stay in one pool: two
pools, torch's and one beside it, would spin against each other for the same cores.
"""

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

T = TypeVar("T")
Tensor = torch.Tensor
STRIP = 192
"""Columns of a product computed at once: wide enough to keep one core busy, narrow enough to skip most of the mirrored half."""


def share(tasks: Iterable[Callable[[], T]]) -> list[T]:
    """Run the tasks, each on one thread, as many at once as torch has threads; their results in order.

    Raises:
        The exception of the first task, in order, that raised one; the others are run to their end first.
    """
    tasks, threads = list(tasks), torch.get_num_threads()
    if threads == 1:
        return [task() for task in tasks]
    pool = _pool(threads)
    waiting = [pool.submit(task) for task in tasks]
    failed = [error for error in (future.exception() for future in waiting) if error is not None]
    if failed:
        raise failed[0]
    return [future.result() for future in waiting]


def symmetric_product(y: Tensor, out: Tensor) -> Tensor:
    """y' y of a contiguous y (n, D) into `out` (D, D), half of it computed and half mirrored.

    torch has no symmetric product. Strips below the diagonal take 5/8 of the time of a full one at D = 768, as much as
    a BLAS syrk does.
    """
    if y.device.type != "cpu":
        return torch.mm(y.T, y, out=out)
    # The last strips are the longest; given out first, they leave the short ones to even out the threads.
    share(_Strip(y, out, start) for start in reversed(range(0, y.shape[1], STRIP)))
    return out


class _Strip:
    """One strip of a symmetric product, and its mirror image."""

    def __init__(self, y: Tensor, out: Tensor, start: int) -> None:
        self._y, self._out, self._start, self._stop = y, out, start, min(start + STRIP, y.shape[1])

    def __call__(self) -> None:
        y, out, start, stop = self._y, self._out, self._start, self._stop
        torch.mm(y[:, start:stop].T, y[:, :stop], out=out[start:stop, :stop])
        out[:start, start:stop] = out[start:stop, :start].T


_lock = threading.Lock()
_pools: dict[int, ThreadPoolExecutor] = {}


def _pool(threads: int) -> ThreadPoolExecutor:
    """Workers in which torch computes on one thread each. torch keeps that number per thread, and a default for new ones."""
    with _lock:
        if threads not in _pools:
            ready = threading.Barrier(threads + 1)

            def start_alone() -> None:
                torch.set_num_threads(1)
                torch.get_num_threads()  # a thread's first question takes the default over: ask while it is 1
                ready.wait()

            pool = ThreadPoolExecutor(threads, thread_name_prefix="uncone", initializer=start_alone)
            for _ in range(threads):
                pool.submit(int)
            ready.wait()
            torch.set_num_threads(threads)  # the default for the threads of others, which the workers have set to 1
            _pools[threads] = pool
        return _pools[threads]
