"""Keep it from happening: gate the gradient of rare tokens, in any model's training."""

from uncone.prevent.attach import Attached, attach
from uncone.prevent.gate import GateStatus, RareTokenGate

__all__ = ["Attached", "GateStatus", "RareTokenGate", "attach"]
