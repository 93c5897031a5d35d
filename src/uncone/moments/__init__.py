"""The mergeable summary of rows that nearly every measure is computed from."""

from uncone.lazy import open_room
from uncone.moments.cell import NotFiniteError, are_safe, cuts, inverse, row_norms
from uncone.moments.derived import Moments

__all__ = ["Moments", "NotFiniteError", "are_safe", "cuts", "inverse", "row_norms"]

open_room(__name__)
