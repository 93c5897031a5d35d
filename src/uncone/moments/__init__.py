"""The mergeable summary of rows that nearly every measure is computed from."""

from uncone.moments.derived import Moments
from uncone.moments.norms import NotFiniteError, row_norms

__all__ = ["Moments", "NotFiniteError", "row_norms"]
