"""Does it matter: word and sentence similarity, retrieval, quantised search."""

from uncone.lazy import open_room
from uncone.records import Interval
from uncone.tasks.bootstrap import (
    correlation,
    correlation_bootstrap,
    correlation_bootstraps,
    paired_bootstrap,
    paired_bootstraps,
)

__all__ = [
    "Interval",
    "correlation",
    "correlation_bootstrap",
    "correlation_bootstraps",
    "paired_bootstrap",
    "paired_bootstraps",
]

open_room(__name__)
