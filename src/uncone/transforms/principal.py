"""The first few principal directions, without a whole decomposition."""

import torch

from uncone.moments import Moments
from uncone.moments.eigen import consume_to_eigen
from uncone.threads import alone

Tensor = torch.Tensor
_EXTRA = 11
_RESIDUAL = 1e-9
_SHARE = 4


def principal_directions(m: Moments, k: int) -> tuple[Tensor, Tensor]:
    """The first k unit directions of variance as rows (r, D) and the variances (r,); r < k where the rest is rounding.

    Sums of products in the dtype of the rows hold no variance below its epsilon times the largest.
    """
    values, vectors = alone(
        lambda: leading_pairs(m.covariance(), k)
    )  # on one thread: the same bytes on any number
    known = int((values > 4 * m.epsilon * float(values[0])).sum())
    return with_signs(vectors[:, :known].T.cpu()), values[:known].cpu()


def leading_pairs(matrix: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest eigenvalues (k,) and their unit eigenvectors as columns (D, k) of a positive semi-definite `matrix` (D, D).

    Block Lanczos with full orthogonalisation, to residuals |A v - l v| of at most 1e-9 of the largest eigenvalue; a whole
    decomposition, in the place of the matrix, where it is small or the iteration would not be shorter.
    """
    d = len(matrix)
    width = -(-(k + _EXTRA) // 16) * 16
    most = d // _SHARE // width  # blocks, beyond which a whole decomposition is as cheap
    if most >= 4:
        start = torch.randn(d, width, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        found = _iterate(matrix, torch.linalg.qr(start.to(matrix))[0], k, most)
        if found is not None:
            return found
    values, vectors = consume_to_eigen(matrix)
    return values[:k].clone(), vectors[:, :k].clone()


def _iterate(matrix: Tensor, block: Tensor, k: int, most: int) -> tuple[Tensor, Tensor] | None:
    basis, image = (
        block.T.contiguous(),
        (block.T.contiguous() @ matrix),
    )  # as rows, which BLAS multiplies twice as fast
    for turn in range(1, most):
        basis, image = _extended(basis, image, block.shape[1], matrix)
        if turn % 3 == 0 or turn == most - 1:
            values, turned = torch.linalg.eigh(basis @ image.T)
            values, turned = values.flip(0)[:k], turned.flip(1)[:, :k]
            vectors = basis.T @ turned
            residual = torch.linalg.vector_norm(image.T @ turned - vectors * values, dim=0)
            if float(residual.max()) <= _RESIDUAL * float(values[0]):
                return values.clamp_min(0.0), torch.nn.functional.normalize(vectors, dim=0)
    return None


def _extended(basis: Tensor, image: Tensor, width: int, matrix: Tensor) -> tuple[Tensor, Tensor]:
    """The basis (rows) and its image, longer by what the matrix makes of the last `width` rows."""
    new = image[-width:]
    for _ in range(
        3
    ):  # twice is enough where something is left; where nothing is, the first time leaves noise to begin with
        new = torch.linalg.qr((new - (new @ basis.T) @ basis).T)[0].T
    new = new.contiguous()
    return torch.cat([basis, new]), torch.cat([image, new @ matrix])


def with_signs(directions: Tensor) -> Tensor:
    """The same directions (k, D), each with its largest entry positive, so that no library chooses the sign."""
    largest = directions.gather(1, directions.abs().argmax(dim=1, keepdim=True))
    return directions * torch.where(largest < 0, -1.0, 1.0)
