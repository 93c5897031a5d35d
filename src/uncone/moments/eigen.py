"""Eigenvalues of large symmetric matrices: all of them in place, a few, or all after a rank-one change."""

import ctypes
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import ThreadpoolController

from uncone.memory import uninitialised, zeros
from uncone.moments.cell import cuts
from uncone.rows import Array
from uncone.statistics.leading import ritz_pairs
from uncone.threads import interruptible, on_one_thread, share

_WHOLE = 512  # columns, up to which NumPy's function is as fast
_WORK = 64  # columns that LAPACK works on at once
_TILE = 256  # roots searched for at once: enough that a step is arithmetic and not calls
_EPS = 2.0**-52


@on_one_thread
def leading_pairs(matrix: Array, k: int) -> tuple[Array, Array]:
    """The k largest eigenvalues and unit eigenvectors (D, k) of a positive semi-definite `matrix` (D, D).

    Block Lanczos with full orthogonalisation, to residuals |A v - l v| of 1e-9 of the largest eigenvalue. Where the
    matrix is small or the iteration takes long: a whole decomposition, in the matrix's memory.
    """
    d, scale = len(matrix), float(matrix.diagonal().max()) or 1.0  # no square of a quotient leaves float64
    width = -(-(k + 11) // 16) * 16
    if d // 4 >= 4 * width:  # a basis of more rows costs as much as a whole decomposition
        of_rows = ritz_pairs(lambda x: (np.ascontiguousarray(x.T) @ matrix / scale).T, d, k, most=d // 4, block=width)
        for values, residuals, rows, turned in of_rows:
            if float(residuals.max()) <= 1e-9 * float(values[0]):
                vectors = rows.T @ turned
                return np.maximum(values, 0.0) * scale, vectors / np.linalg.norm(vectors, axis=0)
    values, vectors = consume_to_eigen(matrix)
    return values[:k].copy(), vectors[:, :k].copy()


@on_one_thread
def consume_to_eigen(matrix: Array) -> tuple[Array, Array]:
    """Eigenvalues, largest first, and unit eigenvectors as columns of a symmetric float64 `matrix` (D, D), which is
    overwritten.

    NumPy's function copies the matrix twice, and works on one thread where bytes must not depend on the number of
    threads. Here LAPACK makes the matrix tridiagonal in place; its halves are decomposed in parallel and joined (Cuppen
    1981), and the vectors are turned back panel by panel.
    """
    n = len(matrix)
    call = _lapack() if n >= _WHOLE and matrix.flags.c_contiguous else None
    if call is None:
        values, vectors = interruptible(np.linalg.eigh, matrix)
        return values[::-1].copy(), vectors.T[::-1].copy().T
    diagonal, beside, reflected, work = np.empty(n), np.empty(n), np.empty(n), np.empty(_WORK * n)
    interruptible(call, "dsytrd", b"L", n, matrix, n, diagonal, beside, reflected, work, work.size)
    half, rows, link = n // 2, zeros((n, n)), float(beside[n // 2 - 1])  # rows are vectors here
    diagonal[half - 1 : half + 1] -= abs(link)

    def solve(cut: slice) -> None:
        size, some = cut.stop - cut.start, rows[cut, cut]
        work = uninitialised((1 + 4 * size + size * size,))
        integers = np.empty(3 + 5 * size, np.int64)
        of = (size, diagonal[cut], beside[cut], some, n, work, work.size, integers, integers.size)
        call("dstedc", b"I", *of)

    share(partial(solve, slice(*ends)) for ends in ((0, half), (half, n)))
    z = math.sqrt(abs(link)) * np.append(rows[:half, half - 1], math.copysign(1.0, link) * rows[half:, half])
    whole = RankOne(diagonal, z)
    values, joined = whole.values, whole.turned(rows.T)

    def turn(panel: Array) -> None:
        work = np.empty(_WORK * len(panel))
        of = (n, len(panel), matrix, n, reflected, panel, n, work, work.size)
        call("dormtr", b"L", b"L", b"N", *of)

    size = -(-n // 4)  # panels turned back side by side
    share(partial(turn, joined.T[first : first + size]) for first in range(0, n, size))
    return values, joined


@on_one_thread
def few_to_eigen(rows: Array, mean: Array) -> tuple[Array, Array, Array]:
    """As `consume_to_eigen` of rows' rows, for N `rows` about their `mean`, (N, D) with N < D: N + 1 eigenvalues and
    vectors (D, N + 1), and the mean (N + 1,) in these vectors.

    A QR decomposition of [rows', mean] turns the rows to N + 1 features: vectors of the products (N, N), turned back,
    would not be orthogonal for small eigenvalues.
    """
    n = len(rows)
    basis, parts = interruptible(np.linalg.qr, np.concatenate([rows, mean[None]]).T)
    values, vectors = consume_to_eigen(parts[:, :n] @ parts[:, :n].T)
    return values, parts[:, n] @ vectors, basis @ vectors


@cache
def _lapack() -> Callable[..., None] | None:
    """A function that calls routines of the LAPACK in NumPy's package; None where NumPy uses another LAPACK."""
    with suppress(OSError, AttributeError):
        home = Path(np.__file__).resolve().parent
        for library in ThreadpoolController().lib_controllers:
            if Path(library.filepath).resolve().parent in (home.parent / "numpy.libs", home / ".dylibs"):
                routines = ctypes.CDLL(library.filepath)
                found = {name: getattr(routines, f"scipy_{name}_64_") for name in ("dsytrd", "dstedc", "dormtr")}
                return partial(_call, found)
    return None


def _call(routines: Mapping[str, Callable[..., None]], name: str, *given: bytes | int | Array) -> None:
    """Call a Fortran routine, which takes all arguments by reference, then the lengths of texts."""
    info = ctypes.c_int64(0)
    passed = [
        one
        if isinstance(one, bytes)
        else ctypes.byref(ctypes.c_int64(one))
        if isinstance(one, int)
        else one.ctypes.data_as(ctypes.c_void_p)
        for one in given
    ]
    texts = [ctypes.c_size_t(1) for one in given if isinstance(one, bytes)]
    routines[name](*passed, ctypes.byref(info), *texts)
    if info.value:
        raise np.linalg.LinAlgError(f"{name} of LAPACK ended with {info.value}")


def summed_roundings(vectors: Array, rounding: Array) -> tuple[Array, Array]:
    """The root of sum v_i^4 r_i^2, and sum v_i^2 r_i, for eigenvectors v, the columns of `vectors`, and `rounding` r."""
    largest = float(rounding.max()) or 1.0  # squares of the roundings themselves may overflow
    alone, together = np.zeros((2, len(rounding)))
    for cut in cuts(len(rounding), 64):
        strip, of_features = np.square(vectors[cut]), rounding[cut] / largest
        together += of_features @ strip
        alone += np.square(of_features) @ np.square(strip)
    return np.sqrt(alone) * largest, together * largest


class RankOne:
    """The eigenvalues of diag(values) + z z', largest first, `values`, and `along`, |z . q| for the unit eigenvector q
    of each, whose sign is such that z . q is not above 0.

    So one decomposition serves for rows about their mean and about the origin: with C = V diag(d) V' and z = V' m, C +
    m m' has the eigenvalues of diag(d) + z z', and the eigenvectors V q. The eigenvalues are the roots of the secular
    equation (Golub 1973)

        f(l) = 1 + sum_j z_j^2 / (d_j - l),

    one between any two neighbouring poles d_j and one beyond the last. All roots are found together, to the rounding of
    their distance from a pole, in about nine steps of D^2 divisions.
    """

    def __init__(self, values: Array, z: Array) -> None:
        """`values` (D,) are in any order, and z in the same order."""
        # Near 1 no square leaves float64; powers of two change no digit.
        half = math.frexp(max(float(np.abs(values).max()), float(np.abs(z).max()) ** 2))[1] // 2
        root = math.ldexp(1.0, half)
        values, z, self._order = values / root / root, z / root, values.argsort()
        poles, parts, self._at, roots, self._settled_at, self._rotations = _deflated(
            values[self._order], z[self._order]
        )
        weights, along, self._settled = np.square(parts), np.zeros_like(roots), len(roots)
        tiles = _tiles(len(poles))
        origin = tau = poles
        if tiles:
            origin, tau = _by_tile(_roots, tiles, poles, weights)
            (weights,) = _by_tile(_weights_of, tiles, poles, origin, tau)
            (moved,) = _by_tile(_along, tiles, poles, weights, origin, tau)
            roots, along = np.concatenate([roots, origin + tau]), np.concatenate([along, moved])
        self._ranks = np.argsort(-roots, kind="stable")
        self._poles, self._origin, self._tau, self._along = poles, origin, tau, along
        self._signed = np.copysign(np.sqrt(np.abs(weights)), parts)
        self.values, self.along = roots[self._ranks] * root * root, along[self._ranks] * root

    def turned(self, columns: Array) -> Array:
        """The products of `columns` (R, D), in the order of `values` given, with the eigenvectors, in their dtype:
        eigenvectors V become V q."""
        rows, turned = columns.T, uninitialised(columns.shape[::-1], columns.dtype)

        def turn(cut: slice) -> None:
            np.matmul(self._eigenvectors(self._ranks[cut], rows.dtype), rows, out=turned[cut])

        share(partial(turn, slice(*tile)) for tile in _tiles(len(rows)))
        return turned.T

    def _eigenvectors(self, which: Array, kind: np.dtype[Any]) -> Array:
        """Some eigenvectors, as rows."""
        some = which[which >= self._settled] - self._settled
        new, old = np.flatnonzero(which >= self._settled), np.flatnonzero(which < self._settled)
        mixed = np.zeros((len(which), len(self._order)))
        mixed[old, self._settled_at[which[old]]] = 1.0
        gaps = (self._poles - self._origin[some, None]) - self._tau[some, None]
        mixed[new[:, None], self._at] = self._signed / gaps * self._along[which[new], None]
        for i, j, cosine, sine in reversed(self._rotations):
            left, right = mixed[:, i].copy(), mixed[:, j]
            mixed[:, i], mixed[:, j] = cosine * left + sine * right, cosine * right - sine * left
        unsorted = np.empty(mixed.shape, kind)
        unsorted[:, self._order] = mixed
        return unsorted


def _tiles(count: int) -> list[tuple[int, int]]:
    """Equal parts of `count` roots, an even number of them where there is more than one: two threads end together."""
    parts = -(-count // _TILE)
    size = -(-count // (parts + parts % 2 * (parts > 1))) if count else 1
    return [(first, min(first + size, count)) for first in range(0, count, size)]


def _by_tile(function: Callable[..., tuple[Array, ...]], tiles: list[tuple[int, int]], *of: Array) -> list[Array]:
    """The results for all roots. No root uses a value that overflows or divides by zero."""

    def work(tile: tuple[int, int]) -> tuple[Array, ...]:
        with np.errstate(all="ignore"):
            return function(*of, *tile)

    return [np.concatenate(part) for part in zip(*share(partial(work, tile) for tile in tiles), strict=True)]


def _weights_of(poles: Array, origin: Array, tau: Array, first: int, stop: int) -> tuple[Array]:
    """The squares z_j^2 for which the computed roots l_k are exact (Gu and Eisenstat 1994), so that vectors are
    consistent where roots are close:

        z_j^2 = prod_k (l_k - d_j) / prod_(k != j) (d_k - d_j).
    """
    some = np.arange(first, stop)
    gaps = poles - poles[some, None]
    gaps[some - first, some] = 1.0
    return ((((origin - poles[some, None]) + tau) / gaps).prod(1),)


def _along(poles: Array, weights: Array, origin: Array, tau: Array, first: int, stop: int) -> tuple[Array]:
    """|z . q| = 1 / sqrt(f')."""
    gaps = (poles - origin[first:stop, None]) - tau[first:stop, None]
    return (1 / np.sqrt((1 / gaps) ** 2 @ weights),)


def _deflated(d: Array, z: Array) -> tuple[Array, Array, list[int], Array, Array, list[tuple[int, int, float, float]]]:
    """The poles of the secular equation, ascending, their parts of z, and their places; the eigenvalues that z leaves
    unchanged, and their places; and the rotations (i, j, cosine, sine) of rows of vectors before.

    A pole without weight stays. Of two equal poles, a rotation gives all weight to one, as in LAPACK's dlaed2. Less
    than 8 roundings of the largest number in the matrix are neglected.
    """
    total = float(z @ z)
    tolerance = 8 * _EPS * max(float(np.abs(d).max()), total)
    poles, kept, at = list[float](), list[float](), list[int]()
    settled, settled_at, rotations = list[float](), list[int](), list[tuple[int, int, float, float]]()
    for i, (value, part) in enumerate(zip(d.tolist(), z.tolist(), strict=True)):
        if abs(part) * math.sqrt(total) <= tolerance:
            settled.append(value)
            settled_at.append(i)
            continue
        if poles:
            both = math.hypot(kept[-1], part)
            cosine, sine = part / both, kept[-1] / both
            if abs((value - poles[-1]) * cosine * sine) <= tolerance:
                settled.append(poles[-1] * cosine**2 + value * sine**2)
                settled_at.append(at[-1])
                rotations.append((at[-1], i, cosine, sine))
                poles[-1], kept[-1], at[-1] = poles[-1] * sine**2 + value * cosine**2, both, i
                continue
        poles.append(value)
        kept.append(part)
        at.append(i)
    return np.array(poles), np.array(kept), at, np.array(settled), np.array(settled_at, int), rotations


def _roots(poles: Array, weights: Array, first: int, stop: int) -> tuple[Array, Array]:
    """Roots first to stop, root k between poles k and k + 1: the nearer pole of each root, and the distance from it.

    A step solves c + s / (left - l) + S / (right - l) = 0 for the two poles next to a root, with the nearer pole's own
    weight, and the rest of f and f' in c and in the other weight (the fixed weight method, Li 1994). A root beyond the
    last pole has one pole. A step that leaves the bracket is replaced by bisection.
    """
    last = stop == len(poles)
    k = np.arange(first, stop)
    beyond = np.minimum(k + 1, len(poles) - 1)
    gap = np.where(k + 1 < len(poles), poles[beyond] - poles[k], weights.sum())
    secular = partial(_secular, weights, k, np.empty((len(k), len(poles))))
    middle = secular(poles - poles[k][:, None], 0.5 * gap)[0]
    to_right = (middle < 0) & (k + 1 < len(poles))
    origin, beside = np.where(to_right, beyond, k), np.where(to_right, k, beyond)
    offsets = poles - poles[origin][:, None]  # roots as distances from poles: no digits cancel
    own, other = weights[origin], offsets[np.arange(len(k)), beside]
    low = np.where(to_right, -0.5 * gap, np.where(middle < 0, 0.5 * gap, 0.0))
    high = np.where(to_right, 0.0, np.where(middle < 0, gap, 0.5 * gap))
    tau = np.where(to_right, -0.5 * gap, 0.5 * gap)
    for _ in range(100):
        f, slope, size = secular(offsets, tau)
        low, high = np.where(f < 0, tau, low), np.where(f > 0, tau, high)
        done = (np.abs(f) <= 2 * _EPS * size) | (high - low <= 2 * _EPS * np.abs(tau))
        if done.all():
            break
        step = _step(f, slope, own, -tau, other - tau)
        if last:
            near = -tau[-1]
            step[-1] = near + slope[-1] * near**2 / (f[-1] - slope[-1] * near)
        moved = tau + step
        inside = (moved > low) & (moved < high)
        tau = np.where(done, tau, np.where(inside, moved, 0.5 * (low + high)))
    return poles[origin], tau


def _secular(weights: Array, roots: Array, out: Array, offsets: Array, tau: Array) -> tuple[Array, Array, Array]:
    """f, f' and 1 + the sizes of f's terms, at distances `tau` from the poles that `offsets` begin at."""
    inverse = np.subtract(offsets, tau[:, None], out=out)
    np.divide(1, inverse, out=inverse)
    first, stop = int(roots[0]), int(roots[-1]) + 1
    mixed = inverse[:, first:stop]
    negative, positive = inverse[:, :first] @ weights[:first], inverse[:, stop:] @ weights[stop:]
    f = 1 + negative + positive + mixed @ weights[first:stop]
    size = 1 - negative + positive + np.abs(mixed) @ weights[first:stop]
    return f, np.multiply(inverse, inverse, out=inverse) @ weights, size


def _step(f: Array, slope: Array, own: Array, near: Array, far: Array) -> Array:
    """How far to move between poles at distances `near` (of weight `own`) and `far`."""
    rest = np.maximum(far**2 * (slope - own / near**2), 0.0)
    c = f - own / near - rest / far
    b, product = c * (near + far) + own + rest, f * near * far
    root = np.sqrt(np.maximum(b * b - 4 * c * product, 0.0))
    step: Array = np.where(b <= 0, (b - root) / (2 * c), 2 * product / (b + root))
    return step
