"""Apply a fitted transformation to rows of any size, from disk to disk, in constant memory.

While one block is computed, three threads read, digest and write one block each."""

import io
import itertools
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from uncone import atomic
from uncone.errors import InputError, expect
from uncone.memory import uninitialised
from uncone.roles import Path_
from uncone.rows import GRID, DerivedRows, Rows, as_rows, nonfinite_error, nonfinite_rows
from uncone.rows.base import Target, Writer
from uncone.rows.bytes import one_ahead
from uncone.rows.open import WRITERS, source_of, split_part, target_of
from uncone.threads import waited
from uncone.transforms.affine import Affine
from uncone.transforms.fitting import DigestedRows, Tick, shared_name
from uncone.transforms.normalized import Repair
from uncone.transforms.transformed import Array, Map, mapped, overflow

BLOCK_BYTES = 6 * 2**20  # of input or output, the wider: small enough for a cache, large enough for a product


@dataclass(frozen=True)
class Applied(Target):
    """The file that `repair_rows` wrote, the seconds it took, and how many rows stayed zero."""

    seconds: float = 0.0
    zero_rows: int = 0


def repair_rows(
    source: Any, transformation: Repair, out: Path_, *, overwrite: bool = False, progress: Tick = None
) -> Applied:
    """Write the transformed rows of `source` to the file `out`, completely or not at all.

    The suffix of `out` gives the format, or else the source does: `.npy`, `.npz`, `.safetensors`, `.parquet`, `.vec`,
    `.txt`, `.glove`, `.vec.gz`, `.txt.gz`, `.bin` for word2vec binary. After `.npz`, `.safetensors` and `.parquet`
    `#NAME` may name the rows. Words are kept where the format has a place for them, and other arrays, tensors and
    columns where the source has the same format. The dtype is that of the rows: float16 and bfloat16 are computed in
    float32 and rounded once. Text, and formats without bfloat16 or quantised types, get float32.

    Rows of zeros stay zero, unlike in `transformation.transform`: they are texts without a vector, and an index would
    otherwise find them all in one place.

    Args:
        source: `Rows`, such as `uncone.open_rows` gives, or a tensor or array (N, D). Read once.
        transformation: fitted, of rows of D features.
        out: a file, not the one that is read.
        overwrite: replace a file that is there.
        progress: called with the number of rows done.

    Returns:
        An `Applied`. Its notes list what could not be kept, and whether the transformation was fitted on other rows.

    Raises:
        InputError: another width; rows that are not finite, or a result that the dtype cannot hold; an `out` that
            exists, is the source, has an unknown suffix, or cannot be written.
    """
    began = time.perf_counter()
    rows = as_rows(source)
    k = transformation.transform(rows).shape[1]  # checks the fit and the width, and reads nothing
    target = check_out(out, rows, overwrite=overwrite, k=k)
    owner = transformation.fitted if isinstance(transformation, Affine) else transformation.fitted_
    may_be = owner and owner.sha256 and (owner.n, owner.d) == rows.shape
    read = DigestedRows(_AheadRows(rows)) if may_be else _AheadRows(rows)
    size = min(rows.shape[0], max(1, BLOCK_BYTES // (max(rows.shape[1], k) * rows.widened.itemsize)))
    move = _BlockMap(transformation.map(), size, target, rows)
    with atomic.replacing(target.path) as handle:
        gate = _Gate(handle)
        try:
            writer = WRITERS[target.format](gate, target, source_of(rows))
            _stream(read.blocks(size), move, writer, gate, progress)
            writer.close()
        finally:
            gate.shut = True
    notes, (n, d) = target.notes, rows.shape
    if owner and owner.sha256 not in (None, getattr(read, "sha256", None)):
        here = f"applied to {shared_name(rows.name)} ({n} x {d})."
        notes += (f"Fitted on other rows: on {owner.name} ({owner.n} x {owner.d}), {here}",)
    seconds = time.perf_counter() - began
    return Applied(**vars(target) | {"notes": notes, "zero_rows": move.zero_rows, "seconds": seconds})


def check_out(out: Path_, rows: Rows, *, overwrite: bool, k: int | None = None) -> Target:
    """The file for `rows` repaired to k columns. InputError: an unknown suffix, the file that is read, a file that
    exists (unless `overwrite`), or no such folder."""
    target = target_of(out, source_of(rows), rows.shape[1] if k is None else k)
    path, resolved, read = target.path, atomic.writable(target.path), Path(split_part(rows.name)[0])
    with suppress(OSError):
        source = read.resolve()
        inside = source.is_dir() and resolved.is_relative_to(source)
        is_read = source == resolved or inside or (path.exists() and path.samefile(read))
        expect(not is_read, f"an output file other than the input, got {path}: give a new name")
    atomic.unused(path, overwrite=overwrite)
    return target


class _BlockMap:
    """Maps blocks of at most `size` rows to what `target` stores, in two buffers by turns."""

    def __init__(self, map: Map, size: int, target: Target, rows: Rows) -> None:
        self._move, self._dtype, self._rows, self.zero_rows = map.move, target.dtype, rows, 0
        self._turns = itertools.cycle([uninitialised((size, map.k), target.stored) for _ in range(2)])

    def __call__(self, x: Array) -> Array:
        y = next(self._turns)[: len(x)]
        if not mapped(self._move, x, y, self._dtype):
            bad = len(nonfinite_rows(self._rows))
            raise nonfinite_error(self._rows) if bad else overflow(self._dtype, self._rows.name)
        places = np.flatnonzero(x[:, 0] == 0)  # only these few are read whole
        zero = places[~x[places].any(axis=1)]
        y[zero] = 0
        self.zero_rows += len(zero)
        return y


def _stream(blocks: Iterator[Array], move: "_BlockMap", writer: Writer, gate: "_Gate", progress: Tick) -> None:
    def write(y: Array) -> None:
        writer.write(y)
        gate.write_back()

    done, before = 0, None
    with ThreadPoolExecutor(1, thread_name_prefix="uncone-write") as pool:
        for block in blocks:
            y = move(block)
            if before is not None:
                waited(before)
            before = pool.submit(write, y)
            done += len(block)
            del block, y
            if progress is not None:
                progress(done)
        if before is not None:
            waited(before)


class _AheadRows(DerivedRows):
    def blocks(self, size: int = GRID) -> Iterator[Array]:
        try:
            yield from one_ahead(self._rows.blocks(size))
        except OSError as error:
            why = error.strerror or error
            raise InputError(f"cannot read {self.name} ({why}): copy it to a disk that works") from error


class _Gate(io.BufferedIOBase):
    """The file, until it is shut: after an error a zip or Parquet file still writes its end."""

    def __init__(self, handle: BinaryIO) -> None:
        self._handle, self._flushed, self.shut = handle, 0, False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        return memoryview(data).nbytes if self.shut else self._handle.write(data)

    def tell(self) -> int:
        return 0 if self.shut else self._handle.tell()

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return 0 if self.shut else self._handle.seek(offset, whence)

    def flush(self) -> None:
        if not self.shut:
            self._handle.flush()

    def write_back(self) -> None:
        """Start writing to the disk now, not at the end."""
        start, count = self._flushed, self._handle.tell() - self._flushed
        if count >= 32 * 2**20:
            self._handle.flush()
            with suppress(OSError, AttributeError):  # a system without posix_fadvise
                os.posix_fadvise(self._handle.fileno(), start, count, os.POSIX_FADV_DONTNEED)
            self._flushed += count
