"""Which rows of a matrix make up which cloud, and which bars belong to it."""

from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np
import torch

from uncone.rows import as_numbers
from uncone.rows.samples import whole_as_float64
from uncone.tensors import of_array

Tensor = torch.Tensor
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


@dataclass(frozen=True)
class Clouds:
    """Clouds of `sizes` among `points` (N, D), one after another in `order` (N,), by default by row."""

    points: Tensor
    sizes: list[int]
    order: Tensor | None = None

    @cached_property
    def offsets(self) -> list[int]:
        return [0, *accumulate(self.sizes)]

    @cached_property
    def bars(self) -> list[int]:
        return [max(size - 1, 0) for size in self.sizes]

    @cached_property
    def first_bars(self) -> list[int]:
        return [0, *accumulate(self.bars)][:-1]

    def bar_counts(self) -> Tensor:
        if len(set(self.sizes)) == 1:  # a CUDA graph captures no copies
            return torch.full((len(self.sizes),), self.bars[0], dtype=torch.int64, device=self.points.device)
        return torch.tensor(self.bars, dtype=torch.int64, device=self.points.device)

    def in_turn(self, batch: list[int]) -> bool:
        """Whether clouds in ascending order have equal sizes and are adjacent: a CUDA graph captures no copies."""
        return self.order is None and len(set(self.sizes)) == 1 and batch[-1] - batch[0] == len(batch) - 1

    def padded(self, batch: list[int]) -> tuple[Tensor, Tensor | None]:
        """Rows of clouds (B, n), the last repeated, and which of them count (B, n): None if `in_turn`."""
        size, device = max(self.sizes[c] for c in batch), self.points.device
        turn = torch.arange(size, device=device).expand(len(batch), size)
        if self.in_turn(batch):
            first = torch.arange(batch[0], batch[0] + len(batch), device=device)
            return first[:, None] * size + turn, None
        begins, sizes = torch.tensor([[self.offsets[c], self.sizes[c]] for c in batch], device=device).T[..., None]
        rows = begins + torch.minimum(turn, sizes - 1)
        return rows if self.order is None else self.order[rows], turn < sizes


def floats(x: Any) -> Any:
    """An array or a list as a tensor; anything else unchanged, to be refused."""
    if isinstance(x, list | tuple) and any(isinstance(row, Tensor) for row in x):
        with suppress(TypeError, RuntimeError):  # `as_numbers` reports what is wrong with other lists
            x = torch.stack([torch.as_tensor(row) for row in x])  # keeps the gradient
    return of_array(as_numbers(x)) if isinstance(x, np.ndarray | list | tuple) else x


def whole_as_floats(x: Any) -> Any:
    """A tensor of whole numbers in float64; anything else unchanged."""
    whole = whole_as_float64(x, "tensor")
    return x if whole is x else of_array(whole).to(x.device)


def integers(x: Any) -> Any:
    """The same of whole numbers."""
    try:
        return torch.from_numpy(np.array(x, order="C")) if isinstance(x, np.ndarray | list | tuple) else x
    except (TypeError, ValueError):
        return x


def kind(value: object) -> str:
    return f"{tuple(value.shape)} of {value.dtype}" if isinstance(value, Tensor) else type(value).__name__


def group_of_each(bars: Tensor, count: int) -> Tensor:
    """(count,) the group of each number, for groups of sizes `bars` in turn. Never waits for the device."""
    return torch.repeat_interleave(torch.arange(len(bars), device=bars.device), bars, output_size=count)


def place_of_each(bars: Tensor, group: Tensor) -> Tensor:
    return torch.arange(len(group), device=group.device) - (bars.cumsum(0) - bars)[group]
