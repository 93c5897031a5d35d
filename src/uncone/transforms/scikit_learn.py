"""What scikit-learn needs from an estimator apart from fitting: tables in, names of features, DataFrames out.

Only other programs load scikit-learn. Some messages hold words that its checks look for."""

import inspect
import sys
import warnings
from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Any, Self

import numpy as np

from uncone.errors import InputError, expect, needed
from uncone.records.parts import Fitted
from uncone.records.text import visible
from uncone.rows import Array, Rows
from uncone.rows.floats import is_tensor
from uncone.rows.samples import as_floats

_OUTPUTS = ("default", "pandas", "polars")


class NoInverseError(InputError, AttributeError):
    """A transformation cannot be undone: for `hasattr` there is no `inverse_transform`."""


class NotNumbersError(InputError, TypeError):
    """A table holds something that is not a number."""


def _is_table(x: Any) -> bool:
    if is_tensor(x) or isinstance(x, Rows | np.ma.MaskedArray):
        return False
    return hasattr(x, "__array__") or isinstance(x, list | tuple)


def as_table(x: Any) -> Any:
    """A table as an array of floats, where integers become float64; anything else as it is. InputError: a sparse
    matrix, complex numbers, rows without a feature, or what is not a number."""
    expect(not hasattr(x, "toarray"), "dense rows, got a sparse matrix: pass x.toarray()")
    if not _is_table(x):
        return x
    try:
        # A DataFrame may store columns, whose sums are rounded in another way.
        array = x if isinstance(x, np.ndarray) else np.asarray(x, order="C")
        if array.dtype.kind in "biuO":
            array = array.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise NotNumbersError(f"expected rows of numbers, got other values ({error}): convert them") from error
    expect(array.dtype.kind != "c", "real rows, got complex ones: Complex data not supported, pass x.real")
    got = f"got 0 feature(s) (shape={array.shape}) while a minimum of 1 is required: pass more"
    expect(array.ndim != 2 or array.shape[1] > 0, f"at least one row and column, {got}")
    return array


def as_weights(weights: Any, sample_weight: Any) -> Any:
    expect(weights is None or sample_weight is None, "weights or sample_weight, got both: pass one of them")
    given = weights if sample_weight is None else sample_weight
    return None if given is None else as_floats(given, "weights")


def __getattr__(name: str) -> Any:
    """`NotFittedError`, made at its first use, also by a process that unpickles one."""
    if name != "NotFittedError":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    theirs = import_module("sklearn.exceptions").NotFittedError
    globals()[name] = type(name, (InputError, theirs), {"__module__": __name__})
    return globals()[name]


def _names_of(x: Any) -> Array | None:
    names = list(getattr(x, "columns", ())) if _is_table(x) else []
    return np.array(names, dtype=object) if names and all(isinstance(name, str) for name in names) else None


def _check_names(x: Any, fitted: Array | None, name: str) -> None:
    """Refuse columns other than at the fit, or warn where one side has no names, in scikit-learn's words."""
    found = _names_of(x)
    if (found is None) != (fitted is None):
        has, was = ("does not have valid", "with") if found is None else ("has", "without")
        message = f"X {has} feature names, but {name} was fitted {was} feature names"
        warnings.warn(message, UserWarning, stacklevel=4)
    elif found is not None and fitted is not None and list(found) != list(fitted):
        unseen, missing = set(found) - set(fitted), set(fitted) - set(found)
        message = "The feature names should match those that were passed during fit.\n"
        message += _listed("Feature names unseen at fit time:\n", unseen) if unseen else ""
        message += _listed("Feature names seen at fit time, yet now missing:\n", missing) if missing else ""
        if not unseen and not missing:
            message += "Feature names must be in the same order as they were in fit.\n"
        raise InputError(message)


def _listed(title: str, names: Iterable[str]) -> str:
    shown = [f"- {visible(name)}\n" for name in sorted(names)]
    return title + "".join(shown[:5]) + "- ...\n" * (len(shown) > 5)


class Estimator:
    affine_: Any
    fitted_: Fitted
    feature_names_in_: Array
    _sklearn_output_config: Mapping[str, str]  # set by `set_output`; scikit-learn's `clone` copies it by this name

    def options(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def checked_options(self) -> dict[str, Any]:
        """The options for `fit` and files; InputError for a wrong one."""
        return self.options()

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """`options`; `deep` changes nothing."""
        return self.options()

    def set_params(self, **params: Any) -> Self:
        """Set options, which the next `fit` checks and reads; InputError for an unknown name."""
        known = self.options()
        wanted = f"options of {type(self).__name__} ({', '.join(known) or 'it has none'})"
        for name in params:
            expect(name in known, f"{wanted}, got {name!r}: choose one of them")
        vars(self).update(params)
        return self

    def __repr__(self) -> str:
        options = ", ".join(f"{name}={value!r}" for name, value in self.options().items())
        return f"{type(self).__name__}({options})"

    @property
    def n_features_in_(self) -> int:
        return self.fitted_.d

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """The names of the K output features, object (K,): new names where rows are turned onto other axes.

        Otherwise the names of the D input features (a DataFrame's columns, `input_features`, or else x0, x1, ...).
        InputError: not fitted, or `input_features` that are not D or not the names of the fit."""
        self._require_fit()
        d, fitted = self.fitted_.d, getattr(self, "feature_names_in_", None)
        names = np.array([f"x{i}" for i in range(d)], dtype=object) if fitted is None else fitted
        if input_features is not None:
            names = np.array(input_features, dtype=object)
            got = "got others: input_features is not equal to feature_names_in_, leave them out"
            expect(fitted is None or list(names) == list(fitted), f"the names that were passed during fit, {got}")
            why = f"input_features should have length equal to number of features ({d}), got {len(names)}"
            expect(len(names) == d, f"{d} names, got {len(names)}: {why}")
        if self._keeps_axes():
            return names
        return np.array([f"{type(self).__name__.lower()}{i}" for i in range(self.affine_.k)], dtype=object)

    def _keeps_axes(self) -> bool:
        """Whether output features are the input features, changed."""
        return True

    def set_output(self, *, transform: str | None = None) -> Self:
        """Let `transform` of a table give a DataFrame of "pandas" or "polars", or by "default" an array."""
        if transform is not None:
            expect(transform in _OUTPUTS, f"one of {', '.join(_OUTPUTS)}, got {transform!r}: choose one")
            self._sklearn_output_config = {"transform": transform}
        return self

    def __sklearn_tags__(self) -> Any:
        utils = import_module("sklearn.utils")
        floats = utils.TransformerTags(preserves_dtype=["float64", "float32", "float16"])
        return utils.Tags(None, utils.TargetTags(required=False), floats)

    def _require_fit(self) -> None:
        if not hasattr(self, "fitted_"):
            kind = import_module(__name__).NotFittedError if "sklearn.exceptions" in sys.modules else InputError
            raise kind(f"expected a fitted {type(self).__name__}, got one that is not: call fit(x) first")

    def _fitted_on(self, x: Any, fitted: Fitted) -> Self:
        self.fitted_ = fitted
        vars(self).pop("feature_names_in_", None)
        if (names := _names_of(x)) is not None:
            self.feature_names_in_ = names
        return self

    def _check_table(self, x: Any) -> Any:
        given = as_table(x)
        if _is_table(x):
            name, d = type(self).__name__, self.fitted_.d
            _check_names(x, getattr(self, "feature_names_in_", None), name)
            way = "Reshape your data, a single vector with x.reshape(1, -1)"
            expect(given.ndim > 1, f"an array of shape (N, {d}), got shape {given.shape}: {way}")
            why = f"X has {given.shape[-1]} features, but {name} is expecting {d} features as input"
            expect(given.shape[-1] == d, f"rows of {d} features, got shape {given.shape}: {why}")
        return given

    def _framed(self, y: Any, x: Any) -> Any:
        """`y` (N, K), made of `x`, as the DataFrame of `set_output` or of scikit-learn's `set_config`, with the index
        of a DataFrame `x` of pandas. Anything not made from a table stays."""
        if not _is_table(x) or y.ndim != 2:
            return y
        kind: str = getattr(self, "_sklearn_output_config", {}).get("transform", "")
        if not kind and (sklearn := sys.modules.get("sklearn")) is not None:
            kind = sklearn.get_config()["transform_output"]
        if kind in ("", "default"):
            return y
        names = list(self.get_feature_names_out())
        library = needed(kind, f"expected {kind} for DataFrames, got none: pip install {kind}")
        if kind == "pandas":
            index = x.index if isinstance(x, library.DataFrame) else None
            return library.DataFrame(y, index=index, columns=names, copy=False)
        return library.DataFrame(y, schema=names, orient="row")
