"""The transformation that is asked for: fitted on rows, or loaded."""

import os
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from uncone.errors import InputError
from uncone.model.counts import read_counts
from uncone.records.fitted import Fitted
from uncone.rows import Rows
from uncone.transforms import Affine, Transformation, Whiten, load, repair_named

_ZIPF = "zipf_"
_UNWEIGHTED = "The fit weighs rows by how often their tokens occur; the measures count each row once, so that they need not improve."
_TURNED = "PCA whitening also turns the axes: a coordinate is no longer that of the source, and how far vectors moved says little."


@dataclass(frozen=True)
class Found:
    """A fitted transformation: under which name, on what, in what time (None where it was loaded), and what is to be said of it."""

    transformation: Transformation | Affine
    method: str
    fitted: Fitted | None
    seconds: float | None
    notes: tuple[str, ...] = ()

    @property
    def options(self) -> dict[str, Any]:
        """Those it was made with."""
        return self.transformation.options() if isinstance(self.transformation, Transformation) else {}


def loaded(path: str | os.PathLike[str]) -> Found:
    """The transformation that was saved in a file."""
    found = load(path)
    if isinstance(found, Affine):
        return Found(found, "Affine", found.fitted, None)
    return Found(found, type(found).__name__, found.fitted_, None, found.warnings_)


def fitted_on(
    rows: Rows,
    method: str,
    *,
    counts: str | os.PathLike[str] | None = None,
    force: bool = False,
    progress: Callable[[int], None] | None = None,
) -> Found:
    """The repair called `method`, fitted on `rows`; with `counts` each row weighs as often as its token occurs.

    Raises:
        InputError: no such repair, counts missing or of other rows, or rows that it cannot be fitted on.
    """
    transformation = repair_named(method, d=rows.shape[1])
    if force and isinstance(transformation, Whiten):
        transformation.force = True
    if method.startswith(_ZIPF) and counts is None:
        raise InputError(
            f"expected counts of tokens for {method}, got none: give --counts F (counts=F), or choose {method.removeprefix(_ZIPF)}"
        )
    weights, notes = None, tuple[str, ...]()
    if counts is not None:
        if rows.left_out:
            raise InputError(
                f"expected finite rows with --counts (counts=), got {len(rows.left_out)} that are left out: mend them first"
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
    return Found(transformation, shown, transformation.fitted_, seconds, (*notes, *transformation.warnings_))
