"""How much of the gradient by the logits a gate held back."""

import torch

from uncone.cross_entropy.gates import Gates
from uncone.cross_entropy.shard import Shard

Tensor = torch.Tensor
_PART = 32
"""Rows whose absolute values are held beside the chunk."""


class GatedShare:
    """Sums over targets of |delta|, and of |(1 - G) delta|, delta the gradient of a target's loss by its logits before a cap.

    G is the same for all common targets and for all rare ones, off the targets themselves; so what is kept is one sum a
    column for each of the two.
    """

    def __init__(self, gates: Gates, shard: Shard, *, signed: bool) -> None:
        self._held_back = torch.stack(gates[1:]).double().neg_().add_(1)
        self._columns = torch.zeros_like(self._held_back)
        self._of_targets = self._columns.new_zeros(())
        self._shard, self._signed = shard, signed

    def add(self, d: Tensor, at: Tensor, own: Tensor, *, rare: bool) -> None:
        """Add targets with the gradients d (n, V) by the logits, the targets' own at `at` (n, 1) where they are `own` (n, 1)."""
        of_targets = torch.where(own, d.gather(1, at), 0.0).flatten()
        self._of_targets += of_targets.abs().sum(dtype=torch.float64)
        if self._signed:
            columns, of_targets = _absolute_columns(d), of_targets.abs()
        else:  # off the targets these are probabilities: a pass for their signs is saved
            columns = d.sum(dim=0, dtype=torch.promote_types(d.dtype, torch.float32)).double()
        self._columns[int(rare)] += columns.index_add_(0, at.flatten(), -of_targets.double())

    def sums(self) -> tuple[Tensor, Tensor]:
        """(held back, all), float64 scalars."""
        held_back, total = self._shard.sum(
            torch.stack([(self._held_back * self._columns).sum(), self._columns.sum() + self._of_targets])
        )
        return held_back, total


def _absolute_columns(d: Tensor) -> Tensor:
    columns = torch.zeros(d.shape[1], dtype=torch.float64, device=d.device)
    for part in torch.split(d, _PART):
        columns += part.abs().sum(dim=0, dtype=torch.promote_types(d.dtype, torch.float32))
    return columns
