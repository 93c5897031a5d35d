"""Who a transformation was fitted on: the digest of rows, taken in the pass that reads them."""

import hashlib
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import PurePath
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from uncone.records.fitted import Fitted
from uncone.rows import GRID, DerivedRows, Rows

__all__ = ["IN_THE_MOMENTS", "DigestedRows", "Fitted", "digest", "fitted_on", "shared_name"]

IN_THE_MOMENTS = "in the moments"
"""`Fitted.weights` where weighted sums came without their weights."""


class DigestedRows(DerivedRows):
    """`rows`, whose sha256 is known once `blocks` has run to its end.

    Each block is digested on a thread of its own while it is in use: hashlib lets go of the interpreter's
    lock.
    """

    def __init__(self, rows: Rows) -> None:
        super().__init__(rows)
        self.sha256: str | None = None

    def read(self, start: int, stop: int, out: torch.Tensor | None = None) -> torch.Tensor:
        return self._rows.read(start, stop, out=out)

    def blocks(self, size: int = GRID) -> Iterator[torch.Tensor]:
        found = hashlib.sha256()
        with ThreadPoolExecutor(1, thread_name_prefix="uncone-digest") as pool:
            for block in self._rows.blocks(size):
                box = [block]

                def add(box: list[torch.Tensor] = box) -> None:
                    # The worker may hold this job longer than the caller waits for it: it must not hold the block.
                    found.update(_bytes(box.pop().numpy()))

                job = pool.submit(add)
                yield block
                job.result()
                del block
        self.sha256 = found.hexdigest()


def digest(rows: Rows) -> str:
    """The sha256 of `rows` as `Fitted` has it; reads them once."""
    digested = DigestedRows(rows)
    for block in digested.blocks():
        del block
    assert digested.sha256 is not None
    return digested.sha256


def fitted_on(rows: DigestedRows, weights: Any = None) -> Fitted:
    """The record of `rows`, read to their end, and of the weights (N,) that they counted with."""
    return Fitted(
        shared_name(rows.name),
        *rows.shape,
        rows.sha256,
        None if weights is None else _weights_digest(weights),
    )


def _weights_digest(weights: Any) -> str:
    return hashlib.sha256(
        _bytes(torch.as_tensor(weights).detach().to("cpu", torch.float64).numpy())
    ).hexdigest()


def shared_name(name: str) -> str:
    """The name of a source as a file that is passed on may hold it: at most the last two parts of a path."""
    path, mark, part = name.partition("#")
    parts = PurePath(path).parts
    return "/".join(parts[-2:]) + mark + part if len(parts) > 2 else name


def _bytes(x: npt.NDArray[np.floating[Any]]) -> memoryview:
    if sys.byteorder == "big":
        x = x.astype(x.dtype.newbyteorder("<"))
    return np.ascontiguousarray(x).reshape(-1).view(np.uint8).data
