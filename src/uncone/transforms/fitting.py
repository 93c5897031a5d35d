"""What all transformations share: one pass over the rows, the sums it leaves, and scikit-learn's habits."""

import inspect
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, make_dataclass, replace
from functools import cache
from numbers import Integral, Real
from typing import Any, ClassVar, Self, get_type_hints

import torch

from uncone.errors import InputError
from uncone.moments import Moments
from uncone.records.fitted import Fitted
from uncone.rows import as_rows
from uncone.transforms.affine import Affine
from uncone.transforms.fitted import IN_THE_MOMENTS, DigestedRows, fitted_on
from uncone.transforms.state import State
from uncone.transforms.transformed import X

Tensor = torch.Tensor
Progress = Callable[[int], None]


@dataclass(frozen=True)
class Summary:
    """What one pass over the rows leaves: their sums, and whose they are."""

    moments: Moments
    fitted: Fitted
    counted: int
    """Rows of a weight above 0, as far as that is known."""


def summarise(
    x: Any,
    weights: Any = None,
    *,
    second: bool = True,
    unit_first: bool = False,
    progress: Progress | None = None,
) -> Summary:
    """One pass over `x`, an array, tensor or `Rows` (N, D); or `Moments`, which are taken as they are.

    Raises:
        InputError: rows that are not finite, weights of another length, negative or all zero, or with
            moments.
    """
    if isinstance(x, Moments):
        return _of_moments(x, weights, second=second, unit_first=unit_first)
    rows = DigestedRows(as_rows(x))
    moments = Moments.of(rows, weights, second=second, unit_first=unit_first, progress=progress)
    counted = moments.n if weights is None else int((torch.as_tensor(weights) > 0).sum())
    return Summary(moments, fitted_on(rows, weights), counted)


def _of_moments(m: Moments, weights: Any, *, second: bool, unit_first: bool) -> Summary:
    if weights is not None:
        raise InputError(
            "expected no weights with moments, got some: sum with them, Moments.of(rows, weights)"
        )
    if m.n == 0:
        raise InputError("expected moments of at least one row, got none: update them with rows first")
    if second and m.second is None:
        raise InputError(
            "expected moments with second-order sums, got moments made with second=False: sum again"
        )
    if unit_first:
        m.unit_sums()  # says what is missing
    plain = m.weight == m.n and m.weight_square == m.n
    return Summary(m, Fitted("moments", m.n, m.d, None, None if plain else IN_THE_MOMENTS), m.n)


class Transformation:
    """A fitted change of rows. Options are kept by the constructor, what is fitted ends in an underscore.

    Attributes after `fit`:
        fitted_: what it was fitted on.
        affine_: the same transformation as one `Affine`, where it is affine.
        warnings_: what the numbers it was fitted on leave in doubt, in sentences.
    """

    affine: ClassVar[bool] = True
    """Whether transformations of this class are affine, and so can be written into a model or an index."""
    second: ClassVar[bool] = True
    unit_first: ClassVar[bool] = False
    """Which sums `_solve` reads."""
    tensors: ClassVar[Mapping[str, str]] = {}
    """The fitted tensors by name, each with a letter an axis: equal letters are equal lengths, D is that of
    the rows.
    """
    fitted_: Fitted
    affine_: Affine
    warnings_: tuple[str, ...] = ()

    def fit(self, x: Any, *, weights: Any = None, progress: Progress | None = None) -> Self:
        """Fit on the rows of `x`, read once, block by block.

        Args:
            x: an array, tensor or `Rows` (N, D), or `Moments`.
            weights: (N,) non-negative weights of rows, for instance token frequencies (Zipfian fitting); all
                equal by default.
            progress: called with the number of rows done.

        Returns:
            Itself.

        Raises:
            InputError: rows that are not finite or too few, weights that do not fit, or moments without the
                sums needed.
        """
        summary = summarise(x, weights, second=self.second, unit_first=self.unit_first, progress=progress)
        self._take(summary)
        return self

    def _take(self, summary: Summary) -> None:
        self.warnings_ = ()
        solved = self._solve(summary)
        self.fitted_ = summary.fitted
        if solved is not None:
            self.affine_ = replace(solved, fitted=summary.fitted)

    def _solve(self, summary: Summary) -> Affine | None:
        """Set the fitted tensors; return the affine map where there is one."""
        raise NotImplementedError

    def transform(self, x: X) -> X:
        """The transformed rows: a tensor, array or `Rows` (N, D) as the same kind, dtype and device, (N, K).

        Raises:
            InputError: not fitted, another width, no floats, or numbers that are not finite.
        """
        self._require_fit()
        return self.affine_.transform(x)

    def fit_transform(self, x: X, *, weights: Any = None) -> X:
        """`fit`, then `transform` of the same rows."""
        return self.fit(x, weights=weights).transform(x)

    def inverse_transform(self, y: X) -> X:
        """The rows that `transform` made `y` of, (N, K) to (N, D), where that can be undone.

        Raises:
            InputError: not fitted, directions were removed, a transformation that is not affine, or as
                `transform` does.
        """
        self._require_fit()
        if not self.affine:
            raise InputError(
                f"expected a transformation that can be undone, got {type(self).__name__}, which depends on "
                "each row's norm or cluster: keep the rows"
            )
        return self.affine_.inverse_transform(y)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to a safetensors file, atomically; `uncone.transforms.load` reads it back.

        Raises:
            InputError: not fitted, or the folder does not exist or cannot be written.
        """
        self._require_fit()
        affine = self.affine_.state().tensors if self.affine else {}
        tensors = {**affine, **{name: getattr(self, name) for name in self.tensors}}
        State(type(self).__name__, tensors, self.fitted_, self.options(), self.warnings_).save(path)

    @classmethod
    def from_state(cls, state: State) -> Self:
        """The fitted transformation that was saved.

        Raises:
            InputError: options, tensors or rows that are not those of a transformation of this class.
        """
        kind: Any = cls
        made = cls(**vars(state.checked(_options(kind), state.options, "options")))
        made._set_tensors(state)
        if state.fitted is None:
            raise state.lies("it does not say what it was fitted on")
        made.fitted_, made.warnings_ = state.fitted, state.warnings
        if made.affine:
            made.affine_ = Affine.from_state(state)
        if made.affine and made.affine_.d != state.fitted.d:
            raise state.lies(f"rows of {made.affine_.d} features were fitted on rows of {state.fitted.d}")
        return made

    def _set_tensors(self, state: State) -> None:
        """The fitted tensors, each axis as long as those of the same letter."""
        sizes: dict[str, int] = {}
        for name, axes in self.tensors.items():
            tensor = state.tensors.get(name)
            if tensor is None or tensor.ndim != len(axes):
                raise state.lies(f"it has no tensor {name!r} of {len(axes)} axes")
            for axis, size in zip(axes, tensor.shape, strict=True):
                if sizes.setdefault(axis, size) != size:
                    raise state.lies(f"the shape of {name!r} does not fit the others")
            setattr(self, name, tensor)
        if sizes.get("K", 0) > sizes["D"]:
            raise state.lies(f"it holds {sizes['K']} directions of {sizes['D']} features")
        if "shift" in state.tensors and sizes["D"] != len(state.tensors["shift"]):
            raise state.lies("the shape of 'shift' does not fit the others")

    def options(self) -> dict[str, Any]:
        """The constructor's options, by name."""
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def _require_fit(self) -> None:
        if not hasattr(self, "fitted_"):
            name = type(self).__name__
            raise InputError(f"expected a fitted {name}, got one that is not: call fit(x) first")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.options().items())})"


@cache
def _options(cls: Any) -> Any:
    """A record of the constructor's options, to check those of a file by."""
    hints = get_type_hints(cls.__init__)
    return make_dataclass(cls.__name__, [(name, hints[name]) for name in inspect.signature(cls).parameters])


def affine_of(transformation: Transformation | Affine, where: str) -> Affine:
    """Its `Affine`, for what can hold nothing else: a layer of a model, an index.

    Raises:
        InputError: not fitted, or not affine: `where` says what could not hold it.
    """
    if isinstance(transformation, Affine):
        return transformation
    if not transformation.affine:
        raise InputError(
            f"expected an affine transformation for {where}, which computes x @ weight + bias and nothing "
            f"else, got {type(transformation).__name__}, which depends on each row's norm or cluster: apply "
            "it to the vectors, or choose another"
        )
    transformation._require_fit()
    return transformation.affine_


def require_rows(summary: Summary, least: int, what: str) -> None:
    """Raise InputError unless at least `least` rows of positive weight were summed."""
    if summary.counted < least:
        raise InputError(f"expected at least {least} rows for {what}, got {summary.counted}: pass more rows")


def check_whole(value: Any, name: str, least: int) -> int:
    """`value` as an int, which it is from `least` up.

    Raises:
        InputError: it is not.
    """
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise InputError(
            f"expected {name} to be a whole number from {least} up, got {value!r}: choose another"
        )
    return int(value)


def check_share(value: Any, name: str) -> float:
    """`value` as a float, which it is from 0 to 1.

    Raises:
        InputError: it is not.
    """
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 <= float(value) <= 1:
        raise InputError(f"expected {name} to be a number from 0 to 1, got {value!r}: choose another")
    return float(value)
