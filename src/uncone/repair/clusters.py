"""A repair for each cluster of rows."""

from collections.abc import Mapping
from typing import ClassVar

import torch

from uncone.repair.fitting import Transformation, check_whole

Tensor = torch.Tensor


class ClusterCenter(Transformation):
    """All-but-the-Top within each of some clusters of rows (Rajaee & Pilehvar 2021)."""

    affine: ClassVar[bool] = False
    tensors: ClassVar[Mapping[str, str]] = {"centers_": "CD", "means_": "CD", "components_": "CKD"}

    def __init__(self, n_clusters: int = 27, n_components: int = 12, seed: int = 0) -> None:
        check_whole(n_clusters, "n_clusters", 1)
        check_whole(n_components, "n_components", 0)
        check_whole(seed, "seed", 0)
        self.n_clusters, self.n_components, self.seed = n_clusters, n_components, seed
