"""`repair`: a repaired copy of vectors, or of an encoder, and what changed."""

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import Annotated, Any, Literal

from uncone.atomic import creatable, writable, write_bytes
from uncone.engines.choose import working
from uncone.errors import InputError, need_torch
from uncone.evaluation.record import Selection
from uncone.model.open import OpenedMany, by_engine, open_rows, open_spec
from uncone.model.sentence_transformers import is_sentence_transformers
from uncone.model.targets import check_targets_apart
from uncone.records.text import counted, plural
from uncone.repairs.record import Repaired
from uncone.repairs.vectors import MOST_SENTENCES, RepairOptions, compare, fit_repair, record_of
from uncone.roles import EngineName, Keep, Model, Out, Path_, Progress, Read, Role, Source, Vectors, Write
from uncone.rows import Rows, without_nonfinite
from uncone.rows.ids import Ids, ids_beside
from uncone.rows.open import WORDS, open_file, source_of, split_part
from uncone.rows.parts import JoinedRows
from uncone.rows.shards import joined
from uncone.transforms.apply import check_out, repair_rows
from uncone.transforms.fitting import shared_name
from uncone.transforms.names import REPAIRS
from uncone.transforms.shards import check_folder, repair_shards

__all__ = ["RepairOptions", "check_repair", "kind_of", "repair"]
Kind = Literal["vectors", "encoder", "model"]


def repair(
    spec: Model,
    out: Out,
    *,
    method: str | None = None,
    data: Read = None,
    task: Literal["retrieval", "sts"] = "retrieval",
    cache: Keep = None,
    queries: Vectors = None,
    documents: Vectors = None,
    qrels: Source = None,
    ids: Annotated[Ids | None, Role.READ] = None,
    query_ids: Annotated[Ids | None, Role.READ] = None,
    text: Read = None,
    fit_on: Vectors = None,
    load: Read = None,
    counts: Read = None,
    save: Write = None,
    force: bool = False,
    overwrite: bool = False,
    skip_nonfinite: bool = False,
    most_sentences: int = MOST_SENTENCES,
    normalize: bool = False,
    workers: int | None = None,
    engine: EngineName | None = None,
    address: str | None = None,
    progress: Progress | None = None,
) -> Repaired | Selection:
    """Write a repaired copy of vectors or of an encoder, and measure the written copy.

    Vectors are read in blocks, three times in all. A directory of Sentence Transformers gets the repair as a layer
    before its Normalize, and any program can load the copy without uncone. uncone runs the copy before it appears under
    its name.

    Args:
        spec: a file of vectors or a matrix of a model, as for `open_rows`; or a directory of Sentence Transformers, or
            the name of a cached one.
        out: a file in one of the formats of `uncone.transforms.repair_rows`; for an encoder a new directory, and for a
            glob or a folder of `.npy` a folder that gets one file for each.
        method: the name of a repair (`uncone.transforms.REPAIRS`, `ZIPF_REPAIRS`); for an encoder, of an affine repair.
            There is no default, since only a task shows which repair helps, if any. auto, or `data` without a method,
            lets a task choose: where no repair helps it, nothing is written.
        data: the directory of a task's data, to choose the method as `uncone.select_repair` does.
        task: the task that chooses.
        cache: with `data`, keep the model's vectors in this folder.
        queries: your own vectors of queries, which choose the method with `qrels`; it is fitted on the documents.
        documents: your own vectors of documents, to choose by and to fit on; by default `spec`.
        qrels: which documents answer which queries, as for `uncone.evaluate`.
        ids: the ids of the documents, one per line; by default the source's own, or the lines of NAME.ids next to NAME.npy,
            or row numbers from 0.
        query_ids: the same for the queries.
        text: for an encoder, sentences, one per line (`.gz` and `.xz` too). The repair is fitted on four fifths of them
            and measured on the others; with `fit_on` or `load` it is measured on all.
        fit_on: other rows to fit on, such as the documents where `spec` holds queries; for an encoder, vectors from
            before its Normalize.
        load: a saved transformation to apply, instead of `method` and `fit_on`.
        counts: for vectors, how often each token occurs, as for `diagnose`: its row weighs that much in the fit.
        save: also write the fitted transformation to this file, for `load`.
        force: also whiten on fewer than 5 D rows.
        overwrite: for vectors, replace `out` and the file of `save` if they exist.
        skip_nonfinite: for vectors, leave rows with NaN or inf out of the copy instead of refusing them; then no other
            columns are kept.
        most_sentences: draw this many different lines at random from a longer text; the record then says so.
        normalize: for vectors, divide each repaired row by its norm, in the same pass; zero rows stay zero. The saved
            transformation does the same to queries. An encoder keeps the Normalize that it has.
        workers: of shards (a glob, a folder, a Lance dataset), processes of this machine, or units of Ray under way; by
            default this process alone. The answer is the same to the last byte.
        engine: what works on shards: "processes", or "ray" (extra [ray]).
        address: of a cluster of Ray, such as "ray://head:10001"; by default one is begun on this machine.
        progress: called with (the step, rows or sentences done, of how many).

    Returns:
        A `Repaired`; an encoder is measured on its output, so on unit vectors where it has a Normalize. A `Selection`
        where the judgements call for no repair: then nothing is written.

    Raises:
        InputError: neither vectors nor an encoder, options that exclude each other, rows that are not finite or too
            few, an encoder with its own code, a repair that is not affine for an encoder, nothing to fit on, an `out`
            that cannot be written, a copy that does not give the repaired vectors. Then nothing is changed.
    """
    options = RepairOptions(
        method, text, fit_on, load, counts, save, force, overwrite, skip_nonfinite, most_sentences, normalize
    )
    own = {"queries": queries, "documents": documents, "qrels": qrels, "ids": ids, "query_ids": query_ids}
    is_own = any(value is not None for value in own.values())
    _check_choice(method, data, cache, task, is_own=is_own)
    spec = open_spec(spec)
    if is_own:
        return _by_own(own, spec, out, options, progress)
    if isinstance(fit_on, str | os.PathLike):
        options = replace(options, fit_on=open_spec(fit_on))
    if data is not None:
        check_repair(spec, out, replace(options, method="auto"))  # before the task, which takes minutes
        need_torch("a task that chooses the repair")
        from uncone.evaluation.select_repair import select_repair

        selection = select_repair(spec, task=task, data=data, cache=cache, progress=progress)
        fitted = f"fitted on the task's own {'documents' if task == 'retrieval' else 'training sentences'}"
        why = f"by {task} on {Path(data).name}. The interval above decides, not these measures"
        return _chosen(selection, f"Chosen {why}. For the choice it was {fitted}.", spec, out, options, progress)
    kind = check_repair(spec, out, options)
    if kind == "encoder":
        need_torch("an encoder")
        from uncone.repairs.encoder import repair_encoder

        return repair_encoder(spec, out, options, progress=progress)
    are_paths = isinstance(spec, str | os.PathLike) and isinstance(fit_on, str | os.PathLike)
    if os.fspath(spec) == os.fspath(fit_on) if are_paths else spec is fit_on:
        options = replace(options, fit_on=None)
    with working(workers, engine, address) as worker:
        rows = open_rows(spec)
        by_engine([rows], worker)
        rows = without_nonfinite(rows) if skip_nonfinite else rows
        targets = check_folder(out, spec.specs, overwrite=overwrite) if isinstance(spec, OpenedMany) else []
        if not targets:
            check_out(out, rows, overwrite=overwrite)
        fit = fit_repair(options, lambda: rows, progress)
        tick = None if progress is None else lambda done: progress("writing", done, rows.shape[0])
        if targets and isinstance(rows, JoinedRows):
            applied = repair_shards(rows, targets, fit.transformation, overwrite=overwrite, progress=tick)
            ends = f"#{applied.part}" if applied.part else ""
            written_rows: Rows = joined(
                [f"{path}{ends}" for path in targets], str(out), open_rows, worker, skip_damaged=False
            )
        else:
            applied = repair_rows(rows, fit.transformation, out, overwrite=overwrite, progress=tick)
            # what was written is read whatever its name ends in
            written_rows = open_file(applied.path, applied.part or None, applied.format)
        if save is not None:
            fit.transformation.save(save)
        own_ids = "" if targets else _copy_ids(rows, Path(out))
        if progress is not None:
            progress("measuring", 0, 0)
        geometry = compare(rows, written_rows)
    (n, k), d, name = applied.shape, rows.shape[1], shared_name(rows.name)
    words = spec.is_model or source_of(rows).format in WORDS
    written = {"kind": "vectors", "name": name, "n": n, "d": d, "k": k, "dtype": applied.dtype}
    written["out"] = shared_name(str(out))
    zero, left_out = _lost(applied.zero_rows, rows)
    notes = tuple(filter(None, (zero, *applied.notes, left_out, own_ids)))
    return record_of(fit, geometry, options, notes, spec, applied.seconds, words, **written)


def _copy_ids(rows: Rows, out: Path) -> str:
    """Copy NAME.ids next to the rows' file NAME.npy to OUT.ids next to OUT.npy, and say so. No file is replaced: nobody
    named this one."""
    ids, target = ids_beside(rows), out.with_suffix(".ids")
    if ids is None or out.suffix != ".npy" or len(rows.left_out) or target.resolve() == ids.resolve():
        return ""
    content = ids.read_bytes()
    if target.exists():
        same = target.is_file() and target.read_bytes() == content
        return "" if same else f"{ids.name}, next to the vectors, was not copied: {target.name} exists."
    write_bytes(target, content)
    return f"{ids.name}, next to the vectors, was copied to {target.name}."


def _check_choice(method: str | None, data: Any, cache: Any, task: str, *, is_own: bool) -> None:
    asked = {"--data": data, "--cache": cache, "--task": None if task == "retrieval" else task}
    flag = next((name for name, value in asked.items() if value is not None), None)
    if is_own and flag is not None:
        raise InputError("expected --queries without --data, --cache and --task, got both: leave one out")
    if method == "auto" and data is None and not is_own:
        got = "got none: give a task's data, or your own vectors and judgements (--queries, --documents and --qrels)"
        raise InputError(f"expected --data DIR with --method auto, {got}")
    if flag is not None and method != "auto" and (method is not None or data is None):
        named = "no method" if method is None else f"--method {method}"
        raise InputError(f"expected {flag} with --method auto, got it with {named}: other methods use no task")


def _chosen(
    selection: Selection, why: str, spec: Path_, out: Path_, options: RepairOptions, progress: Progress | None
) -> Repaired | Selection:
    if selection.leaves_it:
        return selection
    found = repair(spec, out, **vars(replace(options, method=selection.chosen)), progress=progress)
    assert isinstance(found, Repaired)
    return found.chosen_by(selection, why)


def _by_own(
    arrays: dict[str, Any], spec: Path_, out: Path_, options: RepairOptions, progress: Progress | None
) -> Repaired | Selection:
    need_torch("judgements that choose the repair")
    from uncone.evaluation.own_vectors import own_vectors
    from uncone.evaluation.select_repair import select_repair

    if arrays["documents"] is None and (arrays["queries"] is not None or arrays["qrels"] is not None):
        arrays["documents"] = spec
    own = own_vectors(None, **arrays, task=None, others={})
    assert own is not None
    given = {"method": options.method, "fit-on": options.fit_on, "load": options.load, "counts": options.counts}
    other = next((name for name, value in given.items() if value not in (None, "auto")), None)
    if other is not None:
        how = "the judgements choose the method, and it is fitted on the documents"
        raise InputError(f"expected no --{other} with --queries, got {given[other]}: {how}")
    files = [one for one in (own.qrels, own.ids, own.query_ids) if isinstance(one, str | os.PathLike)]
    check_targets_apart((split_part(os.fspath(out))[0], options.save), (own.queries, own.documents), files)
    if check_repair(spec, out, replace(options, method="auto")) == "encoder":
        how = "for a model give a task's data (--data DIR)"
        raise InputError(f"expected vectors to repair with --queries, got the encoder {os.fspath(spec)}: {how}")
    d, width = open_rows(spec).shape[1], open_rows(own.documents).shape[1]
    if d != width:
        got = f"got {width}: give vectors of one model"
        raise InputError(f"expected documents of {d} features like {os.fspath(spec)}, {got}")
    selection = select_repair(**vars(own), progress=progress)
    why = f"Chosen by the judgements in {own.told}. Their interval decides, not these measures."
    return _chosen(selection, why, spec, out, replace(options, fit_on=own.documents), progress)


def check_repair(spec: Path_, out: Path_, options: RepairOptions) -> Kind:
    """Refuse an impossible `repair` before any work. The method may be "auto"."""
    spec = open_spec(spec)
    kind = kind_of(spec)
    if kind == "model":
        raise InputError(
            f"expected vectors or a directory of Sentence Transformers, got the language model {os.fspath(spec)}: name "
            "a matrix (MODEL#input); center_head and repair_tokens (`uncone center-head`, `uncone repair-tokens`) edit "
            "a whole model"
        )
    text, fit_on, counts, load, save = options.text, options.fit_on, options.counts, options.load, options.save
    others = {"encoder": ("counts", "overwrite", "skip_nonfinite", "normalize"), "vectors": ("text",)}
    for name in others[kind]:
        if getattr(options, name) not in (None, False):
            what = "a model" if kind == "encoder" else "vectors"
            raise InputError(f"expected no --{name.replace('_', '-')} with {what}, got it: leave it out")
    if kind == "encoder" and text is None and fit_on is None and load is None:
        how = "give --text F with one per line, --fit-on VECTORS, or --load T.safetensors"
        raise InputError(f"expected sentences to fit on, got none: {how}")
    check_targets_apart((split_part(os.fspath(out))[0], save), (spec, fit_on), (load, text, counts))
    if kind == "vectors":  # before the pass that looks for rows to skip
        if isinstance(spec, OpenedMany):
            check_folder(out, spec.specs, overwrite=options.overwrite)
        else:
            check_out(out, open_rows(spec), overwrite=options.overwrite)
    else:
        creatable(out, outside=spec.path)
    flags = {"--method": options.method, "--fit-on": fit_on, "--counts": counts}
    fitted = [flag for flag, value in flags.items() if value is not None]
    if load is not None and fitted:
        raise InputError(f"expected either --load or {fitted[0]}, got both: a loaded transformation is already fitted")
    if load is None and options.method is None:
        raise InputError(
            f"expected a repair by its name (--method NAME, method=) out of {', '.join(REPAIRS)}; or --method auto "
            "with --data DIR, or with --queries and --qrels, to have a task choose; got neither: no repair helps every "
            "task, so by default vectors stay as they are"
        )
    if isinstance(fit_on, str | os.PathLike) and Path(fit_on).is_dir() and kind_of(fit_on) != "vectors":
        raise InputError(f"expected vectors to fit on, got the model {fit_on}: name a matrix, or a file of vectors")
    if save is not None and writable(save).exists() and not options.overwrite:
        how = "choose another name, or remove it; for a file of vectors --overwrite (overwrite=True) replaces both"
        raise InputError(f"expected a new file for the transformation, got {os.fspath(save)} which exists: {how}")
    return kind


def kind_of(spec: Path_) -> Kind:
    opened = open_spec(spec)
    if opened.part is not None or not opened.is_model:
        return "vectors"
    return "encoder" if is_sentence_transformers(opened.path) else "model"


def with_whole_names(record: Repaired, arguments: Mapping[str, Any]) -> Repaired:
    """Whole paths in the commands of a record, to paste here. A record is passed on, so it holds only their ends."""
    given = (arguments.get(name) for name in ("spec", "out", "fit_on", "load", "save"))
    names = [os.fspath(name) for name in given if name is not None]

    def whole(text: str) -> str:
        for name in names:
            cut = rf"(?<![^\s`]){re.escape(quote(shared_name(name)))}(?![^\s`])"
            text = re.sub(cut, quote(name).replace("\\", r"\\"), text)
        return text

    return replace(record, next_step=whole(record.next_step), index=tuple(map(whole, record.index)))


def _lost(zeros: int, rows: Rows) -> tuple[str, str]:
    subject, n = ("row that is", "rows that are"), len(rows.left_out)
    zero = f"{counted(zeros, *subject)} all zero {plural(zeros, 'stays', 'stay')} zero"
    zero = f"{zero}: {plural(zeros, 'it has', 'they have')} no direction to repair." if zeros else ""
    left_out = f"{counted(n, *subject)} not finite {plural(n, 'was', 'were')} left out"
    moved = "Later rows have new numbers now, and of the columns next to the rows only labels are kept"
    return zero, f"{left_out}, the first at row {rows.left_out[0]}. {moved}." if n else ""
