"""One of each repair and of its main options, not fitted; rows to fit them on."""

import torch

from uncone import transforms as t

from ..matrices import gaussian

FROM_MOMENTS = (
    *(t.Center(), t.ScaledCenter(), t.RemoveMeanDirection(), t.AllButTheTop(2), t.AllButTheTop(2, centered=False)),
    *(t.Whiten(), t.Whiten("pca", 1.0), t.Whiten("pca", 1.0, n_components=3), t.Standardize()),
)
EVERY = (*FROM_MOMENTS, t.ClusterCenter(3, 2))


def cone(n: int = 300, d: int = 8, *, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return (gaussian(n, d, seed=seed) * torch.linspace(3, 0.5, d) + 2).to(dtype)


def fresh(made: t.Transformation) -> t.Transformation:
    """The same repair, not fitted."""
    return type(made)(**made.options())
