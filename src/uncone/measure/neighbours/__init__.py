"""Which rows lie nearest to each row? The exact search that the measures from neighbours share."""

from uncone.measure.neighbours.nearest import (
    EXACT_ROWS,
    SAMPLED_ROWS,
    Neighbours,
    nearest_neighbours,
    sampled_rows,
    searched,
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
    "nearest_neighbours",
    "sampled_rows",
    "searched",
    "sum_by_query",
    "sum_over_pairs",
    "ticks",
]
