"""What changed between diagnoses, and whether for better or worse: from saved records alone."""

from uncone.lazy import open_room

open_room(__name__)
