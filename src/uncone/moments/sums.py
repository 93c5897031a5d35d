"""Sums over rows, block by block, and their file: what `Moments` is computed from.

The sums are about a fixed `shift`, because a large common direction would cancel the digits of the rest. Products are
float32 for float32 rows (float64 where a few rows or one direction outweigh the others), one partial sum for each cell
of the grid. The partial sums are added in float64, in grid order: the same cells with the same shift give the same
bytes.

A few wide rows, smaller than their products, are kept until the products are read or more rows come.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from uncone import atomic
from uncone.arguments import shown, whole_number
from uncone.errors import InputError
from uncone.memory import check_memory, uninitialised, zeros
from uncone.moments.cell import NUMBERS, SHORTEST, Cell, add_about, add_lower, cuts, first_mean, mirror
from uncone.moments.drawn import DrawnRows
from uncone.roles import Path_
from uncone.rows import GRID, Array
from uncone.rows.bytes import MemoryFile
from uncone.rows.safetensors import read_tensors, to_bytes
from uncone.rows.samples import as_floats, as_numbers
from uncone.threads import one_blas_thread

_ADDED = ("n", "zero_rows", *NUMBERS)
_SCALARS = (*_ADDED, "norm_min", "norm_max", "epsilon", "unit_epsilon")
_BUFFER_BYTES = 8 * 2**20
_FORMAT = "uncone.moments/2"
_Parts = list[tuple[Array, Array | None]]
_WIDE = 256  # columns, below which products cost nothing
_KINDS = ("second", "unit_first", "unit_second")
_DIMENSIONS = {"shift": 1, "first": 1, "second": 2, "rounding": 1, "unit_first": 1, "unit_square": 1, "unit_second": 2}


def products_bytes(d: int) -> int:
    """The memory for the products of `d` columns and their spectrum: five matrices of float64 at once."""
    return 40 * d * d


def _product(name: str) -> Any:
    """A (D, D) sum of which `update` keeps the lower half: reading it makes it whole."""

    def read(sums: "Sums") -> Array | None:
        if sums._few is not None and name in sums._products:
            if "summed" not in sums._derived:
                sums._derived["summed"] = sums._summed()
            return getattr(sums._derived["summed"], name)  # type: ignore[no-any-return]
        if name in sums._lower:
            mirror(sums._products[name])
            sums._lower.discard(name)
        return sums._products.get(name)

    def write(sums: "Sums", value: Array | None) -> None:
        sums._lower.discard(name)
        sums._products.pop(name, None)
        if value is not None:
            sums._products[name] = value
        if not sums._products:
            sums._few = None

    return property(read, write)


class Sums:
    """Sums over rows x_i of weight w_i (1 by default), with y_i = x_i - shift and u_i = x_i / |x_i|.

    Attributes (float64 arrays):
        first, second: sums of w y (D,) and w y y' (D, D).
        unit_first, unit_square, unit_second: sums of w u (D,), w^2 u^2 (D,) and w u u' (D, D), without zero rows.
        epsilon: the largest machine epsilon among the blocks' dtypes; unit_epsilon: the same among the dtypes that unit
            rows were summed in, which is float64 where float32 is not enough.
        rounding: one rounding of each number on the diagonal of `second`, (D,); for separate products, whose errors are
            independent, the root of the sum of squares.
        n, zero_rows: rows seen, and how many of them were all zero.
        weight, weight_square: sums of w and of w^2; unit_weight, unit_weight_square: without the zero rows.
        norm_sum, norm_square_sum, norm_min, norm_max: sums of w |x| and w |x|^2; the extremes of |x|.
        drawn: `DrawnRows`, some of the rows, for intervals; None with weights, or when read from a file.
    Sums that were not requested are None.
    """

    second: Array | None = _product("second")
    unit_second: Array | None = _product("unit_second")

    def __init__(
        self,
        d: int,
        *,
        shift: Any = None,
        second: bool = True,
        unit_first: bool = True,
        unit_second: bool = False,
        drawn: bool = False,
    ) -> None:
        self.d = d = whole_number(d, "d", 1, 2**31)
        if unit_second and not unit_first:
            raise InputError("expected unit_first=True with unit_second=True, got False: pass both")
        shift = None if shift is None else as_numbers(shift)
        if shift is not None and (shift.shape != (d,) or not np.isfinite(shift).all()):
            raise InputError(f"expected a shift of shape ({d},), got {shown(shift)}: pass a finite mean row")
        self.shift: Array | None = None if shift is None else shift.astype(np.float64)
        self.first = zeros((d,))
        self.drawn = DrawnRows(d) if drawn else None
        wanted = {"second": second, "unit_second": unit_second}
        self._products: dict[str, Any] = {name: None for name, is_wanted in wanted.items() if is_wanted}
        self._lower: set[str] = set()  # products of which only the lower half is up to date
        self._few: list[_Parts] | None = []  # the rows and weights of each cell, as long as they replace products
        self._parts: _Parts = []  # of `_cell`
        self.unit_first, self.unit_square = (zeros((d,)) if unit_first else None for _ in range(2))
        self.n = self.zero_rows = 0
        self.weight = self.weight_square = self.unit_weight = self.unit_weight_square = 0.0
        self.norm_sum = self.norm_square_sum = self.norm_max = self.epsilon = self.unit_epsilon = 0.0
        self.norm_min = math.inf
        self.rounding = zeros((d,))
        self._scratch: dict[str, Array] = {}
        self._cell: Cell | None = None  # a cell with more rows to come
        self._derived: dict[str, Any] = {}
        if d < _WIDE or not self._products:
            self.sum_products()

    @property
    def keeps_rows(self) -> bool:
        """Whether the rows are so few and wide that they are kept instead of their products."""
        return self._few is not None

    def has(self, product: str) -> bool:
        """Whether there is a product "second" or "unit_second"; reading it may have to form it first."""
        return product in self._products

    def sum_products(self) -> None:
        """Form products from here on, and the products of the rows kept until now."""
        few, self._few = self._few, None
        if few is None:
            return
        if self.has("second"):
            what = f"the products of {self.d:,} columns with each other"
            way_out = "is the matrix transposed? Moments with second=False do not need it"
            check_memory(products_bytes(self.d), what, way_out)
        self._products = {name: zeros((self.d, self.d)) for name in self._products}
        with one_blas_thread():
            for parts in few:
                self._add_products(self._summed_cell(parts))
            self._cell = self._summed_cell(self._parts) if self._cell is not None else None
        self._parts = []

    def update(self, block: Any, weights: Any = None, *, more: bool = False) -> None:
        """Add the rows of `block` (n, D), with `weights` (n,), as one partial sum. Call it once per grid cell, or in
        parts of `rows_at_once` with `more` for all but the last. Raises InputError: a row that is not finite, or has
        another width."""
        block = as_numbers(block)
        if block.ndim != 2 or block.shape[1] != self.d:
            raise InputError(f"expected a block of shape (n, {self.d}), got {tuple(block.shape)}: reshape it")
        if len(block) == 0 and not more and self._cell is None:
            return
        if weights is not None:
            weights = as_floats(weights, "weights")
            if weights.shape != (len(block),):
                raise InputError(f"expected {len(block)} weights, got {weights.shape}: give one per row")
            if not ((weights >= 0) & (weights < math.inf)).all():
                of = f"expected finite weights from 0 up, got {weights.min()} to {weights.max()}"
                raise InputError(f"{of}: pass counts")
        x = block if block.dtype == np.float64 else block.astype(np.float32, copy=False)
        with one_blas_thread():
            self._update(x, weights, more)

    def _update(self, x: Array, w: Array | None, more: bool) -> None:
        if self.shift is None:
            self.shift = first_mean(x) if self.has("second") else zeros((self.d,))
        if self._few is not None:
            kept = sum(len(rows) for parts in (*self._few, self._parts) for rows, _ in parts)
            if len(x) + kept > self.most_kept():
                self.sum_products()
        cell = self._summed_cell([(x, w)], self._cell)
        if self.drawn is not None:
            self._draw(x, w, cell)
        self._cell = cell if more else None
        if self._few is not None:
            self._parts.append((x.copy(), None if w is None else w.copy()))
        if more:
            return
        if self._few is not None:
            self._few, self._parts = [*self._few, self._parts], []
        else:
            self._add_products(cell)
        self._derived.clear()
        for name, value in cell.sums.items():
            setattr(self, name, getattr(self, name) + value)
        self.widen(cell)

    def _draw(self, x: Array, w: Array | None, cell: Cell) -> None:
        assert self.drawn is not None
        if w is None:
            squares = cell.take_squares()  # also of rows that were kept, and summed again
            self.drawn.add(squares[len(squares) - len(x) :], lambda at: x[at])
        else:  # the weights of other rows are not known
            self.drawn = None

    def widen(self, other: Any) -> None:
        """Include the other's extremes of the norms, and its largest machine epsilons."""
        self.norm_min = min(self.norm_min, other.norm_min)
        for name in ("norm_max", "epsilon", "unit_epsilon"):
            setattr(self, name, max(getattr(self, name), getattr(other, name)))

    def _summed_cell(self, parts: Iterable[tuple[Array, Array | None]], cell: Cell | None = None) -> Cell:
        """The sums of a cell, or of more of its rows, with products unless the rows are kept."""
        if cell is None:
            products, unit = () if self.keeps_rows else tuple(self._products), self.unit_first is not None
            of = {"unit": unit, "centered": self.has("second"), "squares": self.drawn is not None}
            assert self.shift is not None
            cell = Cell(self.shift, self._buffer, products, **of)
        for x, w in parts:
            for cut in cuts(len(x), self.rows_at_once(x.itemsize)):
                cell.add(x[cut], None if w is None else w[cut])
        return cell

    def _add_products(self, cell: Cell) -> None:
        for name, product in self._products.items():
            add_lower(product, cell.take_product(name))
        self._lower.update(self._products)
        self.rounding = np.hypot(self.rounding, cell.rounding)

    def most_kept(self) -> int:
        """The most rows that are kept: decomposing more rows costs as much as decomposing their products."""
        return self.d // 2

    def _summed(self) -> Self:
        """Where rows are kept, a copy with products instead."""
        if self._few is None:
            return self
        summed = copy(self)
        summed._lower, summed._scratch, summed._derived = set(), {}, {}
        summed.sum_products()
        return summed

    def lent(self) -> Self:
        """A copy whose sums may be freed without changing these."""
        other = copy(self)
        other._products, other._derived, other._lower = dict(self._products), dict(self._derived), set(self._lower)
        return other

    def finish(self) -> Self:
        """Free the working memory between updates."""
        self._scratch.clear()
        return self

    def work_with(self, other: Self) -> None:
        """Use the working memory of `other`, for moments that are updated in turn and never at the same time."""
        self._scratch = other._scratch

    def absorb(self, other: Self) -> Self:
        """`merge`, in the memory of these moments, which must not be used any more."""
        return self.merge(other, _reuse=True)

    def merge(self, other: Self, *, _reuse: bool = False) -> Self:
        """The moments of both sets of rows, about the shift of `self`. InputError: other numbers of features, or sums."""
        if not isinstance(other, Sums) or (self.d, self._kinds()) != (other.d, other._kinds()):
            got = other.d if isinstance(other, Sums) else shown(other)
            raise InputError(f"expected moments of {self.d} features with the same sums, got {got}: sum both alike")
        merged = type(self)(self.d, **self._kinds())
        merged.shift = self.shift if self.shift is not None else other.shift
        keeps = self._few is not None and other._few is not None and self.n + other.n <= self.most_kept()
        merged._few = [*(self._few or ()), *(other._few or ())] if keeps else None
        a, b = (self, other) if keeps else (self._summed(), other._summed())
        for name in _ADDED:
            setattr(merged, name, getattr(a, name) + getattr(b, name))
        if self.drawn is not None and other.drawn is not None:
            merged.drawn = self.drawn.merge(other.drawn)
        merged.widen(a)
        merged.widen(b)
        merged.rounding = np.hypot(a.rounding, b.rounding)
        are_alike = b.shift is None or merged.shift is None or np.array_equal(b.shift, merged.shift)
        delta = None if are_alike else b.shift - merged.shift  # type: ignore[operator]
        first = b.first if delta is None else b.first + b.weight * delta
        merged.first = a.first + first
        for name in ("unit_first", "unit_square"):
            if getattr(a, name) is not None:
                setattr(merged, name, getattr(a, name) + getattr(b, name))
        if not keeps:
            for name in ("unit_second", "second"):
                total, part = getattr(a, name), getattr(b, name)
                if total is not None:
                    setattr(merged, name, total if _reuse else total.copy())
                    add_about(getattr(merged, name), part, (b.first, first, delta) if name == "second" else None)
        return merged

    def unit_sums(self) -> tuple[Array, Array]:
        """`unit_first` and `unit_square`; InputError where they were left out."""
        if self.unit_first is None or self.unit_square is None:
            raise InputError("expected sums of unit rows, got moments made with unit_first=False: sum again")
        return self.unit_first, self.unit_square

    def __getstate__(self) -> dict[str, Any]:
        """What another process gets: no working memory, and whole products, because it cannot write to what it gets."""
        if self._few is None:
            for name in tuple(self._lower):
                mirror(self._products[name])
            self._lower.clear()
        return vars(self) | {"_scratch": {}, "_derived": {}}

    def to_bytes(self) -> bytes:
        """The sums as a safetensors file: little more than 8 D^2 bytes per sum of products; without drawn rows."""
        return to_bytes(self.tensors(), {"format": _FORMAT})

    @classmethod
    def from_bytes(cls, content: bytes) -> Self:
        """Read what `to_bytes` made. Raises InputError: other bytes, or bytes that were cut."""
        file = MemoryFile("bytes", 0, np.frombuffer(content, np.uint8))
        tensors, _ = read_tensors(file, format=_FORMAT, what="moments", how="make them with Moments.to_bytes")
        return cls.from_tensors(tensors, "bytes")

    def save(self, path: Path_) -> None:
        """Write the sums to a safetensors file, atomically."""
        atomic.write_bytes(path, self.to_bytes())

    def tensors(self) -> dict[str, Array]:
        """The sums as float64 arrays by name, for `from_tensors`."""
        summed = self._summed()
        tensors = {name: getattr(summed, name) for name in _DIMENSIONS}
        scalars = np.array([float(getattr(summed, name)) for name in _SCALARS])
        return {name: tensor for name, tensor in tensors.items() if tensor is not None} | {"scalars": scalars}

    @classmethod
    def load(cls, path: Path_) -> Self:
        """Read what `save` wrote. Raises InputError: no such file, or another kind of file."""
        content, _ = read_tensors(path, format=_FORMAT, what="moments", how="write it with Moments.save")
        return cls.from_tensors(content, path)

    @classmethod
    def from_tensors(cls, content: Mapping[str, Array], path: Path_) -> Self:
        """The sums from `tensors`; errors name `path`."""
        tensors = {name: tensor for name, tensor in content.items() if name in {"scalars", *_DIMENSIONS}}
        wrong = next(_wrong_parts(tensors), None)
        if wrong is not None:
            got = f"{path} with a missing or wrong {wrong}: write it again with Moments.save"
            raise InputError(f"expected finite sums of a whole number of rows, got {got}")
        kinds: dict[str, Any] = {name: name in tensors for name in _KINDS}
        sums = cls(len(tensors["first"]), **kinds)
        sums.sum_products()
        for name in tensors.keys() & _DIMENSIONS.keys():
            setattr(sums, name, tensors[name])
        for name, scalar in zip(_SCALARS, tensors["scalars"].tolist(), strict=True):
            setattr(sums, name, int(scalar) if name in ("n", "zero_rows") else scalar)
        return sums

    def _kinds(self) -> dict[str, Any]:
        return {name: name in self._products for name in _KINDS} | {"unit_first": self.unit_first is not None}

    def _second(self) -> Array:
        self._check_second()
        return self.second  # type: ignore[return-value]

    def _check_second(self) -> None:
        if not self.has("second"):
            raise InputError("expected second-order sums, got moments made with second=False: sum again")
        if 0 < self.norm_max < SHORTEST:
            got = f"{self.norm_max:.3g} at most: scale the rows"
            raise InputError(f"expected a row longer than {SHORTEST:.0e}, got {got}")

    def rows_at_once(self, itemsize: int) -> int:
        """How many rows to add at once: few enough to bound the buffer, enough to keep a product busy."""
        enough = max(256, _BUFFER_BYTES // (self.d * itemsize), self.d)
        return min(GRID, 1 << (enough.bit_length() - 1))  # a power of two, so that pieces share out evenly

    def _buffer(self, name: str, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
        kept = self._scratch.get(name)
        if kept is None or kept.dtype != dtype or kept.shape[1:] != shape[1:] or len(kept) < shape[0]:
            kept = self._scratch[name] = uninitialised(shape, dtype)
        return kept[: shape[0]]


def _wrong_parts(tensors: dict[str, Array]) -> Iterator[str]:
    """The names of sums in a file that are missing, have another dtype or shape, or fit no rows."""
    units = {"unit_first", "unit_square"}
    needed = {"scalars", "first", *(units if any(name.startswith("unit") for name in tensors) else ())}
    yield from sorted(needed - set(tensors))
    d = tensors["first"].size
    for name, tensor in tensors.items():
        shape = (len(_SCALARS),) if name == "scalars" else (d,) * _DIMENSIONS[name]
        is_finite = name == "scalars" or bool(np.isfinite(tensor).all())
        if tensor.dtype != np.float64 or tensor.shape != shape or not is_finite:
            yield name
    scalars = dict(zip(_SCALARS, tensors["scalars"].tolist(), strict=True))
    n, zero_rows = scalars["n"], scalars["zero_rows"]
    for name, value in scalars.items():
        if not 0 <= value < math.inf and (n or name != "norm_min"):  # of no rows it is infinite
            yield name
    if not (n.is_integer() and zero_rows.is_integer() and zero_rows <= n <= 2**53):
        yield "n"
    for name in ("weight", "unit_weight"):
        most, square = scalars[name] * scalars[name], scalars[f"{name}_square"]
        if not (0 < square <= most * (1 + 1e-9) < math.inf or square == most == 0):
            yield f"{name}_square"
    if n and "shift" not in tensors:
        yield "shift"
