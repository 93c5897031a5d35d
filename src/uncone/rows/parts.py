"""Rows in many files or fragments, joined for a reader, and processed part by part by an engine.

The sums over parts are merged in an order that the parts alone decide: runs of `RUN` parts one after the other, then
pairs of runs. So the engine, the number of its workers and the order in which they finish change no byte.
"""

import bisect
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Generic, Protocol, TypeVar, runtime_checkable

import numpy as np

from uncone.errors import InputError
from uncone.roles import Ticks
from uncone.rows.base import Labels, Rows, SelectedRows
from uncone.rows.floats import Array, as_array

T = TypeVar("T")
U = TypeVar("U")
Work = Callable[[Rows, int], T]
"""A function of some rows and of the number of the first."""
RUN = 8
ROWS_A_COLUMN = 20
"""Rows per column in a unit of work: with fewer rows, a sum of D x D numbers would be more to move than the rows."""
_MOST_LABELS = 2**22  # the most rows whose names are kept


@dataclass(frozen=True)
class Part:
    """Some of the rows, which can be sent to another process or machine and opened there."""

    open: Callable[[], Rows]
    name: str
    shape: tuple[int, int]
    dtype: str
    gaps: tuple[int, tuple[int, ...]] | None = None
    """If rows of the matrix were left out: the id of the part's first row, and the rows that the part leaves out."""

    @property
    def ids(self) -> Array:
        first, bad = self.gaps or (0, ())
        return first + np.delete(np.arange(self.shape[0] + len(bad)), bad)

    def without(self, first: int, bad: tuple[int, ...]) -> "Part":
        rows = self.shape[0] - len(bad)
        return Part(
            partial(_without, self.open, first, bad), self.name, (rows, self.shape[1]), self.dtype, (first, bad)
        )


@runtime_checkable
class Named(Protocol):
    @property
    def name(self) -> str: ...


N = TypeVar("N", bound=Named)


class Engine:
    """Runs work on parts of rows."""

    def each(self, make: Callable[[], Callable[[N], U]], units: Iterable[N], *, on_gpu: bool = False) -> Iterator[U]:
        """Yield the workers' results in the order of the units. `make` makes a worker once in each place."""
        raise NotImplementedError

    def fold(self, tasks: "Sequence[Task[T]]", merge: Callable[[T, T], T], done: Callable[[int], None]) -> T:
        """The results of tasks, merged as `Fold` does. `done` gets the number of rows done."""
        fold, rows = Fold(merge), 0
        for task, one in zip(tasks, self.each(_caller, tasks), strict=True):
            fold.add(one)
            rows += task.rows
            done(rows)
        return fold.result()

    def close(self) -> None:
        """Stop whatever was started."""


@dataclass(frozen=True)
class Task(Generic[T]):
    work: Work[T]
    parts: tuple[Part, ...]
    first: int  # the number of the first row

    def __call__(self) -> T:
        if len(self.parts) == 1:
            return self.work(self.parts[0].open(), self.first)
        rows = JoinedRows(self.parts, self.name)
        rows.parts = ()  # one unit of work
        return self.work(rows, self.first)

    @property
    def name(self) -> str:
        more = f" and {len(self.parts) - 1} more" if len(self.parts) > 1 else ""
        return f"{self.parts[0].name}{more}"

    @property
    def rows(self) -> int:
        return sum(part.shape[0] for part in self.parts)


class Fold(Generic[T]):
    """Merges the results that are added, in order."""

    def __init__(self, merge: Callable[[T, T], T]) -> None:
        self._merge, self._run, self._of_run = merge, list[T](), 0
        self._whole = list[tuple[int, T]]()  # each with the number of times pairs were merged

    def add(self, one: T) -> None:
        self._run, self._of_run = [self._merge(self._run.pop(), one) if self._run else one], self._of_run + 1
        if self._of_run == RUN:
            level, run = 0, self._run.pop()
            self._of_run = 0
            while self._whole and self._whole[-1][0] == level:
                level, run = level + 1, self._merge(self._whole.pop()[1], run)
            self._whole.append((level, run))

    def result(self) -> T:
        left = [one for _, one in self._whole] + self._run
        total = left.pop()
        while left:
            total = self._merge(left.pop(), total)
        return total


class InThisProcess(Engine):
    def each(self, make: Callable[[], Callable[[N], U]], units: Iterable[N], *, on_gpu: bool = False) -> Iterator[U]:
        worker = make()
        return map(worker, units)


def _caller() -> "Callable[[Task[T]], T]":
    return _called


def _called(task: "Task[T]") -> T:
    return task()


def worked(
    parts: Sequence[Part],
    work: Work[T],
    merge: Callable[[T, T], T],
    progress: Ticks = None,
    engine: Engine | None = None,
) -> T:
    """`work` on units of parts with at least `ROWS_A_COLUMN` rows per column, except the last unit."""
    tasks, unit, first, rows = list[Task[T]](), list[Part](), 0, 0
    for i, part in enumerate(parts):
        unit.append(part)
        rows += part.shape[0]
        if rows >= ROWS_A_COLUMN * part.shape[1] or i == len(parts) - 1:
            tasks.append(Task(work, tuple(unit), first))
            unit, first, rows = [], first + rows, 0
    return (engine or InThisProcess()).fold(tasks, merge, progress or (lambda _: None))


def _taken(indices: Array, rows: Rows, first: int) -> Array:
    return rows.take(indices[slice(*np.searchsorted(indices, [first, first + rows.shape[0]]))] - first)


def _below(one: Array, other: Array) -> Array:
    return np.concatenate([one, other])


def _without(open_: Callable[[], Rows], first: int, bad: tuple[int, ...]) -> Rows:
    rows = open_()
    return SelectedRows(rows, np.delete(np.arange(rows.shape[0]), bad), first=first)


class RowsInParts(Rows):
    def over_parts(self, work: Work[T], merge: Callable[[T, T], T], progress: Ticks = None) -> T:
        return worked(self.parts, work, merge, progress, self.engine) if self.parts else work(self, 0)

    def without(self, bad: Array) -> Rows:
        if not self.parts:
            return super().without(bad)
        firsts = np.cumsum([0, *(part.shape[0] for part in self.parts)])
        cuts = np.split(bad, np.searchsorted(bad, firsts[1:-1]))
        of_parts = zip(self.parts, firsts.tolist(), cuts, strict=False)
        parts = [part.without(first, tuple((cut - first).tolist())) for part, first, cut in of_parts]
        left = JoinedRows([part for part in parts if part.shape[0]], self.name, self.engine)
        left.left_out, left.notes = tuple(bad.tolist()), self.notes
        return left


class JoinedRows(RowsInParts):
    """The rows of parts, one part below the other. InputError: parts of different widths or types."""

    def __init__(self, parts: Sequence[Part], name: str, engine: Engine | None = None) -> None:
        first, self.engine = parts[0], engine
        for part in parts:
            if (part.shape[1], part.dtype) != (first.shape[1], first.dtype):
                one, other = (f"{of.shape[1]} columns of {of.dtype} in {of.name}" for of in (first, part))
                raise InputError(
                    f"expected shards of one width and dtype in {name}, got {one} and {other}: write them alike"
                )
        self.parts = self._all = tuple(parts)
        self._firsts = list(itertools.accumulate((part.shape[0] for part in self.parts), initial=0))
        self._describe((self._firsts[-1], first.shape[1]), first.dtype, name)
        self._opened: tuple[int, Rows] | None = None  # one at a time: there may be too many to open

    @property
    def ids(self) -> Array | None:
        return np.concatenate([part.ids for part in self._all]) if self._all[0].gaps else None

    def fill(self, start: int, out: Array) -> None:
        while len(out):
            k = bisect.bisect_right(self._firsts, start) - 1
            count = min(len(out), self._firsts[k + 1] - start)
            part, at = self._part(k), start - self._firsts[k]
            part.read(at, at + count, out=out[:count])
            start, out = start + count, out[count:]

    def take(self, indices: Array) -> Array:
        if not self.parts:
            return super().take(indices)
        return self.over_parts(partial(_taken, np.asarray(as_array(indices))), _below)

    def _part(self, k: int) -> Rows:
        if self._opened is None or self._opened[0] != k:
            self._opened = None
            self._opened = k, self._all[k].open()
        return self._opened[1]

    def load_labels(self) -> Labels:
        return self._names(lambda rows: rows.labels)

    def load_keys(self) -> Labels:
        return self._names(lambda rows: rows.keys)

    def _names(self, of: Callable[[Rows], Labels]) -> Labels:
        if self.shape[0] > _MOST_LABELS:
            return None
        found = list[str | None]()
        for part in self._all:
            names = of(part.open())
            if names is None:
                return None
            found += names
        return found
