"""The mergeable summary of rows that nearly every measure is computed from.

One pass over the rows gives float64 sums; every measure that needs no more than means, covariances and directions is
then a small computation. The sums are taken about a fixed `shift`, so that a large common direction does not cancel
the digits of what is left. Products are float32 for float32 rows (float64 for float64 rows), one partial sum for each
cell of the grid; partial sums are added in float64, in grid order. Two runs over the same cells with the same shift
add the same numbers in the same order, and give the same bytes.
"""

import os
from collections.abc import Callable
from typing import Any

import torch

from uncone import atomic
from uncone.errors import InputError, UndefinedMeasure
from uncone.memory import uninitialised, zeros
from uncone.moments.cell import PIECE, Cell
from uncone.moments.eigen import consume_to_eigen, leading_eigenvectors
from uncone.moments.norms import NotFiniteError
from uncone.moments.rank_one import add_rank_one
from uncone.moments.weights import weight_blocks
from uncone.moments.workers import add_lower, alone, mirror
from uncone.rows import GRID, as_rows, nonfinite_error

Tensor = torch.Tensor
_BUFFER_BYTES = 8 * 2**20
_STRIP_ROWS = 64
MOST_FEATURES = 32768
"""Beyond, one (D, D) matrix of sums takes more than 8 GB."""
_FORMAT = "uncone.moments/1"
_SCALARS = (
    "n", "zero_rows", "weight", "weight_square", "unit_weight", "unit_weight_square",
    "norm_sum", "norm_square_sum", "norm_min", "norm_max", "epsilon",
)  # fmt: skip
_SHAPES = {"shift": 1, "first": 1, "second": 2, "unit_first": 1, "unit_square": 1, "unit_second": 2}


class Moments:
    """Sums over weighted rows x_i (weights w_i, 1 by default), with y_i = x_i - shift and u_i = x_i / |x_i|.

    Attributes (float64 tensors on `device`):
        first: sum of w y, shape (D,).
        second: sum of w y y', shape (D, D), or None when `second=False`.
        unit_first: sum of w u over rows that are not zero, shape (D,), or None when `unit_first=False`.
        unit_square: sum of w^2 u^2 by feature, shape (D,), or None with it.
        unit_second: sum of w u u', shape (D, D), only with `unit_second=True`.
        epsilon: the rounding of the products: the largest machine epsilon among the blocks' dtypes.
        n, zero_rows: rows seen, and how many of them were all zero.
        weight, weight_square: sum of w and of w^2; unit_weight, unit_weight_square: the same without the zero rows.
        norm_sum, norm_square_sum, norm_min, norm_max: of w |x| and w |x|^2; the extremes of |x|.
    """

    def __init__(
        self,
        d: int,
        *,
        shift: Tensor | None = None,
        second: bool = True,
        unit_first: bool = True,
        unit_second: bool = False,
        device: str = "cpu",
    ) -> None:
        if unit_second and not unit_first:
            raise InputError("expected unit_first=True with unit_second=True, got False: what reads the one wants the other")
        if shift is not None and shift.shape != (d,):
            raise InputError(f"expected a shift of shape ({d},), got {tuple(shift.shape)}: give one number a feature")
        if second and d > MOST_FEATURES:
            raise InputError(
                f"expected rows of at most {MOST_FEATURES} features, got {d}: second-order sums would take {8e-9 * d * d:.0f} GB; "
                "is the matrix transposed? With second=False any number will do"
            )
        self.d, self.device = d, torch.device(device)
        self.shift = None if shift is None else shift.to(self.device, torch.float64)
        self.first = self._zeros(d)
        self._products: dict[str, Tensor] = {}
        self._lower: set[str] = set()  # products of which only the lower half is up to date
        self.second = self._zeros(d, d) if second else None
        self.unit_first = self._zeros(d) if unit_first else None
        self.unit_square = self._zeros(d) if unit_first else None
        self.unit_second = self._zeros(d, d) if unit_second else None
        self.n = self.zero_rows = 0
        self.weight = self.weight_square = self.unit_weight = self.unit_weight_square = 0.0
        self.norm_sum = self.norm_square_sum = self.norm_max = 0.0
        self.norm_min = float("inf")
        self.epsilon = 0.0
        self._scratch: dict[str, Tensor] = {}
        self._derived: dict[str, Any] = {}

    @property
    def second(self) -> Tensor | None:
        return self._whole("second")

    @second.setter
    def second(self, value: Tensor | None) -> None:
        self._set_product("second", value)

    @property
    def unit_second(self) -> Tensor | None:
        return self._whole("unit_second")

    @unit_second.setter
    def unit_second(self, value: Tensor | None) -> None:
        self._set_product("unit_second", value)

    def _whole(self, name: str) -> Tensor | None:
        if name in self._lower:
            mirror(self._products[name])
            self._lower.discard(name)
        return self._products.get(name)

    def _set_product(self, name: str, value: Tensor | None) -> None:
        self._lower.discard(name)
        self._products.pop(name, None)
        if value is not None:
            self._products[name] = value

    @classmethod
    def of(
        cls,
        rows: Any,
        weights: Any = None,
        unit_second: bool = False,
        *,
        second: bool = True,
        unit_first: bool = True,
        shift: Tensor | None = None,
        device: str = "cpu",
        progress: Callable[[int], None] | None = None,
    ) -> "Moments":
        """The moments of `rows` (Rows, or a tensor or array of shape (N, D)).

        Args:
            rows: what to sum over; read once, block by block.
            weights: (N,) non-negative, for instance token counts; all 1 by default.
            unit_second: also sum u u' (for `uniformity`); costs as much again.
            second: False leaves out the (D, D) sums: enough for `mean_cosine`, `mean_shift` and `rogue_dimensions`,
                and an order of magnitude faster.
            unit_first: False leaves out the sums over unit rows, which only mean cosines, `rogue_dimensions` and
                `uniformity` read.
            shift: (D,); by default the mean of the first 512 rows. To merge byte for byte, share one and merge cell by cell.
            device: where the sums are computed and kept.
            progress: called with the number of rows done.

        Raises:
            InputError: a row is not finite; weights of another length, negative or all zero.
        """
        rows = as_rows(rows)
        moments = cls(
            rows.shape[1], shift=shift if second else None, second=second, unit_first=unit_first, unit_second=unit_second,
            device=device,
        )  # fmt: skip
        parts = weight_blocks(weights, rows.shape[0])
        for block in rows.blocks():
            try:
                moments.update(block, next(parts))
            except NotFiniteError:
                raise nonfinite_error(rows) from None
            del block  # lets the reader use its buffer again
            if progress is not None:
                progress(moments.n)
        return moments.finish()

    def update(self, block: Tensor, weights: Tensor | None = None) -> None:
        """Add the rows of `block` (n, D), with `weights` (n,). One call is one partial sum: call it once a grid cell.

        Raises:
            InputError: another number of features, or a row that is not finite.
        """
        if block.ndim != 2 or block.shape[1] != self.d:
            raise InputError(
                f"expected a block of shape (n, {self.d}), got {tuple(block.shape)}: pass rows of {self.d} features"
            )
        if len(block) == 0:
            return
        if weights is not None and weights.shape != (len(block),):
            raise InputError(
                f"expected weights of shape ({len(block)},) for the block, got {tuple(weights.shape)}: give one a row"
            )
        block = block.detach()
        if self.device.type == "cpu" and self._products:
            self._reserve(len(block), block.dtype)
            alone(lambda: self._update(block, weights))
        else:
            self._update(block, weights)

    def _update(self, block: Tensor, weights: Tensor | None) -> None:
        x = block.to(self.device)
        x = x if x.dtype in (torch.float32, torch.float64) else x.float()
        w = None if weights is None else weights.to(self.device, torch.float64)
        if self.shift is None:
            self.shift = self._zeros(self.d) if "second" not in self._products else _shift(x)
        products = list(self._products)
        cell = Cell(
            self.shift, self._buffer,
            second="second" in products, unit=self.unit_first is not None, unit_second="unit_second" in products,
        )  # fmt: skip
        rows = self._chunk_rows(x.element_size())
        for start in range(0, len(x), rows):
            cut = slice(start, start + rows)
            cell.add(x[cut], None if w is None else w[cut])
        for name in products:
            add_lower(self._products[name], cell.take_product(name))
        self._lower.update(products)
        self._derived.clear()
        self.n += len(x)
        for name, value in cell.sums.items():
            if isinstance(value, Tensor):
                getattr(self, name).add_(value)
            else:
                setattr(self, name, getattr(self, name) + value)
        self.norm_min, self.norm_max = min(self.norm_min, cell.norm_min), max(self.norm_max, cell.norm_max)
        self.epsilon = max(self.epsilon, torch.finfo(x.dtype).eps)

    def finish(self) -> "Moments":
        """Free the working memory that `update` keeps between calls; more updates may follow."""
        self._scratch.clear()
        return self

    def work_with(self, other: "Moments") -> None:
        """Use the working memory of `other`, for moments that are updated in turn and never at once."""
        self._scratch = other._scratch

    def merge(self, other: "Moments") -> "Moments":
        """The moments of both sets of rows, as a new object about this one's shift. Exact algebra, rounded in float64.

        Raises:
            InputError: another number of features, or other sums (`second`, `unit_first`, `unit_second`).
        """
        if (self.d, self._kinds()) != (other.d, other._kinds()):
            raise InputError(
                f"expected moments of {self.d} features with the same sums, got {other.d} features: sum both the same way"
            )
        merged = Moments._of_kinds(self.d, self._kinds(), device=str(self.device))
        merged.shift = self.shift if self.shift is not None else other.shift
        for name in _SCALARS:
            setattr(merged, name, getattr(self, name) + getattr(other, name))
        merged.norm_min, merged.norm_max = min(self.norm_min, other.norm_min), max(self.norm_max, other.norm_max)
        merged.epsilon = max(self.epsilon, other.epsilon)
        first, second = other._about(merged.shift)
        merged.first = self.first + first
        for name in ("unit_first", "unit_square", "unit_second"):
            if getattr(self, name) is not None:
                setattr(merged, name, getattr(self, name) + getattr(other, name))
        if self.second is not None and second is not None:
            merged.second = self.second + second
        return merged

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the sums to a safetensors file, atomically. Reading it back gives the same bytes."""
        from safetensors.torch import save

        tensors = {name: getattr(self, name).cpu() for name in _SHAPES if getattr(self, name) is not None}
        tensors["scalars"] = torch.tensor([float(getattr(self, name)) for name in _SCALARS], dtype=torch.float64)
        atomic.write_bytes(path, save({name: t.contiguous() for name, t in tensors.items()}, metadata={"format": _FORMAT}))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Moments":
        """Read what `save` wrote.

        Raises:
            InputError: no such file, or not one that `save` wrote.
        """
        tensors = _load_tensors(path)
        d = len(tensors["first"])
        moments = cls._of_kinds(d, ("second" in tensors, "unit_first" in tensors, "unit_second" in tensors))
        for name, rank in _SHAPES.items():
            if name in tensors:
                if tensors[name].shape != (d,) * rank:
                    raise InputError(
                        f"expected {name} of shape {(d,) * rank} in {path}, got {tuple(tensors[name].shape)}: write it anew"
                    )
                setattr(moments, name, tensors[name])
        for name, value in zip(_SCALARS, tensors["scalars"].tolist(), strict=True):
            setattr(moments, name, int(value) if name in ("n", "zero_rows") else value)
        return moments

    # What measures read. Each is computed once and kept until the next update.

    @property
    def effective_n(self) -> float:
        """Kish's effective number of rows, (sum w)^2 / sum w^2; N when all weights are 1."""
        self._require_rows(1)
        return self.weight**2 / self.weight_square

    def mean(self) -> Tensor:
        """The weighted mean row, float64 (D,)."""
        self._require_rows(1)
        assert self.shift is not None
        return self.shift + self.first / self.weight

    def mean_norm(self) -> float:
        """The weighted mean of |x|."""
        self._require_rows(1)
        return self.norm_sum / self.weight

    def variances(self, *, centered: bool = True) -> Tensor:
        """The diagonal of `covariance` when centred, else of `second_moment`, float64 (D,)."""
        self._require_rows(2 if centered else 1)
        m, n = self.first / self.weight, self.effective_n
        diagonal = self._second().diagonal() / self.weight - m.square()
        return diagonal * (n / (n - 1)) if centered else diagonal + self.mean().square()

    def concentration(self) -> float:
        """|C|_F^2 / tr(C)^2 of the covariance C, in [1/D, 1]; 0 where the rows are all equal. Free of scale."""
        if "concentration" not in self._derived:
            self._require_rows(2)
            second, m = self._second(), self.first / self.weight
            trace = float(second.diagonal().sum() - self.first @ m)  # C times a factor that falls out of the ratio
            found = 0.0
            if trace > 0:
                for strip, first in zip(torch.split(second, _STRIP_ROWS), torch.split(self.first, _STRIP_ROWS), strict=True):
                    found += float(torch.linalg.vector_norm(torch.addr(strip, first, m, alpha=-1.0).div_(trace))) ** 2
            self._derived["concentration"] = found
        return self._derived["concentration"]  # type: ignore[no-any-return]

    def covariance(self) -> Tensor:
        """The covariance, float64 (D, D), divided by N - 1 (by N (1 - 1/N) in Kish's sense under weights)."""
        self._require_rows(2)
        second = self._second()
        m = self.first / self.weight
        n = self.effective_n
        return torch.addr(second, self.first, m, alpha=-1.0, out=self._matrix()).mul_(n / ((n - 1) * self.weight))

    def second_moment(self) -> Tensor:
        """The mean of x x' about the origin, float64 (D, D): the Gram matrix divided by N."""
        self._require_rows(1)
        second, mean = self._second(), self.mean()
        m = self.first / self.weight
        return torch.addr(second, self.first, m, alpha=-1.0, out=self._matrix()).div_(self.weight).addr_(mean, mean)

    def spectrum(self, *, centered: bool) -> Tensor:
        """Eigenvalues, largest first and none below 0, float64 (D,): of `covariance` when centred, else of `second_moment`.

        Both come from one decomposition: the second moment is the covariance and a rank-one matrix, that of the mean.
        """
        self._require_rows(2 if centered else 1)
        n = self.effective_n
        return self._centered_eigen()[0] * (n / (n - 1)) if centered else self._raw_eigen()[0]

    def mean_along(self) -> Tensor:
        """|mean . c| for the unit eigenvectors c of `second_moment`, in the order of its spectrum, float64 (D,)."""
        return self._raw_eigen()[1]

    def directions(self) -> Tensor:
        """Unit eigenvectors of `second_moment` as columns, in the order of its spectrum, float64 (D, D)."""
        if "directions" not in self._derived:
            self._derived["directions"] = consume_to_eigen(self.second_moment())[1]
        return self._derived["directions"]  # type: ignore[no-any-return]

    def leading_directions(self, k: int, *, centered: bool) -> Tensor:
        """The first k unit eigenvectors as columns, float64 (D, k), without the memory of a whole decomposition.

        Centred ones are found by subspace iteration, to a residual of 1e-9 of the largest eigenvalue; where that does not
        get there soon (the spectrum is flat), by a decomposition after all.
        """
        k = min(k, self.d)
        if not centered:
            return self.directions()[:, :k]
        if "leading" not in self._derived or self._derived["leading"].shape[1] < k:
            covariance = self.covariance()
            found = leading_eigenvectors(covariance, k)
            self._derived["leading"] = consume_to_eigen(covariance)[1][:, :k].clone() if found is None else found
        return self._derived["leading"][:, :k]  # type: ignore[no-any-return]

    def _centered_eigen(self) -> tuple[Tensor, Tensor]:
        """Eigenvalues of the mean of (x - mean)(x - mean)', largest first, and the mean in their eigenvectors, float64 (D,)."""
        if "centered" not in self._derived:
            self._require_rows(1)
            m = self.first / self.weight
            about_mean = torch.addr(self._second(), self.first, m, alpha=-1.0, out=self._matrix()).div_(self.weight)
            values, vectors = consume_to_eigen(about_mean)
            self._derived["centered"] = values.clamp_min_(0.0), self.mean() @ vectors
        return self._derived["centered"]  # type: ignore[no-any-return]

    def _raw_eigen(self) -> tuple[Tensor, Tensor]:
        if "raw" not in self._derived:
            self._derived["raw"] = add_rank_one(*self._centered_eigen())
        return self._derived["raw"]  # type: ignore[no-any-return]

    def _require_rows(self, least: int) -> None:
        kish = self.weight**2 / self.weight_square if self.weight > 0 else 0.0
        if self.n < least or kish == 0 or (least > 1 and kish <= 1 + 1e-12):
            raise UndefinedMeasure(
                f"expected at least {least} rows of positive weight, got {min(self.n, kish):.0f}: pass more rows"
            )

    def unit_sums(self) -> tuple[Tensor, Tensor]:
        """`unit_first` and `unit_square`.

        Raises:
            InputError: moments made with `unit_first=False`.
        """
        if self.unit_first is None or self.unit_square is None:
            raise InputError("expected moments with sums over unit rows, got moments made with unit_first=False: sum again")
        return self.unit_first, self.unit_square

    def _kinds(self) -> tuple[bool, bool, bool]:
        return self.second is not None, self.unit_first is not None, self.unit_second is not None

    @classmethod
    def _of_kinds(cls, d: int, kinds: tuple[bool, bool, bool], *, device: str = "cpu") -> "Moments":
        second, unit_first, unit_second = kinds
        return cls(d, second=second, unit_first=unit_first, unit_second=unit_second, device=device)

    def _second(self) -> Tensor:
        if self.second is None:
            raise InputError(
                "expected moments with second-order sums, got moments made with second=False: sum again without it"
            )
        return self.second

    def _about(self, shift: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """`first` and `second` as they would be about another shift."""
        if self.shift is None or shift is None or torch.equal(self.shift, shift):
            return self.first, self.second
        delta = self.shift - shift
        first = self.first + self.weight * delta
        if self.second is None:
            return first, None
        # sum w (y + delta)(y + delta)' = second + first delta' + delta first' + weight delta delta'
        second = torch.addr(self.second, self.first, delta).addr_(delta, first)
        return first, second

    def _chunk_rows(self, itemsize: int) -> int:
        """Rows worked on at once: few enough to bound the buffer, enough to keep a product busy."""
        enough = max(256, _BUFFER_BYTES // (self.d * itemsize), min(GRID, self.d))
        return 1 << (enough.bit_length() - 1)  # a power of two, so that pieces share out evenly

    def _reserve(self, rows: int, dtype: torch.dtype) -> None:
        """Take the working memory on the caller's thread: what a worker frees stays with that worker's allocator."""
        dtype = torch.float64 if dtype == torch.float64 else torch.float32
        chunk = min(rows, self._chunk_rows(dtype.itemsize))
        self._buffer("rows", (chunk, self.d), dtype)
        for name in self._products:
            self._buffer(f"{name} product", (self.d, self.d), dtype)

    def _buffer(self, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        kept = self._scratch.get(name)
        if kept is None or kept.dtype != dtype or kept.shape[1:] != shape[1:] or len(kept) < shape[0]:
            kept = self._scratch[name] = uninitialised(shape, dtype, self.device)
        return kept[: shape[0]]

    def _matrix(self) -> Tensor:
        return uninitialised((self.d, self.d), torch.float64, self.device)

    def _zeros(self, *shape: int) -> Tensor:
        return zeros(shape, torch.float64, self.device)


def _shift(x: Tensor) -> Tensor:
    """The mean of the first rows, as numbers that the rows' own dtype can hold: near enough to the mean of all."""
    mean = x[:PIECE].mean(dim=0)
    if not bool(torch.isfinite(mean).all()):
        mean = torch.zeros_like(mean)  # not finite or about to overflow: whoever measures the norms says so
    return mean.double()


def _load_tensors(path: str | os.PathLike[str]) -> dict[str, Tensor]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(os.fspath(path), "pt") as file:
            found = (file.metadata() or {}).get("format")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
    except (OSError, SafetensorError) as error:
        raise InputError(f"expected moments, got {path} which cannot be read ({error}): write it with Moments.save") from error
    if found != _FORMAT or not {"scalars", "first"} <= set(tensors) or ("unit_first" in tensors) != ("unit_square" in tensors):
        raise InputError(f"expected moments of format {_FORMAT!r}, got {path} of format {found!r}: write it with Moments.save")
    if len(tensors["scalars"]) != len(_SCALARS) or not float(tensors["scalars"][0]) >= 0 or tensors["first"].ndim != 1:
        raise InputError(f"expected the sums of some rows, got {path} with others: write it with Moments.save")
    if any(t.dtype != torch.float64 for t in tensors.values()) or ("shift" not in tensors and float(tensors["scalars"][0]) > 0):
        raise InputError(f"expected float64 sums about a shift, got {path} with others: write it with Moments.save")
    return tensors
