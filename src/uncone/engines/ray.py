"""Parts of rows on a cluster of Ray: a task for each unit of work, and for each run of them an actor that adds their
sums.

States stay where they are made: this process gets only the last one. If a worker dies, its unit is done again.
"""

import copy
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from uncone.engines.stragglers import Stragglers
from uncone.errors import InputError, UnconeError, first_line, needed
from uncone.rows.parts import RUN, Engine, Fold, N, T, Task, U

RETRIES = 3
_LOOK_EVERY = 1.0  # seconds


class Ray(Engine):
    """Ray at `address`, or on this machine; `workers` limits how many units run at once, by default one per core."""

    def __init__(self, address: str | None = None, workers: int | None = None) -> None:
        self._ray = needed("ray", "expected Ray for --engine ray, got none: pip install 'uncone[ray]'")
        self._address, self._workers, self._began = address, workers, False

    def each(self, make: Callable[[], Callable[[N], U]], units: Iterable[N], *, on_gpu: bool = False) -> Iterator[U]:
        """Actors do the work: each makes its worker once, and with `on_gpu` has its own GPU. If an actor dies, for
        example with its machine, another actor gets its unit, and a successor starts once there is room."""
        ray = self._start()
        kept = ray.remote(_Worker).options(num_cpus=1, num_gpus=int(on_gpu))
        free = self._free(on_gpu)  # more actors would wait for ever
        most, slow, tries = min(self._workers or free, free), Stragglers(), Counter[int]()
        actors, under_way = [kept.remote(make) for _ in range(most)], deque[_UnderWay]()
        coming = dict[Any, Any]()  # successors by the reference that shows that they have started

        def give(place: int, unit: Any) -> _UnderWay:
            there, _ = ray.wait([*coming], num_returns=1, timeout=0 if actors else None) if coming else ([], [])
            actors.extend(coming.pop(one) for one in there)
            load = Counter(one.actor for one in under_way)
            actor = min(actors, key=lambda actor: load[actor])
            return _UnderWay(place, unit, actor, actor.work.remote(unit))

        def first() -> U:
            while True:
                one = under_way[0]
                try:
                    found: U = self._got(one.result, one.place, one.unit, slow)
                except (ray.exceptions.RayActorError, ray.exceptions.ObjectLostError) as error:
                    tries[one.place] += 1
                    if tries[one.place] > RETRIES:
                        raise self._ended(one.unit, error) from error
                    lost = isinstance(error, ray.exceptions.RayActorError)
                    if lost and one.actor in actors:  # not replaced yet
                        actors.remove(one.actor)
                        successor = kept.remote(make)
                        coming[successor.is_there.remote()] = successor
                    slow.begin(one.place)
                    under_way[0] = give(one.place, one.unit)
                else:
                    under_way.popleft()
                    return found

        for place, unit in enumerate(units):
            if len(under_way) == most:
                yield first()
            slow.begin(place)
            under_way.append(give(place, unit))
        while under_way:
            yield first()

    def fold(self, tasks: Sequence[Task[T]], merge: Callable[[T, T], T], done: Callable[[int], None]) -> T:
        ray = self._start()
        for left in reversed(range(RETRIES + 1)):
            try:
                return self._folded(ray, tasks, merge, done)  # type: ignore[no-any-return]
            except (ray.exceptions.RayActorError, ray.exceptions.ObjectLostError) as error:  # what it had added is gone
                if not left:
                    times = f"{RETRIES + 1} times"
                    raise UnconeError(
                        f"expected a Ray worker to keep sums, but it ended {times}: did it run out of memory?"
                    ) from error
        raise AssertionError

    def _folded(
        self, ray: Any, tasks: Sequence[Task[T]], merge: Callable[[T, T], T], done: Callable[[int], None]
    ) -> Any:
        """Merge as `Fold` does; the first of a run is an actor, to which the others are added."""
        work = ray.remote(_worked).options(max_retries=RETRIES, num_cpus=1)
        make = ray.remote(_Total).options(num_cpus=0)
        window, slow = self._workers or self._free(), Stragglers()
        under_way, settled, rows = deque[Any](), enumerate(tasks), 0

        def settle(most: int) -> None:
            nonlocal rows
            while len(under_way) > most:
                place, task = next(settled)
                try:
                    self._got(under_way.popleft(), place, task, slow)
                except UnconeError:
                    if under_way:  # with the error nothing is under way any more, such as a file half written
                        ray.wait([*under_way], num_returns=len(under_way))
                    raise
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
            slow.begin(place)
            result = work.remote(task)
            fold.add(result if place % RUN else add(make.remote(merge), result))
        settle(0)
        return _own(ray.get(fold.result().result.remote()))

    def _start(self) -> Any:
        ray = self._ray
        if not ray.is_initialized():
            here = {"address": "local", "include_dashboard": False, "configure_logging": False, "log_to_driver": False}
            try:
                ray.init(**here if self._address is None else {"address": self._address, "log_to_driver": False})
            except Exception as error:
                where = self._address or "this machine"
                raise InputError(
                    f"expected Ray on {where}, got {first_line(error)}: start it, or check the address"
                ) from error
            self._began = True
        return ray

    def _free(self, on_gpu: bool = False) -> int:
        return max(1, int(self._ray.cluster_resources().get("GPU" if on_gpu else "CPU", 1)))

    def _got(self, result: Any, place: int, unit: N, slow: Stragglers) -> Any:
        """The result of a unit, which may be a straggler; its error names the unit. The end of an actor, or of a
        machine that had the result, is raised unchanged."""
        ray = self._ray
        errors = ray.exceptions
        while not ray.wait([result], timeout=_LOOK_EVERY)[0]:
            slow.look(place, unit.name)
        slow.end(place)
        try:
            return ray.get(result)
        except (errors.RayActorError, errors.ObjectLostError):
            raise
        except errors.RayError as error:
            cause = getattr(error, "cause", None) or error
            if isinstance(cause, UnconeError):
                raise cause from error
            if not isinstance(cause, errors.RayError):
                raise UnconeError(f"{unit.name}: {first_line(cause)}") from error
            raise self._ended(unit, cause) from error

    def _ended(self, unit: N, cause: Exception) -> UnconeError:
        but = f"it ended {RETRIES + 1} times ({type(cause).__name__}): did it run out of memory?"
        return UnconeError(f"expected a Ray worker to read {unit.name}, but {but}")

    def close(self) -> None:
        if self._began:
            self._ray.shutdown()
            self._began = False


@dataclass(frozen=True)
class _UnderWay:
    place: int
    unit: Any
    actor: Any
    result: Any


class _Worker:
    def __init__(self, make: Callable[[], Callable[[N], U]]) -> None:
        self._make, self._made = make, list[Any]()

    def is_there(self) -> bool:
        return True

    def work(self, unit: Any) -> Any:
        if not self._made:
            self._made.append(self._make())
        return self._made[0](unit)


class _Total:
    def __init__(self, merge: Callable[[T, T], T]) -> None:
        self._merge, self._total = merge, list[Any]()

    def add(self, one: Any) -> bool:
        self._total = [self._merge(self._total.pop(), one) if self._total else _own(one)]
        return True

    def result(self) -> Any:
        return self._total[0]


def _own(one: Any) -> Any:
    """A copy, because objects from another process cannot be written to."""
    return copy.deepcopy(one)


def _worked(task: Task[T]) -> T:
    return task()
