"""Apply a fitted transformation to rows of any size, from disk to disk, in constant memory.

The file is written beside its target and moved over it: a kill leaves what was there before.
"""

import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from uncone import atomic
from uncone.errors import InputError
from uncone.rows import Rows, as_rows
from uncone.rows.writers_plan import plan_output, source_of, split_part
from uncone.transforms.affine import Affine
from uncone.transforms.apply_stages import BlockMap, Digest, stream
from uncone.transforms.fitted import Fitted, shared_name
from uncone.transforms.fitting import Transformation


@dataclass(frozen=True)
class Applied:
    """What `repair_rows` wrote: `shape` (N, K) of `dtype`, as the part `part` of a file that has parts, and what is to be said of it."""

    path: Path
    format: str
    part: str
    shape: tuple[int, int]
    dtype: str
    seconds: float
    notes: tuple[str, ...]


def repair_rows(
    source: Any,
    transformation: Transformation | Affine,
    out: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    progress: Callable[[int], None] | None = None,
) -> Applied:
    """Write the transformed rows of `source` to the file `out`: whole, or not at all.

    The format is that of `out`'s suffix (`.npy`, `.npz`, `.safetensors`, `.parquet`, `.vec`, `.txt`, `.glove`, `.vec.gz`, `.txt.gz`,
    `.bin` for word2vec binary; after `.npz`, `.safetensors` and `.parquet` `#NAME` may name what the rows are called there), or without
    one that of the source. Words are kept where the format has a place for them, and other arrays, tensors and columns where the
    source is of the same format. The dtype is that of the rows: float16 and bfloat16 are computed in float32 and rounded once.
    A format without bfloat16 or quantised types gets float32, and so does text, with nine digits.

    Args:
        source: `Rows`, such as `uncone.open_rows` gives for a file, or a tensor or array (N, D). Read once.
        transformation: fitted, of rows of D features.
        out: a file, not the one that is read.
        overwrite: replace a file that is there.
        progress: called with the number of rows done.

    Returns:
        An `Applied`. Its notes say what could not be kept, and name both sides where the transformation was fitted on other rows than
        these, which is as it should be for queries and what it was fitted on documents.

    Raises:
        InputError: another width; rows that are not finite, or a result that the dtype cannot hold; an `out` that exists, that is
            the source, that has an unknown suffix, or that cannot be written (no folder, no right, no space).
    """
    began = time.perf_counter()
    rows = as_rows(source)
    map_ = BlockMap.of(transformation, rows)
    found = source_of(rows)
    plan = plan_output(out, found, map_.k)
    _check_path(plan.path, rows, overwrite=overwrite)
    owner = transformation.fitted if isinstance(transformation, Affine) else transformation.fitted_
    digest = _digest_if_alike(owner, rows)
    try:
        with atomic.replacing(plan.path) as handle:
            stream(handle, map_, plan, found, digest, progress)
    except OSError as error:
        raise atomic.unwritten(plan.path, error) from error
    notes = (*plan.notes, *_fitted_elsewhere(owner, rows, digest))
    return Applied(
        plan.path, plan.format, plan.part, plan.shape, plan.dtype, time.perf_counter() - began, notes
    )


def check_out(out: str | os.PathLike[str], rows: Rows, *, overwrite: bool) -> None:
    """Raise InputError unless repaired `rows` may be written to `out`: a suffix that is written, not what is read, not there yet (unless `overwrite`),
    in a folder that is there.
    """
    _check_path(plan_output(out, source_of(rows), rows.shape[1]).path, rows, overwrite=overwrite)


def _check_path(out: Path, rows: Rows, *, overwrite: bool) -> None:
    target = atomic.writable(out)
    read, _ = split_part(rows.name)
    with suppress(OSError):
        source = read.resolve()
        if (
            source == target
            or (source.is_dir() and target.is_relative_to(source))
            or (out.exists() and out.samefile(read))
        ):
            raise InputError(
                f"expected another file to write than what is read, got {out}: it would be replaced by rows that do not fit it; "
                "give a new name"
            )
    if (out.exists() or out.is_symlink()) and not overwrite:
        raise InputError(
            f"expected a new file, got {out} which exists: choose another name, or say --overwrite (overwrite=True)"
        )


def _digest_if_alike(owner: Fitted | None, rows: Rows) -> Digest | None:
    """Rows of another shape are other rows: then there is nothing to digest."""
    if owner is None or owner.sha256 is None or (owner.n, owner.d) != rows.shape:
        return None
    return Digest()


def _fitted_elsewhere(owner: Fitted | None, rows: Rows, digest: Digest | None) -> tuple[str, ...]:
    if owner is None or owner.sha256 is None or (digest is not None and digest.hexdigest() == owner.sha256):
        return ()
    return (
        f"Fitted on other rows than these: on {owner.name} ({owner.n} x {owner.d}), applied to {shared_name(rows.name)} "
        f"({rows.shape[0]} x {rows.shape[1]}).",
    )
