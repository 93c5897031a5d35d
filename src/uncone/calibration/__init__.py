"""What a similarity of a model means: the scores of random pairs, and thresholds from them."""

from uncone.lazy import open_room

open_room(__name__)
