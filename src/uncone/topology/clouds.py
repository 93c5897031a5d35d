"""Which rows of a matrix make up which cloud, and which bars of one flat tensor belong to it."""

from dataclasses import dataclass
from itertools import accumulate

import torch

from uncone.errors import InputError

Tensor = torch.Tensor


@dataclass(frozen=True)
class Clouds:
    """Clouds of `sizes` points: their rows one cloud after another in `order` (N,), ascending in each; None
    where that is every row in turn."""

    sizes: list[int]
    order: Tensor | None
    device: torch.device

    @property
    def offsets(self) -> list[int]:
        """Where each cloud begins in `order`, and the number of points."""
        return [0, *accumulate(self.sizes)]

    @property
    def bars(self) -> list[int]:
        """How many edges the tree of each cloud has."""
        return [max(size - 1, 0) for size in self.sizes]

    def bar_counts(self) -> Tensor:
        """`bars` as a tensor (G,) int64."""
        if len(set(self.sizes)) == 1:
            return torch.full((len(self.sizes),), self.bars[0], dtype=torch.int64, device=self.device)
        return torch.tensor(self.bars, dtype=torch.int64, device=self.device)

    def in_turn(self, batch: list[int]) -> bool:
        """Whether the clouds of a `batch`, in ascending order, are of one size and lie one after another:
        then nothing has to be copied to the device, which a CUDA graph could not capture."""
        return self.order is None and len(set(self.sizes)) == 1 and batch[-1] - batch[0] == len(batch) - 1

    def first_bars(self) -> list[int]:
        """Where the edges of each cloud begin."""
        return [0, *accumulate(self.bars)][:-1]

    def rows(self, cloud: int) -> Tensor:
        """The rows of one cloud, ascending."""
        begin = self.offsets[cloud]
        turn = torch.arange(begin, begin + self.sizes[cloud], device=self.device)
        return turn if self.order is None else self.order[turn]

    def padded(self, batch: list[int]) -> tuple[Tensor, Tensor | None]:
        """The rows of several clouds (B, n), n as many as the largest has, and which of them count (B, n);
        the others repeat the last.

        None for the second where they are `in_turn`.
        """
        size, offsets = max(self.sizes[c] for c in batch), self.offsets
        turn = torch.arange(size, device=self.device).expand(len(batch), size)
        if self.in_turn(batch):
            first = torch.arange(batch[0], batch[0] + len(batch), device=self.device)
            return first[:, None] * size + turn, None
        begins = torch.tensor([offsets[c] for c in batch], device=self.device)
        sizes = torch.tensor([self.sizes[c] for c in batch], device=self.device)
        rows = begins[:, None] + torch.minimum(turn, sizes[:, None] - 1)
        return rows if self.order is None else self.order[rows], turn < sizes[:, None]


def check_lengths(lengths: object) -> None:
    """Refuses anything but a tensor (M,) of floating point numbers, and on the CPU, where it costs no wait,
    numbers that are no lengths."""
    if not isinstance(lengths, Tensor) or lengths.ndim != 1 or not lengths.is_floating_point():
        got = (
            f"{tuple(lengths.shape)} of {lengths.dtype}"
            if isinstance(lengths, Tensor)
            else type(lengths).__name__
        )
        raise InputError(
            f"expected lengths of shape (M,) with floating point numbers, got {got}: pass Barcode.lengths"
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
    if not isinstance(bars, Tensor):
        raise InputError(
            f"expected bars as a tensor of integers, got {type(bars).__name__}: pass Barcode.bars, how many bars each group has"
        )
    if bars.ndim != 1 or bars.is_floating_point() or bars.is_complex() or bars.dtype == torch.bool:
        raise InputError(
            f"expected bars of shape (G,) with integers, got {tuple(bars.shape)} of {bars.dtype}: pass Barcode.bars, how many bars each group has"
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
    start = bars.cumsum(0) - bars
    return torch.arange(len(group), device=group.device) - start[group]
