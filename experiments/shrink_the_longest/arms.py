"""What is added to the loss, by name. A new arm is one line here; `plan.py` says how many seeds it gets."""

from collections.abc import Callable

import torch

from uncone.training.penalties.persistent_entropy import PersistentEntropy

Penalty = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""From [CLS] states (B, D) and classes (B,) to the scalar that is added to the cross-entropy."""

ARMS: dict[str, Callable[[], Penalty | None]] = {
    "none": lambda: None,
    "selected": lambda: PersistentEntropy(select=True),
    "all": lambda: PersistentEntropy(select=False),
    "length": lambda: PersistentEntropy(weight=0.0, select=True, length_weight=0.5),  # 0.5: the official code's default
}
