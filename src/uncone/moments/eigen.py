"""Eigenvalues of large symmetric matrices: all in its place, a few beside it, all after a rank-one change."""

import math
from functools import partial

import torch

from uncone.threads import on_one_thread, share

Tensor = torch.Tensor
_EXTRA = 11  # directions beside those asked for
_RESIDUAL = 1e-9
_SHARE = 4  # of the columns, beyond which a whole decomposition is as cheap
_TURNED = 64
_TILE = 256
"""Roots searched for at once: enough that a step is arithmetic and not calls."""
_TURNS = 100
_EPS = torch.finfo(torch.float64).eps


@on_one_thread
def leading_pairs(matrix: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest eigenvalues and unit eigenvectors (D, k) of a positive semi-definite `matrix` (D, D).

    Block Lanczos with full orthogonalisation, to residuals |A v - l v| of at most 1e-9 of the largest
    eigenvalue. A whole decomposition, which takes the memory of the matrix, where it is small or the
    iteration takes long.
    """
    d = len(matrix)
    width = -(-(k + _EXTRA) // 16) * 16
    most = d // _SHARE // width  # blocks, beyond which a whole decomposition is as cheap
    if most >= 4:
        start = torch.randn(d, width, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        pairs = _iterate(matrix, torch.linalg.qr(start.to(matrix))[0], k, most)
        if pairs is not None:
            return pairs
    values, vectors = consume_to_eigen(matrix)
    return values[:k].clone(), vectors[:, :k].clone()


def _iterate(matrix: Tensor, block: Tensor, k: int, most: int) -> tuple[Tensor, Tensor] | None:
    basis = block.T.contiguous()  # vectors are rows here, which BLAS multiplies twice as fast
    image = basis @ matrix
    for turn in range(1, most):
        new = image[-block.shape[1] :]  # the basis is longer by what the matrix makes of its last rows
        for _ in range(3):  # twice is enough; where nothing is left, the first turn leaves noise
            new = torch.linalg.qr((new - (new @ basis.T) @ basis).T)[0].T
        new = new.contiguous()
        basis, image = torch.cat([basis, new]), torch.cat([image, new @ matrix])
        if turn % 3 == 0 or turn == most - 1:
            values, turned = torch.linalg.eigh(basis @ image.T)
            values, turned = values.flip(0)[:k], turned.flip(1)[:, :k]
            vectors = basis.T @ turned
            residual = torch.linalg.vector_norm(image.T @ turned - vectors * values, dim=0)
            if float(residual.max()) <= _RESIDUAL * float(values[0]):
                return values.clamp_min(0.0), torch.nn.functional.normalize(vectors, dim=0)
    return None


@on_one_thread
def consume_to_eigen(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues, largest first, and unit eigenvectors as columns of a symmetric float64 `matrix` (D, D).

    The eigenvectors take the memory of the matrix, which is lost. LAPACK overwrites it anyway; torch would
    keep a copy.
    """
    if matrix.device.type != "cpu":
        values, vectors = torch.linalg.eigh(matrix)
        return values.flip(0), vectors.flip(1)
    columns = matrix.T  # the same matrix, laid out column by column as LAPACK wants it
    values = torch.empty(len(matrix), dtype=matrix.dtype)
    torch.linalg.eigh(columns, out=(values, columns))
    n = len(matrix)
    for first in range(0, n // 2, _TURNED):  # reverse the order of its rows in place, a few at a time
        last = min(first + _TURNED, n // 2)
        head = matrix[first:last].flip(0)
        matrix[first:last] = matrix[n - last : n - first].flip(0)
        matrix[n - last : n - first] = head
    return values.flip(0), columns


def add_rank_one(values: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues of diag(values) + z z', and |z . q| for the unit eigenvector q of each.

    So one decomposition answers for rows about their mean and about the origin: with C = V diag(d) V' and z =
    V' m, the eigenvalues of C + m m' are those of diag(d) + z z'. They are the roots of the secular equation
    (Golub 1973)

        f(l) = 1 + sum_j z_j^2 / (d_j - l),

    one between each two neighbouring poles d_j and one beyond the last. All are found at once, to the
    rounding of their distance from a pole: D^2 divisions a step for some nine steps, where a second
    decomposition takes D^3.

    `values` are from 0 up in any order, float64 (D,), as z. The results are in the order of the new
    eigenvalues, largest first.
    """
    order = values.argsort()
    poles, weights, settled = _deflated(values[order].cpu(), z[order].cpu())
    roots, along = settled, torch.zeros_like(settled)
    if len(poles):
        tiles = [(first, min(first + _TILE, len(poles))) for first in range(0, len(poles), _TILE)]
        parts = share(partial(_roots, poles, weights, *tile) for tile in tiles)
        origin, tau = (torch.cat(part) for part in zip(*parts, strict=True))
        weights = torch.cat(share(partial(_weights_of, poles, origin, tau, *tile) for tile in tiles))
        moved = torch.cat(share(partial(_along, poles, weights, origin, tau, *tile) for tile in tiles))
        roots, along = torch.cat([roots, origin + tau]), torch.cat([along, moved])
    roots, order = roots.sort(descending=True)
    return roots.to(values.device), along[order].to(values.device)


def _weights_of(poles: Tensor, origin: Tensor, tau: Tensor, first: int, stop: int) -> Tensor:
    """The squares z_j^2 for which the computed roots l_k are exact (Gu and Eisenstat 1994), (stop - first,):

        z_j^2 = prod_k (l_k - d_j) / prod_(k != j) (d_k - d_j).

    With them two roots close to a pole lead to results as consistent as others.
    """
    some = torch.arange(first, stop)
    gaps = poles - poles[some, None]
    gaps[some - first, some] = 1.0
    return ((origin - poles[some, None]) + tau).div_(gaps).prod(1)


def _along(poles: Tensor, weights: Tensor, origin: Tensor, tau: Tensor, first: int, stop: int) -> Tensor:
    """|z . q| = 1 / sqrt(f') for the unit eigenvectors q of some roots."""
    gaps = (poles - origin[first:stop, None]).sub_(tau[first:stop, None])
    return (gaps.reciprocal_().square_() @ weights).rsqrt()


def _deflated(d: Tensor, z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The poles of the secular equation, ascending, their weights z^2, and the eigenvalues that z leaves.

    A pole without weight stays where it is, and of two poles as good as equal a rotation gives all weight to
    one, as in LAPACK's dlaed2; less than 8 roundings of the largest number in the matrix are neglected.
    """
    total = float(z.square().sum())
    tolerance = 8 * _EPS * max(float(d[-1]), total)
    values, parts = d.tolist(), z.tolist()
    poles: list[float] = []
    kept: list[float] = []
    settled: list[float] = []
    for value, part in zip(values, parts, strict=True):
        if abs(part) * math.sqrt(total) <= tolerance:
            settled.append(value)
            continue
        if poles:
            both = math.hypot(kept[-1], part)
            cosine, sine = part / both, kept[-1] / both
            if abs((value - poles[-1]) * cosine * sine) <= tolerance:
                settled.append(poles[-1] * cosine**2 + value * sine**2)
                poles[-1], kept[-1] = poles[-1] * sine**2 + value * cosine**2, both
                continue
        poles.append(value)
        kept.append(part)
    as_tensor = partial(torch.tensor, dtype=torch.float64)
    return as_tensor(poles), as_tensor(kept).square(), as_tensor(settled)


def _roots(poles: Tensor, weights: Tensor, first: int, stop: int) -> tuple[Tensor, Tensor]:
    """Roots first to stop, root k between poles k and k + 1: each one's nearer pole, and distance from it.

    A step solves c + s / (left - l) + S / (right - l) = 0 for the two poles beside a root, with the nearer
    pole's own weight and the rest of f and f' in c and in the other weight (the fixed weight method, Li
    1994); beyond the last pole there is one pole to fit. A step that leaves the bracket is replaced by
    bisection.
    """
    last = stop == len(poles)
    k = torch.arange(first, stop)
    beyond = (k + 1).clamp_max(len(poles) - 1)
    gap = torch.where(k + 1 < len(poles), poles[beyond] - poles[k], weights.sum())
    # Every step uses the same memory again.
    secular = partial(_secular, weights, k, torch.empty(len(k), len(poles), dtype=torch.float64))
    middle = secular(poles - poles[k][:, None], 0.5 * gap)[0]
    to_right = (middle < 0) & (k + 1 < len(poles))
    origin, beside = torch.where(to_right, beyond, k), torch.where(to_right, k, beyond)
    offsets = poles - poles[origin][:, None]  # roots as distances from poles: no digits cancel
    own, other = weights[origin], offsets.gather(1, beside[:, None])[:, 0]
    low = torch.where(to_right, -0.5 * gap, torch.where(middle < 0, 0.5 * gap, 0.0))
    high = torch.where(to_right, 0.0, torch.where(middle < 0, gap, 0.5 * gap))
    tau = torch.where(to_right, -0.5 * gap, 0.5 * gap)
    for _ in range(_TURNS):
        f, slope, size = secular(offsets, tau)
        low, high = torch.where(f < 0, tau, low), torch.where(f > 0, tau, high)
        done = (f.abs() <= 2 * _EPS * size) | (high - low <= 2 * _EPS * tau.abs())
        if bool(done.all()):
            break
        step = _step(f, slope, own, -tau, other - tau)
        if last:
            near = -tau[-1]
            step[-1] = near + slope[-1] * near**2 / (f[-1] - slope[-1] * near)
        moved = tau + step
        inside = (moved > low) & (moved < high)
        tau = torch.where(done, tau, torch.where(inside, moved, 0.5 * (low + high)))
    return poles[origin], tau


def _secular(
    weights: Tensor, roots: Tensor, out: Tensor, offsets: Tensor, tau: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """f, f' and 1 + the sizes of f's terms, at distances `tau` from the poles that `offsets` begin at."""
    inverse = torch.sub(offsets, tau[:, None], out=out).reciprocal_()
    first, stop = int(roots[0]), int(roots[-1]) + 1
    mixed = inverse[:, first:stop]
    negative, positive = inverse[:, :first] @ weights[:first], inverse[:, stop:] @ weights[stop:]
    f = 1 + negative + positive + mixed @ weights[first:stop]
    size = 1 - negative + positive + mixed.abs() @ weights[first:stop]
    return f, inverse.square_() @ weights, size


def _step(f: Tensor, slope: Tensor, own: Tensor, near: Tensor, far: Tensor) -> Tensor:
    """How far to move, beside poles at distances `near` (of weight `own`) and `far`."""
    rest = (far.square() * (slope - own / near.square())).clamp_min(0.0)
    c = f - own / near - rest / far
    b, product = c * (near + far) + own + rest, f * near * far
    root = (b.square() - 4 * c * product).clamp_min(0.0).sqrt()
    return torch.where(b <= 0, (b - root) / (2 * c), 2 * product / (b + root))
