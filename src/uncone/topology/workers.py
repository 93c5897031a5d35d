"""Threads that each compute alone: a product of many blocks needs no barrier after each, where a busy machine would wait."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import torch


@contextmanager
def workers() -> Iterator[ThreadPoolExecutor | None]:
    """As many threads as torch has, in which torch computes on one thread each; None where one is all."""
    threads = torch.get_num_threads()
    if threads == 1:
        yield None
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
        yield pool
