"""Eigenvectors of a large symmetric matrix: all of them in its place, or a few beside it."""

import torch

from uncone.threads import on_one_thread

Tensor = torch.Tensor
_EXTRA = 13
_TURNS = 200
_RESIDUAL = 1e-9
_TURNED = 64


@on_one_thread
def leading_eigenvectors(matrix: Tensor, k: int) -> Tensor | None:
    """The first k unit eigenvectors of a positive semi-definite `matrix` (D, D) as columns, by subspace iteration.

    Returns:
        float64 (D, k) with residuals |A v - l v| of at most 1e-9 of the largest eigenvalue, or None when 200 turns were
        not enough: eigenvalue k is then hardly larger than eigenvalue k + 13.
    """
    d = len(matrix)
    if k + _EXTRA >= d // 4:
        return None  # a whole decomposition is as cheap
    start = torch.randn(d, k + _EXTRA, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(
        matrix
    )
    basis = torch.linalg.qr(start)[0]
    for turn in range(_TURNS):
        image = matrix @ basis
        if turn % 10 == 9:
            values, small = torch.linalg.eigh(basis.T @ image)
            small, values = small.flip(1)[:, :k], values.flip(0)[:k]
            residual = torch.linalg.vector_norm(image @ small - (basis @ small) * values, dim=0)
            if float(residual.max()) <= _RESIDUAL * float(values[0]):
                found: Tensor = basis @ small
                return found
        basis = torch.linalg.qr(image)[0]
    return None


@on_one_thread
def consume_to_eigen(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues (D,), largest first, and unit eigenvectors as columns (D, D) of a symmetric float64 `matrix` (D, D).

    The eigenvectors take the memory of the matrix, which is lost. LAPACK overwrites it anyway; torch would keep a copy.
    """
    if matrix.device.type != "cpu":
        values, vectors = torch.linalg.eigh(matrix)
        return values.flip(0), vectors.flip(1)
    columns = matrix.T  # the same matrix, laid out column by column as LAPACK wants it
    values = torch.empty(len(matrix), dtype=matrix.dtype)
    torch.linalg.eigh(columns, out=(values, columns))
    _reverse(matrix)
    return values.flip(0), columns


def _reverse(rows: Tensor) -> None:
    """Reverse the order of `rows` in place, a few at a time."""
    n = len(rows)
    for first in range(0, n // 2, _TURNED):
        last = min(first + _TURNED, n // 2)
        head = rows[first:last].flip(0)
        rows[first:last] = rows[n - last : n - first].flip(0)
        rows[n - last : n - first] = head
