"""Undo it: fitted transformations, exact edits of a head, new values for untrained tokens."""

from uncone.repair.affine import Affine
from uncone.repair.apply import Applied, repair_rows
from uncone.repair.center import Center, ScaledCenter
from uncone.repair.clusters import ClusterCenter
from uncone.repair.components import AllButTheTop
from uncone.repair.fitted import Fitted
from uncone.repair.fitting import Transformation
from uncone.repair.head import center_head
from uncone.repair.loading import load
from uncone.repair.names import REPAIRS, ZIPF_REPAIRS, repair_named
from uncone.repair.standardize import Standardize
from uncone.repair.tokens import reinitialise_tokens
from uncone.repair.whitening import Whiten

__all__ = [
    "REPAIRS",
    "ZIPF_REPAIRS",
    "Affine",
    "AllButTheTop",
    "Applied",
    "Center",
    "ClusterCenter",
    "Fitted",
    "ScaledCenter",
    "Standardize",
    "Transformation",
    "Whiten",
    "center_head",
    "load",
    "reinitialise_tokens",
    "repair_named",
    "repair_rows",
]
