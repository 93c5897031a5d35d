"""Clouds on which a spanning tree from a product goes wrong unless care is taken; and trees by scipy and by Kruskal."""

from collections.abc import Iterable

import numpy as np
import torch
from scipy.sparse import coo_array
from scipy.sparse.csgraph import minimum_spanning_tree
from scipy.spatial.distance import pdist

KINDS = ("round", "clustered", "tight", "duplicated", "nearly duplicated", "collinear", "off-centre")
KINDS += ("bfloat16", "float16", "grid", "outlier")


def cloud(kind: str, seed: int, largest: int = 400) -> torch.Tensor:
    """A cloud of a kind; its size, dimension and spectrum depend on the seed."""
    random = np.random.default_rng([seed, KINDS.index(kind)])
    n, d = int(random.integers(2, largest)), int(random.choice([1, 2, 5, 24, 64, 384, 768]))
    spectrum = np.arange(1, d + 1) ** -random.uniform(0, 1)
    x = random.standard_normal((n, d)) * spectrum
    if kind in ("clustered", "tight"):
        radius = 10 ** random.uniform(-2, -0.5) if kind == "clustered" else 10 ** random.uniform(-6, -2)
        centres = random.standard_normal((int(random.integers(1, 9)), d)) * spectrum
        x = centres[random.integers(len(centres), size=n)] + radius * x
    if kind == "duplicated":
        x = x[random.integers(max(1, n // 2), size=n)]
    if kind == "nearly duplicated":
        x = x[random.integers(max(1, n // 3), size=n)] + 10 ** random.uniform(-7, -3) * x
    if kind == "collinear":
        x = random.standard_normal((n, 1)) * x[:1] + random.standard_normal(d)
    if kind == "off-centre":
        x += 30 * np.linalg.norm(spectrum) * random.standard_normal(d) / np.sqrt(d)
    if kind == "grid":
        x = random.integers(-2, 3, size=(n, d)).astype(np.float64)
    if kind == "outlier":
        x[-1] *= 1e3
    return torch.from_numpy(x).to({"bfloat16": torch.bfloat16, "float16": torch.float16}.get(kind, torch.float32))


def scipy_lengths(points: torch.Tensor) -> np.ndarray:
    """The lengths of the minimum spanning tree by scipy in float64, ascending. Its result leaves edges of length 0 out."""
    n = len(points)
    a, b = np.triu_indices(n, 1)
    distances = coo_array((pdist(points.double().numpy()), (a, b)), shape=(n, n)).tocsr()
    found = np.sort(minimum_spanning_tree(distances).data)
    return np.concatenate([np.zeros(n - 1 - len(found)), found])


def kruskal(squared: torch.Tensor, inside: Iterable[int] | None = None) -> list[tuple[float, int, int]]:
    """(squared distance, smaller row, larger row) in this order, of each edge that joins two components."""
    value = torch.minimum(squared, squared.T).clamp(min=0).tolist()
    component, kept = {i: i for i in (range(len(value)) if inside is None else inside)}, []
    for edge in sorted((value[i][j], i, j) for i in component for j in component if i < j):
        a, b = component[edge[1]], component[edge[2]]
        if a != b:
            kept.append(edge)
            component = {k: a if c == b else c for k, c in component.items()}
    return kept


def squares(points: torch.Tensor) -> torch.Tensor:
    """All squared distances (n, n) in float64."""
    return (points.double()[:, None] - points.double()).square().sum(2)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def randn(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, generator=seeded(seed), dtype=dtype)
