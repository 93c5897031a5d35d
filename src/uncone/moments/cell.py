"""The sums of one block of finite rows by pieces, one thread each: the same bytes on any number."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch

from uncone.errors import InputError
from uncone.rows import Rows, nonfinite_error
from uncone.threads import share

Tensor = torch.Tensor
_SUMS = ("first", "unit_first", "unit_square")
Buffer = Callable[[str, tuple[int, ...], torch.dtype], Tensor]
PIECE = 512
"""Rows summed at once in the dtype of the rows: few, for small rounding and a core's cache."""
_SAMPLED = 32
"""Rows that say where a piece lies."""
_ROUNDING = 2.0**-19  # of a mean, in float32
_FAR = 8.0
"""A row so many times as far out as the median takes its block to float64: it would cost others' digits."""
_ALONG_ONE = 1.1
"""So does a participation ratio this near to 1: nearly all variance along one direction."""
_COMPARED = 64
_STRIP = 96
"""Columns of a product computed at once: many keep a core busy, few skip most of the mirrored half."""
_ADDED = 2**16
"""Numbers added at once: what a core's cache holds."""
_SAFE_NORM = {torch.float32: (1e-11, 1e15), torch.float64: (1e-140, 1e140)}  # no square under- or overflows
SHORTEST = _SAFE_NORM[torch.float64][0]
"""Where no row is longer, second-order sums have no digits."""


class Cell:
    """The partial sums of one block: products in the dtype of the rows, everything else in float64.

    Rows are worked on in pieces that a core's cache holds; a piece's sums are in the dtype of the rows.
    Float32 rows are multiplied about the shift, or where that is far away about a centre of their piece's
    own; the part between the two is added in float64.
    """

    def __init__(self, shift: Tensor, buffer: Buffer, products: Sequence[str], *, unit: bool) -> None:
        self._shift, self._buffer = shift, buffer
        self._second, self._unit_second = "second" in products, "unit_second" in products
        self._names = _SUMS if unit else _SUMS[:1]
        self._products: dict[str, Tensor] = {}
        self._between: list[tuple[Tensor, Tensor]] = []
        self.sums: defaultdict[str, Any] = defaultdict(int)
        self.norm_min, self.norm_max = float("inf"), 0.0

    def add(self, x: Tensor, w: Tensor | None) -> None:
        """Add the rows of `x` (n, D) with weights `w` (n,); where float32 will not do, as float64."""
        x, norms, sums, offsets = self._measured(x, w)
        parts, counts = sums.double(), torch.ones_like(norms) if w is None else w
        if self._second and bool(offsets.any()):
            shares = torch.stack([counts[cut].sum() for cut in _cuts(len(x), x.device)])[:, None] * offsets
            self._between.append((parts[:, 0] + shares / 2, offsets))
            parts[:, 0] += shares
        for name, value in zip(self._names, parts.sum(0), strict=True):
            self.sums[name] = self.sums[name] + value
        unit = counts * (norms > 0)
        self.sums["zero_rows"] += int((norms == 0).sum())
        for name, value in (
            ("weight", counts), ("weight_square", counts.square()),
            ("unit_weight", unit), ("unit_weight_square", unit.square()),
            ("norm_sum", counts * norms), ("norm_square_sum", counts * norms.square()),
        ):  # fmt: skip
            self.sums[name] += float(value.sum())
        lowest, highest = torch.aminmax(norms)
        self.norm_min, self.norm_max = min(self.norm_min, float(lowest)), max(self.norm_max, float(highest))
        if self._second:
            self._add_product("second", self._buffer("rows", tuple(x.shape), x.dtype))
        if self._unit_second:  # sum w u u' over unit rows, while the rows are still in a cache
            y, root = self._buffer("rows", tuple(x.shape), x.dtype), inverse(norms)
            root = _column(root if w is None else root * w.sqrt(), x)
            share(partial(torch.mul, x[cut], root[cut], out=y[cut]) for cut in _cuts(len(x), x.device))
            self._add_product("unit_second", y)

    def take_product(self, name: str) -> Tensor:
        """The (D, D) product "second" or "unit_second" of all rows; only its lower half has a meaning."""
        product = self._products.pop(name)
        if name == "second":
            self.sums["rounding"] += _rounding(product)
        if name == "second" and self._between:
            product = product.double()
            # sum w (z + a)(z + a)' = sum w z z' + half a' + a half', with half = sum w z + sum w a / 2
            for half, offset in self._between:
                lower_product(torch.cat([half, offset]), torch.cat([offset, half]), product, add=True)
        return product

    def _measured(self, x: Tensor, w: Tensor | None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The rows, norms, sums of pieces (pieces, names, D) about centres, and centres' offsets (pieces, D).

        The offsets are from the shift; the buffer "rows" holds the centred rows. Norms are taken for granted
        first, and looked at when all are there. Where a row is zero, or too long or too short for float32
        squares, everything is computed again with care.
        """
        norms = torch.empty(len(x), dtype=x.dtype, device=x.device)
        sums, offsets = self._sum_pieces(x, w, norms, None)
        uneven = self._second and x.dtype == torch.float32 and self._is_uneven(x, norms, offsets)
        if are_safe(norms) and not uneven:
            return x, norms.double(), sums, offsets
        careful = measured_norms(x)
        if careful is None or uneven:
            x = x.double()
            careful = measured_norms(x)
        assert careful is not None
        return x, careful, *self._sum_pieces(x, w, norms.to(x.dtype), inverse(careful))

    def _is_uneven(self, x: Tensor, norms: Tensor, offsets: Tensor) -> bool:
        """Whether float32 products would lose most centred rows: a few, or one direction, outweigh them."""
        centers = self._shift + offsets
        longest = torch.linalg.vector_norm(centers, dim=1).max()
        shortest, most = torch.aminmax(norms)

        def are_near(low: Tensor) -> bool:
            """Whether no centred row can be so far out, as the rows' own norms tell."""
            return bool(most + longest <= _FAR * (low - longest))

        if not (are_near(shortest) or are_near(norms.median())):
            pieces = zip(_cuts(len(x), x.device), centers.to(x.dtype), strict=True)
            lengths = torch.cat([torch.linalg.vector_norm(x[cut] - center, dim=1) for cut, center in pieces])
            if not bool(lengths.max() <= _FAR * lengths.median()):  # as where a row is not finite
                return True
        rows = self._buffer("rows", tuple(x.shape), x.dtype)
        sample = rows[:: -(-len(rows) // _COMPARED)]
        gram = sample @ sample.T
        along_one = gram.diagonal().sum().square() < _ALONG_ONE * gram.square().sum()
        return len(self._shift) > 1 and bool(along_one)

    def _sum_pieces(
        self, x: Tensor, w: Tensor | None, norms: Tensor, scale: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        cuts = _cuts(len(x), x.device)
        sums = torch.empty((len(cuts), len(self._names), x.shape[1]), dtype=x.dtype, device=x.device)
        centers = _centers(self._shift, x, cuts) if self._second else None
        weight, scale = (None if factor is None else _column(factor, x) for factor in (w, scale))
        pieces = []
        # The product wants all rows; without one, all pieces share the memory of one.
        rows = self._buffer("rows", (len(x) if self._second else cuts[0].stop, x.shape[1]), x.dtype)
        for i, cut in enumerate(cuts):
            y = rows[cut] if self._second else rows[: cut.stop - cut.start]
            center = None if centers is None else centers[i]
            factors = (None if f is None else f[cut] for f in (weight, scale))
            pieces.append(partial(_sum_piece, x[cut], y, norms[cut], sums[i], center, *factors))
        if self._second:
            share(pieces)
        else:  # torch shares out each operation, and rounds sums of columns and norms of rows alike
            for piece in pieces:
                piece()
        return sums, sums if centers is None else centers.double() - self._shift

    def _add_product(self, name: str, y: Tensor) -> None:
        kept = self._products.get(name)
        if kept is None:
            out = self._buffer(f"{name} product", (y.shape[1], y.shape[1]), y.dtype)
            self._products[name] = lower_product(y, y, out)
            return
        wider = torch.promote_types(y.dtype, kept.dtype)  # one of the two may be float64 for its lengths
        if wider != kept.dtype and name == "second":
            self.sums["rounding"] += _rounding(kept)
        y = y.to(wider)
        self._products[name] = lower_product(y, y, kept.to(wider), add=True)


def _sum_piece(
    x: Tensor, y: Tensor, norms: Tensor, sums: Tensor,
    center: Tensor | None, weight: Tensor | None, scale: Tensor | None,
) -> None:  # fmt: skip
    """The norms of a few rows x, and their sums into `sums` (3, D), or (1, D) without unit rows.

    `scale` stands for 1 / norm if given. `y` is working memory of the shape of x, as fresh memory would cost
    more than the sums; with a `center` it ends as sqrt(weight) (x - center).
    """
    first, *unit = sums
    if scale is None:
        scale = torch.linalg.vector_norm(x, dim=1, out=norms).reciprocal()[:, None]
    if unit:
        torch.sum(torch.mul(x, scale if weight is None else scale * weight, out=y), 0, out=unit[0])
        torch.sum(y.square_(), 0, out=unit[1])
    if center is not None:
        x = torch.sub(x, center, out=y)
    if weight is None:
        torch.sum(x, 0, out=first)
    elif center is None:
        torch.sum(torch.mul(x, weight, out=y), 0, out=first)
    else:
        root = weight.sqrt()
        torch.sum(y.mul_(root) * root, 0, out=first)


def _rounding(product: Tensor) -> float:
    """By how much rounding may move an eigenvalue of a product (D, D): as errors that are independent would.

    The error of an entry is some roundings of the root of its two diagonal entries' product. Where these are
    alike, D x D independent errors have a norm of about the trace / sqrt(D) roundings; where one outweighs
    the others, of it.
    """
    diagonal = product.diagonal()
    return torch.finfo(product.dtype).eps * float(diagonal.sum() / len(diagonal) ** 0.5 + diagonal.max())


def _centers(shift: Tensor, x: Tensor, cuts: list[slice]) -> Tensor:
    """Centres of pieces (pieces, D): the shift, or for float32 rows two deviations off a mean of some."""
    centers = shift.to(x.dtype).repeat(len(cuts), 1)
    size, whole = cuts[0].stop, len(x) // cuts[0].stop  # all pieces at once but for a shorter last one
    for rows, into in (
        (x[: whole * size].reshape(whole, size, x.shape[1]), centers[:whole]),
        (x[None, whole * size :], centers[whole:]),
    ):
        if x.dtype == torch.float32 and len(into):
            sample = rows[:, :: -(-rows.shape[1] // _SAMPLED)] - into[:, None]
            mean = sample.mean(1)
            beyond = 5 * mean.square() > 4 * sample.square().mean(1)  # mean^2 > 4 (mean of squares - mean^2)
            far = (beyond & (mean.abs() > _ROUNDING * into.abs())).any(1, keepdim=True)
            into.add_(torch.where(far, mean, 0))
    return centers


def _column(factor: Tensor, x: Tensor) -> Tensor:
    return factor.to(x.dtype)[:, None]


def _cuts(n: int, device: torch.device) -> list[slice]:
    """Pieces of a block on the CPU, where a core's cache is small; a GPU takes the block whole."""
    size = PIECE if device.type == "cpu" else n
    return [slice(start, min(start + size, n)) for start in range(0, n, size)]


def lower_product(left: Tensor, right: Tensor, out: Tensor, *, add: bool = False) -> Tensor:
    """left' right of (n, D) matrices, a symmetric product, into or added to the lower half of `out` (D, D).

    torch has no symmetric product. Strips below the diagonal take 9/16 of the time of a full one at D = 768,
    hardly more than a BLAS syrk does. The upper half has no meaning until `mirror` makes it whole.
    """
    if left.device.type != "cpu":
        return out.addmm_(left.T, right, beta=float(add))

    def strip(start: int) -> None:
        stop = min(start + _STRIP, len(out))
        out[start:stop, :stop].addmm_(left[:, start:stop].T, right[:, :stop], beta=float(add))

    # The last strips are the longest; given out first, they leave the short ones to even out the threads.
    share(partial(strip, start) for start in reversed(range(0, len(out), _STRIP)))
    return out


def mirror(product: Tensor) -> Tensor:
    """Copy the lower half of `product` (D, D) to the upper: symmetric to the bit, which no BLAS promises."""

    def strip(start: int) -> None:
        rows = product[start : start + _STRIP]
        product[:start, start : start + _STRIP] = rows[:, :start].T
        block = rows[:, start : start + _STRIP]
        block.copy_(block.tril().add_(block.tril(-1).T))

    if product.device.type == "cpu":
        share(partial(strip, start) for start in reversed(range(0, len(product), _STRIP)))
    return product


def add_lower(total: Tensor, part: Tensor) -> Tensor:
    """total += part below and on the diagonal, in place; `part` may be of a narrower dtype."""
    if total.device.type != "cpu":
        return total.add_(part)
    # torch widens a narrower operand into fresh memory, which the worker's allocator keeps: make it small.
    rows = max(1, _ADDED // total.shape[1])

    def strip(start: int) -> None:
        stop = min(start + rows, len(total))
        total[start:stop, :stop] += part[start:stop, :stop]

    share(partial(strip, start) for start in range(0, len(total), rows))
    return total


class NotFiniteError(InputError):
    """A block holds a NaN or an infinity."""


@contextmanager
def counting_nonfinite(rows: Rows) -> Iterator[None]:
    """Where a block of `rows` is not finite, the error counts such rows and names the first."""
    try:
        yield
    except NotFiniteError:
        raise nonfinite_error(rows) from None


def are_safe(norms: Tensor) -> bool:
    """Whether these norms, in the dtype of the rows, hold no zero, NaN, overflow or underflow."""
    low, high = _SAFE_NORM[norms.dtype]
    lowest, highest = torch.aminmax(norms)  # NaN where any norm is
    return float(lowest) > low and float(highest) < high


def measured_norms(x: Tensor) -> Tensor | None:
    """The rows' Euclidean norms in float64; None where float32 rows have no float32 squares."""
    norms: Tensor = torch.linalg.vector_norm(x, dim=1)
    if are_safe(norms):
        return norms.double()
    low, high = _SAFE_NORM[x.dtype]
    if bad := int((~torch.isfinite(x).all(dim=1)).sum()):
        raise NotFiniteError(f"expected finite rows, got {bad} with NaN or inf: mend or drop them")
    if x.dtype == torch.float32:
        if float(norms.max()) < high and bool(((norms > low) | (x == 0).all(dim=1)).all()):
            return norms.double()  # short only where all zero
        return None
    largest: Tensor = x.abs().amax(dim=1)
    if float(largest.max()) > high:
        raise InputError(f"expected numbers below {high:.0e}, got {float(largest.max()):.3g}: scale the rows")
    scaled = torch.where(largest > 0, largest, 1.0)
    long: Tensor = largest * torch.linalg.vector_norm(x / scaled[:, None], dim=1)
    return long


def row_norms(x: Tensor) -> Tensor:
    """The rows' Euclidean norms, float64 (n,), of rows of any finite length."""
    norms = measured_norms(x)
    return measured_norms(x.double()) if norms is None else norms  # type: ignore[return-value]


def inverse(norms: Tensor) -> Tensor:
    """1 / norm, and 0 for a row that has no direction."""
    return torch.where(norms > 0, 1 / norms, 0.0)
