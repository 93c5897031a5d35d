"""Keep a cloud from stretching in training: raise the persistent entropy of its bars ("Shrink the longest")."""

from dataclasses import dataclass

import torch

from uncone.errors import InputError
from uncone.prevent.labels import labelled
from uncone.topology import Barcode, barcode, persistent_entropy, prominent_bars
from uncone.topology.prominent import Convention

Tensor = torch.Tensor
FEWEST = 5
"""Points of a class; the official code fails below."""


@dataclass(frozen=True)
class EntropyStatus:
    """What a `PersistentEntropy` computed last. The tensors are detached and lie where the points lay: reading their numbers waits for the device."""

    classes: Tensor
    """(C,) the labels of the classes that were used, ascending; (1,) zero without labels."""
    entropy: Tensor
    """(C,) nats, of the bars kept."""
    kept: Tensor
    """(C,) int64, bars kept."""
    bars: Tensor
    """(C,) int64, bars in all, those of length 0 too."""
    zero: Tensor
    """(C,) int64, bars of length 0."""
    left_out: int
    """Classes with fewer than five points."""


class PersistentEntropy:
    """A penalty that shrinks the longest bars of a cloud: minus the persistent entropy of its H0 bars, summed over classes.

    loss = -sum over classes c of (weight H(kept bars of c) + length_weight mean(discarded bars of c)), where the bars of c are the edges of the Euclidean minimum
    spanning tree of its points and H is `uncone.topology.persistent_entropy`, in nats. Add it to the training loss.

    The sum is neither a mean nor weighted by size, as in the official code of "Shrink the longest" (2025): with more classes in a batch the penalty is larger.
    Classes with fewer than five points are left out and counted in `last.left_out`; points with label -100 are left out.

    Args:
        weight: of the entropy, from 0 up. The paper has no such factor, thus 1.
        select: True keeps only the prominent bars (Atienza et al. 2019), False keeps all.
        length_weight: of the mean length of the bars that the selection discards. The official code has this term, the paper has not. It is subtracted from the
            loss, so it pushes these bars UP, without bound and in the unit of the points, whatever the official text says of minimising: therefore 0 by default.
            Its default there is 0.5, its notebook's 0.05. With weight=0 it is the only term.
        convention: of the selection, see `uncone.topology.prominent_bars`.

    Raises:
        InputError: settings that are no such penalty, or points or labels of another shape or dtype.
    """

    def __init__(
        self, weight: float = 1.0, select: bool = True, *, length_weight: float = 0.0, convention: Convention = "official"
    ) -> None:
        self.weight = _not_negative(weight, "weight")
        self.length_weight = _not_negative(length_weight, "length_weight")
        if select is not True and select is not False:
            raise InputError(f"expected select True (prominent bars) or False (all bars), got {select!r}")
        if convention not in ("official", "exclusive"):
            raise InputError(f"expected convention 'official' or 'exclusive', got {convention!r}")
        if length_weight and not select:
            raise InputError(
                "expected length_weight 0 with select=False, got "
                f"{length_weight}: it weighs the bars that a selection discards, and there is none"
            )
        self.select, self.convention = select, convention
        self.last: EntropyStatus | None = None

    def __call__(self, points: Tensor, labels: Tensor | None = None) -> Tensor:
        """The penalty, a scalar, of points (N, D) with labels (N,) of integers; None is one cloud."""
        with torch.autocast(points.device.type, enabled=False):
            x = points if points.dtype == torch.float64 else points.float()
            kept, groups, left_out = _large_enough(*labelled(x, labels))
            if len(kept) == 0:
                self.last = _nothing(x, left_out)
                return kept.sum()  # 0, and a gradient of zeros
            return self._loss(barcode(kept, groups), left_out)

    def _loss(self, found: Barcode, left_out: int) -> Tensor:
        entropies, kept, loss = list[Tensor](), list[int](), found.lengths.new_zeros(())
        for lengths in found.split():
            k = prominent_bars(lengths, convention=self.convention) if self.select else len(lengths)
            chosen, rest = lengths[len(lengths) - k :], lengths[: len(lengths) - k]
            entropy = persistent_entropy(chosen)
            loss = loss - self.weight * entropy
            if self.length_weight:
                rest = rest[rest > 0]
                loss = loss - self.length_weight * rest.sum() / max(len(rest), 1)
            entropies.append(entropy.detach())
            kept.append(k)
        self.last = EntropyStatus(
            found.labels, torch.stack(entropies), torch.tensor(kept, dtype=torch.int64), found.bars, found.zero, left_out
        )
        return loss


def _nothing(x: Tensor, left_out: int) -> EntropyStatus:
    none = torch.empty(0, dtype=torch.int64, device=x.device)
    return EntropyStatus(none, x.new_empty(0).detach(), none, none, none, left_out)


def _large_enough(x: Tensor, groups: Tensor | None) -> tuple[Tensor, Tensor | None, int]:
    """The points of classes with at least five, and how many classes have fewer."""
    if groups is None:
        if len(x) >= FEWEST:
            return x, None, 0
        return x[:0], torch.empty(0, dtype=torch.int64, device=x.device), int(len(x) > 0)
    _, inverse, counts = torch.unique(groups, return_inverse=True, return_counts=True)
    enough = (counts >= FEWEST)[inverse]
    return x[enough], groups[enough], int((counts < FEWEST).sum())


def _not_negative(value: float, name: str) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < float("inf"):
        raise InputError(f"expected {name} from 0 up, got {value!r}: a negative one would lower the entropy")
    return float(value)
