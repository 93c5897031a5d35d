"""The sums of one block of rows, piece by piece: the same bytes on any number of threads."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from uncone.errors import InputError
from uncone.rows import Array, Rows, nonfinite_error
from uncone.rows.samples import as_floats
from uncone.threads import share

_SUMS = ("first", "unit_first", "unit_square")
NUMBERS = ("weight", "weight_square", "unit_weight", "unit_weight_square", "norm_sum", "norm_square_sum")
Buffer = Callable[[str, tuple[int, ...], np.dtype[Any]], Array]
PIECE = 512  # rows summed at once in their dtype: few, for small rounding and a core's cache
_FEW = 32  # rows that a BLAS sums at once in float32: more would round away a digit
_FAR = 8.0  # a row so many times as far out as the median moves its block to float64: other rows would lose digits
_ALONG_ONE = 1.1  # a participation ratio this near to 1 does the same
_COMPARED = 64
_ADDED = 2**16  # numbers added at once: what a core's cache holds
_SAFE_NORM = {"f": (1e-11, 1e15), "d": (1e-140, 1e140)}  # by dtype: no square under- or overflows
SHORTEST = 1e-140  # where no row is longer, second-order sums have no digits
_quiet = partial(np.errstate, all="ignore")  # overflow and division by zero are checked afterwards


class Cell:
    """The partial sums of one block: products in the dtype of the rows, everything else in float64.

    Float32 rows are multiplied about the shift, or, where the shift is far away, about their piece's own centre; the
    part between the two is added in float64.
    """

    def __init__(
        self, shift: Array, buffer: Buffer, products: Sequence[str], *, unit: bool, centered: bool, squares: bool
    ) -> None:
        """`centered` rows are summed about centres, with products or without. `squares`: for `take_squares`."""
        self._shift, self._buffer, self._centered = shift, buffer, centered
        self._squares: list[Array] | None = [] if squares else None
        self._second, self._unit_second = "second" in products, "unit_second" in products
        self._names = _SUMS if unit else _SUMS[:1]
        self._products: dict[str, Array] = {}
        self._between: list[tuple[Array, Array]] = []
        self.sums: defaultdict[str, Any] = defaultdict(int)
        self.norm_min, self.norm_max, self.epsilon, self.unit_epsilon = math.inf, 0.0, 0.0, 0.0
        self.rounding, self._few_values = np.zeros(len(shift)), False

    def add(self, x: Array, w: Array | None) -> None:
        """Add rows (n, D) with weights (n,), in float64 where float32 is not enough."""
        self.sums["n"] += len(x)
        self.epsilon = max(self.epsilon, float(np.finfo(x.dtype).eps))
        x, norms, sums, offsets, squares = self._measured(x, w)
        if self._squares is not None:
            self._squares.append(self._about_shift(squares, offsets) if self._centered else np.square(norms))
        self.unit_epsilon = max(self.unit_epsilon, float(np.finfo(x.dtype).eps))
        if self._centered and offsets.any():
            counts = [float(cut.stop - cut.start if w is None else w[cut].sum()) for cut in cuts(len(x))]
            shares = np.array(counts)[:, None] * offsets
            self._between.append((sums[:, 0] + shares / 2, offsets))
            sums[:, 0] += shares
        for name, value in zip(self._names, sums.sum(0), strict=True):
            self.sums[name] = self.sums[name] + value
        zero_rows, long = int(np.count_nonzero(norms == 0)), norms if w is None else w * norms
        self.sums["zero_rows"] += zero_rows
        if w is None:
            all_rows, directed = float(len(x)), float(len(x) - zero_rows)
            weights = [all_rows, all_rows, directed, directed]
        else:
            unit = w * (norms > 0)
            weights = [float(of.sum()) for of in (w, w * w, unit, unit * unit)]
        norm_sums = [float(long.sum()), float((long * norms).sum())]
        for name, total in zip(NUMBERS, weights + norm_sums, strict=True):
            self.sums[name] += total
        self.norm_min, self.norm_max = min(self.norm_min, float(norms.min())), max(self.norm_max, float(norms.max()))
        if self._second:
            rows = self._buffer("rows", x.shape, x.dtype)
            sample = np.sort(rows[:: -(-len(rows) // _COMPARED), :: -(-rows.shape[1] // _COMPARED)], axis=0)
            # Most numbers repeat within their column.
            repeated = int(np.count_nonzero(sample[1:] == sample[:-1]))
            self._few_values |= len(sample) == _COMPARED and 2 * repeated > sample[1:].size
            self._add_product("second", rows)
        if self._unit_second:  # sum w u u' over unit rows, while the rows are still in a cache
            y, root = self._buffer("rows", x.shape, x.dtype), inverse(norms)
            root = (root if w is None else root * np.sqrt(w)).astype(x.dtype)[:, None]
            share(partial(np.multiply, x[cut], root[cut], out=y[cut]) for cut in cuts(len(x)))
            self._add_product("unit_second", y)

    def take_squares(self) -> Array:
        """Remove and return the rows' squared distances from the shift, or their squared norms if they are not
        `centered`, float64 (n,). They are for rows without weights."""
        assert self._squares is not None
        found, self._squares = self._squares, []
        return np.concatenate(found) if found else np.zeros(0)

    def take_product(self, name: str) -> Array:
        """Remove and return a product; only the lower half of "second" or "unit_second" has a meaning."""
        product = self._products.pop(name)
        if name == "second":
            self._count_rounding(product)
        if name == "second" and self._between:
            with _quiet():
                product = product.astype(np.float64)
            # sum w (z + a)(z + a)' = sum w z z' + half a' + a half', with half = sum w z + sum w a / 2
            for half, offset in self._between:
                left, right = np.concatenate([half, offset]), np.concatenate([offset, half])
                lower_product(left, right, product, add=True)
        return product

    def _about_shift(self, squares: Array, offsets: Array) -> Array:
        """|x - shift|^2 from |y|^2, with y = x - centre in the buffer and centre = shift + offset."""
        found, rows = squares.astype(np.float64), self._buffer("rows", (len(squares), len(self._shift)), squares.dtype)
        if offsets.any():
            with _quiet():  # of rows whose squares leave their dtype
                for cut, offset in zip(cuts(len(rows)), offsets.astype(rows.dtype), strict=True):
                    found[cut] += 2 * (rows[cut] @ offset) + offset @ offset
        return np.maximum(found, 0.0)

    def _measured(self, x: Array, w: Array | None) -> tuple[Array, Array, Array, Array, Array]:
        """The rows, norms, sums of pieces (pieces, names, D) about centres, centres' offsets from the shift (pieces,
        D), and squared distances from the centres if they are `centered`.

        The buffer "rows" holds the centred rows. A zero row, or one too long or too short for float32 squares, takes a
        second pass with care.
        """
        norms = np.empty(len(x), x.dtype)
        sums, offsets, squares = self._sum_pieces(x, w, norms, None)
        uneven = self._centered and x.dtype == np.float32 and self._is_uneven(squares)
        if are_safe(norms) and not uneven:
            return x, norms.astype(np.float64), sums, offsets, squares
        careful = measured_norms(x)
        if careful is None or uneven:
            x = x.astype(np.float64)
            careful = measured_norms(x)
        assert careful is not None
        return x, careful, *self._sum_pieces(x, w, norms.astype(x.dtype), inverse(careful))

    def _is_uneven(self, squares: Array) -> bool:
        """Whether float32 products would lose most centred rows: a few, or one direction, outweigh them."""
        with _quiet():
            lengths = np.sqrt(squares)
            if not lengths.max() <= _FAR * np.median(lengths):  # NaN too
                return True
            rows = self._buffer("rows", (len(squares), len(self._shift)), squares.dtype)
            sample = rows[:: -(-len(rows) // _COMPARED)]
            gram = sample @ sample.T
            along_one = gram.diagonal().sum() ** 2 < _ALONG_ONE * np.vdot(gram, gram)
            return len(self._shift) > 1 and bool(along_one)

    def _sum_pieces(self, x: Array, w: Array | None, norms: Array, scale: Array | None) -> tuple[Array, Array, Array]:
        parts = cuts(len(x))
        sums, squares = np.empty((len(parts), len(self._names), x.shape[1])), np.empty(len(x), x.dtype)
        centers = _centers(self._shift, x, parts) if self._centered else None
        weight, scale = (None if factor is None else factor.astype(x.dtype) for factor in (w, scale))
        rows, pieces = self._buffer("rows", x.shape, x.dtype), []
        for i, cut in enumerate(parts):
            about = None if centers is None else (centers[i], squares[cut])
            factors = (None if f is None else f[cut] for f in (weight, scale))
            pieces.append(partial(_sum_piece, x[cut], rows[cut], norms[cut], sums[i], about, *factors))
        share(pieces)
        return sums, sums if centers is None else centers.astype(np.float64) - self._shift, squares

    def _add_product(self, name: str, y: Array) -> None:
        kept = self._products.get(name)
        if kept is None:
            out = self._buffer(f"{name} product", (y.shape[1], y.shape[1]), y.dtype)
            self._products[name] = lower_product(y, y, out)
            return
        wider = np.promote_types(y.dtype, kept.dtype)  # one of the two may be float64 for its lengths
        if wider != kept.dtype and name == "second":
            self._count_rounding(kept)
        y = y.astype(wider, copy=False)
        with _quiet():
            kept = kept.astype(wider, copy=False)
        self._products[name] = lower_product(y, y, kept, add=True)

    def _count_rounding(self, product: Array) -> None:
        roundings = float(np.finfo(product.dtype).eps) * product.diagonal().astype(np.float64)
        if self._few_values:  # such products round alike, so their errors add up
            roundings *= math.sqrt(len(roundings))
        self.rounding = np.hypot(self.rounding, roundings)


def _sum_piece(
    x: Array,
    y: Array,
    norms: Array,
    sums: Array,
    about: tuple[Array, Array] | None,
    weight: Array | None,
    scale: Array | None,
) -> None:
    """The norms of a few rows x, and their sums into `sums` (3, D), or (1, D) without unit rows.

    `scale` is 1 / norm. `about` is a centre (D,) and where |x - centre|^2 goes. `y` is working memory; with a centre it
    ends up as sqrt(weight) (x - centre).
    """
    first, *unit = sums
    with _quiet():
        careful = scale is not None
        if scale is None:
            np.sqrt(np.einsum("ij,ij->i", x, x, out=norms), out=norms)
            scale = 1 / norms
        if unit:  # a BLAS makes sums over rows in one pass
            factors = scale if weight is None else scale * weight
            if careful:  # the squares of such lengths have no digits
                np.sum(np.multiply(x, factors[:, None], out=y), axis=0, dtype=np.float64, out=unit[0])
                np.einsum("ij,ij->j", y, y, out=unit[1])
            else:
                _weighted_sum(factors, x, unit[0])
                _weighted_sum(factors * factors, np.multiply(x, x, out=y), unit[1])
        ones = np.ones(len(x), x.dtype) if weight is None else weight
        if about is not None:
            center, squares = about
            x = np.subtract(x, center, out=y)
            np.einsum("ij,ij->i", x, x, out=squares)
            if weight is not None:
                ones = np.sqrt(weight)
                x = np.multiply(x, ones[:, None], out=y)
        _weighted_sum(ones, x, first)


def _weighted_sum(factors: Array, x: Array, out: Array) -> None:
    """factors' x into `out`: a BLAS sums few rows at a time, whose sums are added in float64."""
    whole = len(x) - len(x) % _FEW
    parts = np.matmul(factors[:whole].reshape(-1, 1, _FEW), x[:whole].reshape(-1, _FEW, x.shape[1]))
    np.sum(parts[:, 0], axis=0, dtype=np.float64, out=out)
    if whole < len(x):
        out += factors[whole:] @ x[whole:]


def _centers(shift: Array, x: Array, parts: list[slice]) -> Array:
    """Centres of pieces (pieces, D): the shift, or, for float32 rows two deviations away from it, a mean of some
    rows."""
    centers = np.repeat(shift.astype(x.dtype)[None], len(parts), 0)
    if x.dtype != np.float32:
        return centers
    size, whole = parts[0].stop, len(x) // parts[0].stop
    for rows, into in (
        (x[: whole * size].reshape(whole, size, x.shape[1]), centers[:whole]),
        (x[None, whole * size :], centers[whole:]),
    ):
        if len(into):
            with _quiet():
                sample = rows[:, :: -(-rows.shape[1] // 32)] - into[:, None]
                mean, square = sample.mean(1), np.einsum("ijk,ijk->ik", sample, sample) / sample.shape[1]
                beyond = 5 * mean * mean > 4 * square  # mean^2 > 4 (mean of squares - mean^2)
                far = (beyond & (np.abs(mean) > 2.0**-19 * np.abs(into))).any(1, keepdims=True)
                into += np.where(far, mean, 0)
    return centers


def _lengths(x: Array) -> Array:
    return np.asarray(np.sqrt(np.einsum("ij,ij->i", x, x)))


def cuts(n: int, size: int = PIECE) -> list[slice]:
    """Slices of `size`, the last shorter, that make up `n`."""
    return [slice(start, min(start + size, n)) for start in range(0, n, size)]


def lower_product(left: Array, right: Array, out: Array, *, add: bool = False) -> Array:
    """left' right of (n, D) matrices, a symmetric product, written or added to the lower half of `out` (D, D). Strips
    below the diagonal take little more time than a BLAS syrk."""

    def strip(cut: slice) -> None:
        strips = left[:, cut].T, right[:, : cut.stop]
        with _quiet():
            if add:
                out[cut, : cut.stop] += np.matmul(*strips)
            else:
                np.matmul(*strips, out=out[cut, : cut.stop])

    # The last strips are the longest; the short strips then even out the threads.
    share(partial(strip, cut) for cut in reversed(cuts(len(out), _strip_size(out))))
    return out


def _strip_size(product: Array) -> int:
    """Many columns keep a core busy, few skip most of the mirrored half."""
    return max(96, min(256, -(-len(product) // 160) * 32))


def mirror(product: Array) -> Array:
    """Copy the lower half to the upper: symmetric to the bit, which no BLAS promises."""

    def strip(cut: slice) -> None:
        product[: cut.start, cut] = product[cut, : cut.start].T
        block = product[cut, cut]
        block[...] = np.tril(block) + np.tril(block, -1).T

    share(partial(strip, cut) for cut in reversed(cuts(len(product), _strip_size(product))))
    return product


def add_lower(total: Array, part: Array) -> Array:
    """total += part below and on the diagonal; `part` may be of a narrower dtype."""
    rows = max(1, _ADDED // total.shape[1])

    def strip(cut: slice) -> None:
        with _quiet():  # of what memory held before
            total[cut, : cut.stop] += part[cut, : cut.stop]

    share(partial(strip, cut) for cut in cuts(len(total), rows))
    return total


class NotFiniteError(InputError):
    """A block holds a NaN or an infinity."""


@contextmanager
def counting_nonfinite(rows: Rows) -> Iterator[None]:
    """Where a block is not finite, raise an error that counts such rows and names the first."""
    try:
        yield
    except NotFiniteError:
        raise nonfinite_error(rows) from None


def are_safe(norms: Array) -> bool:
    """Whether these norms hold no zero, NaN, overflow or underflow."""
    low, high = _SAFE_NORM[norms.dtype.char]
    return bool(norms.min() > low and norms.max() < high)  # NaN where any norm is


def measured_norms(x: Array) -> Array | None:
    """The rows' norms in float64; None where float32 rows have no float32 squares."""
    with _quiet():
        norms = _lengths(x)
        if are_safe(norms):
            return norms.astype(np.float64)
        low, high = _SAFE_NORM[x.dtype.char]
        if bad := int(np.count_nonzero(~np.isfinite(x).all(axis=1))):
            raise NotFiniteError(f"expected finite rows, got {bad} with NaN or inf: correct or drop them")
        if x.dtype == np.float32:
            if norms.max() < high and ((norms > low) | ~x.any(axis=1)).all():
                return norms.astype(np.float64)  # short only where all zero
            return None
        largest: Array = np.abs(x).max(axis=1)
        if largest.max() > high:
            raise InputError(f"expected numbers below {high:.0e}, got {largest.max():.3g}: scale the rows")
        return largest * _lengths(x / np.where(largest > 0, largest, 1.0)[:, None])


def row_norms(x: Array) -> Array:
    """The rows' Euclidean norms, float64 (n,), for any finite length."""
    norms = measured_norms(x)
    return measured_norms(x.astype(np.float64)) if norms is None else norms  # type: ignore[return-value]


def inverse(norms: Array) -> Array:
    """1 / norm, and 0 for a row that has no direction."""
    return np.divide(1, norms, out=np.zeros_like(norms), where=norms > 0)


def first_mean(x: Array) -> Array:
    """The mean of the first rows, in their own dtype: near enough to the mean of all."""
    with np.errstate(all="ignore"):
        mean: Array = x[:PIECE].mean(axis=0).astype(np.float64)
    # If not finite, the norms will raise an error.
    return mean if np.isfinite(mean).all() else np.zeros_like(mean)


def add_about(total: Array, part: Array, moved: tuple[Array, Array, Array | None] | None) -> None:
    """total += part, (D, D); with the part's own first sums, its first sums about the total's shift, and the difference
    of the shifts:

    sum w (y + delta)(y + delta)' = second + first delta' + delta first' + weight delta delta'
    """
    own, first, delta = moved or (None, None, None)
    for at in cuts(len(total), max(1, 2**20 // len(total))):
        if own is None or first is None or delta is None:
            total[at] += part[at]
        else:
            total[at] += part[at] + np.outer(own[at], delta) + np.outer(delta[at], first)


def checked_weights(weights: Any, n: int) -> Array | None:
    if weights is None:
        return None
    w = as_floats(weights, "weights")
    if w.shape != (n,):
        raise InputError(f"expected weights of shape ({n},), got {w.shape}: give one weight per row")
    with np.errstate(over="ignore"):
        total = float(w.sum())
    if not np.isfinite(w).all() or w.min() < 0 or not 0 < total < math.inf:
        got = f"a least of {float(w.min())} and a sum of {total}"
        then = "pass counts or probabilities, not all of them zero"
        raise InputError(f"expected finite weights from 0 up with a positive, finite sum, got {got}: {then}")
    return w
