"""Which rows lie nearest to each row? The exact search that the measures from neighbours share."""

from uncone.measure.neighbours.nearest import EXACT_ROWS, SAMPLED_ROWS, Neighbours, nearest_neighbours
from uncone.measure.neighbours.points import Metric, Points

__all__ = ["EXACT_ROWS", "SAMPLED_ROWS", "Metric", "Neighbours", "Points", "nearest_neighbours"]
