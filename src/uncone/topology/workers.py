"""Threads that each compute alone: a product of many blocks needs no barrier after each, where a busy machine would wait."""

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import torch


class Workers:
    """Threads that compute alone, or the caller's where there are none.

    What is not shared out runs in one of them too: torch's own threads would go on waiting for work for a while, and take the
    cores from these.
    """

    def __init__(self, pool: ThreadPoolExecutor | None) -> None:
        self._pool, self.cancelled = pool, threading.Event()

    def one(self, function: Callable[..., Any], *arguments: object) -> Any:
        """Call it in one thread."""
        return self._pool.submit(function, *arguments).result() if self._pool else function(*arguments)

    def each(self, function: Callable[..., object], items: Iterable[object]) -> None:
        """Call it with each item, in whatever thread is free."""
        for _ in (self._pool.map if self._pool else map)(function, items):
            pass

    def all(self, function: Callable[..., object], *arguments: object) -> None:
        """Call it in every thread at once; a failure or an interrupt, which reaches the caller alone, sets `cancelled`."""
        if self._pool is None:
            function(*arguments)
            return
        try:
            for work in [self._pool.submit(function, *arguments) for _ in range(torch.get_num_threads())]:
                work.result()
        except BaseException:
            self.cancelled.set()
            raise


@contextmanager
def workers(*, wanted: bool = True) -> Iterator[Workers]:
    """As many threads as torch has, in which torch computes on one thread each; the caller's alone where one is all, or no more are `wanted`."""
    threads = torch.get_num_threads()
    if threads == 1 or not wanted:
        yield Workers(None)
        return
    ready = threading.Barrier(threads + 1)

    def start_alone() -> None:
        torch.set_num_threads(1)
        torch.get_num_threads()  # a thread's first question takes the default over: ask while it is 1
        ready.wait()

    with ThreadPoolExecutor(threads, thread_name_prefix="uncone-tree", initializer=start_alone) as pool:
        try:
            for _ in range(threads):
                pool.submit(int)
            ready.wait()
        except BaseException:
            ready.abort()
            raise
        finally:
            torch.set_num_threads(threads)  # the default for threads that are no workers
        yield Workers(pool)
