"""Fitting a repair on 128256 x 2048 float32 on disk, against scikit-learn's PCA, spectralyte and NumPy by hand.

spectralyte is a row where it is installed: pip install spectralyte. Every row begins with the file.
"""

import importlib.util

import numpy as np
from measured import Row, run

from matrices import SHAPES, path
from uncone.rows import open_npy
from uncone.transforms import AllButTheTop, Center, Whiten

NAME = "B"
REMOVED = -(-SHAPES[NAME][1] // 100)


def _ours(make):
    file = path(NAME)

    def work() -> object:
        return make().fit(open_npy(file))

    return lambda: work


def _read() -> object:
    file = path(NAME)

    def work() -> int:
        done = 0
        for block in open_npy(file).blocks():
            done += len(block)
            del block
        return done

    return work


def _by_hand() -> object:
    """The mean, the covariance by one product, and its eigenvectors: what All-but-the-Top and whitening need."""
    file = path(NAME)

    def work() -> object:
        x = np.load(file)
        mean = x.mean(0, dtype=np.float64)
        covariance = (x.T @ x).astype(np.float64) / len(x) - np.outer(mean, mean)
        return mean, np.linalg.eigh(covariance)

    return work


def _scikit_learn(components: int | None, **options: object):
    def prepare():
        from sklearn.decomposition import PCA

        file = path(NAME)
        return lambda: PCA(components, random_state=0, **options).fit(np.load(file))

    return prepare


def _spectralyte() -> object:
    from spectralyte.core.transform import fit

    file = path(NAME)
    return lambda: fit(np.load(file), effective_dims=REMOVED)


ROWS = [
    Row("read the file, block by block", _read),
    Row("uncone, Center", _ours(Center)),
    Row(f"uncone, AllButTheTop of {REMOVED}", _ours(AllButTheTop)),
    Row("uncone, Whiten", _ours(Whiten)),
    Row("numpy, X.T @ X and eigh by hand", _by_hand),
    Row(f"scikit-learn, PCA({REMOVED})", _scikit_learn(REMOVED)),
    Row(f"scikit-learn, PCA({REMOVED}) by the covariance", _scikit_learn(REMOVED, svd_solver="covariance_eigh")),
    Row(
        "scikit-learn, PCA(whiten=True) by the covariance",
        _scikit_learn(None, whiten=True, svd_solver="covariance_eigh"),
    ),
    Row("scikit-learn, PCA(whiten=True)", _scikit_learn(None, whiten=True), repeats=1),
]
if importlib.util.find_spec("spectralyte") is not None:
    ROWS.append(Row("spectralyte, fit", _spectralyte, repeats=1))

if __name__ == "__main__":
    n, d = SHAPES[NAME]
    columns = [("PCA", ROWS[5].name), ("PCA by the covariance", ROWS[6].name), ("by hand", ROWS[4].name)]
    notes = "Ours read the file once and digest it (sha256) in the same pass; the others hold the whole matrix."
    run(__file__, f"Fitting a repair on {n} x {d} float32 on disk", ROWS, repeats=5, columns=columns, notes=notes)
