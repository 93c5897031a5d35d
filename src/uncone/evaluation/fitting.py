"""Fit and time repairs one by one; a repair that cannot be fitted is left out, with the reason."""

import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from uncone.errors import InputError
from uncone.evaluation.record import ORIGINAL, Price
from uncone.model.open import open_rows
from uncone.roles import Progress
from uncone.rows import Rows, nonfinite_rows
from uncone.transforms import REPAIRS, repair_named
from uncone.transforms.names import unknown_repair


@dataclass(frozen=True)
class Texts:
    """Vectors before the model normalises (for cosine), and after (for inner products)."""

    cosine: Any
    inner: Any


@dataclass
class FittedRepair:
    """With `of_words`, the repair was fitted on word vectors and is applied to their means; texts without a known word
    stay zero."""

    transformation: Any
    fit_s: float
    of_words: bool
    apply_s: float = 0.0
    applied_n: int = 0

    def transform(self, x: Any) -> Any:
        started = time.perf_counter()
        out = self.transformation.transform(x)
        if self.of_words:
            out[(x == 0).all(1)] = 0
        self.apply_s += time.perf_counter() - started
        self.applied_n += len(x)
        return out


@dataclass(frozen=True)
class Repairs:
    """Repairs by name, for cosine and for inner products: the same unless the model normalises."""

    cosine: Mapping[str, FittedRepair]
    inner: Mapping[str, FittedRepair]
    fitted_n: int
    fitted_on: str
    notes: tuple[str, ...]  # warnings, and why others were left out

    def names(self) -> tuple[str, ...]:
        return (ORIGINAL, *(name for name in self.cosine if name in self.inner))

    def apply(self, name: str, texts: Texts) -> Texts:
        if name == ORIGINAL:
            return texts
        cosine = self.cosine[name].transform(texts.cosine)
        return Texts(cosine, cosine if texts.inner is texts.cosine else self.inner[name].transform(texts.inner))

    def keeps_axes(self, name: str) -> bool:
        """Whether the repair leaves the axes as they are, not turned onto principal axes: its weight is symmetric."""
        affine = None if name == ORIGINAL else getattr(self.inner[name].transformation, "affine_", None)
        weight = getattr(affine, "weight", None)
        if weight is None or weight.shape[0] != weight.shape[1]:
            return weight is None
        return bool(np.abs(weight - weight.T).max() <= 1e-9 * np.abs(weight).max())

    def prices(self) -> dict[str, Price]:
        n, on = self.fitted_n, self.fitted_on
        return {name: Price(one.fit_s, one.apply_s, n, one.applied_n, on) for name, one in self.cosine.items()}


def fit_repairs(names: Sequence[str], x: Texts, *, fitted_on: str, tick: Progress, of_words: bool = False) -> Repairs:
    """Fit each of `names` on `x`, arrays or `Rows` (N, D). A repair that refuses them (too few, a missing extra) is
    left out with a note, as is one that is not affine for means of word vectors."""
    usable = [name for name in names if not of_words or is_affine(name)]
    cosine, notes = _fitted(usable, x.cosine, of_words, tick)
    inner = cosine if x.inner is x.cosine else _fitted(usable, x.inner, of_words, tick)[0]
    why = "it is not affine, so means of repaired words are not repaired means"
    notes += [f"{name} is left out: {why}." for name in names if name not in usable]
    return Repairs(cosine, inner, x.cosine.shape[0], fitted_on, tuple(notes))


def _fitted(names: Sequence[str], x: Any, of_words: bool, tick: Progress) -> tuple[dict[str, FittedRepair], list[str]]:
    repairs, notes = dict[str, FittedRepair](), list[str]()
    for at, name in enumerate(names):
        tick(f"fitting {name}", at, len(names))
        started = time.perf_counter()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # the notes have it
                transformation = repair_named(name, d=x.shape[1]).fit(x)
        except InputError as error:
            notes.append(f"{name} is left out: {error}.")
            continue
        repairs[name] = FittedRepair(transformation, time.perf_counter() - started, of_words)
        notes += [f"{name}: {warning}" for warning in transformation.warnings_]
    return repairs, notes


def finite_rows(spec: Any) -> Rows:
    """Refuses NaN and inf, which takes one pass."""
    rows = open_rows(spec)
    if len(bad := nonfinite_rows(rows)):
        got = f"got {len(bad)} of {rows.shape[0]} with NaN or inf in {rows.name} (the first is row {int(bad[0])})"
        raise InputError(f"expected finite rows, {got}: correct them, or leave them out")
    return rows


def is_affine(name: str) -> bool:
    return repair_named(name, d=1 << 20).affine  # more features than any repair removes


def repair_names(given: str | Sequence[str] | None) -> tuple[str, ...]:
    """The `given` repairs in the order of all; all where none were named."""
    given = [given] if isinstance(given, str) else given
    if unknown := [name for name in given or () if name not in (*REPAIRS, ORIGINAL)]:
        raise unknown_repair(unknown[0], REPAIRS, "repairs out of")
    return REPAIRS if given is None else tuple(name for name in REPAIRS if name in given)
