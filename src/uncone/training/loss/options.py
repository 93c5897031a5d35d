"""The options of a cross-entropy."""

import math
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

from torch import Tensor
from torch.distributed import ProcessGroup

from uncone.arguments import shown
from uncone.errors import InputError

REDUCTIONS = ("mean", "sum", "none")
BACKENDS = ("chunk", "triton", "wrap:liger", "wrap:cce", "wrap:torch")


@dataclass(frozen=True)
class CrossEntropyOptions:
    """Logits are z = cap tanh((scale h W' + bias) / cap), without the cap where `softcap` is None. InputError where a
    value is out of its range."""

    ignore_index: int | None = -100
    """Targets with this label have no loss, no gradient and no share in the mean; None ignores none."""
    label_smoothing: float = 0.0  # E in [0, 1]: the target distribution is (1 - E) one-hot + E / V
    z_loss: float = 0.0  # L >= 0: adds L lse(z)^2 to each target's loss (PaLM; Liger calls it lse_square_scale)
    softcap: float | None = None
    logit_scale: float = 1.0
    reduction: str = "mean"  # "mean", "sum" or "none"
    num_items: float | Tensor | None = None
    """The divisor of "mean", if not the number of targets in this call: the targets of all micro-batches or ranks; 0
    gives 0. A tensor of one number is read here, which on a GPU waits for it."""
    chunk: int | None = None  # targets whose logits are held at once; by default as many as fit a bounded buffer
    backend: str = "chunk"  # "chunk", "triton", or another package's kernel, "wrap:liger", "wrap:cce" or "wrap:torch"
    group: ProcessGroup | None = None  # ranks over which a head is sharded by rows

    def __post_init__(self) -> None:
        for name, known in (("reduction", REDUCTIONS), ("backend", BACKENDS)):
            if not isinstance(chosen := getattr(self, name), str) or chosen not in known:
                raise InputError(f"expected a {name} among {', '.join(known)}, got {shown(chosen)}: use one of them")
        if self.group is not None and self.backend != "chunk":
            got = f"got {self.backend!r}: the others need the whole head"
            raise InputError(f"expected the backend 'chunk' with a group, {got}")
        for name, kind, fits, wanted, how in _NUMBERS:
            value: Any = getattr(self, name)
            if value is None and name in _OPTIONAL:
                continue
            if not isinstance(value, kind) or not -_LARGEST < value < _LARGEST:
                what = "a whole number" if kind is Integral else "a number"
                raise InputError(f"expected {what} for {name}, got {str(value)[:40]!r}: give one below 2^63")
            if not fits(value):
                raise InputError(f"expected {name} {wanted}, got {value}: {how}")
        if self.num_items is not None and self.reduction != "mean":
            raise InputError(f"expected num_items with reduction 'mean', got {self.reduction!r}: drop it")
        items = 0.0 if self.num_items is None else _number(self.num_items)
        if not 0 <= items < math.inf:
            raise InputError(f"expected num_items of at least 0, got {items:g}: it counts targets")


_LARGEST = 2**63
_OPTIONAL = ("ignore_index", "chunk", "softcap")
_NUMBERS: Any = (
    ("ignore_index", Integral, lambda _: True, "", ""),
    ("label_smoothing", Real, lambda e: 0 <= e <= 1, "in [0, 1]", "0 turns it off, 0.1 is usual"),
    ("z_loss", Real, lambda z: z >= 0, "of at least 0", "0 turns it off, 1e-4 is usual"),
    ("softcap", Real, lambda cap: cap > 0, "above 0", "None turns it off"),
    ("logit_scale", Real, lambda scale: scale != 0, "other than 0", "1 leaves logits as they are"),
    ("chunk", Integral, lambda chunk: chunk >= 1, "of at least one target", "None chooses a size"),
)


def _number(items: Any) -> float:
    try:
        if isinstance(items, str | bytes) or (isinstance(items, Tensor) and items.is_complex()):
            raise TypeError("text or a complex number")
        return float(items)
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:  # the last on the device meta
        raise InputError(f"expected num_items as a number, got none ({error}): it counts targets") from error
