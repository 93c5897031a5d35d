"""`repair_file`: vectors of a file, repaired into another file."""

import os
from collections.abc import Callable
from pathlib import Path

import torch

import uncone
from uncone import atomic
from uncone.errors import InputError
from uncone.records.repair import RepairCost, Repaired
from uncone.records.wording import counted, plural
from uncone.repair.apply import Applied, check_out, repair_rows
from uncone.repair.fitted import shared_name
from uncone.repair.writers_plan import split_part
from uncone.repairing.fitted import Found, fitted_on, loaded
from uncone.repairing.geometry import compare, rank_lost
from uncone.repairing.targets import check_target, kind_of
from uncone.repairing.verdict import TASK, gains, give_verdict
from uncone.rows import Rows, open_npy
from uncone.rows.bytes import LocalFile
from uncone.rows.npz import open_npz
from uncone.rows.parquet import open_parquet
from uncone.rows.safetensors import read_header, tensor_rows
from uncone.rows.word_vectors import WordVectorRows
from uncone.rows.word_vectors_binary import open_word2vec_binary
from uncone.sources import open_rows
from uncone.sources.reads import check_targets_apart

Progress = Callable[[str, int, int], None]
Path_ = str | os.PathLike[str]


def repair_file(
    spec: Path_,
    out: Path_,
    *,
    method: str | None = None,
    fit_on: Path_ | None = None,
    load: Path_ | None = None,
    counts: Path_ | None = None,
    save: Path_ | None = None,
    force: bool = False,
    overwrite: bool = False,
    skip_nonfinite: bool = False,
    progress: Progress | None = None,
) -> Repaired:
    """Write a repaired copy of the vectors that `spec` names, and measure on what was written what that did.

    Args:
        spec: a file of vectors or a matrix of a model, as for `open_rows`. It is read in blocks, three times in all.
        out: a file of one of the formats of `uncone.repair.repair_rows`; what names it is said there.
        method: the name of a repair, one of `uncone.repair.REPAIRS` or `ZIPF_REPAIRS`. There is no
            default: which repair helps, if any, is for a task to say (`uncone.select_repair`).
        fit_on: other rows to fit on, such as the documents where `spec` is queries.
        load: a fitted transformation that was saved, instead of `method` and `fit_on`.
        counts: how often each token occurs, as for `diagnose`: a row that is fitted on weighs as much.
        save: also write the fitted transformation to this file, for `load`.
        force: whiten on fewer than 5 D rows too.
        overwrite: replace `out`, and the file of `save`, if they are there.
        skip_nonfinite: leave rows with NaN or inf out of what is written, instead of refusing them; then no other columns are kept.
        progress: called with (what is done, rows done, rows in all).

    Returns:
        A `Repaired`: the verdict, both sides of the measures, the cost and notes.

    Raises:
        InputError: what is named is no vectors, options that exclude each other, rows that are not finite or too few, or an `out`
            that may not or cannot be written. Then nothing is changed.
    """
    if kind_of(spec) != "vectors":
        raise InputError(
            f"expected a file of vectors or a matrix of a model (MODEL#input), got the whole model {os.fspath(spec)}: name a matrix; "
            "repair_encoder takes a directory of Sentence Transformers, and --head or --tokens (repair.head, repair.tokens) edit a language model"
        )
    check_options(method=method, fit_on=fit_on, load=load, counts=counts)
    check_targets_apart((split_part(os.fspath(out))[0], save), (spec, fit_on), (load, counts))
    check_target(spec, out, overwrite=overwrite)  # before the pass that looks for rows to skip
    check_save(save, overwrite=overwrite)
    rows = open_rows(spec, skip_nonfinite=skip_nonfinite)
    check_out(out, rows, overwrite=overwrite)

    def tick(what: str, total: int) -> Callable[[int], None] | None:
        return None if progress is None else lambda done: progress(what, done, total)

    if load is not None:
        found = loaded(load)
    else:
        assert method is not None  # check_options refused it
        fit_rows = rows if fit_on is None else open_rows(fit_on, skip_nonfinite=skip_nonfinite)
        found = fitted_on(fit_rows, method, counts=counts, force=force, progress=tick("fitting", fit_rows.shape[0]))
    applied = repair_rows(rows, found.transformation, out, overwrite=overwrite, progress=tick("writing", rows.shape[0]))
    if save is not None:
        found.transformation.save(save)
    if progress is not None:
        progress("measuring", 0, 0)
    return _record(rows, out, found, applied)


def _record(rows: Rows, out: Path_, found: Found, applied: Applied) -> Repaired:
    """What was done, with both sides measured."""
    geometry = compare(rows, open_written(applied))
    cost = RepairCost(found.seconds, applied.seconds, geometry.relative_change, rank_lost(found.transformation))
    name = shared_name(rows.name)
    (n, k), d = applied.shape, rows.shape[1]
    return Repaired(
        verdict=give_verdict(name, found.method, geometry, cost, d, k), name=name, out=shared_name(str(out)), kind="vectors",
        method=found.method, gains=gains(geometry), n=n, d=d, k=k, dtype=applied.dtype, fitted=found.fitted, cost=cost,
        measured=geometry.measured, before=geometry.before, after=geometry.after, options=found.options,
        notes=(*found.notes, *applied.notes, *_left_out(rows), TASK), versions=versions(),
    )  # fmt: skip


def _left_out(rows: Rows) -> tuple[str, ...]:
    if not rows.left_out:
        return ()
    n = len(rows.left_out)
    return (
        f"{counted(n, 'row that is', 'rows that are')} not finite {plural(n, 'is', 'are')} not in what was written, the first row {rows.left_out[0]}: "
        "rows behind it have other numbers now, and of what stands beside them only labels are kept.",
    )


def check_options(*, method: str | None, fit_on: Path_ | None, load: Path_ | None, counts: Path_ | None = None) -> None:
    """Raise InputError where a transformation would be both loaded and fitted, or is not named."""
    given = [flag for flag, value in (("--method", method), ("--fit-on", fit_on), ("--counts", counts)) if value is not None]
    if load is not None and given:
        raise InputError(f"expected either --load or {given[0]}, got both: what is loaded was fitted before")
    if load is None and method is None:
        raise InputError(
            "expected a repair by its name (--method center, method=), or --data DIR to have one chosen by a task, got neither: "
            "no repair helps every task, so by default vectors stay as they are"
        )
    if fit_on is not None and Path(fit_on).is_dir() and kind_of(fit_on) != "vectors":
        raise InputError(f"expected vectors to fit on, got the model {fit_on}: name a matrix, or a file of vectors")


def check_save(save: Path_ | None, *, overwrite: bool = False) -> None:
    """Raise InputError where the file of the transformation cannot be written, or is there already (unless `overwrite`)."""
    if save is not None and atomic.writable(save).exists() and not overwrite:
        raise InputError(
            f"expected a new file for the transformation, got {os.fspath(save)} which exists: choose another name, or remove it; of a file of vectors "
            "--overwrite (overwrite=True) replaces both"
        )


def open_written(applied: Applied) -> Rows:
    """The rows as they stand in what was written, whatever its name ends in."""
    path, file = applied.path, LocalFile(applied.path)
    if applied.format == "npy":
        return open_npy(path)
    if applied.format == "npz":
        return open_npz(path, applied.part)
    if applied.format == "safetensors":
        return tensor_rows(file, read_header(file), applied.part)
    if applied.format == "parquet":
        return open_parquet(path, applied.part)
    return open_word2vec_binary(path) if applied.format == "word2vec" else WordVectorRows(file, zipped=applied.format == "gzip")


def versions() -> dict[str, str]:
    """What made it."""
    return {"uncone": uncone.__version__, "torch": str(torch.__version__)}
