"""`uncone repair`."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from uncone.cli.answer import hand_over, progress_bar, tell_unwritten
from uncone.cli.files import (
    Html,
    Ids,
    Json,
    Keep,
    Out,
    Qrels,
    Queries,
    QueryIds,
    Read,
    SkipNonfinite,
    Spec,
    Vectors,
    Write,
)
from uncone.errors import InputError
from uncone.evaluation.record import Selection
from uncone.roles import Role


def repair(
    spec: Spec,
    out: Out,
    /,
    *,
    method: str | None = None,
    fit_on: Annotated[str | None, Role.SPEC] = None,
    load: Read = None,
    save: Write = None,
    counts: Read = None,
    text: Read = None,
    data: Read = None,
    cache: Keep = None,
    queries: Queries = None,
    documents: Vectors = None,
    qrels: Qrels = None,
    ids: Ids = None,
    query_ids: QueryIds = None,
    task: Literal["retrieval", "sts"] = "retrieval",
    overwrite: bool = False,
    force: bool = False,
    normalize: bool = False,
    skip_nonfinite: SkipNonfinite = False,
    json: Json = None,
    html: Html = None,
) -> None:
    """Write a repaired copy of vectors or of an encoder, and say what that changed and what it cost.

    Args:
        spec: Vectors (FILE, FILE#tensor, MODEL#input), or a directory of Sentence Transformers.
        out: A file, whose ending says its format; for an encoder a new directory.
        method: A repair by its name; auto, and so --data alone, asks a task which one helps. Exit status 0
            where none does: then nothing is written.
        fit_on: Fit on these rows instead, such as the documents for queries.
        load: Apply a transformation that --save wrote instead of fitting one.
        save: Also write the fitted transformation to this file.
        counts: How often each token occurs: rows weigh as much in the fit.
        text: For an encoder: sentences to fit on, one a line.
        data: The directory of a task's data, by which --method auto chooses.
        cache: With --data: keep the model's vectors in this folder.
        documents: Own vectors of documents, to choose by and to fit on; else VECTORS.
        task: With --method auto: by what a repair is chosen.
        overwrite: Replace OUT and the file of --save if they are there; files only.
        force: Whiten on fewer than 5 rows a column too.
        normalize: Divide each repaired row by its norm, for an index of inner products; vectors only.
    """
    from uncone.repairs.repair import RepairOptions, check_repair, with_whole_names
    from uncone.repairs.repair import repair as run

    options: dict[str, Any] = {
        "text": text, "fit_on": fit_on, "load": load, "counts": counts, "save": save, "force": force,
        "overwrite": overwrite, "skip_nonfinite": skip_nonfinite, "normalize": normalize,
    }  # fmt: skip
    own: dict[str, Any] = {
        "queries": queries, "documents": documents, "qrels": qrels, "ids": ids, "query_ids": query_ids
    }  # fmt: skip
    _check_data(method, data, cache, task, is_own=any(value is not None for value in own.values()))
    by_task = None
    if data is not None:
        check_repair(spec, out, RepairOptions("auto", **options))  # before the task, which takes minutes
        from uncone.evaluation.select_repair import select_repair

        with progress_bar() as progress:
            by_task = select_repair(spec, task=task, data=data, cache=cache, progress=progress)
        if by_task.leaves_it:
            hand_over(by_task, json, html)
            tell_unwritten(out)
            return
        hand_over(by_task)
        method = by_task.chosen
    with progress_bar() as progress:
        result = run(spec, out, method=method, progress=progress, **own, **options)
    if isinstance(result, Selection):
        hand_over(result, json, html)
        tell_unwritten(out)
        return
    if by_task is not None and data is not None:
        result = result.chosen_by(
            by_task,
            f"Chosen by {task} on {data.name}, whose interval above decides, and not these measures. There it was "
            f"fitted on the task's own {'documents' if task == 'retrieval' else 'training sentences'}.",
        )
    elif result.selection is not None:
        hand_over(result.selection)
    # the selection was printed by itself, and is kept with the rest
    shown = with_whole_names(replace(result, selection=None), spec, out, fit_on, load, save)
    hand_over(result, json, html, shown=shown, written=(out, save))


def _check_data(
    method: str | None, data: Path | None, cache: Path | None, task: str, *, is_own: bool
) -> None:
    """Refuse `auto` without anything to choose by, and a task's data where another thing chooses."""
    asked = {"--data": data, "--cache": cache, "--task": None if task == "retrieval" else task}
    flag = next((name for name, value in asked.items() if value is not None), None)
    if is_own and flag is not None:
        raise InputError("expected --queries without --data, --cache and --task, got both: leave one out")
    if method == "auto" and data is None and not is_own:
        raise InputError(
            "expected --data DIR with --method auto, got none: a task chooses, and needs its data (or "
            "--queries, --documents and --qrels, own vectors with judgements)"
        )
    if flag is not None and method != "auto" and not (method is None and data is not None):
        named = "no method" if method is None else f"--method {method}"
        raise InputError(
            f"expected {flag} with --method auto, got it with {named}: other methods ask no task"
        )
