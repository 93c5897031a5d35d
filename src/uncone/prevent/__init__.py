"""Prevent degeneration in training: gate the gradient of rare tokens, or keep a cloud of states round."""

from uncone.lazy import open_room
from uncone.prevent.attach import Attached, attach
from uncone.prevent.attach_states import AttachedStates, attach_states
from uncone.prevent.cloud import AnisotropyScores, AnisotropyTrack, anisotropy_scores
from uncone.prevent.gate import GateStatus, RareTokenGate
from uncone.prevent.gradient_monitor import GradientMonitor
from uncone.prevent.persistent_entropy import EntropyStatus, PersistentEntropy

__all__ = [
    "AnisotropyScores",
    "AnisotropyTrack",
    "Attached",
    "AttachedStates",
    "EntropyStatus",
    "GateStatus",
    "GradientMonitor",
    "PersistentEntropy",
    "RareTokenGate",
    "anisotropy_scores",
    "attach",
    "attach_states",
]

open_room(__name__)
