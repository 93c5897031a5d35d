"""The cross-entropy of a linear head without its logits in memory, the gradients of rare tokens gated."""

from uncone.cross_entropy.loss import gated_linear_cross_entropy, linear_cross_entropy
from uncone.cross_entropy.options import CrossEntropyOptions
from uncone.cross_entropy.problem import Gate
from uncone.lazy import open_room

__all__ = ["CrossEntropyOptions", "Gate", "gated_linear_cross_entropy", "linear_cross_entropy"]

open_room(__name__)
