"""Does training go on to help, and what does the rank of the head cost: curves, scaling laws, checkpoints, the bottleneck."""

from uncone.lazy import open_room

open_room(__name__)
