"""What all transformations share: one pass over the rows for sums and a digest, and a saved file."""

import hashlib
import inspect
import sys
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import make_dataclass, replace
from functools import cache
from pathlib import PurePath
from typing import Any, ClassVar, Self, TypeVar, get_type_hints, overload

import numpy as np

from uncone.errors import expect
from uncone.moments import Moments
from uncone.records.parts import Fitted
from uncone.roles import Path_, Ticks
from uncone.rows import GRID, DerivedRows, Rows, as_array, as_rows
from uncone.threads import waited
from uncone.transforms.affine import Affine, State
from uncone.transforms.scikit_learn import Estimator, NoInverseError, as_table, as_weights
from uncone.transforms.transformed import Array, Map, X, apply

T = TypeVar("T")
Tick = Callable[[int], None] | None


class Transformation(Estimator):
    """A fitted change of rows. The constructor keeps options; names of fitted values end in an underscore.

    It is a scikit-learn estimator that neither needs nor loads scikit-learn. Tensors and `Rows` keep their kind.

    Attributes after `fit`:
        fitted_: what it was fitted on.
        n_features_in_: D.
        feature_names_in_: object (D,), the names of a DataFrame's columns, where all are strings.
        affine_: the transformation as one `Affine`, if it is affine.
        warnings_: what the rows leave in doubt, in sentences.
    """

    affine: ClassVar[bool] = True  # whether it can be written into a model or an index
    second: ClassVar[bool] = True
    unit_first: ClassVar[bool] = False  # which sums `_solve` reads
    tensors: ClassVar[tuple[tuple[str, str], ...]] = ()
    """Names and axes of the fitted arrays, float64; equal letters are equal lengths."""
    fitted_: Fitted
    affine_: Affine
    warnings_: tuple[str, ...] = ()

    def fit(
        self, x: Any, y: Any = None, sample_weight: Any = None, *, weights: Any = None, progress: Tick = None
    ) -> Self:
        """Fit on the rows of `x`, read once, block by block.

        Args:
            x: an array, tensor, list, DataFrame or `Rows` (N, D), or `Moments`.
            y: for scikit-learn's pipelines; not read.
            sample_weight: (N,), scikit-learn's name for `weights`. Whole numbers act as repeated rows, down to the
                N - 1 of a covariance.
            weights: (N,) non-negative weights of rows, such as token frequencies (Zipfian fitting); equal by default.
                Only their proportions matter.
            progress: called with the number of rows done.

        Raises:
            InputError: a wrong option, rows that are not finite or too few, weights that do not fit, or moments without
                the sums needed.
        """
        self.checked_options()
        weights = as_weights(weights, sample_weight)
        repeats = sample_weight is not None and bool((weights == np.round(weights)).all())
        return self._fitted_on(x, self._fit(as_table(x), weights, progress, repeats))

    def _fit(self, x: Any, weights: Array | None, progress: Tick, repeats: bool) -> Fitted:
        """Set the fitted arrays. `repeats`: the weights count repeated rows."""
        sums: dict[str, Any] = {"second": self.second, "unit_first": self.unit_first, "progress": progress}
        moments, fitted, counted = summarise(x, weights, **sums)
        if repeats:
            moments.weight_square = moments.weight  # as repeated rows have, each of weight 1
        self.warnings_ = ()
        if (solved := self._solve(moments, counted)) is not None:
            self.affine_ = replace(solved, fitted=fitted)
        return fitted

    def _solve(self, m: Moments, counted: int) -> Affine | None:
        """Set the fitted arrays from `counted` rows of positive weight; return the affine map, if any."""
        raise NotImplementedError

    def _warn(self, message: str) -> None:
        self.warnings_ += (message,)
        warnings.warn(message, stacklevel=5)

    def _move(self, rows: Any, out: Array | None = None) -> Any:
        """What a transformation that is not affine makes of rows (n, D), in `out` if given."""
        raise NotImplementedError

    @overload
    def transform(self, x: X) -> X: ...
    @overload
    def transform(self, x: Any) -> Any: ...
    def transform(self, x: Any) -> Any:
        """The transformed rows (N, K): a tensor, array or `Rows` (N, D) keeps its kind, dtype and device.

        A list or a DataFrame becomes an array, integers become float64; `set_output` chooses DataFrames. InputError:
        not fitted, another width or other names of features, no floats, numbers that are not finite, or a single vector
        (D,) that is not a tensor."""
        map = self.map()
        return self._framed(apply(self._check_table(x), map), x)

    def map(self) -> Map:
        self._require_fit()
        return self.affine_.map() if self.affine else Map(self._move, self.fitted_.d, self.fitted_.d)

    @overload
    def fit_transform(self, x: X, y: Any = None, sample_weight: Any = None, *, weights: Any = None) -> X: ...
    @overload
    def fit_transform(self, x: Any, y: Any = None, sample_weight: Any = None, *, weights: Any = None) -> Any: ...
    def fit_transform(self, x: Any, y: Any = None, sample_weight: Any = None, *, weights: Any = None) -> Any:
        """`fit`, then `transform` of the same rows."""
        return self.fit(x, y, sample_weight, weights=weights).transform(x)

    @property
    def inverse_transform(self) -> Callable[[X], X]:
        """`inverse_transform(y)` gives the rows (N, D) that `transform` turned into `y` (N, K), and raises as it does.

        The attribute is missing where directions are removed or the transformation is not affine: scikit-learn's tools
        look for it."""
        if not self._can_be_undone():
            lost = "removes directions" if self.affine else "depends on each row's norm or cluster"
            got = f"got {type(self).__name__}, which {lost}: keep the original rows"
            raise NoInverseError(f"expected a transformation that can be undone, {got}")
        return self._undone

    def _can_be_undone(self) -> bool:
        return self.affine

    def _undone(self, y: X) -> X:
        self._require_fit()
        moved: X = self.affine_.inverse_transform(as_table(y))
        return moved

    def save(self, path: Path_) -> None:
        """Write it, atomically, to a safetensors file for `uncone.transforms.load`, or InputError."""
        self._require_fit()
        self.state().save(path)

    def state(self) -> State:
        tensors = self.affine_.tensors() if self.affine else {}
        tensors |= {name: getattr(self, name) for name, _ in self.tensors}
        return State(self.fitted_, self.checked_options(), self.warnings_, type(self).__name__, tensors)

    @classmethod
    def from_state(cls, state: State) -> Self:
        kind: Any = cls
        made = cls(**vars(state.checked(_options(kind), state.options, "options")))
        made.checked_options()
        sizes: dict[str, int] = {}
        for name, axes in cls.tensors:
            tensor = state.tensors.get(name, np.zeros(()))
            state.expect(tensor.ndim == len(axes), f"it has no tensor {name!r} of {len(axes)} axes")
            fits = all(sizes.setdefault(axis, n) == n for axis, n in zip(axes, tensor.shape, strict=True))
            state.expect(fits, f"the shape of {name!r} does not fit the others")
            setattr(made, name, tensor)
        d, k, fitted = sizes["D"], sizes.get("K", 0), state.fitted
        state.expect(k <= d, f"it holds {k} directions of {d} features")
        state.expect(d == len(state.tensors.get("shift", range(d))), "the shape of 'shift' does not fit the others")
        if fitted is None:
            raise state.lies("it does not record what it was fitted on")
        state.expect(d == fitted.d, f"it is for rows of {d} features, but was fitted on rows of {fitted.d}")
        made.fitted_, made.warnings_ = fitted, state.warnings
        if made.affine:
            made.affine_ = state.affine()
        return made


@cache
def _options(cls: Any) -> Any:
    """A record that checks the constructor's options in a file."""
    hints = get_type_hints(cls.__init__)
    return make_dataclass(cls.__name__, [(name, hints[name]) for name in inspect.signature(cls).parameters])


def affine_of(transformation: Any, where: str) -> Affine:
    """The `Affine` of any transformation, for `where` only an affine map fits: a layer, an index."""
    if isinstance(transformation, Affine):
        return transformation
    wanted = f"an affine transformation for {where}, which computes x @ weight + bias and nothing else"
    got = f"{type(transformation).__name__}, which depends on each row's norm or cluster"
    expect(transformation.affine, f"{wanted}, got {got}: apply it to the vectors, or choose another repair")
    transformation._require_fit()
    affine: Affine = transformation.affine_
    return affine


def require_rows(counted: int, least: int, what: str) -> None:
    rows = "1 sample" if counted == 1 else str(counted)  # the word that scikit-learn looks for
    expect(counted >= least, f"at least {least} rows for {what}, got {rows}: pass more rows")


def summarise(
    x: Any, weights: Any = None, *, second: bool = True, unit_first: bool = False, progress: Tick = None
) -> tuple[Moments, Fitted, int]:
    """The sums of one pass over `x`, or `Moments` as given; their record; and how many rows have a weight."""
    if not isinstance(x, Moments):
        rows = DigestedRows(as_rows(x))
        m = Moments.of(rows, weights, second=second, unit_first=unit_first, progress=progress)
        return m, fitted_on(rows, weights), m.n if weights is None else int(np.count_nonzero(as_array(weights) > 0))
    expect(weights is None, "no weights with moments, got weights: sum the rows with Moments.of(rows, weights)")
    expect(x.n > 0, "moments of at least one row, got none: update them with rows first")
    has_sums = x.has("second") or not second
    expect(has_sums, "moments with second-order sums, got moments made with second=False: sum the rows again")
    if unit_first:
        x.unit_sums()  # says what is missing
    is_plain = x.weight == x.n and x.weight_square == x.n
    return x, Fitted("moments", x.n, x.d, None, None if is_plain else "in the moments"), x.n


class DigestedRows(DerivedRows):
    """`rows`, whose sha256 is known once `blocks` has ended. Another thread digests blocks that are in use."""

    def __init__(self, rows: Rows) -> None:
        super().__init__(rows)
        self.sha256: str | None = None
        self.parts = rows.parts  # several workers read them, and no worker reads all

    def over_parts(self, work: Callable[[Rows, int], T], merge: Callable[[T, T], T], progress: Ticks = None) -> T:
        return self._rows.over_parts(work, merge, progress) if self.parts else super().over_parts(work, merge)

    def blocks(self, size: int = GRID) -> Iterator[Array]:
        digested = hashlib.sha256()
        with ThreadPoolExecutor(1, thread_name_prefix="uncone-digest") as pool:
            for block in self._rows.blocks(size):
                box = [block]

                def add(box: list[Array] = box) -> None:
                    digested.update(_bytes(box.pop()))  # a worker may hold its last job, but not the block

                job = pool.submit(add)
                yield block
                waited(job)
                del block
        self.sha256 = digested.hexdigest()


def digest(rows: Rows) -> str:
    digested = DigestedRows(rows)
    for block in digested.blocks():
        del block
    assert digested.sha256 is not None
    return digested.sha256


def fitted_on(rows: DigestedRows, weights: Any = None) -> Fitted:
    if weights is not None:
        weights = hashlib.sha256(_bytes(np.asarray(as_array(weights), np.float64))).hexdigest()
    return Fitted(shared_name(rows.name), *rows.shape, rows.sha256, weights)


def shared_name(name: str) -> str:
    """The name of a source for a file that is passed on: at most the last two parts of a path."""
    path, mark, part = name.partition("#")
    parts = PurePath(path).parts
    return "/".join(parts[-2:]) + mark + part if len(parts) > 2 else name


def _bytes(x: Array) -> memoryview:
    if sys.byteorder == "big":
        x = x.astype(x.dtype.newbyteorder("<"))
    return np.ascontiguousarray(x).reshape(-1).view(np.uint8).data
