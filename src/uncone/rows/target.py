"""What a writer is given: where the rows come from, and the file that is to be written."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

import torch

from uncone.errors import InputError
from uncone.rows.base import DTYPES, Rows


@dataclass(frozen=True)
class Source:
    """The rows that are read, and the part of a file that they are, if its format is written too."""

    rows: Rows
    format: str | None = None
    path: Path | None = None
    part: str | None = None


@dataclass(frozen=True)
class Target:
    """The file to write: `shape` (N, K) of `dtype` in `format`, named `part` where the format has names."""

    path: Path
    format: str
    part: str
    shape: tuple[int, int]
    dtype: str
    notes: tuple[str, ...] = ()
    """What the user is told about it: rounding, and what is left out."""

    @property
    def stored(self) -> torch.dtype:
        """The dtype of the tensors that the writer is given."""
        return DTYPES[self.dtype]

    def check_free(self, names: Iterable[str]) -> None:
        """Raise InputError where something else that is written with the rows has their name."""
        if self.part in names:
            raise InputError(
                f"expected a name that is free, got {self.path.name}#{self.part}, which the source has too: choose another"
            )


@runtime_checkable
class Writer(Protocol):
    """Takes the rows in order."""

    def write(self, rows: torch.Tensor) -> None:
        """The next rows, (any number, K), in the target's dtype. They may change once this returns."""

    def close(self) -> None:
        """Write what follows the last row."""


def raw_bytes(x: torch.Tensor) -> memoryview:
    """The numbers of a contiguous tensor as they lie in memory."""
    return x.reshape(-1).view(torch.uint8).numpy().data
