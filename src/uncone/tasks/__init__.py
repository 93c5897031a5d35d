"""Does it matter: word and sentence similarity, retrieval, quantised search."""

from uncone.records import Interval
from uncone.tasks.bootstrap import (
    correlation_bootstrap,
    correlation_bootstraps,
    paired_bootstrap,
    paired_bootstraps,
)
from uncone.tasks.correlation import correlation

__all__ = [
    "Interval",
    "correlation",
    "correlation_bootstrap",
    "correlation_bootstraps",
    "paired_bootstrap",
    "paired_bootstraps",
]
