"""A fitted transformation of 1M x 384 float32 from disk to disk, against its parts one after another, numpy by hand and scikit-learn.

Every row ends when the file is on the disk (fsync), so that none leaves its writing to the next.
"""

import os
from functools import cache

import numpy as np
from measured import Row, run

import uncone
from matrices import DATA, SHAPES, path
from uncone.transforms import Center, Whiten
from uncone.transforms.apply import repair_rows

N, D = SHAPES["E"]
BLOCK = 4096
OUT = DATA / "repaired.npy"


@cache
def _fitted() -> Whiten:
    """PCA whitening of all directions, as scikit-learn has it too: a full product for every row."""
    return Whiten("pca", power=1.0).fit(uncone.open_rows(path("E")))


@cache
def _numbers() -> tuple[np.ndarray, np.ndarray]:
    affine = _fitted().affine_
    return affine.shift.astype(np.float32), affine.weight.astype(np.float32)


def _parts() -> object:
    """Reading, the product and writing, each alone: what nobody who does one after the other can be faster than."""
    shift, weight = _numbers()
    x, moved, y = (np.zeros((BLOCK, D), np.float32) for _ in range(3))

    def work() -> None:
        with open(path("E"), "rb", buffering=0) as file:
            while file.readinto(x.data):
                pass
        for _ in range(-(-N // BLOCK)):
            np.subtract(x, shift, out=moved)
            np.matmul(moved, weight, out=y)
        with open(OUT, "wb", buffering=0) as file:
            for start in range(0, N, BLOCK):
                file.write(y[: min(BLOCK, N - start)].data)
            os.fsync(file.fileno())

    return work


def _ours(fit):
    def prepare() -> object:
        transformation = fit()
        return lambda: repair_rows(uncone.open_rows(path("E")), transformation, OUT, overwrite=True)

    return prepare


def _memmap() -> object:
    """The loop that one would write by hand, in constant memory."""
    shift, weight = _numbers()

    def work() -> None:
        x = np.load(path("E"), mmap_mode="r")
        y = np.lib.format.open_memmap(OUT, "w+", np.float32, (N, D))
        for start in range(0, N, BLOCK):
            y[start : start + BLOCK] = (x[start : start + BLOCK] - shift) @ weight
        y.flush()

    return work


def _whole() -> object:
    shift, weight = _numbers()
    return lambda: _save((np.load(path("E")) - shift) @ weight)


def _scikit_learn() -> object:
    """PCA(whiten=True) given the same mean and directions, so that nothing is fitted in its time."""
    from sklearn.decomposition import PCA

    found = PCA(D, whiten=True)
    transformation = _fitted()
    found.mean_, found.components_ = (t.astype(np.float32) for t in (transformation.mean_, transformation.components_))
    found.explained_variance_ = transformation.variances_.astype(np.float32)
    found.n_components_, found.n_features_in_, found.whiten = D, D, True
    return lambda: _save(found.transform(np.load(path("E"))))


def _save(x: np.ndarray) -> None:
    with open(OUT, "wb") as file:
        np.save(file, x)
        file.flush()
        os.fsync(file.fileno())


ROWS = [
    Row("reading, then the product, then writing", _parts),
    Row("uncone, whitening", _ours(_fitted)),
    Row("uncone, centring", _ours(lambda: Center().fit(uncone.open_rows(path("E"))))),
    Row("numpy.memmap by hand, whitening", _memmap),
    Row("numpy, all in memory, whitening", _whole, repeats=3),
    Row("scikit-learn, PCA.transform, all in memory", _scikit_learn, repeats=3),
]

if __name__ == "__main__":
    run(
        __file__,
        f"Whitening of {N} x {D} float32 from .npy to .npy",
        ROWS,
        repeats=5,
        columns=[("the parts", ROWS[0].name)],
    )
    OUT.unlink(missing_ok=True)
