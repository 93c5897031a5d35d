"""The mergeable summary of rows, from one pass, that nearly every measure is computed from."""

import math
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from uncone.arguments import flag, whole_number
from uncone.errors import UndefinedMeasure
from uncone.memory import uninitialised
from uncone.moments.cell import checked_weights, counting_nonfinite, cuts, inverse, row_norms
from uncone.moments.drawn import DrawnRows
from uncone.moments.eigen import RankOne, consume_to_eigen, few_to_eigen, leading_pairs, summed_roundings
from uncone.moments.sums import Sums
from uncone.roles import Ticks
from uncone.rows import GRID, Array, ArrayRows, Rows, as_samples
from uncone.threads import on_one_thread, one_blas_thread

_FLOAT64 = 2.0**-52


class Moments(Sums):
    """Means, covariances, directions and spectra of weighted rows, in float64, from their `Sums`."""

    @classmethod
    def of(
        cls,
        rows: Any,
        weights: Any = None,
        unit_second: bool = False,
        *,
        second: bool = True,
        unit_first: bool = True,
        drawn: bool = True,
        shift: Any = None,
        progress: Ticks = None,
    ) -> Self:
        """The moments of `rows` (Rows, or an array, tensor or list (N, D)), read once, block by block.

        Args:
            weights: (N,) non-negative, for instance token counts.
            unit_second: also sum u u' (for `uniformity`), at the same cost again.
            second: False leaves out the (D, D) sums, which is an order of magnitude faster: `mean_cosine`, `mean_shift`
                and `rogue_dimensions` do not need them.
            unit_first: False leaves out the sums over unit rows, which only mean cosines, `rogue_dimensions` and
                `uniformity` need.
            drawn: False keeps no rows: the readings of these moments then have no intervals.
            shift: (D,); by default the mean of the first 512 rows. To merge byte for byte, share a shift, cell by cell.
            progress: called with the number of rows done.
        Raises InputError: a row is not finite; weights of another length, negative or all zero.
        """
        rows = as_samples(rows)
        if rows.parts:
            of = {"unit_second": unit_second, "second": second, "unit_first": unit_first, "drawn": drawn}
            work: Any = partial(_of_part, cls, of, checked_weights(weights, rows.shape[0]), shift)
            return rows.over_parts(work, cls.absorb, progress)  # type: ignore[no-any-return]
        kinds: dict[str, Any] = {"second": second, "unit_first": unit_first, "unit_second": unit_second}
        kinds["drawn"] = drawn and weights is None
        moments = cls(rows.shape[1], shift=shift if second else None, **kinds)
        w = checked_weights(weights, rows.shape[0])
        if isinstance(rows, ArrayRows) and rows.on_device is not None:
            from uncone.moments.on_device import add

            with counting_nonfinite(rows):
                add(moments, rows.on_device, w, progress)
            return moments
        with one_blas_thread():
            deque(moments.add_all(rows, w, progress), maxlen=0)
        return moments

    def add_all(
        self, rows: Rows, weights: Array | None = None, progress: Ticks = None
    ) -> Iterator[tuple[int, npt.NDArray[Any]]]:
        """Add all rows, cell by cell of the grid; yields each part with the number of its first row. `del` a part
        before reading the next: the reader reuses its memory."""
        n = rows.shape[0]
        if n > self.most_kept():
            self.sum_products()
        if self.drawn is not None and weights is None:
            self.drawn.expect(n)
        for start, part in rows.numbered(progress, self.rows_at_once(rows.widened.itemsize)):
            stop = start + len(part)
            with counting_nonfinite(rows):
                w = None if weights is None else weights[start:stop]
                self.update(part, w, more=stop % GRID > 0 and stop < n)
            yield start, part
            del part
        self.finish()

    def over_ranks(self, group: Any = None) -> Self:
        """The moments of the rows of all torch.distributed ranks (of `group`), the same to the byte on every rank.

        The ranks' moments are merged in order, as files are, without drawn rows. Raises InputError: there are no ranks,
        or their moments have different numbers of features or different sums.
        """
        from uncone.moments.ranks import merged

        cls, kinds = type(self), {"features": self.d} | self._kinds()
        return merged(self, cls.to_bytes, cls.from_bytes, kinds, group)

    @property
    def effective_n(self) -> float:
        """Kish's effective number of rows, (sum w)^2 / sum w^2; N when all weights are 1."""
        self._require_rows(1)
        return self.weight**2 / self.weight_square

    def mean(self) -> Array:
        """The weighted mean row (D,)."""
        self._require_rows(1)
        assert self.shift is not None
        return self.shift + self.first / self.weight

    def mean_norm(self) -> float:
        """The weighted mean of |x|."""
        self._require_rows(1)
        return self.norm_sum / self.weight

    def variances(self, *, centered: bool = True) -> Array:
        """The diagonal of `covariance` when centred, else of `second_moment` (D,)."""
        self._require_rows(2 if centered else 1)
        n, diagonal = self.effective_n, self._mean_squares()
        return diagonal * (n / (n - 1)) if centered else diagonal + np.square(self.mean())

    def _mean_squares(self) -> Array:
        """The diagonal of the mean of (x - mean)(x - mean)'."""
        if not self.keeps_rows:
            m = self.first / self.weight
            return np.asarray(self._second().diagonal() / self.weight - m * m)
        if "squares" not in self._derived:
            self._derived["squares"] = np.square(self._about_mean()).sum(0)
        return self._derived["squares"]  # type: ignore[no-any-return]

    @on_one_thread
    def concentration(self) -> float:
        """|C|_F^2 / tr(C)^2 of the covariance C, in [1/D, 1]; 0 where all rows are equal."""
        if "concentration" not in self._derived:
            self._require_rows(2)
            # Computed from C times a factor that cancels in the ratio; for few rows, from their own products.
            rows = self._about_mean() if self.keeps_rows else None
            second, first = (self._second(), self.first) if rows is None else (rows @ rows.T, np.zeros(len(rows)))
            m = first / self.weight
            trace, concentration = float(second.diagonal().sum() - first @ m), 0.0
            if trace > 0:
                for cut in cuts(len(second), 64):
                    strip = (second[cut] - np.outer(first[cut], m)) / trace
                    concentration += float(np.vdot(strip, strip))
            self._derived["concentration"] = concentration
        return self._derived["concentration"]  # type: ignore[no-any-return]

    def covariance(self) -> Array:
        """The covariance (D, D), divided by N - 1 (with weights, by N (1 - 1/N), N in Kish's sense)."""
        self._require_rows(2)
        n = self.effective_n
        scatter: Array = self._scatter()
        return np.multiply(scatter, n / ((n - 1) * self.weight), out=scatter)

    def second_moment(self) -> Array:
        """The mean of x x' about the origin (D, D): the Gram matrix divided by N."""
        self._require_rows(1)
        mean, moment = self.mean(), self._scatter()
        moment /= self.weight
        return _add_outer(moment, mean, mean, out=moment)

    @on_one_thread
    def _scatter(self) -> Array:
        """The sum of w (x - mean)(x - mean)', (D, D)."""
        if self.keeps_rows:
            rows = self._about_mean()
            return np.asarray(np.multiply(product := rows.T @ rows, self.weight, out=product))
        return _add_outer(self._second(), -self.first / self.weight, self.first, out=uninitialised((self.d, self.d)))

    def _about_mean(self) -> Array:
        """The kept rows less their mean, times the root of their share of the weight, (N, D)."""
        self._check_second()
        x, shares = self._kept()
        mean = self.mean()
        x -= mean
        x[np.abs(x) <= 4 * _FLOAT64 * np.abs(mean)] = 0.0  # no more than the rounding of the mean
        x *= np.sqrt(shares / self.weight)[:, None]
        return x

    def _kept(self) -> tuple[Array, Array]:
        """The kept rows (N, D), and their weights (N,)."""
        parts = [part for cell in self._few or () for part in cell]
        x = np.concatenate([np.zeros((0, self.d)), *(x for x, _ in parts)])
        return x, np.concatenate([np.zeros(0), *(np.ones(len(x)) if w is None else w for x, w in parts)])

    @on_one_thread
    def unit_squares(self) -> tuple[float, float]:
        """|U|_F^2 and S'U S of U = sum w u u' (`unit_second`) and S = sum w u (`unit_first`)."""
        first, _ = self.unit_sums()
        if self.keeps_rows:
            x, w = self._kept()
            x *= (inverse(row_norms(x)) * np.sqrt(w))[:, None]
            gram, along = x @ x.T, x @ first
            return float(np.vdot(gram, gram)), float(along @ along)
        product = self.unit_second
        assert product is not None
        return float(np.vdot(product, product)), float(first @ product @ first)

    def spectrum(self, *, centered: bool) -> Array:
        """Eigenvalues of `covariance` or `second_moment`, largest first, none below 0 (D,)."""
        self._require_rows(2 if flag(centered, "centered") else 1)
        n = self.effective_n
        values = self._centered_eigen()[0] * (n / (n - 1)) if centered else self._raw_eigen().values
        return self._whole(values)

    def _whole(self, values: Array) -> Array:
        """The values with zeros for directions that the rows do not span, (D,)."""
        return values if len(values) == self.d else np.append(values, np.zeros(self.d - len(values)))

    def leading_spectrum(self, k: int, *, centered: bool) -> Array:
        """The first k numbers of `spectrum` and the sum of the others (k + 1,), without a whole decomposition unless
        there is one already."""
        self._require_rows(2 if flag(centered, "centered") else 1)
        whole_number(k, "k", 1)
        name = f"leading values {centered}"
        known = self.keeps_rows or ("centered" if centered else "raw") in self._derived
        if not known and len(self._derived.get(name, ())) <= k:
            matrix = self.covariance() if centered else self.second_moment()
            trace, (values, vectors) = float(np.trace(matrix)), leading_pairs(matrix, k)
            self._derived[name] = np.append(values, max(0.0, trace - values.sum()))
            self._derived["leading" if centered else "leading raw"] = vectors
        values = self.spectrum(centered=centered) if known else self._derived[name]
        return np.append(values[:k], values[k:].sum())

    def take_products(self, raw: Self, mean: Array) -> None:
        """Take the second-order sums and the decomposition from `raw`, whose rows minus `mean` were summed here without
        products."""
        assert raw.shift is not None
        values, vectors = raw._centered_eigen()[0], raw._derived["vectors"]
        self.shift, self.first, self.rounding = raw.shift - mean, raw.first, raw.rounding
        if raw.keeps_rows:
            self._products["second"] = None  # the rows kept here serve both
        else:
            self.second = raw.second
        self._derived = {"centered": (values, self.mean() @ vectors), "vectors": vectors}
        self._derived["roundings"] = raw._derived["roundings"]

    def spectral_error(self, *, centered: bool) -> Array:
        """The standard deviation of the rounding error in each number of `spectrum` (D,).

        To first order the error E of a product adds v'Ev to the eigenvalue of the unit eigenvector v, and E_ij is about
        one rounding of the sum S_ij. With r_i one rounding of S_ii and R the mean square correlation of features, the
        variance is sum v_i^4 r_i^2 + R (sum v_i^2 r_i)^2.
        """
        alone, together = self._one_rounding(centered=centered)
        of_products = np.hypot(alone, math.sqrt(self._mean_square_correlation()) * together)
        return np.hypot(of_products, _FLOAT64 * float(self.leading_spectrum(1, centered=centered)[0]))

    def spectral_rounding(self, *, centered: bool) -> Array:
        """The number of `spectrum` below which rounding alone may have made it (D,).

        Rounding gives directions without variance the eigenvalues of a random matrix, up to sqrt(D) times its entries.
        Rows of few values, whose errors are not independent, reached 8 times as much, and float64 sums 32 roundings of
        the trace.
        """
        n = self.effective_n
        of_matrix = 8 * (math.sqrt(self.d) + 1) * self._one_rounding(centered=centered)[1]
        largest = self.epsilon * float(self.leading_spectrum(1, centered=centered)[0])
        squares = self._mean_squares() if self.keeps_rows else self._second().diagonal() / self.weight
        sums = 32 * _FLOAT64 * float(squares.sum())
        return np.maximum(np.minimum(of_matrix, largest), sums * (n / (n - 1) if centered else 1.0))

    def _one_rounding(self, *, centered: bool) -> tuple[Array, Array]:
        """The root of sum v_i^4 r_i^2, and sum v_i^2 r_i, for the eigenvectors v of `spectrum`, with r one rounding of
        each feature."""
        self._centered_eigen()
        n, (alone, together) = self.effective_n, self._derived["roundings"]
        scale = (n / (n - 1) if centered else 1.0) / self.weight
        if not centered:  # the mean moves each eigenvalue to at most the place of the next larger one
            alone, together = (np.maximum(one, np.append(one[:1], one[:-1])) for one in (alone, together))
        return alone * scale, together * scale

    def _mean_square_correlation(self) -> float:
        if self.keeps_rows:
            return 0.0  # no product was rounded
        if "correlation" not in self._derived:
            second, total = self._second(), 0.0
            scale = inverse(np.sqrt(second.diagonal()))
            for cut in cuts(self.d, 64):
                total += float(np.square(second[cut] * scale[cut, None] * scale).sum())
            self._derived["correlation"] = total / self.d**2
        return self._derived["correlation"]  # type: ignore[no-any-return]

    def mean_along(self) -> Array:
        """|mean . c| for the unit eigenvectors c of `second_moment`, largest first (D,)."""
        return self._whole(self._raw_eigen().along)

    def directions(self) -> Array:
        """Unit eigenvectors of `second_moment` as columns (D, D). Where few rows are kept there are N + 1 columns:
        along all other directions the rows are 0."""
        return self.eigen()[1]

    def eigen(self) -> tuple[Array, Array]:
        """Eigenvalues of `second_moment`, largest first (D,), and `directions`, decomposed once."""
        if "eigen" not in self._derived:
            values = self._whole(self._raw_eigen().values)
            self._derived["eigen"] = values, self._raw_eigen().turned(self._derived["vectors"])
        return self._derived["eigen"]  # type: ignore[no-any-return]

    def on_directions(self, on_centered: Array) -> Array:
        """The products of rows with `directions`, from those of the rows less the mean with the centred eigenvectors."""
        along = self._centered_eigen()[1].astype(on_centered.dtype)
        return self._raw_eigen().turned(on_centered + along)

    @property
    def is_decomposed(self) -> bool:
        return "centered" in self._derived

    @property
    def keeps_directions(self) -> bool:
        """Whether `directions` are all that is left of the decomposition."""
        return "eigen" in self._derived and "vectors" not in self._derived

    def once(self, name: str, make: Callable[[], Array]) -> Array:
        """The result of `make`, kept until more rows come."""
        if name not in self._derived:
            self._derived[name] = make()
        return self._derived[name]  # type: ignore[no-any-return]

    def known(self, name: str) -> Array | None:
        """What `once` keeps under this name."""
        return self._derived.get(name)

    def keep_directions(self) -> None:
        """Free the second-order sums; earlier results from them, and `directions`, stay."""
        self.directions()
        self.second = self.unit_second = None
        for name in ("vectors", "summed", "drawn products True"):
            self._derived.pop(name, None)

    def leading_directions(self, k: int, *, centered: bool) -> Array:
        """The first k unit eigenvectors as columns (D, k); centred ones in little memory."""
        k = min(k, self.d)
        if not centered:
            known = self._derived.get("leading raw")  # left by `leading_spectrum`
            is_enough = known is not None and known.shape[1] >= k and "eigen" not in self._derived
            return known[:, :k] if is_enough and known is not None else self.directions()[:, :k]
        if self.keeps_rows:
            self._centered_eigen()
        if "vectors" in self._derived:
            return self._derived["vectors"][:, :k]  # type: ignore[no-any-return]
        if "leading" not in self._derived or self._derived["leading"].shape[1] < k:
            self._derived["leading"] = leading_pairs(self.covariance(), k)[1]
        return self._derived["leading"][:, :k]  # type: ignore[no-any-return]

    @on_one_thread
    def _centered_eigen(self) -> tuple[Array, Array]:
        """Eigenvalues of the mean of (x - mean)(x - mean)', and the mean along the eigenvectors."""
        if "centered" not in self._derived:
            self._require_rows(1)
            if self.keeps_rows:
                values, along, vectors = few_to_eigen(self._about_mean(), self.mean())
                self._derived["roundings"] = np.zeros((2, self.d))
            else:
                scatter = self._scatter()
                scatter /= self.weight
                values, vectors = consume_to_eigen(scatter)
                along = self.mean() @ vectors
                self._derived["roundings"] = summed_roundings(vectors, self.rounding)
            values[self.n - 1 :] = 0.0  # rows about their mean add up to 0
            self._derived["centered"], self._derived["vectors"] = (np.maximum(values, 0.0), along), vectors
        return self._derived["centered"]  # type: ignore[no-any-return]

    def _raw_eigen(self) -> RankOne:
        """The decomposition after adding the mean; N rows have at most N eigenvalues above 0."""
        if "raw" not in self._derived:
            self._derived["raw"] = RankOne(*self._centered_eigen())
            self._derived["raw"].values[self.n :] = 0.0
        return self._derived["raw"]  # type: ignore[no-any-return]

    def _require_rows(self, least: int) -> None:
        kish = self.weight**2 / self.weight_square if self.weight > 0 else 0.0
        if self.n < least or kish == 0 or (least > 1 and kish <= 1 + 1e-12):
            got = f"{min(self.n, kish):.0f}: pass more"
            raise UndefinedMeasure(f"expected at least {least} rows of positive weight, got {got}")


def _add_outer(matrix: Array, left: Array, right: Array, *, out: Array) -> Array:
    """matrix + left right', some rows at a time."""
    for cut in cuts(len(matrix), 64):
        np.add(matrix[cut], np.outer(left[cut], right), out=out[cut])
    return out


def _of_part(
    kind: type[Moments], options: dict[str, Any], weights: Array | None, shift: Any, rows: Rows, first: int
) -> Moments:
    """The moments of the rows from number `first` on; other parts draw other rows."""
    w = None if weights is None else weights[first : first + rows.shape[0]]
    is_drawn = options["drawn"] and weights is None
    moments = kind(rows.shape[1], shift=shift if options["second"] else None, **options | {"drawn": False})
    moments.drawn = DrawnRows(rows.shape[1], seed=first) if is_drawn else None
    deque(moments.add_all(rows, w), maxlen=0)
    return moments
