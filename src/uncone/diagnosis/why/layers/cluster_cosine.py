"""Is a cloud of states isotropic within its clusters? Cosines after each cluster is centred (Cai et al. 2021)."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from uncone.moments import Moments, inverse, row_norms
from uncone.rows import Array

MOST_CLUSTERS = 15
LEAST_SILHOUETTE = 0.1  # below, one cluster (Cai et al. 2021, section 4.1)
_FEWEST = 2 * MOST_CLUSTERS
_COMPONENTS = 64
"""Principal components for k-means: on SmolLM2 the sum of squares stays within 1% of the sum with all columns
(experiments/real_models/clusters.md)."""
_TRIES = 5  # draws of k-means++ for each centre; the best is kept


@dataclass(frozen=True)
class ClusterCosine:
    """Cosines are None if no two such states share a cluster."""

    clusters: int
    silhouette: float  # the largest of 2 to 15 clusters
    inter: float | None  # between different tokens, averaged over clusters by their states
    intra: float | None  # between states of one token, averaged over tokens and clusters


def cluster_cosine(x: Array, ids: Array, m: Moments, *, seed: int = 0) -> tuple[ClusterCosine | None, str]:
    """The cluster-adjusted similarities of states (n, D) of tokens `ids` (n,), or None and the reason.

    The number of clusters, from 2 to 15, has the largest mean silhouette; it is 1 if that is below 0.1. k-means begins
    with one seeded k-means++ and reads 64 principal components of all states, whose moments are `m`; silhouettes and
    cosines use all columns. (In the paper's program an argument in the wrong place leaves similarities between clusters
    uncentred. Here each cluster's mean is subtracted, as the paper's text has it. Clusters are weighted by their
    states, because two centred states have a cosine of -1.)
    """
    if len(x) < _FEWEST:
        return None, f"expected at least {_FEWEST} states for clusters, got {len(x)}"
    try:
        from sklearn.cluster import KMeans
        from sklearn.exceptions import ConvergenceWarning
        from threadpoolctl import threadpool_limits
    except ImportError:
        return None, "cluster-adjusted isotropy needs scikit-learn: pip install 'uncone[cluster]'"
    x = (x - x.mean(0, dtype=np.float64)).astype(np.float32)
    distances, parts = _distances(x), _components(x, m)
    chosen = _plus_plus(distances, np.random.default_rng(seed))
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = [KMeans(k, init=parts[chosen[:k]], n_init=1).fit_predict(parts) for k in range(2, len(chosen) + 1)]
    scores = silhouettes(distances, found)
    best = max(scores, default=-1.0)
    labels = found[scores.index(best)] if best >= LEAST_SILHOUETTE else np.zeros(len(x), np.int64)
    return ClusterCosine(int(labels.max()) + 1, best, *within_clusters(x, ids, labels)), ""


def silhouettes(distances: Array, labellings: Sequence[Array]) -> list[float]:
    """The mean of (b - a) / max(a, b) for each labelling, by distances (n, n); 0 for a cluster of one (Rousseeuw 1987).
    a is the mean distance to the rest of the own cluster, b the least mean distance to another cluster."""
    of = [np.eye(int(labels.max()) + 1, dtype=distances.dtype)[labels] for labels in labellings]
    ends = np.cumsum([one.shape[1] for one in of])[:-1]
    sums = np.split(distances @ np.hstack(of), ends, axis=1) if of else []  # one product reads the distances once
    return [_silhouette(one, labels) for one, labels in zip(sums, labellings, strict=True)]


def _silhouette(sums: Array, labels: Array) -> float:
    sizes, at = np.bincount(labels).astype(sums.dtype), np.arange(len(labels))
    own = sizes[labels]
    inside, means = sums[at, labels] / np.maximum(own - 1, 1), sums / np.maximum(sizes, 1)
    means[:, sizes == 0] = means[at, labels] = np.inf
    nearest = means.min(1)
    scale = np.maximum(inside, nearest)
    scores = np.where((own > 1) & (scale > 0), (nearest - inside) / np.where(scale > 0, scale, 1), 0.0)
    return float(scores.mean())


def within_clusters(x: Array, ids: Array, labels: Array) -> tuple[float | None, float | None]:
    """(inter, intra) of states (n, D) less the mean of their cluster, by sums of unit rows."""
    inter, weights, intra = list[float](), list[int](), list[float]()
    for cluster in np.unique(labels):
        own = x[labels == cluster].astype(np.float64)
        own -= own.mean(0)
        units = own * inverse(row_norms(own))[:, None]
        _, token, counts = np.unique(ids[labels == cluster], return_inverse=True, return_counts=True)
        sums = np.add.reduceat(units[np.argsort(token, kind="stable")], np.append(0, counts.cumsum()[:-1]))
        squares, total = np.square(sums).sum(1), units.sum(0)
        pairs = float(len(own)) ** 2 - float(np.square(counts).sum())
        if pairs > 0:
            inter.append(float((total @ total - squares.sum()) / pairs))
            weights.append(len(own))
        often = counts > 1
        own_squares = np.bincount(token, np.square(units).sum(1))
        intra += ((squares - own_squares)[often] / (counts[often] * (counts[often] - 1))).tolist()
    return float(np.average(inter, weights=weights)) if inter else None, float(np.mean(intra)) if intra else None


def _distances(x: Array) -> Array:
    """(n, n) Euclidean."""
    squares, found = np.square(x).sum(1), x @ x.T
    found *= -2
    found += squares
    found += squares[:, None]
    np.sqrt(np.maximum(found, 0.0, out=found), out=found)
    np.fill_diagonal(found, 0.0)
    return found


def _components(x: Array, m: Moments) -> Array:
    return np.ascontiguousarray(x @ m.leading_directions(_COMPONENTS, centered=True).astype(x.dtype))


def _plus_plus(distances: Array, random: np.random.Generator) -> list[int]:
    """At most 15 different points, each drawn by its squared distance to those before it (Arthur & Vassilvitskii 2007);
    the best of a few draws. The first k points start k clusters."""
    chosen = [int(random.integers(len(distances)))]
    left = np.square(distances[chosen[0]], dtype=np.float64)
    while len(chosen) < MOST_CLUSTERS and left.sum() > 0:
        tries = random.choice(len(left), _TRIES, p=left / left.sum())
        after = [(np.minimum(left, np.square(distances[one], dtype=np.float64)), int(one)) for one in tries]
        left, best = min(after, key=lambda one: one[0].sum())
        chosen.append(best)
    return chosen
