"""What `cluster_center` does to words under five starts of k-means, beside k-means and PCA of scikit-learn alone.

    python experiments/too_much_in_common/clusters.py --model DIR --data DIR

Keeps `results/clusters.json`: Spearman x 100 of the cosine, mean over the five sets (the usual protocol), less that of the table.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
OUT = HERE / "results" / "clusters.json"
SEEDS = range(5)
CLUSTERS, DIRECTIONS = 27, 12


def moved_by_scikit_learn(x: Any, *, seed: int, directions: int) -> Any:
    """float32 rows (N, D) less the mean, and less the first principal directions, of their cluster."""
    from sklearn.cluster import KMeans
    from sklearn.decomposition import PCA

    label = KMeans(CLUSTERS, n_init=1, random_state=seed).fit_predict(x)
    moved = np.empty_like(x)
    for cluster in range(CLUSTERS):
        at = np.flatnonzero(label == cluster)
        rows = x[at].astype(np.float64)
        rows -= rows.mean(axis=0)
        k = min(directions, (len(at) - 1) // 2)  # as the package: of few rows none would be left
        if k > 0:
            u = PCA(k, svd_solver="full").fit(rows).components_
            rows -= rows @ u.T @ u
        moved[at] = rows
    return moved


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, required=True, help="a directory with a token table")
    parser.add_argument("--data", type=Path, required=True, help="directory of the word-similarity sets")
    given = parser.parse_args()
    from run import _made_by, _save

    import uncone
    from uncone.evaluation.pairs import read_word_sets
    from uncone.evaluation.word_vocabulary import vocabulary_of
    from uncone.evaluation.wordsim import word_similarity

    sets, vocabulary = read_word_sets(given.data), vocabulary_of(given.model)
    x = uncone.open_rows(f"{given.model}#input")
    table = x.read(0, x.shape[0]).numpy().copy()

    def mean(rows: Any) -> float:
        scores = word_similarity(uncone.open_rows(rows), vocabulary, sets, {}, protocol="field").results()
        return float(np.mean([of["original"]["spearman_cosine"] for of in scores.values()]))

    before = mean(table)
    found: dict[str, list[float]] = {"package": [], "scikit-learn": [], "scikit-learn, no directions": []}
    for seed in SEEDS:
        repair = uncone.transforms.ClusterCenter(CLUSTERS, DIRECTIONS, seed)
        found["package"].append(mean(repair.fit_transform(table)) - before)
        for name, directions in (("scikit-learn", DIRECTIONS), ("scikit-learn, no directions", 0)):
            moved = moved_by_scikit_learn(table, seed=seed, directions=directions)
            found[name].append(mean(moved) - before)
        print(seed, {name: round(of[-1], 2) for name, of in found.items()}, flush=True)
    _save(OUT, {"original": before, "changes": found, "seeds": list(SEEDS), "made_by": _made_by()})


if __name__ == "__main__":
    main()
