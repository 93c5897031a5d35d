"""The gate as the loss sees it: the rare ids, two factors for each, and the share that it held back."""

from typing import Protocol, runtime_checkable

import torch

from uncone.cross_entropy.shard import Shard
from uncone.errors import InputError

Tensor = torch.Tensor
Gates = tuple[Tensor, Tensor, Tensor]
_PART = 32
"""Rows whose absolute values are held beside the chunk."""


@runtime_checkable
class Gate(Protocol):
    """Any object whose `gates()` gives (rare, g1, g2), each (V,): bool, float32, float32; 1 off `rare`.

    The gradient of target i pushes row v with the factor g1[v] where the target of i is no rare id, else
    g2[v]; the row of the target itself gets all of its gradient (Yu et al. 2022, adaptive gradient gating).

    A gate may have a method `record(gated, total)` besides. It is called once with each loss whose head wants
    a gradient, with two float64 scalars on the head's device: the sums over the targets that count of |(1 -
    G) delta| and of |delta|, delta the gradient of a target's own loss by its logits before a cap (and before
    reduction and upstream gradient). Their quotient is the share of the gradient that was held back. Ranks
    that share a head are told the sums over all of them.
    """

    def gates(self) -> Gates:
        """The gates of this step."""
        ...


def checked_gates(gate: Gate, shard: Shard, device: torch.device) -> Gates:
    """The gates on `device`: the rare ids of the whole vocabulary, the factors of this rank's rows.

    Raises:
        InputError: gates of another vocabulary, or factors that would amplify or turn a gradient.
    """
    (rare, g1, g2), vocabulary = gate.gates(), shard.total
    if rare.shape != (vocabulary,) or g1.shape != (vocabulary,) or g2.shape != (vocabulary,):
        raise InputError(
            f"expected gates for the head's {vocabulary} ids, got shapes {tuple(rare.shape)}, "
            f"{tuple(g1.shape)} and {tuple(g2.shape)}: make the gate for this vocabulary"
        )
    if rare.dtype != torch.bool:
        raise InputError(f"expected a bool tensor of rare ids, got {rare.dtype}: compare it with 0 first")
    for name, factors in (("g1", g1), ("g2", g2)):
        low, high = (float(edge) for edge in torch.aminmax(factors))
        if not 0 <= low <= high <= 1:
            raise InputError(
                f"expected {name} in [0, 1], got {low:g} to {high:g}: a factor above 1 amplifies the push, "
                "one below 0 turns it"
            )
        if not bool((factors[~rare] == 1).all()):
            raise InputError(
                f"expected {name} to be 1 for every id that is not rare, got others: gates act on rare rows "
                "only"
            )
    return rare.to(device), shard.rows(g1).to(device), shard.rows(g2).to(device)


class GatedShare:
    """Sums over targets of |delta| and |(1 - G) delta|, delta the gradient by the logits before a cap.

    G is the same for all common targets and for all rare ones, off the targets themselves; so what is kept is
    one sum a column for each of the two.
    """

    def __init__(self, gates: Gates, shard: Shard, *, signed: bool) -> None:
        self._held_back = torch.stack(gates[1:]).double().neg_().add_(1)
        self._columns = torch.zeros_like(self._held_back)
        self._of_targets = self._columns.new_zeros(())
        self._shard, self._signed = shard, signed

    def add(self, d: Tensor, at: Tensor, own: Tensor, *, rare: bool) -> None:
        """Add targets with gradients d (n, V) by the logits, their own at `at` (n, 1) where `own` (n, 1)."""
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
