"""Keep a cloud round in training: raise the persistent entropy of its bars ("Shrink the longest")."""

from dataclasses import dataclass
from numbers import Real

import torch

from uncone.errors import InputError
from uncone.training.bars.barcode import Barcode, barcode, check_rows
from uncone.training.bars.bars import Convention, check_convention, persistent_entropy, prominent_mask
from uncone.training.cloud import labelled

Tensor = torch.Tensor
FEWEST = 5  # points of a class; the official code fails below


@dataclass(frozen=True)
class EntropyStatus:
    """The last results of a `PersistentEntropy`, detached, on the points' device: reading them waits for it. C classes
    were used; without labels all points are one class, labelled 0."""

    classes: Tensor  # (C,) their labels, ascending
    entropy: Tensor  # (C,) nats, of the bars kept
    kept: Tensor  # (C,) int64, bars kept, none of length 0
    bars: Tensor  # (C,) int64, all bars: the number of points less one
    zero: Tensor  # (C,) int64, bars of length 0, which have no effect: each is a repeated point
    left_out: Tensor  # scalar int64, classes with fewer than five points


class PersistentEntropy:
    """A penalty on long bars for the training loss: minus the persistent entropy of each class's H0 bars.

        loss = -sum over classes c of (weight H(kept bars of c) + length_weight mean length of the others)

    The bars of c are the edges of the Euclidean minimum spanning tree of its points, and H is
    `uncone.persistent_entropy`, in nats. A step against the gradient shortens every kept bar that is longer than
    exp(-H) times their sum, and stretches the others.

    As in the code of "Shrink the longest", the penalty is a sum over classes and not a mean, so more classes in a batch
    make a larger penalty. Left out are points labelled -100, and classes with fewer than five points, which
    `last.left_out` counts. Points that are all alike have penalty 0 and gradient 0. Computed in float32 at least, also
    under autocast. On a GPU the host waits for the labels; without labels only to check that the points are finite.

    Args:
        weight: of the entropy, from 0 up. The paper has no such factor.
        select: True keeps only the prominent bars (`uncone.prominent_bars`), False keeps all.
        length_weight: of the mean length of the bars that the selection discards. The official code has this term, with
            0.5 and in its notebook 0.05; the paper does not. It is off here because it pushes those bars UP, without
            bound and in the unit of the points, although the official text says that it minimises them.
        convention: of the selection.

    InputError for settings out of range; when called, for points or labels of another shape or dtype, or used points
    that are not finite.
    """

    def __init__(
        self,
        weight: float = 1.0,
        select: bool = True,
        *,
        length_weight: float = 0.0,
        convention: Convention = "official",
    ) -> None:
        for name, value in (("weight", weight), ("length_weight", length_weight)):
            if not isinstance(value, Real) or isinstance(value, bool) or not 0 <= float(value) < float("inf"):
                raise InputError(f"expected {name} to be a number from 0 up, got {value!r}: give 0 or more")
        self.weight, self.length_weight = float(weight), float(length_weight)
        if select is not True and select is not False:
            raise InputError(f"expected select True (prominent bars) or False (all bars), got {select!r}")
        check_convention(convention)
        if length_weight and not select:
            got = "got False: it applies only to discarded bars"
            raise InputError(f"expected select=True for length_weight {length_weight}, {got}")
        self.select, self.convention = select, convention
        self.last: EntropyStatus | None = None

    def __repr__(self) -> str:
        more = f"length_weight={self.length_weight:g}, convention={self.convention!r}"
        return f"PersistentEntropy({self.weight:g}, {self.select}, {more})"

    def __call__(self, points: Tensor, labels: Tensor | None = None) -> Tensor:
        """The penalty, a scalar, of points (N, D) with labels (N,) of integers; None is one cloud."""
        used, groups, left_out, largest = _large_enough(*labelled(points, labels))
        with torch.autocast(used.device.type, enabled=False):
            if len(used) == 0:
                none = torch.empty(0, dtype=torch.int64, device=used.device)
                self.last = EntropyStatus(none, none.float(), none, none, none, left_out)
                return used.float().sum()  # 0, and a gradient of zeros
            try:
                bars = barcode(used, groups)
            except InputError:
                _check_rows(points, labels)
                raise
            lengths = bars.lengths.detach()
            kept = lengths > 0
            if self.select:
                kept = prominent_mask(lengths, bars.bars, convention=self.convention, width=largest - 1)
            entropy = persistent_entropy(torch.where(kept, bars.lengths, 0), bars.bars)
            sums = _sums(kept.long(), bars)
            self.last = EntropyStatus(bars.labels, entropy.detach(), sums, bars.bars, bars.zero, left_out)
            loss = -self.weight * entropy.sum()
            if self.length_weight:
                others = ~kept & (lengths > 0)  # bars of length 0 count for nothing
                sums = _sums(torch.where(others, bars.lengths, 0), bars)
                loss = loss - self.length_weight * (sums / _sums(others.long(), bars).clamp_min(1)).sum()
            return loss


def _sums(values: Tensor, bars: Barcode) -> Tensor:
    return values.new_zeros(len(bars.bars)).index_add(0, bars.group, values)


def _large_enough(x: Tensor, groups: Tensor | None) -> tuple[Tensor, Tensor | None, Tensor, int]:
    """The points of classes with at least five, the number of others, and the largest class's size."""
    left_out, largest = int(0 < len(x) < FEWEST), len(x)
    if groups is not None:
        _, inverse, counts = torch.unique(groups, return_inverse=True, return_counts=True)
        sizes = counts.tolist()
        left_out, largest = sum(size < FEWEST for size in sizes), max(sizes, default=0)
        if left_out:
            enough = (counts >= FEWEST)[inverse]
            x, groups = x[enough], groups[enough]
    elif left_out:
        x = x[:0]
    # No copy from the host, which a CUDA graph refuses.
    return x, groups, torch.full((), left_out, dtype=torch.int64, device=x.device), largest


def _check_rows(points: Tensor, labels: Tensor | None) -> None:
    """Refuse used points that are not finite, by their rows in `points`: a barcode counts only the used points."""
    turn = torch.arange(len(points), dtype=torch.float64, device=points.device)
    rows = _large_enough(*labelled(turn[:, None], labels))[0][:, 0].long()
    finite = torch.ones(len(points), dtype=torch.bool, device=points.device)
    finite[rows] = torch.isfinite(points[rows]).all(1)
    check_rows(finite)
