"""Which rows lie nearest to each row? The exact search that the measures from neighbours share."""

from uncone.measure.neighbours.nearest import (
    EXACT_ROWS,
    SAMPLED_ROWS,
    Neighbours,
    check_searched,
    nearest_neighbours,
    sampled_rows,
    ticks,
)
from uncone.measure.neighbours.points import Metric, Points
from uncone.measure.neighbours.tiles import sum_by_query, sum_over_pairs

__all__ = [
    "EXACT_ROWS",
    "SAMPLED_ROWS",
    "Metric",
    "Neighbours",
    "Points",
    "check_searched",
    "nearest_neighbours",
    "sampled_rows",
    "sum_by_query",
    "sum_over_pairs",
    "ticks",
]
