"""A repaired copy of a file of vectors or of an encoder, and what changed: measured on what was written."""

from uncone.repairing.encoders import repair_encoder
from uncone.repairing.files import repair_file
from uncone.repairing.language_models import edit_head, edit_tokens
from uncone.repairing.targets import Kind, check_target, kind_of

__all__ = ["Kind", "check_target", "edit_head", "edit_tokens", "kind_of", "repair_encoder", "repair_file"]
