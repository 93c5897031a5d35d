"""What work on tensors needs in the rooms that train: threads, memory and devices.

Work is shared out as in `threads`, in one pool: torch's own beside it would spin against it for the same cores."""

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from uncone import memory
from uncone.errors import InputError, UndefinedMeasure
from uncone.rows import Rows
from uncone.threads import pieces, shared, waited

T = TypeVar("T")
P = ParamSpec("P")
Tensor = torch.Tensor


def alone(function: Callable[[], T]) -> T:
    """Run `function` on a worker and wait: its torch operations take one thread, `share` inside it the rest. The
    threads of torch's own pool would spin for milliseconds after each operation, on the cores that the workers need."""
    threads = torch.get_num_threads()
    if _mine.threads or threads == 1:
        return function()

    box = [_in_this_mode(function)]

    def run() -> T:
        work, _mine.threads = box.pop(), threads
        try:
            return work()
        finally:
            # The worker keeps this job until after the caller goes on. The job may hold a block of rows,
            # whose buffer the reader wants again: let go of it before.
            del work
            _mine.threads = 0

    return waited(_pool(threads).submit(run))


def on_one_thread(function: Callable[P, T]) -> Callable[P, T]:
    """`function`, run by `alone`."""

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        return alone(lambda: function(*args, **kwargs))

    return run


def share_rows(work: Callable[..., object], *tensors: Tensor) -> None:
    """As `threads.share_rows`."""
    share(pieces(work, *tensors))


def share(tasks: Iterable[Callable[[], T]]) -> list[T]:
    """As `threads.share`: each task on one thread."""
    tasks = list(tasks)
    return alone(lambda: _share(tasks))


def on_every_thread(work: Callable[[], object]) -> None:
    """`work` on as many workers as torch has threads; then the first exception: tell others to stop."""
    alone(lambda: _share([work] * max(_mine.threads, 1)))


def _share(tasks: list[Callable[[], T]]) -> list[T]:
    return shared(tasks, _mine.threads, lambda work: _pool(_mine.threads).submit(_in_this_mode(work)))


def _in_this_mode(function: Callable[[], T]) -> Callable[[], T]:
    """`function` with this thread's modes of autograd."""
    inference, gradients = torch.is_inference_mode_enabled(), torch.is_grad_enabled()

    def run() -> T:
        with torch.inference_mode(inference), torch.set_grad_enabled(gradients):
            return function()

    return run


class _Mine(threading.local):
    threads = 0  # how many workers the work on this one may use; 0 outside `alone`


_mine = _Mine()
_lock = threading.Lock()
_pools: dict[int, ThreadPoolExecutor] = {}


def _forget_pools() -> None:
    """As in `threads`."""
    global _lock
    _lock = threading.Lock()
    _pools.clear()


os.register_at_fork(after_in_child=_forget_pools)


def _pool(workers: int) -> ThreadPoolExecutor:
    """Workers in which torch computes on one thread each: its number is per thread, with a default."""
    with _lock:
        if workers not in _pools:
            ready = threading.Barrier(workers + 1)

            def start_alone() -> None:
                torch.set_num_threads(1)
                torch.get_num_threads()  # a thread's first question takes the default over: ask while it is 1
                ready.wait()

            threads = torch.get_num_threads()
            pool = ThreadPoolExecutor(workers, thread_name_prefix="uncone", initializer=start_alone)
            try:
                for _ in range(workers):
                    pool.submit(int)
                ready.wait()
            except BaseException:
                ready.abort()
                pool.shutdown(wait=False)
                raise
            finally:
                torch.set_num_threads(threads)  # the default for threads that are no workers
            _pools[workers] = pool
        return _pools[workers]


def usable(device: str | torch.device) -> torch.device:
    """The device, if sums can be taken there in float64: it is known, there, and holds numbers."""
    try:
        known = torch.device(device)
        if known.type != "cpu":
            torch.zeros(1, dtype=torch.float64, device=known).item()
    except (RuntimeError, TypeError, AssertionError) as error:
        got = f"{str(device)!r} ({str(error).splitlines()[0]})"
        raise InputError(f"expected a device on which torch has float64, got {got}: use cpu or cuda") from error
    return known


def is_out_of_memory(error: BaseException) -> bool:
    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)


def moved(model: Any, device: torch.device, dtype: torch.dtype) -> Any:
    """The model on `device` in `dtype`. UndefinedMeasure: the device has no memory for it."""
    try:
        return model.to(device=device, dtype=dtype)
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        way_out = "choose another device, or a smaller dtype (bfloat16)"
        what = f"memory for {type(model).__name__} in {dtype}, got none on {device}: {way_out}"
        raise UndefinedMeasure(f"expected {what}") from error


DTYPES = {"float64": torch.float64, "float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
"""By the names that rows give them."""


def dtype_named(dtype: str | torch.dtype | None) -> torch.dtype:
    """The dtype to run a model in, by its name; None is float32."""
    known = [torch.float32] if dtype is None else [own for name, own in DTYPES.items() if dtype in (name, own)]
    if not known:
        raise InputError(f"expected a dtype to run the model in, got {dtype!r}: choose {', '.join(DTYPES)}")
    return known[0]


def blocks_of(rows: Rows, size: int) -> Iterator[Tensor]:
    """The rows in order as tensors (at most `size`, D), without a copy."""
    return map(of_array, rows.blocks(size))


def of_array(x: npt.NDArray[Any]) -> Tensor:
    """An array as a tensor, without a copy where torch takes its memory: writeable, and forwards."""
    if not x.flags.writeable or any(stride < 0 for stride in x.strides):
        x = np.array(x)
    return torch.from_numpy(x)


def empty(shape: tuple[int, ...], dtype: torch.dtype, device: str | torch.device = "cpu") -> Tensor:
    """A tensor in memory that another one has freed, if some fits (`memory.recycled`); on a GPU torch does that."""
    if torch.device(device).type != "cpu":
        return torch.empty(shape, dtype=dtype, device=device)
    return torch.from_numpy(memory.recycled((*shape, dtype.itemsize), np.uint8)).view(dtype).view(shape)


def zeros(shape: tuple[int, ...], dtype: torch.dtype, device: str | torch.device = "cpu") -> Tensor:
    """A tensor of zeros. No thread is woken: that takes longer than zeros, and is in the way."""
    if torch.device(device).type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    return torch.from_numpy(memory.zeros((*shape, dtype.itemsize), np.uint8)).view(dtype).view(shape)
