"""Work given to threads that each compute alone."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch


class Team:
    """Threads that compute alone, or the caller's where there are none.

    What is not shared out runs in one of them too: torch's own threads would go on waiting for work for a while, and take the
    cores from these.
    """

    def __init__(self, pool: ThreadPoolExecutor | None) -> None:
        self._pool, self.cancelled = pool, threading.Event()

    def one(self, function: Callable[..., Any], *arguments: object) -> Any:
        """Call it in one thread."""
        return self._pool.submit(function, *arguments).result() if self._pool else function(*arguments)

    def all(self, function: Callable[..., Any], *arguments: object) -> None:
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
