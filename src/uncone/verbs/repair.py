"""`repair`: a repaired copy of vectors, or of an encoder, and what changed: measured on what was written."""

import os
from collections.abc import Callable
from typing import Any

from uncone.edits.encoder import repair_encoder
from uncone.edits.fit import Found, fitted_on, loaded
from uncone.edits.geometry import compare, rank_lost
from uncone.edits.sentences import MOST
from uncone.edits.targets import (
    Kind,
    Path_,
    Progress,
    check_options,
    check_save,
    check_target,
    kind_of,
    versions,
)
from uncone.edits.verdict import TASK, gains, give_verdict
from uncone.errors import InputError
from uncone.model.open import open_rows
from uncone.model.reads import check_targets_apart
from uncone.records.repair import RepairCost, Repaired
from uncone.records.wording import counted, plural
from uncone.rows import Rows, open_npy
from uncone.rows.bytes import LocalFile
from uncone.rows.npz import open_npz
from uncone.rows.parquet import open_parquet
from uncone.rows.safetensors import read_header, tensor_rows
from uncone.rows.word_vectors import WordVectorRows
from uncone.rows.word_vectors_binary import open_word2vec_binary
from uncone.rows.writers_plan import split_part
from uncone.transforms.apply import Applied, check_out, repair_rows
from uncone.transforms.fitted import shared_name


def repair(
    spec: Path_,
    out: Path_,
    *,
    method: str | None = None,
    text: Path_ | None = None,
    fit_on: Path_ | None = None,
    load: Path_ | None = None,
    counts: Path_ | None = None,
    save: Path_ | None = None,
    force: bool = False,
    overwrite: bool = False,
    skip_nonfinite: bool = False,
    most_sentences: int = MOST,
    progress: Progress | None = None,
) -> Repaired:
    """Write a repaired copy of vectors or of an encoder, and measure on what was written what that did.

    Vectors are read in blocks, three times in all. A directory of Sentence Transformers gets the repair as a layer before its Normalize; any
    program loads the copy, without uncone. It is loaded and run before it appears under its name.

    Args:
        spec: a file of vectors or a matrix of a model, as for `open_rows`; or a directory of Sentence Transformers, or the name of a cached one.
        out: a file of one of the formats of `uncone.transforms.repair_rows`, what names it is said there; of an encoder a new directory.
        method: the name of a repair, one of `uncone.transforms.REPAIRS` or `ZIPF_REPAIRS`; of an encoder an affine one. There is no
            default: which repair helps, if any, is for a task to say (`uncone.select_repair`).
        text: of an encoder, sentences, one a line (`.gz` and `.xz` too). The repair is fitted on four fifths of them, unless `fit_on` or `load`
            is given, and measured on the others, or else on all.
        fit_on: other rows to fit on, such as the documents where `spec` is queries; of an encoder, vectors as it gives them before its Normalize.
        load: a fitted transformation that was saved, instead of `method` and `fit_on`.
        counts: of vectors, how often each token occurs, as for `diagnose`: a row that is fitted on weighs as much.
        save: also write the fitted transformation to this file, for `load`.
        force: whiten on fewer than 5 D rows too.
        overwrite: of vectors, replace `out`, and the file of `save`, if they are there.
        skip_nonfinite: of vectors, leave rows with NaN or inf out of what is written, instead of refusing them; then no other columns are kept.
        most_sentences: of a longer text so many different lines are drawn, each as likely as the others; the record then says so.
        progress: called with (what is done, rows or sentences done, of how many).

    Returns:
        A `Repaired`: the verdict, both sides of the measures, the cost and notes. Measures of an encoder are of what it gives, so of unit
        vectors where it has a Normalize.

    Raises:
        InputError: neither vectors nor an encoder, options that exclude each other, rows that are not finite or too few, an encoder with
            code of its own, a repair that is not affine for one, nothing to fit on, an `out` that may not or cannot be written, a copy that
            does not give the repaired vectors. Then nothing is changed.
    """
    kind = check_repair(
        spec,
        out,
        text=text,
        fit_on=fit_on,
        load=load,
        counts=counts,
        save=save,
        overwrite=overwrite,
        skip_nonfinite=skip_nonfinite,
    )
    fit: dict[str, Any] = {
        "method": method,
        "fit_on": fit_on,
        "load": load,
        "save": save,
        "force": force,
        "progress": progress,
    }
    if kind == "encoder":
        return repair_encoder(spec, out, text=text, most_sentences=most_sentences, **fit)
    return _repair_vectors(
        spec, out, counts=counts, overwrite=overwrite, skip_nonfinite=skip_nonfinite, **fit
    )


def check_repair(
    spec: Path_,
    out: Path_,
    *,
    text: Path_ | None = None,
    fit_on: Path_ | None = None,
    load: Path_ | None = None,
    counts: Path_ | None = None,
    save: Path_ | None = None,
    overwrite: bool = False,
    skip_nonfinite: bool = False,
) -> Kind:
    """Refuse before any work what `repair` could not do after it.

    Returns:
        "vectors" or "encoder".

    Raises:
        InputError: a language model, options of vectors with an encoder or the other way round, nothing to fit an encoder's repair on, or an
            `out` that cannot be written.
    """
    kind = kind_of(spec)
    if kind == "model":
        raise InputError(
            f"expected vectors or a directory of Sentence Transformers, got the language model {os.fspath(spec)}: name a matrix (MODEL#input); "
            "center_head and repair_tokens (`uncone center-head`, `uncone repair-tokens`) edit a whole model"
        )
    of_vectors = {"counts": counts, "overwrite": overwrite or None, "skip-nonfinite": skip_nonfinite or None}
    for flag, value in (of_vectors if kind == "encoder" else {"text": text}).items():
        if value is not None:
            raise InputError(
                f"expected no --{flag} with {'a model' if kind == 'encoder' else 'vectors'}, got it: leave it out"
            )
    if kind == "encoder" and text is None and fit_on is None and load is None:
        raise InputError(
            "expected sentences to fit on, got none: give --text F with one a line, --fit-on VECTORS, or --load T.safetensors"
        )
    check_targets_apart((split_part(os.fspath(out))[0], save), (spec, fit_on), (load, text, counts))
    check_target(spec, out, overwrite=overwrite)  # before the pass that looks for rows to skip
    return kind


def _repair_vectors(
    spec: Path_,
    out: Path_,
    *,
    method: str | None,
    fit_on: Path_ | None,
    load: Path_ | None,
    counts: Path_ | None,
    save: Path_ | None,
    force: bool,
    overwrite: bool,
    skip_nonfinite: bool,
    progress: Progress | None,
) -> Repaired:
    """Vectors of a file into another file."""
    check_options(method=method, fit_on=fit_on, load=load, counts=counts)
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
        found = fitted_on(
            fit_rows, method, counts=counts, force=force, progress=tick("fitting", fit_rows.shape[0])
        )
    applied = repair_rows(
        rows, found.transformation, out, overwrite=overwrite, progress=tick("writing", rows.shape[0])
    )
    if save is not None:
        found.transformation.save(save)
    if progress is not None:
        progress("measuring", 0, 0)
    return _record(rows, out, found, applied)


def _record(rows: Rows, out: Path_, found: Found, applied: Applied) -> Repaired:
    """What was done, with both sides measured."""
    geometry = compare(rows, open_written(applied))
    cost = RepairCost(
        found.seconds, applied.seconds, geometry.relative_change, rank_lost(found.transformation)
    )
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
    return (
        open_word2vec_binary(path)
        if applied.format == "word2vec"
        else WordVectorRows(file, zipped=applied.format == "gzip")
    )
