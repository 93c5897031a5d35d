"""The mergeable summary of rows that nearly every measure is computed from."""

from uncone.moments.cell import NotFiniteError, inverse, row_norms
from uncone.moments.derived import Moments

__all__ = ["Moments", "NotFiniteError", "inverse", "row_norms"]
