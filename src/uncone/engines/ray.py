"""Parts of rows on a cluster of Ray: a task for each unit of work, and for each run of them an actor that adds their sums.

States stay where they are made: this process gets the last one alone. A worker that dies costs its unit once more.
"""

import copy
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from uncone.errors import InputError, UnconeError, first_line, needed
from uncone.rows.parts import RUN, Engine, Fold, Task

T = TypeVar("T")
RETRIES = 3


class Ray(Engine):
    """At `address`, or on this machine; `workers` bounds how many units are on their way, by default one a core."""

    def __init__(self, address: str | None = None, workers: int | None = None) -> None:
        self._ray = needed("ray", "expected Ray for --engine ray, got none: pip install 'uncone[ray]'")
        self._address, self._workers, self._began = address, workers, False

    def fold(self, tasks: Sequence[Task[T]], merge: Callable[[T, T], T], done: Callable[[int], None]) -> T:
        ray = self._start()
        for left in reversed(range(RETRIES + 1)):
            try:
                return self._folded(ray, tasks, merge, done)  # type: ignore[no-any-return]
            except ray.exceptions.RayActorError as error:  # what it had added is gone
                if not left:
                    times = f"{RETRIES + 1} times"
                    raise UnconeError(
                        f"expected a worker of Ray to keep sums, got its end {times}: was it killed for its memory?"
                    ) from error
        raise AssertionError

    def _folded(
        self, ray: Any, tasks: Sequence[Task[T]], merge: Callable[[T, T], T], done: Callable[[int], None]
    ) -> Any:
        """As `Fold` merges, where the first of a run is an actor, to which the others are added."""
        work = ray.remote(_worked).options(max_retries=RETRIES, num_cpus=1)
        make = ray.remote(_Total).options(num_cpus=0)
        window = self._workers or max(1, int(ray.cluster_resources().get("CPU", 1)))
        under_way, settled, rows = deque[Any](), iter(tasks), 0

        def settle(most: int) -> None:
            nonlocal rows
            while len(under_way) > most:
                task = next(settled)
                self._finish(task, under_way.popleft())
                rows += task.rows
                done(rows)

        def add(total: Any, other: Any) -> Any:
            """To an actor the result of a unit, or what the actor of a later run has."""
            if isinstance(other, ray.ObjectRef):
                under_way.append(total.add.remote(other))
            else:
                total.add.remote(other.result.remote())
            return total

        fold = Fold[Any](add)
        for place, task in enumerate(tasks):
            settle(window - 1)
            result = work.remote(task)
            fold.add(result if place % RUN else add(make.remote(merge), result))
        settle(0)
        return _own(ray.get(fold.result().result.remote()))

    def _start(self) -> Any:
        ray = self._ray
        if not ray.is_initialized():
            here = {"include_dashboard": False, "configure_logging": False, "log_to_driver": False}
            try:
                ray.init(**here if self._address is None else {"address": self._address, "log_to_driver": False})
            except Exception as error:
                where = self._address or "this machine"
                raise InputError(
                    f"expected Ray on {where}, got {first_line(error)}: start it, or check the address"
                ) from error
            self._began = True
        return ray

    def _finish(self, task: Task[Any], added: Any) -> None:
        """Wait for a unit, which may be a straggler; its error names it."""
        errors = self._ray.exceptions
        try:
            self._ray.get(added)
        except errors.RayActorError:
            raise
        except errors.RayError as error:
            cause = getattr(error, "cause", None) or error
            if isinstance(cause, UnconeError):
                raise cause from error
            if not isinstance(cause, errors.RayError):
                raise UnconeError(f"{task.name}: {first_line(cause)}") from error
            got = f"its end {RETRIES + 1} times ({type(cause).__name__}): was it killed for its memory?"
            raise UnconeError(f"expected a worker of Ray to read {task.name}, got {got}") from error

    def close(self) -> None:
        if self._began:
            self._ray.shutdown()
            self._began = False


class _Total:
    def __init__(self, merge: Callable[[T, T], T]) -> None:
        self._merge, self._total = merge, list[Any]()

    def add(self, one: Any) -> bool:
        self._total = [self._merge(self._total.pop(), one) if self._total else _own(one)]
        return True

    def result(self) -> Any:
        return self._total[0]


def _own(one: Any) -> Any:
    """A copy: what comes from another process cannot be written to."""
    return copy.deepcopy(one)


def _worked(task: Task[T]) -> T:
    return task()
