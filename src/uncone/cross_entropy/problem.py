"""What a cross-entropy is computed of, beside the tensors that have gradients."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from uncone.cross_entropy.gates import Gates
from uncone.cross_entropy.options import CrossEntropyOptions
from uncone.cross_entropy.shard import Shard

if TYPE_CHECKING:
    from uncone.cross_entropy.sweep import Sweep

Tensor = torch.Tensor


@dataclass(frozen=True)
class Problem:
    """What is to be computed, beside the tensors that have gradients."""

    options: CrossEntropyOptions
    labels: Tensor
    """(N,)"""
    valid: Tensor
    """(N,): which targets count."""
    gates: Gates | None
    """The rare ids of the whole vocabulary, and the factors of the head's rows at hand."""
    dtype: torch.dtype
    """Of the products."""
    sweep: "type[Sweep] | None" = None
    """Another way through the targets than `Sweep`."""
    shard: Shard | None = None
    """Which rows of the head are at hand, if not all."""
    record: Callable[[Tensor, Tensor], None] | None = None
    """Takes the sums of the gradient that was held back and of all, as `Gate` says."""

    def groups(self) -> tuple[Tensor, Tensor]:
        """Row numbers of the targets that are not rare, and of those that are; every target is common without a gate."""
        if self.gates is None:
            return self.valid.nonzero().flatten(), self.valid.new_empty(0, dtype=torch.int64)
        rare = self.gates[0][torch.where(self.valid, self.labels, 0)] & self.valid
        return (self.valid & ~rare).nonzero().flatten(), rare.nonzero().flatten()
