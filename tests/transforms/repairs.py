"""One of each repair and of its main options, not fitted."""

from uncone.transforms import (
    AllButTheTop,
    Center,
    ClusterCenter,
    RemoveMeanDirection,
    ScaledCenter,
    Standardize,
    Whiten,
)

FROM_MOMENTS = (
    Center(),
    ScaledCenter(),
    RemoveMeanDirection(),
    AllButTheTop(2),
    AllButTheTop(2, centered=False),
    Whiten(),
    Whiten("pca", 1.0),
    Whiten("pca", 1.0, n_components=3),
    Standardize(),
)
EVERY = (*FROM_MOMENTS, ClusterCenter(3, 2))
