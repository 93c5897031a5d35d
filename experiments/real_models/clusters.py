"""What k-means in a few principal components loses on the states of a real model, and how it begins best.

    python experiments/real_models/clusters.py build/smollm2 TEXT

Of five layers and four seeds: the sum of squares of 2 to 15 clusters in all columns, over that of scikit-learn's k-means in all columns; the
numbers of clusters that have the largest silhouette; and processor time a layer, the distances and components left out.
"""

import argparse
import time
import warnings
from collections.abc import Callable

import numpy as np
from sklearn.cluster import KMeans
from threadpoolctl import threadpool_limits

from uncone.diagnosis.why.layers.cluster_cosine import MOST_CLUSTERS, _components, _distances, _plus_plus, silhouettes
from uncone.model.hidden_states import hidden_states_of
from uncone.model.text_sources import open_texts
from uncone.rows import Array

SIZES, SEEDS, ROWS = range(2, MOST_CLUSTERS + 1), range(4), 2000
Fit = Callable[[Array, Array, Array, int], list[Array]]


def _whole(x: Array, parts: Array, distances: Array, seed: int) -> list[Array]:
    return [KMeans(k, n_init=1, random_state=seed).fit_predict(x) for k in SIZES]


def _shared(x: Array, parts: Array, distances: Array, seed: int) -> list[Array]:
    at = _plus_plus(distances, np.random.default_rng(seed))
    return [KMeans(k, init=x[at[:k]], n_init=1).fit_predict(x) for k in SIZES]


def _in_parts(x: Array, parts: Array, distances: Array, seed: int) -> list[Array]:
    return _shared(parts, parts, distances, seed)


def _grown(x: Array, parts: Array, distances: Array, seed: int) -> list[Array]:
    """k + 1 clusters begin at the centres of k, and one point drawn by its squared distance to its centre."""
    random, found = np.random.default_rng(seed), list[Array]()
    centres = x[_plus_plus(distances, random)[:2]]
    for _ in SIZES:
        fit = KMeans(len(centres), init=centres, n_init=1).fit(x)
        found.append(fit.labels_)
        far = np.square(x - fit.cluster_centers_[fit.labels_]).sum(1, dtype=np.float64)
        centres = np.vstack([fit.cluster_centers_, x[random.choice(len(x), p=far / far.sum())]])
    return found


def _squares(x: Array, labels: Array) -> float:
    parts = (x[labels == k].astype(np.float64) for k in np.unique(labels))
    return sum(float(np.square(part - part.mean(0)).sum()) for part in parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("text")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    states = hidden_states_of(given.model, open_texts((given.text,)), most=20_000)
    ways: dict[str, Fit] = {
        "all columns": _whole,
        "one k-means++": _shared,
        "64 components": _in_parts,
        "grown": _grown,
    }
    print("| layer | way | sum of squares | clusters by seed | s |\n|---|---|---|---|---|")
    with threadpool_limits(1):
        for layer in np.linspace(1, len(states.layers) - 1, 5).astype(int).tolist():
            x, moments = states.sample.layers[layer], states.moments[layer]
            x = x[np.sort(np.random.default_rng(0).permutation(len(x))[:ROWS])]
            x = (x - x.mean(0, dtype=np.float64)).astype(np.float32)
            distances, parts = _distances(x), _components(x, moments)
            known = np.zeros(0)
            for name, way in ways.items():
                begun = time.process_time()
                found = [way(x, parts, distances, seed) for seed in SEEDS]
                spent = (time.process_time() - begun) / len(SEEDS)
                squares = np.array([[_squares(x, labels) for labels in of] for of in found])
                known = known if known.size else squares.mean(0)
                best = [SIZES[int(np.argmax(silhouettes(distances, of)))] for of in found]
                print(f"| {layer} | {name} | {(squares / known).mean():.3f} | {best} | {spent:.2f} |", flush=True)


if __name__ == "__main__":
    main()
