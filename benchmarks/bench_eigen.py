"""All eigenpairs of a matrix in its place, by LAPACK's own routines, against NumPy's function on one thread."""

from collections.abc import Callable
from unittest.mock import patch

import numpy as np
from measured import Row, run

from uncone.moments import eigen


def _work(d: int, ours: bool) -> Callable[[], object]:
    x = np.random.default_rng(0).standard_normal((d + 50, d), dtype=np.float32)
    matrix = (x.T @ x).astype(np.float64)

    def decompose() -> None:
        own = matrix.copy()  # it is lost, and a copy of each
        if ours:
            eigen.consume_to_eigen(own)
        else:
            with patch.object(eigen, "_lapack", lambda: None):
                eigen.consume_to_eigen(own)

    return decompose


ROWS = [
    Row(
        f"{'uncone, in place' if ours else 'numpy.linalg.eigh, one thread'}, {d} columns",
        lambda d=d, ours=ours: _work(d, ours),
    )
    for d in (2048, 4096)
    for ours in (True, False)
]

if __name__ == "__main__":
    run(__file__, "Eigenvalues and vectors of D x D float64", ROWS, repeats=1, columns=[("uncone", ROWS[0].name)])
