"""The transformation that a repair applies: fitted on rows, or loaded from a file."""

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from uncone.edits.texts import Path_
from uncone.errors import InputError
from uncone.model.counts import read_counts
from uncone.records.parts import Fitted
from uncone.rows import Rows
from uncone.transforms import Affine, Transformation, Whiten, load, repair_named

_ZIPF = "zipf_"
_UNWEIGHTED = "The fit weighs rows by how often their tokens occur; the measures count each row once, so that they need not improve."
_TURNED = "PCA whitening also turns the axes: a coordinate is no longer that of the source, and how far vectors moved says little."


@dataclass(frozen=True)
class Fit:
    """A fitted transformation, its method, its rows, the seconds to fit (None where loaded), and notes."""

    transformation: Transformation | Affine
    method: str
    fitted: Fitted | None
    seconds: float | None
    notes: tuple[str, ...] = ()

    @property
    def options(self) -> dict[str, Any]:
        """The constructor's options, by name."""
        return self.transformation.options() if isinstance(self.transformation, Transformation) else {}


def load_repair(path: Path_) -> Fit:
    """The transformation that was saved in a file."""
    repair = load(path)
    if isinstance(repair, Affine):
        return Fit(repair, "Affine", repair.fitted, None)
    return Fit(repair, type(repair).__name__, repair.fitted_, None, repair.warnings_)


def fit_repair(
    rows: Rows,
    method: str,
    *,
    counts: Path_ | None = None,
    force: bool = False,
    progress: Callable[[int], None] | None = None,
) -> Fit:
    """The repair called `method`, fitted on `rows`; with `counts` each row is weighted by its token's.

    Raises:
        InputError: no such repair, counts missing or of other rows, or rows that it cannot be fitted on.
    """
    transformation = repair_named(method, d=rows.shape[1])
    if force and isinstance(transformation, Whiten):
        transformation.force = True
    if method.startswith(_ZIPF) and counts is None:
        raise InputError(
            f"expected counts of tokens for {method}, got none: give --counts F (counts=F), or choose "
            f"{method.removeprefix(_ZIPF)}"
        )
    weights, notes = None, tuple[str, ...]()
    if counts is not None:
        if rows.left_out:
            raise InputError(
                f"expected finite rows with --counts (counts=), got {len(rows.left_out)} left out: mend them"
            )
        read = read_counts(counts, rows.shape[0], rows.labels)
        weights, notes = read.counts.to(torch.float64), (*read.notes, _UNWEIGHTED)
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # said in the record
        transformation.fit(rows, weights=weights, progress=progress)
    seconds = time.perf_counter() - began
    if isinstance(transformation, Whiten) and transformation.kind == "pca":
        notes = (*notes, _TURNED)
    shown = method if counts is None or method.startswith(_ZIPF) else f"{_ZIPF}{method}"
    return Fit(transformation, shown, transformation.fitted_, seconds, (*notes, *transformation.warnings_))
