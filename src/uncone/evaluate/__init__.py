"""Does it matter: word and sentence similarity, retrieval, quantised search."""

from uncone.evaluate.bootstrap import (
    correlation_bootstrap,
    correlation_bootstraps,
    mean_correlation_bootstraps,
    paired_bootstrap,
    paired_bootstraps,
)
from uncone.evaluate.correlation import correlation
from uncone.records import Interval

__all__ = [
    "Interval",
    "correlation",
    "correlation_bootstrap",
    "correlation_bootstraps",
    "mean_correlation_bootstraps",
    "paired_bootstrap",
    "paired_bootstraps",
]
