"""The rows of a head that this rank holds, and sums over the ranks where the vocabulary is cut over them."""

from dataclasses import dataclass

import torch
from torch.distributed import ProcessGroup

from uncone.errors import InputError

Tensor = torch.Tensor


@dataclass(frozen=True)
class Shard:
    """Rows `start` to `stop` of a head of `total` rows.

    Without a group they are all rows, and sums go to no other rank.
    """

    group: ProcessGroup | None
    start: int
    stop: int
    total: int
    largest: int
    """Rows of the rank that holds the most: what sizes are to follow that must be alike on every rank."""

    def rows(self, of_vocabulary: Tensor) -> Tensor:
        """Those (V here,) of this rank, of a vector of the whole vocabulary."""
        return of_vocabulary[self.start : self.stop]

    def place(self, labels: Tensor) -> tuple[Tensor, Tensor]:
        """The rows of `labels` here, and whether they are here; elsewhere the row means nothing."""
        here = labels - self.start
        return here.clamp(0, self.stop - self.start - 1), (here >= 0) & (labels < self.stop)

    def sum(self, x: Tensor) -> Tensor:
        """The sum of x over the ranks, in its place; equal to the bit on all of them."""
        if self.group is not None:
            torch.distributed.all_reduce(x, group=self.group)
        return x

    def highest(self, x: Tensor) -> Tensor:
        """The same with the largest of the ranks."""
        if self.group is not None:
            torch.distributed.all_reduce(x, op=torch.distributed.ReduceOp.MAX, group=self.group)
        return x

    def log_sum(self, own: Tensor) -> Tensor:
        """The logarithm of the sum of exp(own) over the ranks."""
        if self.group is None:
            return own
        highest = self.highest(own.clone())
        return highest + self.sum((own - highest).exp_()).log_()


def shard_of(weight: Tensor, group: ProcessGroup | None) -> Shard:
    """Where the rows of this rank's `weight` stand: slices follow each other in the order of their ranks.

    Raises:
        InputError: a rank without rows, or outside of the group.
    """
    rows = weight.shape[0]
    return Shard(None, 0, rows, rows, rows) if group is None else _exchange(weight, group)


@torch.compiler.disable  # type: ignore[untyped-decorator]
def _exchange(weight: Tensor, group: ProcessGroup) -> Shard:
    rank = torch.distributed.get_rank(group)
    if rank < 0:
        raise InputError(
            "expected a process of the group that holds the head, got one outside: call the loss on its "
            "ranks only"
        )
    counts = torch.zeros(torch.distributed.get_world_size(group), dtype=torch.int64, device=weight.device)
    counts[rank] = weight.shape[0]
    torch.distributed.all_reduce(counts, group=group)
    rows = counts.tolist()
    if 0 in rows:
        raise InputError(
            f"expected rows of the head on every rank, got none on rank {rows.index(0)}: use fewer ranks"
        )
    start = sum(rows[:rank])
    return Shard(group, start, start + rows[rank], sum(rows), max(rows))
