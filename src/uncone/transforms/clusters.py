"""A repair for each cluster of rows."""

import warnings
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from uncone.arguments import whole_number
from uncone.errors import InputError, expect
from uncone.moments import Moments
from uncone.moments.cell import checked_weights, counting_nonfinite
from uncone.records.parts import Fitted
from uncone.rows import Rows, as_rows, nonfinite_error
from uncone.rows.floats import is_tensor
from uncone.threads import share_rows
from uncone.transforms.directions import are_equal, principal_directions
from uncone.transforms.fitting import DigestedRows, Tick, Transformation, fitted_on, require_rows
from uncone.transforms.transformed import Array, library, like

SAMPLED_NUMBERS = 2**24  # in which clusters are searched: beyond that, in a sample of rows
_SUMS_BYTES = 96 * 2**20  # for covariances at once; where they take more, the rows are read again


class ClusterCenter(Transformation):
    """All-but-the-Top within each cluster of rows: y = z - sum_j (u_cj . z) u_cj, z = x - mean_c.

    Rajaee & Pilehvar 2021, A Cluster-based Approach for Improving Isotropy in Contextual Embedding Space: k-means, then
    each cluster loses its mean and its first principal directions. A new row joins the cluster with the nearest centre.
    The map is affine within a cluster and jumps at its border. `fit` reads the rows twice or more. It raises InputError
    without scikit-learn (pip install 'uncone[cluster]'), for `Moments`, fewer rows than clusters, or not more features
    than directions.

    Unlike in the authors' program, k-means is seeded and starts with k-means++; beyond 2^24 numbers it uses a sample of
    rows. A cluster of n rows loses at most (n - 1) / 2 directions (n - 1 would leave zeros), none without variance.

    Args:
        n_clusters: 27 in the authors' program.
        n_components: directions removed in each, 12 in the authors' program.
        seed: the seed of the search and the sample.

    Attributes after `fit`:
        centers_: the centres that rows are assigned by, float64 (C, D).
        means_: of each cluster's rows, float64 (C, D).
        components_: the directions removed, as rows, float64 (C, n_components, D); zero rows where there are fewer.
    """

    affine = False
    tensors = (("centers_", "CD"), ("means_", "CD"), ("components_", "CKD"))
    centers_: Array
    means_: Array
    components_: Array

    def __init__(self, n_clusters: int = 27, n_components: int = 12, seed: int = 0) -> None:
        self.n_clusters, self.n_components, self.seed = n_clusters, n_components, seed

    def checked_options(self) -> dict[str, Any]:
        least = {"n_clusters": 1, "n_components": 1, "seed": 0}
        return {name: whole_number(getattr(self, name), name, lowest) for name, lowest in least.items()}

    def _fit(self, x: Any, weights: Array | None, progress: Tick, repeats: bool) -> Fitted:
        n_clusters, n_components, seed = self.checked_options().values()
        expect(not isinstance(x, Moments), "rows to find clusters in, got moments: pass an array, a tensor or Rows")
        rows = as_rows(x)
        n, d = rows.shape
        require_rows(n, n_clusters, "as many clusters")
        got = f"got {d} feature(s): choose fewer"
        expect(n_components < d, f"rows of more than {n_components} features to remove as many directions, {got}")
        w = checked_weights(weights, n)
        self.centers_ = _centers(rows, w, n_clusters, seed)
        self.means_ = self.centers_.copy()
        self.components_ = np.zeros((n_clusters, n_components, d))
        at_once = max(1, _SUMS_BYTES // (8 * d * d))
        digested = DigestedRows(rows)
        for start in range(0, n_clusters, at_once):
            clusters = range(n_clusters)[start : start + at_once]
            read = rows if start else digested  # the digest is taken once
            for cluster, m in zip(clusters, _sums(read, w, self.centers_, clusters, progress), strict=True):
                if m.weight == 0:
                    continue
                self.means_[cluster] = m.mean()
                k = min(n_components, (m.n - 1) // 2)
                if k > 0 and m.effective_n > 1.0 + 1e-9 and not are_equal(m):
                    directions, _ = principal_directions(m, k)
                    self.components_[cluster, : len(directions)] = directions
        return fitted_on(digested, weights)

    def assign(self, x: Any) -> Any:
        """The clusters, int64 (n,), of the rows of a float32 or float64 array or tensor (n, D)."""
        self._require_fit()
        return _nearest(x, self.centers_)

    def _move(self, rows: Any, out: Array | None = None) -> Any:
        label, xp = _nearest(rows, self.centers_), library(rows)
        moved = xp.subtract(rows, like(self.means_, rows)[label], out=out)
        for cluster in xp.unique(label).tolist():
            at = xp.where(label == cluster)[0]
            directions, own = like(self.components_[cluster], rows), moved[at]
            moved[at] = own - (own @ directions.T) @ directions
        return moved


def _centers(rows: Rows, w: Array | None, n_clusters: int, seed: int) -> Array:
    try:
        from sklearn.cluster import KMeans
        from sklearn.exceptions import ConvergenceWarning
    except ImportError as error:
        got = "got none: install it with pip install 'uncone[cluster]'"
        raise InputError(f"expected scikit-learn for ClusterCenter, {got}") from error
    most = max(n_clusters, SAMPLED_NUMBERS // rows.shape[1])
    chosen = np.sort(np.random.default_rng(seed).permutation(rows.shape[0])[:most])
    taken = rows.take(chosen)
    if not np.isfinite(taken).all():
        raise nonfinite_error(rows)
    sample, counts = _distinct(taken, None if w is None else w[chosen])
    mean = sample.mean(0, dtype=np.float64)
    sample -= mean.astype(sample.dtype)  # else distances far from the origin lose digits
    # Threads would add up a centre's rows in whichever order they end.
    with warnings.catch_warnings(), threadpool_limits(1):
        # It warns of rows so nearly equal that clusters stay empty.
        warnings.simplefilter("ignore", ConvergenceWarning)
        means = KMeans(min(n_clusters, len(sample)), n_init=1, random_state=seed % 2**32, copy_x=False)
        means.fit(sample, sample_weight=counts)
    centers: Array = means.cluster_centers_ + mean
    return centers[np.minimum(np.arange(n_clusters), len(centers) - 1)]  # of equal ones the first has all rows


def _distinct(x: Array, weights: Array | None) -> tuple[Array, Array]:
    """The different rows of `x` (n, D) in the order of their bytes, and the number or the weight of each. So neither
    the order of rows, nor whether one is repeated or weighted, moves a centre."""
    if weights is not None:
        x, weights = x[weights > 0], weights[weights > 0]
    x = np.ascontiguousarray(x + 0)  # -0 becomes 0
    keys = x.view(np.dtype((np.void, x.itemsize * x.shape[1])))[:, 0]
    _, first, place = np.unique(keys, return_index=True, return_inverse=True)
    return x[first], np.bincount(place, weights, len(first)).astype(np.float64)


def _nearest(x: Any, centers: Array) -> Any:
    middle = centers.mean(0)
    own = like(centers - middle, x)
    half, middle = (own * own).sum(1) / 2, like(middle, x)
    if is_tensor(x):
        return (half - (x - middle) @ own.T).argmin(1)
    labels = np.empty(len(x), np.int64)

    def assign(rows: Array, labels: Array) -> None:
        with np.errstate(all="ignore"):  # rows that are not finite are found later
            (half - (rows - middle) @ own.T).argmin(1, out=labels)

    share_rows(assign, x, labels)
    return labels


def _sums(rows: Rows, w: Array | None, centers: Array, clusters: range, progress: Tick) -> list[Moments]:
    moments = [Moments(rows.shape[1], unit_first=False) for _ in clusters]
    for m in moments[1:]:
        m.work_with(moments[0])
    for start, block in rows.numbered(progress):
        label = _nearest(block, centers)
        if w is not None:
            label[w[start : start + len(block)] == 0] = -1
        for cluster, m in zip(clusters, moments, strict=True):
            at = np.flatnonzero(label == cluster)
            with counting_nonfinite(rows):
                m.update(block[at], None if w is None else w[start + at])
        del block
    return [m.finish() for m in moments]
