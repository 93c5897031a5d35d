"""`Rows` (a matrix read block by block, never whole), rows made of other rows, and the interface of a writer."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import BufferedIOBase
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from uncone.errors import InputError
from uncone.memory import Buffer
from uncone.roles import Ticks, Told
from uncone.rows.floats import DTYPES, FLOATING, Array, as_array, is_tensor, of_tensor, widen

T = TypeVar("T")
Labels = Sequence[str | None] | None  # what each row stands for, as token strings; None if unknown

GRID = 8192  # rows in one unit of work: block k holds the rows [k * GRID, (k + 1) * GRID)
_LOAD = {".npy": "numpy.load", ".npz": "numpy.load", ".pt": "torch.load", ".safetensors": "safetensors.torch.load_file"}


class Tokens(list[str | None]):
    """The token of each row, and the rows whose token its tokenizer marks as special: control tokens and the like."""

    special: frozenset[int] = frozenset()


class Rows:
    """N rows of D features, read in blocks of float32, or of float64 if the source is float64.

    A reader sets `shape`, `dtype`, `name`, and implements `fill`, or `read` if it need not copy.
    """

    shape: tuple[int, int]  # (N, D)
    dtype: str  # the dtype as stored: one of `DTYPES`, or a quantised type of GGUF such as "Q4_K"
    name: str  # where the rows come from
    left_out: tuple[int, ...] = ()  # rows of the source that are not finite

    load_labels: Callable[[], Labels] | None = None  # called once, when the labels are first used
    _labels: Labels = None

    @property
    def labels(self) -> Labels:
        """What each row stands for, or None if nothing is known."""
        if self._labels is None and self.load_labels is not None:
            self._labels = self.load_labels()
            self.load_labels = None
        return self._labels

    load_keys: Callable[[], Labels] | None = None  # loads the ids that the source has next to labels

    @property
    def keys(self) -> Labels:
        """The ids that the source gives its rows, or else the labels."""
        keys = None if self.load_keys is None else self.load_keys()
        return self.labels if keys is None else keys

    @property
    def ids(self) -> Array | None:
        """The row numbers in the source, int64 (N,); None means 0, 1, ..., N - 1."""
        return None

    def at_hand(self, progress: Told = None) -> "Rows":
        """Rows to be read several times: remote rows are fetched once, and kept in memory if there is room. `progress`
        gets the bytes fetched so far and their total."""
        return self

    @property
    def widened(self) -> np.dtype[Any]:
        return np.dtype(np.float64 if self.dtype == "float64" else np.float32)

    @property
    def part(self) -> int:
        """How many rows of a grid cell to read at once: 8 MiB, but between 1,024 rows and all."""
        size = GRID
        while size > 1024 and size * self.shape[1] * self.widened.itemsize > 2**23:
            size //= 2
        return size

    def _describe(self, shape: tuple[int, ...], dtype: str, name: str) -> None:
        self.shape, self.dtype, self.name = (shape[0], shape[1]), dtype, name

    def read(self, start: int, stop: int, out: Array | None = None) -> Array:
        """Rows [start, stop): in `out`, or else in an array that must not be written to."""
        out = np.empty((stop - start, self.shape[1]), self.widened) if out is None else out
        self.fill(start, out)
        return out

    parts: tuple[Any, ...] = ()  # shards, each a `Part`; empty if the rows are in one place
    engine: Any = None  # the engine that works on the parts; None is this process
    notes: tuple[str, ...] = ()  # what was left out

    def over_parts(self, work: Callable[["Rows", int], T], merge: Callable[[T, T], T], progress: Ticks = None) -> T:
        """The result of `work(rows, number of the first)` on all rows, or on each part, joined by `merge` in order.

        It must be possible to send both functions, and what they return, to another process.
        """
        return work(self, 0)

    def without(self, bad: Array) -> "Rows":
        """The rows except the rows at `bad` (int64, ascending), which `left_out` names."""
        return SelectedRows(self, np.delete(np.arange(self.shape[0]), bad), left_out=tuple(bad.tolist()))

    def fill(self, start: int, out: Array) -> None:
        """Read the rows from `start` on into `out` (any number, D), which is `widened`."""
        raise NotImplementedError

    def blocks(self, size: int = GRID) -> Iterator[Array]:
        """The rows in order, an array (at most `size`, D) per cell of the grid, not to be written to."""
        n, d = self.shape
        buffer = Buffer(min(size, n), d, self.widened)
        for start in range(0, n, size):
            count = min(size, n - start)
            yield self.read(start, start + count, out=buffer.get(count))

    def numbered(self, progress: Ticks = None, size: int = GRID) -> Iterator[tuple[int, Array]]:
        """Pairs (number of its first row, block). After each, `progress` gets the number of rows done.

        `del block` before the next block is read lets the reader reuse its memory.
        """
        blocks, n = self.blocks(size), self.shape[0]
        for start in range(0, n, size):
            yield start, next(blocks)
            if progress is not None:
                progress(min(start + size, n))
        next(blocks, None)  # the reader ends its work

    def take(self, indices: Any) -> Array:
        """The rows at `indices` (ascending), copied. In each cell of the grid, the span that holds them is read."""
        indices = np.asarray(as_array(indices))
        cells = np.split(indices, np.flatnonzero(np.diff(indices // GRID)) + 1)
        parts = [self.read(int(cell[0]), int(cell[-1]) + 1)[cell - cell[0]] for cell in cells if len(cell)]
        return np.concatenate(parts) if parts else np.empty((0, self.shape[1]), self.widened)


class DerivedRows(Rows):
    """Rows made of `rows` one by one. Everything that a subclass does not change is the same."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self.shape, self.dtype, self.name, self.left_out = rows.shape, rows.dtype, rows.name, rows.left_out
        self.load_labels, self.load_keys = lambda: rows.labels, lambda: rows.keys

    @property
    def ids(self) -> Array | None:
        return self._rows.ids

    def read(self, start: int, stop: int, out: Array | None = None) -> Array:
        return self._rows.read(start, stop, out=out)


class CenteredRows(DerivedRows):
    """`rows` minus `mean` (float64, (D,)) as the blocks' dtype rounds it: the gauge-fixed view of a head."""

    def __init__(self, rows: Rows, mean: Array) -> None:
        super().__init__(rows)
        self._mean = np.asarray(mean, np.float64)

    def read(self, start: int, stop: int, out: Array | None = None) -> Array:
        block = self._rows.read(start, stop, out=out)
        centered: Array = np.subtract(block, self._mean.astype(block.dtype), out=out)
        return centered


class SelectedRows(DerivedRows):
    """The rows at `kept` (int64, ascending), with their ids. `first` is the id of row 0 if the rows have no ids."""

    def __init__(self, rows: Rows, kept: Array, *, left_out: tuple[int, ...] = (), first: int = 0) -> None:
        super().__init__(rows)
        self._kept, self.left_out, self.shape, self._first = kept, left_out, (len(kept), rows.shape[1]), first

        def chosen(names: Labels) -> Labels:
            if names is None:
                return None
            tokens = Tokens(names[i] for i in kept.tolist())
            special: frozenset[int] = getattr(names, "special", frozenset())
            tokens.special = frozenset(i for i, row in enumerate(kept.tolist()) if row in special)
            return tokens

        self.load_labels, self.load_keys = lambda: chosen(rows.labels), lambda: chosen(rows.keys)

    @property
    def ids(self) -> Array | None:
        return self._kept + self._first if self._rows.ids is None else self._rows.ids[self._kept]

    def read(self, start: int, stop: int, out: Array | None = None) -> Array:
        return _into(self._rows.take(self._kept[start:stop]), out)  # the gaps between kept rows may be long


def _into(block: Array, out: Array | None) -> Array:
    if out is None:
        return block
    out[...] = block
    return out


def nonfinite_rows(rows: Rows, progress: Ticks = None) -> Array:
    return rows.over_parts(_nonfinite, _behind, progress) if rows.parts else _nonfinite(rows, 0, progress)


def _nonfinite(rows: Rows, first: int, progress: Ticks = None) -> Array:
    bad = []
    for start, block in rows.numbered(progress):
        bad.append(np.flatnonzero(~np.isfinite(block).all(1)) + first + start)
        del block
    return np.concatenate(bad)


def _behind(one: Array, other: Array) -> Array:
    return np.concatenate([one, other])


def nonfinite_error(rows: Rows) -> InputError:
    bad = nonfinite_rows(rows)
    first = ", ".join(map(str, bad[:5].tolist())) + ", ..." * (len(bad) > 5)
    plural = "rows" if len(bad) != 1 else "row"
    got = f"{len(bad)} {plural} of {rows.shape[0]} with NaN or inf in {rows.name} ({plural} {first})"
    way = "with --skip-nonfinite, or in Python with uncone.open_rows(x, skip_nonfinite=True)"
    return InputError(f"expected finite rows, got {got}: fix these rows, or leave them out {way}")


def without_nonfinite(rows: Rows, progress: Ticks = None) -> Rows:
    """`rows`, read once, without the rows that are not finite, which `left_out` names."""
    bad, n = nonfinite_rows(rows, progress), rows.shape[0]
    if len(bad) == n:
        raise InputError(f"expected finite rows, got none of {n} in {rows.name}: there is nothing to measure")
    return rows.without(bad) if len(bad) else rows


def check_shape(shape: tuple[int, ...], name: str) -> None:
    if len(shape) != 2:
        way = "pass one row per item"
        if len(shape) > 2 and 0 not in shape:  # states of texts, perhaps with padding
            way = f"each of {math.prod(shape[:-1]):,} positions is a row in x.reshape(-1, {shape[-1]})"
            way += f"{_loaded(name)}; x[mask] leaves padding out"
        raise InputError(f"expected a matrix of shape (N, D), got shape {shape} from {name}: {way}")
    if 0 in shape:
        raise InputError(f"expected at least one row and column, got shape {shape} from {name}: pass more")


def _loaded(name: str) -> str:
    for ending, load in _LOAD.items():
        path, is_part, part = name.partition(f"{ending}#")
        if "." in part and load == "torch.load":  # dots also join the names of nested dicts
            return ""
        if is_part or name.endswith(ending):
            file = path + ending if is_part else name
            return f", with x = {load}({file!r})" + f"[{part!r}]" * bool(is_part)
    return ""


class ArrayRows(Rows):
    """A matrix in memory, not copied: an array, or a tensor on any device."""

    def __init__(self, x: Any, *, name: str) -> None:
        dtype = str(x.dtype).removeprefix("torch.")
        if dtype not in DTYPES:
            raise InputError(f"expected rows of {FLOATING}, got {dtype} from {name}: use x.float()")
        check_shape(tuple(x.shape), name)
        # Tensors on other devices come block by block.
        self._x = of_tensor(x, name)[0] if is_tensor(x) and x.device.type in ("cpu", "meta") else x
        self._describe(x.shape, dtype, name)

    @property
    def on_device(self) -> Any:
        """The tensor if it is on a CUDA GPU, else None."""
        x: Any = self._x
        return x if is_tensor(x) and x.is_cuda else None

    def read(self, start: int, stop: int, out: Array | None = None) -> Array:
        x = self._x[start:stop]
        part = of_tensor(x, self.name)[0] if is_tensor(x) else x
        if part.dtype == self.widened:
            return _into(part, out)
        out = np.empty(part.shape, self.widened) if out is None else out
        widen(part, out)
        return out

    def blocks(self, size: int = GRID) -> Iterator[Array]:
        if self._x.dtype != self.widened:
            yield from super().blocks(size)
            return
        for start in range(0, self.shape[0], size):
            yield self.read(start, min(start + size, self.shape[0]))


def float_array(x: Array, name: str) -> Array:
    if isinstance(x, np.ma.MaskedArray):
        got = f"a masked array from {name}: fill or drop the masked rows"
        raise InputError(f"expected an array without a mask, got {got}")
    if x.dtype.kind != "f" or x.dtype.itemsize > 8:
        raise InputError(f"expected an array of {FLOATING}, got dtype {x.dtype} from {name}: use x.astype('float32')")
    return x.astype(x.dtype.newbyteorder("="), copy=False)


def as_rows(x: Any, *, name: str | None = None) -> Rows:
    """`x` as Rows: a tensor or array (N, D) of either byte order without a copy where possible."""
    if isinstance(x, Rows):
        return x
    if is_tensor(x):
        return ArrayRows(x, name=name or "tensor")
    if isinstance(x, np.ndarray):
        return ArrayRows(float_array(x, name or "array"), name=name or "array")
    got = f"{type(x).__name__}: convert it, for instance with numpy.asarray(x)"
    raise InputError(f"expected Rows, a tensor or an array of shape (N, D), got {got}")


@dataclass(frozen=True)
class Source:
    """The rows that are read, and which part of a file they are, if the same format is written."""

    rows: Rows
    format: str | None = None
    path: Path | None = None
    part: str | None = None


@dataclass(frozen=True)
class Target:
    """The file to write: `shape` (N, K) of `dtype`, named `part` if the format has names."""

    path: Path
    format: str
    part: str
    shape: tuple[int, int]
    dtype: str
    notes: tuple[str, ...] = ()  # for the user: rounding, and what is left out

    @property
    def stored(self) -> np.dtype[Any]:
        return DTYPES[self.dtype]

    def check_free(self, names: Iterable[str]) -> None:
        if self.part in names:
            raise InputError(
                f"expected a free name, got {self.path.name}#{self.part}, which the source has: choose another"
            )


class Writer:
    """Writes rows in order to an empty `handle`, and everything else that a source of the same format has."""

    def __init__(self, handle: BufferedIOBase, target: Target, source: Source) -> None:
        self._handle = handle
        self.begin(target, source)

    def begin(self, target: Target, source: Source) -> None:
        """Write what comes before the first row."""

    def write(self, rows: Array) -> None:
        """Write the next rows (any number, K) as stored (`floats.narrow`). The caller may change them afterwards."""
        self._handle.write(raw_bytes(rows))

    def close(self) -> None:
        """Write what follows the last row."""


def raw_bytes(x: Array) -> memoryview:
    return x.reshape(-1).view(np.uint8).data
