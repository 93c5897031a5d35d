"""Repairs fitted one by one and timed; one that cannot be fitted is left out with its reason."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from uncone.errors import InputError
from uncone.model.open import open_rows
from uncone.records import ORIGINAL, Price
from uncone.rows import Rows, nonfinite_rows
from uncone.transforms import REPAIRS, repair_named

Progress = Callable[[str, int, int], None]
_SAME = 1e-9
_WIDE = 1 << 20
"""Features, more than any repair removes, where only the kind of a repair is asked."""


@dataclass
class FittedRepair:
    """A fitted transformation, and the time it took.

    With `of_words` it was fitted on word vectors and is applied to means of them: where it is affine, the
    mean of repaired words is the repaired mean. A text without a known word is zero, and stays so.
    """

    transformation: Any
    fit_s: float
    of_words: bool = False
    apply_s: float = 0.0
    applied_n: int = 0

    def transform(self, x: Any, *, timed: bool = True) -> Any:
        """`x`, an array or tensor, repaired; the time is added up."""
        started = time.perf_counter()
        out = self.transformation.transform(x)
        if self.of_words:
            out[(x == 0).all(1)] = 0
        if timed:
            self.apply_s += time.perf_counter() - started
            self.applied_n += len(x)
        return out

    def keeps_axes(self) -> bool:
        """Whether features keep their meaning: not where the rows were turned onto principal axes."""
        affine = getattr(self.transformation, "affine_", None)
        weight: torch.Tensor | None = None if affine is None else affine.weight
        if weight is None:
            return True
        is_square = weight.shape[0] == weight.shape[1]
        return is_square and bool((weight - weight.T).abs().max() <= _SAME * weight.abs().max())


@dataclass(frozen=True)
class FittedRepairs:
    """Repairs by name, the rows they were fitted on, and why others were left out."""

    repairs: Mapping[str, FittedRepair]
    fitted_n: int
    fitted_on: str
    notes: tuple[str, ...] = ()

    def names(self) -> tuple[str, ...]:
        """The original first, then the repairs."""
        return (ORIGINAL, *self.repairs)

    def apply(self, name: str, x: Any, *, timed: bool = True) -> Any:
        """`x`, an array or tensor, under the repair called `name`; as it is under the original."""
        return x if name == ORIGINAL else self.repairs[name].transform(x, timed=timed)

    def keeps_axes(self, name: str) -> bool:
        """`FittedRepair.keeps_axes`; true of the original."""
        return name == ORIGINAL or self.repairs[name].keeps_axes()

    def prices(self) -> dict[str, Price]:
        """What each repair took."""
        return {
            name: Price(one.fit_s, one.apply_s, self.fitted_n, one.applied_n, self.fitted_on)
            for name, one in self.repairs.items()
        }


def fit_repairs(
    names: Sequence[str], x: Any, *, fitted_on: str, of_words: bool = False, tick: Progress | None = None
) -> FittedRepairs:
    """Fit each of `names` on the rows of `x`, an array or `Rows` (N, D), which are `fitted_on` in words.

    With `of_words` they are word vectors and the repairs are for means of them; those that are not affine are
    left out.

    Raises:
        InputError: a name that is no repair. Whatever else a repair refuses (too few rows, a missing extra)
            becomes a note.
    """
    n, d = x.shape
    repairs, notes, left_out = dict[str, FittedRepair](), list[str](), list[str]()
    for at, name in enumerate(names):
        if of_words and not is_affine(name):
            left_out.append(
                f"{name} is left out: it is not affine, so means of repaired words are not repaired means."
            )
            continue
        if tick is not None:
            tick(f"fitting {name}", at, len(names))
        started = time.perf_counter()
        try:
            transformation = repair_named(name, d=d).fit(x)
        except InputError as error:
            notes.append(f"{name} is left out: {error}.")
            continue
        repairs[name] = FittedRepair(transformation, time.perf_counter() - started, of_words)
        notes += [f"{name}: {warning}" for warning in transformation.warnings_]
    return FittedRepairs(repairs, n, fitted_on, (*notes, *left_out))


def finite_rows(spec: Any) -> Rows:
    """The rows that `spec` names; one pass over them.

    Raises:
        InputError: what `open_rows` refuses, or rows with NaN or inf, of which no task could say anything.
    """
    rows = open_rows(spec)
    bad = nonfinite_rows(rows)
    if len(bad):
        raise InputError(
            f"expected finite rows, got {len(bad)} of {rows.shape[0]} with NaN or inf in {rows.name} "
            f"(the first is row {int(bad[0])}): mend them, or take them out"
        )
    return rows


def is_affine(name: str) -> bool:
    """Whether the repair of this name is affine, and so can be written into a model."""
    return repair_named(name, d=_WIDE).affine


def repair_names(given: Sequence[str] | None) -> tuple[str, ...]:
    """The repairs that were asked for, in the order of all; all where none was named.

    Raises:
        InputError: a name that is no repair.
    """
    unknown = [name for name in given or () if name not in (*REPAIRS, ORIGINAL)]
    if unknown:
        raise InputError(
            f"expected repairs out of {', '.join(REPAIRS)}, got {unknown[0]!r}: choose among these"
        )
    return REPAIRS if given is None else tuple(name for name in REPAIRS if name in given)
