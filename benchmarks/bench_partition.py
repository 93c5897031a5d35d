"""I(W) over both signs, against the floor of its products and the published way of computing it."""

import time

import numpy as np
from measured import Row, product_rate, run

from matrices import on_array, on_tensor
from uncone import Moments, measure

V, D = 50257, 768


def published(x: np.ndarray) -> float:
    """The code released with "Too Much in Common": general eigensolver, one product a direction, the sign it returns."""
    _, directions = np.linalg.eig(x.T @ x)
    z = [np.exp(x @ directions[:, k]).sum() for k in range(x.shape[1])]
    return float(min(z) / max(z))


def one_product(x: np.ndarray) -> float:
    """What a careful user writes: symmetric solver, one product, both signs, no guard against overflow."""
    _, directions = np.linalg.eigh(x.T @ x)
    z = x @ directions
    sums = np.concatenate([np.exp(z).sum(0), np.exp(-z).sum(0)])
    return float(sums.min() / sums.max())


def floor():
    """Sleeps for as long as 2 V D^2 takes at the product rate measured now."""
    duration = 2 * V * D**2 / product_rate()
    return lambda: time.sleep(duration)


ROWS = [
    Row("floor: 2 V D^2 at the measured rate", floor, memory=False),
    Row("uncone partition_isotropy, both signs", lambda: on_tensor(measure.partition_isotropy)),
    Row("uncone gaussian_isotropy", lambda: on_tensor(lambda x: measure.gaussian_isotropy(Moments.of(x)))),
    Row("numpy eigh, one product, both signs", lambda: on_array(one_product)),
    Row("published way (eig, one product a direction, one sign)", lambda: on_array(published), repeats=5),
]

if __name__ == "__main__":
    columns = [("floor", ROWS[0].name), ("uncone", ROWS[1].name)]
    run(__file__, "I(W) on 50257 x 768 float32", ROWS, repeats=9, columns=columns)
