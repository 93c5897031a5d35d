"""Every measure that moments answer, against the product and the eigendecomposition that any of them would need."""

import numpy as np
import torch
from measured import Row, run

from matrices import matrix
from uncone import Moments
from uncone.measure.everything import MEASURES

WITHOUT_UNIT = [function for name, function in MEASURES if name != "uniformity"]
WITH_UNIT = [function for _, function in MEASURES]


def _torch() -> object:
    x = torch.from_numpy(matrix("A"))
    return lambda: torch.linalg.eigh((x.T @ x).double())


def _numpy() -> object:
    x = matrix("A")
    return lambda: np.linalg.eigh((x.T @ x).astype(np.float64))


def _uncone(measures, *, unit_second: bool):
    def prepare():
        x = torch.from_numpy(matrix("A"))

        def work() -> list[float]:
            moments = Moments.of(x, unit_second=unit_second)
            return [float(function(moments)) for function in measures]

        return work

    return prepare


ROWS = [
    Row("X.T @ X + eigh, numpy", _numpy),
    Row("X.T @ X + eigh, torch", _torch),
    Row(f"uncone, {len(WITHOUT_UNIT)} measures", _uncone(WITHOUT_UNIT, unit_second=False)),
    Row(f"uncone, {len(WITH_UNIT)} measures with unit second moments", _uncone(WITH_UNIT, unit_second=True)),
    Row("uncone, Moments.of alone", _uncone([], unit_second=False)),
]

if __name__ == "__main__":
    columns = [("numpy", ROWS[0].name), ("torch", ROWS[1].name)]
    run(__file__, "All moment measures on 50257 x 768 float32", ROWS, repeats=15, columns=columns)
