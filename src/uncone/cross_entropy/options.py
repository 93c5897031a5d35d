"""What a cross-entropy can be asked for."""

import math
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

from torch import Tensor
from torch.distributed import ProcessGroup

from uncone.errors import InputError

REDUCTIONS = ("mean", "sum", "none")
_KINDS: dict[str, Any] = {
    "ignore_index": Integral, "chunk": Integral, "label_smoothing": Real, "z_loss": Real, "softcap": Real, "logit_scale": Real,
}  # fmt: skip
_OPTIONAL = ("ignore_index", "chunk", "softcap")
_LARGEST = 2**63
BACKENDS = ("chunk", "triton", "wrap:liger", "wrap:cce", "wrap:torch")


@dataclass(frozen=True)
class CrossEntropyOptions:
    """Logits are z = cap tanh((scale h W' + bias) / cap), without the cap where `softcap` is None.

    Raises:
        InputError: a value out of its range.
    """

    ignore_index: int | None = -100
    """Targets with this label count for nothing: no loss, no gradient, no share in the mean. None ignores none."""
    label_smoothing: float = 0.0
    """E in [0, 1]: the target distribution is (1 - E) one-hot + E / V."""
    z_loss: float = 0.0
    """L >= 0: adds L lse(z)^2 to each target's loss (PaLM; Liger calls it lse_square_scale)."""
    softcap: float | None = None
    logit_scale: float = 1.0
    reduction: str = "mean"
    """"mean", "sum" or "none"."""
    num_items: float | Tensor | None = None
    """What "mean" divides by, if not the targets of this call: the targets of all micro-batches, or of all ranks. A tensor of one number is looked
    at here, which on a GPU waits for it, as the loss does for its labels; 0 gives a loss of 0."""
    chunk: int | None = None
    """Targets whose logits are held at once; by default what fits a bounded buffer."""
    backend: str = "chunk"
    """What computes it: "chunk", "triton", or another package's kernel, "wrap:liger", "wrap:cce" or "wrap:torch"."""
    group: ProcessGroup | None = None
    """The ranks that a head is cut over by rows, if it is: see the documentation's "A vocabulary over several ranks"."""

    def __post_init__(self) -> None:
        if self.reduction not in REDUCTIONS:
            raise InputError(
                f"expected a reduction among {', '.join(REDUCTIONS)}, got {self.reduction!r}: use one of them"
            )
        if self.backend not in BACKENDS:
            raise InputError(
                f"expected a backend among {', '.join(BACKENDS)}, got {self.backend!r}: use one of them"
            )
        if self.group is not None and self.backend != "chunk":
            raise InputError(
                f"expected the backend 'chunk' with a group, got {self.backend!r}: the others need the whole head"
            )
        for name, kinds in _KINDS.items():
            value: Any = getattr(self, name)
            if not (value is None and name in _OPTIONAL) and (
                not isinstance(value, kinds) or not -_LARGEST < value < _LARGEST
            ):
                what = "a whole number" if kinds is Integral else "a number"
                raise InputError(f"expected {what} for {name}, got {str(value)[:40]!r}: give one below 2^63")
        if not 0 <= self.label_smoothing <= 1:
            raise InputError(
                f"expected label_smoothing in [0, 1], got {self.label_smoothing}: 0 is none, 0.1 is customary"
            )
        if not 0 <= self.z_loss < math.inf:
            raise InputError(
                f"expected z_loss of at least 0, got {self.z_loss}: 0 is none, 1e-4 is customary"
            )
        if self.softcap is not None and not 0 < self.softcap < math.inf:
            raise InputError(f"expected a softcap above 0, got {self.softcap}: use None for none")
        if self.logit_scale == 0 or not math.isfinite(self.logit_scale):
            raise InputError(
                f"expected a logit_scale that is not 0, got {self.logit_scale}: 1 leaves logits as they are"
            )
        if self.chunk is not None and self.chunk < 1:
            raise InputError(f"expected a chunk of at least one target, got {self.chunk}: None chooses one")
        if isinstance(self.num_items, Tensor) and (
            self.num_items.numel() != 1 or self.num_items.is_complex()
        ):
            raise InputError(
                f"expected num_items as one number, got {tuple(self.num_items.shape)} of {self.num_items.dtype}: pass the sum over all parts"
            )
        if self.num_items is not None:
            try:
                if isinstance(self.num_items, str | bytes):
                    raise TypeError("a text")
                items = float(self.num_items)
            except (
                TypeError,
                ValueError,
                OverflowError,
                RuntimeError,
            ) as error:  # as of a tensor on the device meta
                raise InputError(
                    f"expected num_items as one number, got one that is none ({error}): it counts targets"
                ) from error
            if not 0 <= items < math.inf:
                raise InputError(f"expected num_items of at least 0, got {items:g}: it counts targets")
        if self.num_items is not None and self.reduction != "mean":
            raise InputError(
                f"expected num_items with the reduction 'mean', got it with {self.reduction!r}: leave it out"
            )
