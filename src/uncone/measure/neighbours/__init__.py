"""Which rows lie nearest to each row? The exact search that the measures from neighbours share."""

from uncone.measure.neighbours.nearest import (
    EXACT_ROWS,
    SAMPLED_ROWS,
    Neighbours,
    check_moments,
    check_searched,
    nearest_neighbours,
    sampled_rows,
)
from uncone.measure.neighbours.points import Metric, Points

__all__ = [
    "EXACT_ROWS",
    "SAMPLED_ROWS",
    "Metric",
    "Neighbours",
    "Points",
    "check_moments",
    "check_searched",
    "nearest_neighbours",
    "sampled_rows",
]
