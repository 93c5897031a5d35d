"""Means over the steps and micro-batches since the last log, kept on the device."""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import distributed as dist

from uncone.training.loss.stats import CrossEntropyStats

Tensor = torch.Tensor
OF_LOSS = ("cross_entropy", "z_loss", "accuracy", "logsumexp", "largest_logsumexp")


class Means:
    """Means over the targets of losses, and means of the named values of each micro-batch."""

    def __init__(self, names: Sequence[str], device: torch.device, of_loss: Sequence[str] = OF_LOSS) -> None:
        self._of_loss, self._names, self._start = (
            of_loss,
            names,
            torch.zeros(7 + len(names), dtype=torch.float64, device=device),
        )
        self._start[5] = -torch.inf
        self._kept = self._start  # the stats' numbers, a value for each name, and the number of micro-batches
        self._followers: list[Means] = []

    def followed(self) -> "Means":
        """Other means of the same numbers from now on, which are read separately."""
        self._followers.append(Means(self._names, self._start.device, self._of_loss))
        return self._followers[-1]

    def clear(self) -> None:
        """Forget all numbers so far, without waiting for the device."""
        self._kept = self._start

    def add(self, numbers: Tensor | None, values: Tensor | None) -> None:
        """Add the `numbers` of a loss's stats, and a value (n,) for each of the names."""
        device = (self._start if numbers is None else numbers).device
        device = device if values is None else values.device
        one = self._start.new_ones(1, device=device)
        values = one[:0] if values is None else values.detach().double()
        numbers = self._start[:6].to(device) if numbers is None else numbers.detach()
        self._kept = _joined(self._kept.to(device), torch.cat([numbers, values, one]))
        for follower in self._followers:
            follower._kept = _joined(follower._kept.to(device), torch.cat([numbers, values, one]))

    def take(self, *, across_ranks: bool = True) -> dict[str, float]:
        """The means since the last call, over all ranks, which must all call it, or of this rank alone; NaN where a
        loss was NaN."""
        kept, self._kept = self._kept, self._start
        if across_ranks and dist.is_available() and dist.is_initialized():
            kept = kept.to("cuda" if "nccl" in str(dist.get_backend()) else kept.device)
            parts = [torch.empty_like(kept) for _ in range(dist.get_world_size())]
            dist.all_gather(parts, kept)
            kept = parts[0]
            for part in parts[1:]:
                kept = _joined(kept, part)
        kept = kept.cpu()
        stats, micro_batches = CrossEntropyStats(kept[:6]), float(kept[-1])
        found = {name: float(getattr(stats, name)) for name in self._of_loss if float(kept[0]) > 0}
        found |= {
            name: float(x) / micro_batches for name, x in zip(self._names, kept[6:], strict=False) if micro_batches
        }
        return found


def _joined(a: Tensor, b: Tensor) -> Tensor:
    both = a + b
    return torch.cat([both[:5], torch.maximum(a[5:6], b[5:6]), both[6:]])


def names_of(penalties: Iterable[Any]) -> list[str]:
    """The name of each penalty's class or function; a repeated name gets a number."""
    found: list[str] = []
    for penalty in penalties:
        name = str(getattr(penalty, "__name__", type(penalty).__name__))
        same = sum(one.partition(" ")[0] == name for one in found)
        found.append(f"{name} {same + 1}" if same else name)
    return found
