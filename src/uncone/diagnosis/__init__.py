"""`diagnose`: how degenerate is a model's token table and its head, why, and what to do next.

The package is not called `diagnose`: importing it would then hide the function of that name.
"""

from uncone.diagnosis.diagnosing import diagnose
from uncone.diagnosis.measures import MEASURES, OF_A_HEAD, OF_NEIGHBOURS, OF_THE_GAUGE
from uncone.diagnosis.sums import MOST_BINS

__all__ = ["MEASURES", "MOST_BINS", "OF_A_HEAD", "OF_NEIGHBOURS", "OF_THE_GAUGE", "diagnose"]
