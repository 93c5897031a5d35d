"""How far would a reading move with other rows from the same source? Its interval, from what each row contributes."""

import math
from collections.abc import Callable
from functools import partial

import numpy as np

from uncone.moments import Moments, cuts, row_norms
from uncone.records.text import counted
from uncone.rows import Array
from uncone.statistics.tails import point_of
from uncone.threads import on_one_thread, share

FEWEST = 30  # rows, below which no interval is given
TAIL_ROWS = 200  # rows, from which on the tail of the contributions is checked
HEAVIEST = 2.0  # the tail index of the contributions below which they have no variance
CARRIED = 10.0  # rows that a sum of exponentials has to rest on
_STRIP = 256  # rows that a core's cache holds
Influence = Callable[[], Array]  # N times what each of the drawn rows adds to a reading, to first order (k,)


class NoIntervalError(Exception):
    """Why a reading has no interval."""


@on_one_thread
def interval_of(value: float, influence: Influence, m: Moments, least: float, *, log: bool) -> tuple[float, float]:
    """The 95% interval of `value`. With `log`, `value` is a logarithm and `influence` acts on it, and the interval is
    for the number itself. NoIntervalError: too few rows, or a few rows decide.

    With I_i the influence of row i (Hampel 1974), the standard error is the standard error of the mean of I (Jaeckel
    1972), or `least` where that is larger.
    """
    assert m.drawn is not None
    if m.n < FEWEST:
        rows = counted(m.n, "row is", "rows are")
        raise NoIntervalError(f"{rows} too few for an interval: it takes {FEWEST}")
    with np.errstate(all="ignore"):  # of rows at the ends of float64
        influences, weights = influence().astype(np.float64), m.drawn.weights
        influences -= weights @ influences / weights.sum()
        squares = float(weights @ np.square(influences))
    if not math.isfinite(squares):
        raise NoIntervalError("the rows are too long or too short for an interval: scale them")
    if m.n >= TAIL_ROWS:
        index, error = tail_index(np.abs(influences), weights)
        if index + error < HEAVIEST:
            few = "a few rows decide the reading, and similar rows may be missing"
            raise NoIntervalError(f"{few} (tail index {index:.1f}, below {HEAVIEST:g})")
    error = max(least, math.sqrt(squares / m.n / (m.n - 1)))
    half = float(point_of(np.array([math.log(0.025)]), m.n - 1)[0]) * error
    low, high = value - half, value + half
    return (math.exp(low), math.exp(min(high, 700.0))) if log else (low, high)


def tail_index(sizes: Array, weights: Array) -> tuple[float, float]:
    """Hill's estimate (1975) of the tail index, from the largest hundredth of `sizes` (k,), at least ten, each as often
    as its weight; and its standard error. Numbers with an index below 2 have no variance."""
    order = np.argsort(-sizes, kind="stable")
    sizes, counts = sizes[order], weights[order].cumsum()
    end = int(np.searchsorted(counts, max(10.0, 0.01 * counts[-1])))
    if sizes[0] == 0 or end == 0 or end >= len(sizes):
        return math.inf, 0.0
    if sizes[end] == 0:
        return 0.0, 0.0
    top = weights[order[:end]]
    excess = float(top @ np.log(sizes[:end] / sizes[end])) / float(top.sum())
    index = 1 / excess if excess > 0 else math.inf
    return index, index * math.sqrt(float(top @ top)) / float(top.sum())


def drawn_rows(m: Moments) -> Array:
    """The drawn rows (k, D)."""
    assert m.drawn is not None
    return m.drawn.rows


def along(m: Moments, axes: Array, *, centered: bool = False) -> Array:
    """The products of the drawn rows, less the mean where `centered`, with the columns of `axes` (D, K): (k, K)."""
    rows = drawn_rows(m)
    kind, found = rows.dtype, np.empty((len(rows), axes.shape[1]), rows.dtype)
    axes, mean = axes.astype(kind), m.mean().astype(kind) if centered else None

    def work(cut: slice) -> None:
        with np.errstate(all="ignore"):
            np.matmul(rows[cut] if mean is None else rows[cut] - mean, axes, out=found[cut])

    share(partial(work, cut) for cut in cuts(len(rows), _STRIP))
    return found


def norms(m: Moments) -> Array:
    """The norms of the drawn rows (k,)."""
    return m.once("drawn norms", lambda: row_norms(drawn_rows(m)))


def squared_lengths(m: Moments, *, centered: bool) -> Array:
    """|x - mean|^2, or |x|^2, of the drawn rows (k,)."""
    if not centered:
        return np.square(norms(m))
    mean = m.mean()
    return m.once("drawn lengths", lambda: np.square(row_norms(drawn_rows(m) - mean.astype(drawn_rows(m).dtype))))


def products(m: Moments, *, centered: bool) -> Array:
    """The products of the drawn rows with the eigenvectors of the second moment or, less the mean, with the
    eigenvectors of the covariance: (k, D), or (k, N + 1) of few rows."""

    def make() -> Array:
        if centered:
            return along(m, m.leading_directions(m.d, centered=True), centered=True)
        return along(m, m.directions()) if m.keeps_directions else m.on_directions(products(m, centered=True))

    return m.once(f"drawn products {centered}", make)


def on_direction(m: Moments, place: int, gradient: Array) -> Array:
    """The influences on a function by the turn of its direction, an eigenvector v_k of the second moment; `gradient` is
    the gradient of the function along all eigenvectors.

    x x' turns v_k by (x . v_j) (x . v_k) / (l_k - l_j) towards v_j. Where two eigenvalues l differ by no more than the
    error of v_j' X'X v_k, the turn is bounded.
    """
    assert m.drawn is not None
    found = products(m, centered=False)
    kind, own, values = found.dtype, found[:, place], m.spectrum(centered=False)[: found.shape[1]]
    noise = (m.drawn.weights / m.n * np.square(own)).astype(kind) @ np.square(found) / m.n
    gaps = values[place] - values
    bounded = np.divide(gaps, np.square(gaps) + noise, out=np.zeros_like(gaps), where=gaps != 0)
    return np.asarray(own * (found @ (gradient * bounded).astype(kind)))


def leading_squares(m: Moments, k: int, *, centered: bool) -> Array:
    """The squares of the first k `products`, and the sum of all others, (rows, k + 1)."""
    found = m.known(f"drawn products {centered}")
    if found is None:
        found = along(m, m.leading_directions(k, centered=centered), centered=centered)
    first = np.square(found[:, :k], dtype=np.float64)
    rest = squared_lengths(m, centered=centered) - first.sum(1)
    return np.concatenate([first, rest[:, None]], axis=1)


def on_concentration(m: Moments) -> Array:
    """The influences on |C|_F^2 / tr(C)^2: 2 (y'Cy / tr(C)^2 - |y|^2 |C|_F^2 / tr(C)^3), y a row less the mean."""

    def make() -> Array:
        if m.is_decomposed or m.keeps_rows:
            values = m.spectrum(centered=True)
            found = products(m, centered=True)
            turned = np.square(found) @ values[: found.shape[1]].astype(found.dtype)
        else:
            turned = quadratic(m, m.covariance(), m.mean())
        trace = float(m.variances().sum())
        lengths = squared_lengths(m, centered=True)
        return np.asarray(2 * (turned / trace - m.concentration() * lengths) / trace)

    return m.once("drawn on concentration", make)


def quadratic(m: Moments, matrix: Array, mean: Array | None = None, scale: Array | None = None) -> Array:
    """y'Ay of the drawn rows y less `mean`, or times `scale`, with a symmetric `matrix` A (D, D): (k,)."""
    rows, found = drawn_rows(m), np.empty(len(drawn_rows(m)))
    kind = rows.dtype
    matrix, mean = matrix.astype(kind), None if mean is None else mean.astype(kind)
    blocks = cuts(len(matrix), -(-len(matrix) // 4))  # 10 of 16 blocks of a symmetric matrix are enough
    for block in blocks:
        matrix[block, block] /= 2

    def work(cut: slice) -> None:
        with np.errstate(all="ignore"):
            y = rows[cut] if mean is None else rows[cut] - mean
            y = y if scale is None else y * scale[cut, None].astype(kind)
            parts = ((y[:, b.start :] @ matrix[b.start :, b], y[:, b]) for b in blocks)
            found[cut] = 2 * sum(np.einsum("ij,ij->i", *part) for part in parts)

    share(partial(work, cut) for cut in cuts(len(rows), _STRIP))
    return found
