"""The shape of a cloud of points: its H0 barcode, how even the bars are, and which of them stand out."""

from uncone.lazy import open_room
from uncone.topology.barcode import Barcode, barcode
from uncone.topology.bars import persistent_entropy, prominent_bars, prominent_counts, prominent_mask
from uncone.topology.pairs import pair_ends, pair_lengths, pairs_of_generators, pairs_of_intervals

__all__ = [
    "Barcode",
    "barcode",
    "pair_ends",
    "pair_lengths",
    "pairs_of_generators",
    "pairs_of_intervals",
    "persistent_entropy",
    "prominent_bars",
    "prominent_counts",
    "prominent_mask",
]

open_room(__name__)
