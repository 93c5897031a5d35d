"""Transformations of rows: fit, transform, save, load, apply to a stream."""

from uncone.lazy import open_room
from uncone.records.parts import Fitted
from uncone.transforms.affine import Affine
from uncone.transforms.apply import Applied, repair_rows
from uncone.transforms.center import Center, RemoveMeanDirection, ScaledCenter, Standardize
from uncone.transforms.clusters import ClusterCenter
from uncone.transforms.directions import AllButTheTop, Whiten
from uncone.transforms.fitting import Transformation
from uncone.transforms.names import REPAIRS, ZIPF_REPAIRS, load, repair_named
from uncone.transforms.normalized import Normalized

__all__ = [
    "REPAIRS", "ZIPF_REPAIRS", "Affine", "AllButTheTop", "Applied", "Center", "ClusterCenter", "Fitted",
    "Normalized", "RemoveMeanDirection", "ScaledCenter", "Standardize", "Transformation", "Whiten", "load",
    "repair_named", "repair_rows",
]  # fmt: skip

open_room(__name__)
