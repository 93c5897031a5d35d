from collections.abc import Callable, Iterator

import numpy as np

from uncone.memory import check_memory, uninitialised
from uncone.statistics.arrays import Array

BLOCK = 32  # vectors per step: eigenvalues of this multiplicity are found whole
RESIDUAL = 1e-4
"""||G u - lambda u|| over lambda; the eigenvalue errs by about its square over the next gap."""


def leading_pairs(
    product: Callable[[Array], Array],
    n: int,
    k: int,
    *,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[Array, Array]:
    """The k largest eigenvalues, descending, (k,) and their vectors (n, k) of a positive semidefinite matrix (n, n)."""
    for values, residuals, rows, turned in ritz_pairs(product, n, k, most=n, seed=seed):  # noqa: B007
        floor = 1e-9 * max(float(values[0]), 0.0)  # below it all is rounding
        settled = int(np.sum(residuals <= RESIDUAL * np.maximum(values, floor)))
        if progress is not None:
            progress(settled, k)
        if settled == k:
            break
    return np.maximum(values, 0.0), rows.T @ turned


def ritz_pairs(
    product: Callable[[Array], Array], n: int, k: int, *, most: int, block: int = BLOCK, seed: int = 0
) -> Iterator[tuple[Array, Array, Array, Array]]:
    """Ever better approximations to the first k eigenpairs of a symmetric matrix (n, n), by block Lanczos (Golub and
    Underwood 1977): values (k,), norms of their residuals (k,), an orthonormal basis (m, n), and vectors in it (m, k).

    The basis, of `most` rows in the end, is kept, and every block is made orthogonal to it, so that no eigenvalue
    is found twice. `product` multiplies the matrix and a float64 array (n, b).
    """
    most = most if most == n else most // block * block
    basis, wanted = _Basis(n, block, seed), min(most, k + 2 * block)
    while basis.m < most:
        basis.reserve(wanted)
        while basis.m < wanted:
            basis.extend(product)
        values, vectors, residuals = basis.pairs(k)
        yield values, residuals, basis.rows[: basis.m], vectors
        wanted = min(most, int(1.2 * basis.m) + block)


class _Basis:
    """Orthonormal rows (m, n), and the matrix within them, which is block tridiagonal."""

    def __init__(self, n: int, block: int, seed: int) -> None:
        self.n, self.block, self.m, self.largest = n, block, 0, 0.0
        self.rows, self.within = np.zeros((0, n)), np.zeros((0, 0))
        self.next = np.linalg.qr(np.random.default_rng(seed).standard_normal((n, min(block, n))))[0]
        self.coupling = np.zeros((self.next.shape[1], 0))

    def extend(self, product: Callable[[Array], Array]) -> None:
        """Add the next block, and make the block after it."""
        new = np.ascontiguousarray(self.next[:, : self.n - self.m])
        b, coupling = new.shape[1], self.coupling[: new.shape[1]]
        last, this = slice(self.m - coupling.shape[1], self.m), slice(self.m, self.m + b)
        self.m += b
        self.rows[this] = new.T
        self.within[this, last], self.within[last, this] = coupling, coupling.T
        image = product(new)
        image -= self.rows[last].T @ coupling.T
        inner = new.T @ image
        self.within[this, this] = (inner + inner.T) / 2
        image -= new @ inner
        self._part(image)
        self.next, self.coupling = np.linalg.qr(image)
        # of all blocks: at low rank the last ones have only rounding
        self.largest = max(self.largest, float(np.abs(inner).max()))
        if np.abs(np.diag(self.coupling)).min() <= 1e-6 * self.largest:
            for _ in range(2):  # columns with nothing left are arbitrary: they must not be in the basis
                self._part(self.next)
                self.next, turn = np.linalg.qr(self.next)
                self.coupling = turn @ self.coupling

    def _part(self, columns: Array) -> None:
        rows = self.rows[: self.m]
        columns -= rows.T @ (rows @ columns)

    def pairs(self, k: int) -> tuple[Array, Array, Array]:
        """The k largest Ritz values, their vectors in the basis (m, k), and the norms of their residuals."""
        values, vectors = np.linalg.eigh(self.within[: self.m, : self.m])
        values, vectors = values[::-1][:k], vectors[:, ::-1][:, :k]
        last = vectors[-self.coupling.shape[1] :]
        return values, vectors, np.linalg.norm(self.coupling @ last, axis=0)

    def reserve(self, m: int) -> None:
        """Make room for `m` rows and one more block."""
        most = min(self.n, m + self.block)
        check_memory(8 * most * self.n, f"{most} vectors of {self.n} numbers", "choose fewer dimensions")
        rows, within = uninitialised((most, self.n), np.float64), np.zeros((most, most))
        rows[: self.m], within[: self.m, : self.m] = self.rows[: self.m], self.within[: self.m, : self.m]
        self.rows, self.within = rows, within
