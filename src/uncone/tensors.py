"""Threads, memory and devices of torch for the rooms that train.

Work is shared out in one pool, as in `threads`: torch's own pool would compete with it for the same cores.
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import numpy as np
import torch

from uncone import memory
from uncone.errors import InputError, UndefinedMeasure
from uncone.rows import Array, Rows
from uncone.threads import Mine, pieces, pool, shared, waited

T = TypeVar("T")
P = ParamSpec("P")
Tensor = torch.Tensor


def alone(function: Callable[[], T]) -> T:
    """Run `function` on a worker and wait: its torch operations take one thread, `share` inside it the rest. Threads of
    torch's own pool would spin after each operation, on the cores that the workers need."""
    threads = torch.get_num_threads()
    if _mine.threads or threads == 1:
        return function()

    box = [_in_this_mode(function)]

    def run() -> T:
        work, _mine.threads = box.pop(), threads
        try:
            return work()
        finally:
            # The worker keeps this job after the caller goes on, and with it perhaps a block of rows,
            # whose buffer the reader wants again.
            del work
            _mine.threads = 0

    return waited(pool(_workers, threads).submit(run))


def on_one_thread(function: Callable[P, T]) -> Callable[P, T]:
    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        return alone(lambda: function(*args, **kwargs))

    return run


def share_rows(work: Callable[..., object], *tensors: Tensor) -> None:
    share(pieces(work, *tensors))


def share(tasks: Iterable[Callable[[], T]]) -> list[T]:
    tasks = list(tasks)
    return alone(lambda: _share(tasks))


def on_every_thread(work: Callable[[], object]) -> None:
    """Run `work` on each worker, then raise the first exception: `work` must stop the others."""
    alone(lambda: _share([work] * max(_mine.threads, 1)))


def _share(tasks: list[Callable[[], T]]) -> list[T]:
    return shared(tasks, _mine.threads, lambda work: pool(_workers, _mine.threads).submit(_in_this_mode(work)))


def _in_this_mode(function: Callable[[], T]) -> Callable[[], T]:
    """Modes of autograd belong to a thread: the worker gets this thread's."""
    inference, gradients = torch.is_inference_mode_enabled(), torch.is_grad_enabled()

    def run() -> T:
        with torch.inference_mode(inference), torch.set_grad_enabled(gradients):
            return function()

    return run


_mine = Mine()


def _workers(threads: int) -> ThreadPoolExecutor:
    """In them torch computes on one thread each: its number is per thread, with a default."""
    ready = threading.Barrier(threads + 1)

    def start_alone() -> None:
        torch.set_num_threads(1)
        torch.get_num_threads()  # the first call takes the default over: make it while that is 1
        ready.wait()

    default = torch.get_num_threads()
    workers = ThreadPoolExecutor(threads, thread_name_prefix="uncone", initializer=start_alone)
    try:
        for _ in range(threads):
            workers.submit(int)
        ready.wait()
    except BaseException:
        ready.abort()
        workers.shutdown(wait=False)
        raise
    finally:
        torch.set_num_threads(default)  # for threads that are not workers
    return workers


def usable(device: str | torch.device | None) -> torch.device:
    """The device, if torch can sum in float64 there."""
    try:
        known = torch.device("cpu" if device is None else device)
        if known.type != "cpu":
            torch.zeros(1, dtype=torch.float64, device=known).item()
    except (RuntimeError, TypeError, AssertionError) as error:
        got = f"{str(device)!r} ({str(error).splitlines()[0]})"
        raise InputError(f"expected a device on which torch has float64, got {got}: use cpu or cuda") from error
    return known


def is_out_of_memory(error: BaseException) -> bool:
    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)


def moved(model: Any, device: torch.device, dtype: torch.dtype) -> Any:
    """UndefinedMeasure: the device has no memory for the model."""
    try:
        return model.to(device=device, dtype=dtype)
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        what = f"memory for {type(model).__name__} in {dtype}, got none on {device}"
        raise UndefinedMeasure(f"expected {what}: choose another device, or a smaller dtype (bfloat16)") from error


DTYPES = {"float64": torch.float64, "float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


def dtype_named(dtype: str | torch.dtype | None) -> torch.dtype:
    """The dtype to run a model in; None is float32."""
    known = [torch.float32] if dtype is None else [own for name, own in DTYPES.items() if dtype in (name, own)]
    if not known:
        raise InputError(f"expected a dtype to run the model in, got {dtype!r}: choose {', '.join(DTYPES)}")
    return known[0]


def blocks_of(rows: Rows, size: int) -> Iterator[Tensor]:
    return map(of_array, rows.blocks(size))


def of_array(x: Array) -> Tensor:
    """A tensor, without a copy where torch takes the memory: writeable, and forwards."""
    if not x.flags.writeable or any(stride < 0 for stride in x.strides):
        x = np.array(x)
    return torch.from_numpy(x)


def empty(shape: tuple[int, ...], dtype: torch.dtype, device: str | torch.device = "cpu") -> Tensor:
    """In memory that another tensor has freed, if some fits; on a GPU torch does that."""
    if torch.device(device).type != "cpu":
        return torch.empty(shape, dtype=dtype, device=device)
    return torch.from_numpy(memory.recycled((*shape, dtype.itemsize), np.uint8)).view(dtype).view(shape)


def zeros(shape: tuple[int, ...], dtype: torch.dtype, device: str | torch.device = "cpu") -> Tensor:
    """Wakes no thread: that takes longer than the zeros, and is in the way."""
    if torch.device(device).type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    return torch.from_numpy(memory.zeros((*shape, dtype.itemsize), np.uint8)).view(dtype).view(shape)
