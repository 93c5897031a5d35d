"""Which rows of a matrix make up which cloud, and which bars of one flat tensor belong to it."""

from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import torch

from uncone.errors import InputError

Tensor = torch.Tensor
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


@dataclass(frozen=True)
class Clouds:
    """Clouds of `sizes` among `points` (N, D): their rows one cloud after another in `order` (N,), ascending in
    each; None where that is every row in turn."""

    points: Tensor
    sizes: list[int]
    order: Tensor | None = None

    @cached_property
    def offsets(self) -> list[int]:
        """Where each cloud begins in `order`, and the number of points."""
        return [0, *accumulate(self.sizes)]

    @cached_property
    def bars(self) -> list[int]:
        """How many edges the tree of each cloud has."""
        return [max(size - 1, 0) for size in self.sizes]

    @cached_property
    def first_bars(self) -> list[int]:
        """Where the edges of each cloud begin."""
        return [0, *accumulate(self.bars)][:-1]

    def bar_counts(self) -> Tensor:
        """`bars` as a tensor (G,) int64."""
        device = self.points.device
        if len(set(self.sizes)) == 1:
            return torch.full((len(self.sizes),), self.bars[0], dtype=torch.int64, device=device)
        return torch.tensor(self.bars, dtype=torch.int64, device=device)

    def in_turn(self, batch: list[int]) -> bool:
        """Whether the clouds of a `batch`, in ascending order, are of one size and lie one after another:
        then nothing has to be copied to the device, which a CUDA graph could not capture."""
        return self.order is None and len(set(self.sizes)) == 1 and batch[-1] - batch[0] == len(batch) - 1

    def padded(self, batch: list[int]) -> tuple[Tensor, Tensor | None]:
        """The rows of several clouds (B, n), n as many as the largest has, and which of them count (B, n);
        the others repeat the last. None for the second where they are `in_turn`."""
        size, device = max(self.sizes[c] for c in batch), self.points.device
        turn = torch.arange(size, device=device).expand(len(batch), size)
        if self.in_turn(batch):
            first = torch.arange(batch[0], batch[0] + len(batch), device=device)
            return first[:, None] * size + turn, None
        begins, sizes = torch.tensor([[self.offsets[c], self.sizes[c]] for c in batch], device=device).T[
            ..., None
        ]
        rows = begins + torch.minimum(turn, sizes - 1)
        return rows if self.order is None else self.order[rows], turn < sizes


def kind(value: object) -> str:
    """Shape and dtype of a tensor, or the type of anything else, for messages."""
    return f"{tuple(value.shape)} of {value.dtype}" if isinstance(value, Tensor) else type(value).__name__


def check_lengths(lengths: object) -> None:
    """Refuses anything but a tensor (M,) of floating point numbers, and on the CPU, where it costs no wait,
    numbers that are no lengths."""
    if not isinstance(lengths, Tensor) or lengths.ndim != 1 or not lengths.is_floating_point():
        raise InputError(
            f"expected lengths of shape (M,) with floating point numbers, got {kind(lengths)}: pass Barcode.lengths"
        )
    if lengths.device.type == "cpu" and len(lengths):
        least, most = (float(end) for end in torch.aminmax(lengths.detach()))
        if not 0 <= least <= most < torch.inf:
            wrong = next(one for one in lengths.tolist() if not 0 <= one < torch.inf)
            raise InputError(
                f"expected lengths that are finite and at least 0, got {wrong:g}: pass the lengths of a barcode"
            )


def check_bars(bars: object, count: int) -> None:
    """Refuses `bars` that do not cut `count` numbers into groups; the values are looked at on the CPU only,
    where it costs no wait."""
    if not isinstance(bars, Tensor) or bars.ndim != 1 or bars.dtype not in INTEGERS:
        raise InputError(
            f"expected bars of shape (G,) with integers, got {kind(bars)}: pass Barcode.bars, how many bars each group has"
        )
    if bars.device.type == "cpu" and (int(bars.sum()) != count or (len(bars) and int(bars.min()) < 0)):
        raise InputError(
            f"expected bars that are at least 0 and sum to the number of lengths, {count}, got a sum of {int(bars.sum())}: "
            "pass the lengths and the bars of one Barcode"
        )


def group_of_each(bars: Tensor, count: int) -> Tensor:
    """(count,) which group each number belongs to, for groups of sizes `bars` that lie one after another.
    Never waits for the device."""
    return torch.repeat_interleave(torch.arange(len(bars), device=bars.device), bars, output_size=count)


def place_of_each(bars: Tensor, group: Tensor) -> Tensor:
    """(count,) the place of each number inside its group, from 0."""
    return torch.arange(len(group), device=group.device) - (bars.cumsum(0) - bars)[group]
