"""Blocks of rows read, multiplied, digested and written at the same time, each on a thread of its own, in memory that is used again."""

import hashlib
import io
import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from typing import IO, Any

import numpy as np
import torch

from uncone.errors import InputError
from uncone.memory import uninitialised
from uncone.rows import Rows, nonfinite_rows
from uncone.rows.streamed import StreamedRows
from uncone.rows.writers import open_writer
from uncone.rows.writers_plan import Plan, Source, Writer
from uncone.threads import share_rows
from uncone.transforms.affine import Affine
from uncone.transforms.fitting import Transformation

Tensor = torch.Tensor
BLOCK_BYTES = 6 * 2**20
"""Of the wider of a block's input and output: small enough for a cache, large enough for a product."""
_SLOTS = 3
"""Blocks at once: one is read, one multiplied, one written."""
_FLUSHED_BYTES = 32 * 2**20


@dataclass
class _Slot:
    """Memory of one block on its way, and those who still use it."""

    x: Tensor | None = None
    y: Tensor | None = None
    busy: list[Future[None]] = field(default_factory=list)

    def wait(self) -> None:
        """Until nobody uses it; an error on the way comes out here."""
        while self.busy:
            self.busy.pop(0).result()


@dataclass(frozen=True)
class BlockMap:
    """Blocks of rows to transformed blocks, in memory that is used again."""

    rows: Rows
    k: int
    affine: Affine | None
    transformation: Transformation | Affine
    constants: tuple[Tensor, Tensor | None, Tensor | None] | None
    """shift, weight and offset in the dtype of the blocks."""
    size: int
    """Rows of a block."""
    scratch: Tensor | None

    @classmethod
    def of(cls, transformation: Transformation | Affine, rows: Rows) -> "BlockMap":
        """Raise InputError where it is not fitted, or was for another width."""
        affine = (
            transformation if isinstance(transformation, Affine) else getattr(transformation, "affine_", None)
        )
        lazily = transformation.transform(rows)  # reads nothing; checks that it is fitted, and for such rows
        k, d = lazily.shape[1], rows.shape[1]
        size = min(rows.shape[0], max(1, BLOCK_BYTES // (max(d, k) * rows.widened.itemsize)))
        if affine is None:
            return cls(rows, k, None, transformation, None, size, None)
        shift, weight, offset = (
            None if t is None else t.to(rows.widened) for t in (affine.shift, affine.weight, affine.offset)
        )
        assert shift is not None
        scratch = None if weight is None else uninitialised((size, d), rows.widened)
        return cls(rows, k, affine, transformation, (shift, weight, offset), size, scratch)

    def __call__(self, x: Tensor, slot: _Slot) -> Tensor:
        """The transformed rows of `x`, in the slot's memory."""
        if self.constants is None:
            found: Tensor = self.transformation.transform(x)
            return found
        shift, weight, offset = self.constants
        if slot.y is None:
            slot.y = uninitialised((self.size, self.k), self.rows.widened)
        y = slot.y[: len(x)]
        if weight is None or self.scratch is None:
            return torch.sub(x, shift, out=y)

        def work(x: Tensor, moved: Tensor, y: Tensor) -> None:
            torch.sub(x, shift, out=moved)
            torch.mm(moved, weight, out=y) if offset is None else torch.addmm(offset, moved, weight, out=y)

        share_rows(work, x, self.scratch[: len(x)], y)
        return y


def stream(
    handle: IO[bytes],
    map_: BlockMap,
    plan: Plan,
    source: Source,
    digest: "Digest | None",
    progress: Callable[[int], None] | None,
) -> None:
    """All blocks through the four stages."""
    blocks = -(-map_.rows.shape[0] // map_.size)
    slots = [_Slot() for _ in range(_SLOTS)]
    done = 0
    with (
        _shut_on_error(_Gate(handle)) as gate,
        _ended(open_writer(gate, plan, source)) as writer,
        closing(_in_slots(map_.rows, map_.size)) as read,
        ExitStack() as stack,
    ):
        output = _Output(gate, writer, plan, map_.rows)
        reading, digesting, writing = (stack.enter_context(ThreadPoolExecutor(1)) for _ in range(3))
        next(read)
        coming = reading.submit(read.send, slots[0])
        for i in range(blocks):
            x, slot = coming.result(), slots[i % _SLOTS]
            if i + 1 < blocks:
                slots[(i + 1) % _SLOTS].wait()
                coming = reading.submit(read.send, slots[(i + 1) % _SLOTS])
            if digest is not None:
                slot.busy.append(digesting.submit(digest.update, x))
            slot.busy.append(writing.submit(output.write, map_(x, slot)))
            done += len(x)
            del x
            if progress is not None:
                progress(done)
        for slot in slots:
            slot.wait()


def _in_slots(rows: Rows, size: int) -> Any:
    """A generator that is sent slots, and yields the next block in the memory of the one sent."""
    streamed: Iterator[Tensor] | None = rows.blocks(size) if isinstance(rows, StreamedRows) else None
    slot: _Slot = yield
    for start in range(0, rows.shape[0], size):
        stop = min(start + size, rows.shape[0])
        try:
            if streamed is not None:  # read once, in its own memory
                block = next(streamed)
            else:
                if slot.x is None:
                    slot.x = uninitialised((size, rows.shape[1]), rows.widened)
                block = rows.read(start, stop, out=slot.x[: stop - start])
        except OSError as error:
            raise InputError(
                f"cannot read {rows.name}: {error.strerror or error}: copy it to a disk that works"
            ) from error
        slot = yield block


class _Gate(io.BufferedIOBase):
    """The file, until something goes wrong: then what a writer still writes to end its own structures goes nowhere.

    A zip or Parquet file that is left open would be ended when it is freed, after the file under it is closed.
    """

    def __init__(self, handle: IO[bytes]) -> None:
        self._handle, self._shut, self._at = handle, False, 0

    def shut(self) -> None:
        """Let nothing through any more."""
        self._at, self._shut = self._handle.tell(), True

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        if not self._shut:
            return self._handle.write(data)
        self._at += memoryview(data).nbytes
        return memoryview(data).nbytes

    def tell(self) -> int:
        return self._at if self._shut else self._handle.tell()

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if not self._shut:
            return self._handle.seek(offset, whence)
        self._at = offset if whence == io.SEEK_SET else self._at + offset
        return self._at

    def flush(self) -> None:
        if not self._shut:
            self._handle.flush()

    def fileno(self) -> int:
        return self._handle.fileno()


@contextmanager
def _shut_on_error(gate: _Gate) -> Iterator[_Gate]:
    try:
        yield gate
    except BaseException:
        gate.shut()
        raise


@contextmanager
def _ended(writer: Writer) -> Iterator[Writer]:
    """The writer, closed at the end; after an error the file under it takes nothing more, and neither does it say anything."""
    yield writer
    writer.close()


class _Output:
    """Blocks checked, rounded to what is stored, and written. The system is told early to bring them to the disk."""

    def __init__(self, handle: _Gate, writer: Writer, plan: Plan, rows: Rows) -> None:
        self._handle, self._writer, self._rows, self._stored = handle, writer, rows, plan.stored
        self._largest = torch.finfo(plan.stored).max
        self._flushed = 0

    def write(self, y: Tensor) -> None:
        low, high = torch.aminmax(y)
        if not (float(low) >= -self._largest and float(high) <= self._largest):  # NaN is in no order
            raise self._unfit()
        self._writer.write(y.to(self._stored))
        self._flush_early()

    def _unfit(self) -> InputError:
        bad = nonfinite_rows(self._rows)
        if len(bad):
            return InputError(
                f"expected finite rows, got {len(bad)} of {self._rows.shape[0]} with NaN or inf in {self._rows.name} (the first is row "
                f"{int(bad[0])}): mend or drop them first"
            )
        return InputError(
            f"expected numbers that {str(self._stored).removeprefix('torch.')} can hold, got larger ones from {self._rows.name}: "
            "convert the rows to a wider dtype first"
        )

    def _flush_early(self) -> None:
        """Writing back begins now and not at the end, where everybody would wait for all of it."""
        at = self._handle.tell()
        if at - self._flushed >= _FLUSHED_BYTES and hasattr(os, "posix_fadvise"):
            self._handle.flush()
            with suppress(OSError):
                os.posix_fadvise(
                    self._handle.fileno(), self._flushed, at - self._flushed, os.POSIX_FADV_DONTNEED
                )
            self._flushed = at


class Digest:
    """The sha256 of rows as `Fitted` has it, block by block."""

    def __init__(self) -> None:
        self._found = hashlib.sha256()

    def update(self, block: Tensor) -> None:
        """The next rows, float32 or float64."""
        x = block.numpy()
        if sys.byteorder == "big":
            x = x.astype(x.dtype.newbyteorder("<"))
        self._found.update(np.ascontiguousarray(x).reshape(-1).view(np.uint8).data)

    def hexdigest(self) -> str:
        """Of all rows so far."""
        return self._found.hexdigest()
