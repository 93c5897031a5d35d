"""Which rows of a matrix make up which cloud."""

from dataclasses import dataclass
from itertools import accumulate

import torch

Tensor = torch.Tensor


@dataclass(frozen=True)
class Clouds:
    """Clouds of `sizes` points: their rows one cloud after another in `order` (N,), ascending in each; None where that is every row in turn."""

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
        if len(set(self.sizes)) == 1:  # no copy from the host, which a CUDA graph could not capture
            return torch.full((len(self.sizes),), self.bars[0], dtype=torch.int64, device=self.device)
        return torch.tensor(self.bars, dtype=torch.int64, device=self.device)

    def first_bars(self) -> list[int]:
        """Where the edges of each cloud begin."""
        return [0, *accumulate(self.bars)][:-1]

    def rows(self, cloud: int) -> Tensor:
        """The rows of one cloud, ascending."""
        begin = self.offsets[cloud]
        turn = torch.arange(begin, begin + self.sizes[cloud], device=self.device)
        return turn if self.order is None else self.order[turn]

    def padded(self, clouds: list[int], size: int) -> tuple[Tensor, Tensor]:
        """The rows of several clouds (B, size), and which of them count (B, size); the others repeat the last."""
        offsets = self.offsets
        begins = torch.tensor([offsets[c] for c in clouds], device=self.device)
        sizes = torch.tensor([self.sizes[c] for c in clouds], device=self.device)
        turn = torch.arange(size, device=self.device).expand(len(clouds), size)
        rows = begins[:, None] + torch.minimum(turn, sizes[:, None] - 1)
        return rows if self.order is None else self.order[rows], turn < sizes[:, None]
