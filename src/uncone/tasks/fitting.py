"""Repairs fitted one by one, with what each took; one that cannot be fitted is left out with its reason."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from uncone.errors import InputError
from uncone.model.open import open_rows
from uncone.records import ORIGINAL, Price
from uncone.rows import Rows, nonfinite_rows
from uncone.transforms import REPAIRS, repair_named

_SAME = 1e-9
_WIDE = 1 << 20
"""Features, more than any repair removes, where only the kind of a repair is asked."""


@dataclass(frozen=True)
class FittedRepairs:
    """Fitted transformations by name, how long each took, and why others were left out."""

    transformations: Mapping[str, Any]
    fit_s: Mapping[str, float]
    fitted_n: int
    fitted_on: str
    notes: tuple[str, ...] = ()
    apply_s: dict[str, float] = field(default_factory=dict)
    applied_n: dict[str, int] = field(default_factory=dict)

    def names(self) -> tuple[str, ...]:
        """The original first, then the repairs."""
        return (ORIGINAL, *self.transformations)

    def apply(self, name: str, x: Any, *, timed: bool = True) -> Any:
        """`x`, an array or tensor, under the repair called `name`; as it is under the original. The time is added up."""
        if name == ORIGINAL:
            return x
        started = time.perf_counter()
        out = self.transformations[name].transform(x)
        if timed:
            self.apply_s[name] = self.apply_s.get(name, 0.0) + time.perf_counter() - started
            self.applied_n[name] = self.applied_n.get(name, 0) + len(x)
        return out

    def timed(self) -> dict[str, "Timed"]:
        """The transformations, each of which adds the time it takes to what `apply` has taken."""
        return {name: Timed(self, name) for name in self.transformations}

    def prices(self) -> dict[str, Price]:
        """What each repair took."""
        return {
            name: Price(
                self.fit_s[name],
                self.apply_s.get(name, 0.0),
                self.fitted_n,
                self.applied_n.get(name, 0),
                self.fitted_on,
            )
            for name in self.transformations
        }

    def keeps_axes(self, name: str) -> bool:
        """Whether repaired vectors still mean what unrepaired ones do: not so where they were turned onto principal axes."""
        affine = None if name == ORIGINAL else getattr(self.transformations[name], "affine_", None)
        weight: torch.Tensor | None = None if affine is None else affine.weight
        if weight is None:
            return True
        is_square = weight.shape[0] == weight.shape[1]
        return is_square and bool((weight - weight.T).abs().max() <= _SAME * weight.abs().max())


@dataclass(frozen=True)
class Timed:
    """A fitted transformation whose time is taken."""

    repairs: FittedRepairs
    name: str

    def transform(self, x: Any) -> Any:
        """`x` under the repair, a tensor or array."""
        return self.repairs.apply(self.name, x)


@dataclass(frozen=True)
class OfWords:
    """A repair of word vectors, for means of them: where it is affine, the mean of repaired words is the repaired mean.

    A text without a known word is zero, and stays so.
    """

    transformation: Any

    @property
    def affine_(self) -> Any:
        """The same as one affine map."""
        return self.transformation.affine_

    def transform(self, x: Any) -> Any:
        """Means of words (N, D) as they are when the words are repaired."""
        out = self.transformation.transform(x)
        out[(x == 0).all(1)] = 0
        return out


def fit_repairs_of_words(
    names: Sequence[str], rows: Any, *, tick: Callable[[str, int, int], None] | None = None
) -> FittedRepairs:
    """Fit each of `names` on all word vectors, to be applied to means of words; those that are not affine are left out."""
    affine = [name for name in names if is_affine(name)]
    fitted = fit_repairs(affine, rows, fitted_on="all rows of the table", tick=tick)
    others = (
        f"{name} is left out: it is not affine, so means of repaired words are not repaired means."
        for name in names
        if name not in affine
    )
    wrapped = {name: OfWords(one) for name, one in fitted.transformations.items()}
    return replace(fitted, transformations=wrapped, notes=(*fitted.notes, *others))


def finite_rows(spec: Any) -> Rows:
    """The rows that `spec` names; one pass over them.

    Raises:
        InputError: what `open_rows` refuses, or rows with NaN or inf, of which no task could say anything.
    """
    rows = open_rows(spec)
    bad = nonfinite_rows(rows)
    if len(bad):
        raise InputError(
            f"expected finite rows, got {len(bad)} of {rows.shape[0]} with NaN or inf in {rows.name} (the first is row {int(bad[0])}): "
            "mend them, or take them out"
        )
    return rows


def is_affine(name: str) -> bool:
    """Whether the repair of this name is affine, and so can be written into a model."""
    return repair_named(name, d=_WIDE).affine


def fit_repairs(
    names: Sequence[str],
    x: Any,
    *,
    fitted_on: str,
    tick: Callable[[str, int, int], None] | None = None,
) -> FittedRepairs:
    """Fit each of `names` on the rows of `x`, an array or `Rows` (N, D).

    Raises:
        InputError: a name that is no repair. What else a repair refuses (too few rows, a missing extra) becomes a note.
    """
    n, d = x.shape
    fitted, fit_s, notes = dict[str, Any](), dict[str, float](), list[str]()
    for at, name in enumerate(names):
        if tick is not None:
            tick(f"fitting {name}", at, len(names))
        started = time.perf_counter()
        try:
            transformation = repair_named(name, d=d)
            fitted[name] = transformation.fit(x)
        except InputError as error:
            notes.append(f"{name} is left out: {error}.")
            continue
        fit_s[name] = time.perf_counter() - started
        notes += [f"{name}: {warning}" for warning in transformation.warnings_]
    return FittedRepairs(fitted, fit_s, n, fitted_on, tuple(notes))


def repair_names(given: Sequence[str] | None) -> tuple[str, ...]:
    """The repairs that were asked for, in the order of all; all where none was named. The original is always there and need not be named.

    Raises:
        InputError: a name that is no repair.
    """
    unknown = [name for name in given or () if name not in (*REPAIRS, ORIGINAL)]
    if unknown:
        raise InputError(
            f"expected repairs out of {', '.join(REPAIRS)}, got {unknown[0]!r}: choose among these"
        )
    return REPAIRS if given is None else tuple(name for name in REPAIRS if name in given)
