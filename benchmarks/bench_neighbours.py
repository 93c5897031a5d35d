"""TwoNN and hubness over all rows, against the floor of the products and what others take for the same neighbours."""

import time

import numpy as np
import torch
from measured import Row, product_rate, run

from matrices import on_array, on_tensor
from uncone import measure

N, D = 50257, 768
_ROWS_AT_ONCE = 1024


def floor():
    """Sleeps for as long as 2 N^2 D takes at the product rate measured now."""
    duration = 2 * N**2 * D / product_rate()
    return lambda: time.sleep(duration)


def products():
    """As many multiply-adds as products of 4096 x 4096, in the same turns as the rest: the floor with the neighbours of the moment."""
    a, b = torch.randn(4096, 4096), torch.randn(4096, 4096)
    out = torch.empty(4096, 4096)

    def work() -> None:
        for _ in range(round(N**2 * D / 4096**3)):
            torch.mm(a, b, out=out)

    return work


def blockwise(x: torch.Tensor, k: int) -> torch.Tensor:
    """What a careful user writes: squared distances of a block of rows to all from one product, and the k + 1 smallest."""
    squares = x.square().sum(1)
    found = []
    for block in x.split(_ROWS_AT_ONCE):
        distances = torch.addmm(squares, block, x.T, alpha=-2)
        found.append(distances.topk(k + 1, largest=False).values)
    return torch.cat(found)


def scikit_learn(x: np.ndarray, k: int) -> np.ndarray:
    from sklearn.neighbors import NearestNeighbors

    return NearestNeighbors(n_neighbors=k, algorithm="brute").fit(x).kneighbors()[0]


def scikit_dimension(x: np.ndarray) -> float:
    """TwoNN by its maximum likelihood over all rows."""
    from skdim.id import TwoNN

    return float(TwoNN(method="mle", discard_fraction=0.0).fit(x).dimension_)


ROWS = [
    Row("floor: 2 N^2 D at the measured rate", floor, memory=False),
    Row("28 products of 4096 x 4096, which are 2 N^2 D", products, memory=False),
    Row("uncone two_nn", lambda: on_tensor(measure.two_nn)),
    Row("uncone hubness, k = 10, cosine", lambda: on_tensor(measure.hubness)),
    Row("uncone uniformity_exact", lambda: on_tensor(measure.uniformity_exact), repeats=1),
    Row("torch, product and topk by 1,024 rows, k = 10", lambda: on_tensor(lambda x: blockwise(x, 10))),
    Row(
        "scikit-learn NearestNeighbors, brute, k = 10",
        lambda: on_array(lambda x: scikit_learn(x, 10)),
        repeats=1,
        memory=False,
    ),
    Row("scikit-dimension TwoNN", lambda: on_array(scikit_dimension), repeats=1),
]

if __name__ == "__main__":
    columns = [("floor", ROWS[0].name), ("products", ROWS[1].name), ("two_nn", ROWS[2].name)]
    notes = (
        "The floor multiplies every row with every row; two_nn and hubness multiply each pair of blocks once. "
        "scikit-dimension brings scikit-learn: pip install scikit-dimension."
    )
    run(__file__, "Nearest neighbours of 50257 x 768 float32", ROWS, repeats=3, columns=columns, notes=notes)
