"""The gate as the loss sees it: which ids are rare, and two factors for the gradient that pushes each of them."""

from typing import Protocol, runtime_checkable

import torch

from uncone.cross_entropy.shard import Shard
from uncone.errors import InputError

Tensor = torch.Tensor
Gates = tuple[Tensor, Tensor, Tensor]


@runtime_checkable
class Gate(Protocol):
    """Any object whose `gates()` gives (rare, g1, g2), each of shape (V,): bool, float32, float32, the factors 1 off `rare`.

    The gradient of target i pushes row v with the factor g1[v] where the target of i is no rare id, else g2[v]; the row
    of the target itself gets all of its gradient (Yu et al. 2022, adaptive gradient gating).

    A gate may have a method `record(gated, total)` besides. It is called once with each loss whose head wants a gradient, with
    two float64 scalars on the head's device: the sums over the targets that count of |(1 - G) delta| and of |delta|, delta the gradient
    of a target's own loss by its logits before a cap (and before reduction and upstream gradient). Their quotient is
    the share of the gradient that was held back. Ranks that share a head are told the sums over all of them.
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
            f"expected gates for the head's {vocabulary} ids, got shapes {tuple(rare.shape)}, {tuple(g1.shape)} and "
            f"{tuple(g2.shape)}: make the gate for this vocabulary"
        )
    if rare.dtype != torch.bool:
        raise InputError(f"expected a bool tensor of rare ids, got {rare.dtype}: compare it with 0 first")
    for name, factors in (("g1", g1), ("g2", g2)):
        low, high = (float(edge) for edge in torch.aminmax(factors))
        if not 0 <= low <= high <= 1:
            raise InputError(
                f"expected {name} in [0, 1], got {low:g} to {high:g}: a factor above 1 amplifies the push, one below 0 turns it"
            )
        if not bool((factors[~rare] == 1).all()):
            raise InputError(
                f"expected {name} to be 1 for every id that is not rare, got others: gates act on rare rows only"
            )
    return rare.to(device), shard.rows(g1).to(device), shard.rows(g2).to(device)
