"""`uncone repair`."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from uncone.cli.files import Html, Json, Role, SkipNonfinite, hand_over, tell
from uncone.cli.progress import progress_bar
from uncone.errors import InputError
from uncone.records import Selection

AUTO = "auto"
RETRIEVAL: Literal["retrieval"] = "retrieval"


def repair(
    spec: Annotated[str, Role.SPEC],
    out: Annotated[str, Role.OUT],
    /,
    *,
    method: Annotated[
        str | None,
        Parameter(
            help="A repair by its name; auto, and so --data alone, asks a task which one helps.",
            show_default=False,
        ),
    ] = None,
    fit_on: Annotated[
        str | None, Role.SPEC, Parameter(help="Fit on these rows instead, such as the documents for queries.")
    ] = None,
    load: Annotated[
        Path | None,
        Role.READ,
        Parameter(help="Apply a transformation that --save wrote instead of fitting one."),
    ] = None,
    save: Annotated[
        Path | None, Role.WRITE, Parameter(help="Also write the fitted transformation to this file.")
    ] = None,
    counts: Annotated[
        Path | None,
        Role.READ,
        Parameter(help="How often each token occurs: rows weigh as much in the fit."),
    ] = None,
    text: Annotated[
        Path | None, Role.READ, Parameter(help="For an encoder: sentences to fit on, one a line.")
    ] = None,
    data: Annotated[
        Path | None,
        Role.READ,
        Parameter(help="The directory of a task's data, by which --method auto chooses."),
    ] = None,
    cache: Annotated[
        Path | None, Role.KEEP, Parameter(help="With --data: keep the model's vectors in this folder.")
    ] = None,
    task: Annotated[
        Literal["retrieval", "sts"], Parameter(help="With --method auto: by what a repair is chosen.")
    ] = RETRIEVAL,
    overwrite: Annotated[
        bool, Parameter(negative="", help="Replace OUT and the file of --save if they are there; files only.")
    ] = False,
    force: Annotated[bool, Parameter(negative="", help="Whiten on fewer than 5 rows a column too.")] = False,
    skip_nonfinite: SkipNonfinite = False,
    json: Json = None,
    html: Html = None,
) -> None:
    """Write a repaired copy of vectors or of an encoder, and say what that changed and what it cost.

    Parameters
    ----------
    spec
        Vectors (FILE, FILE#tensor, MODEL#input), or a directory of Sentence Transformers.
    out
        A file, whose ending says its format; for an encoder a new directory.
    """
    options: dict[str, Any] = {
        "text": text, "fit_on": fit_on, "load": load, "save": save, "counts": counts, "force": force,
        "overwrite": overwrite, "skip_nonfinite": skip_nonfinite,
    }  # fmt: skip
    selection = None
    if method == AUTO or (method is None and data is not None):
        _refuse(_given(load=load), "--method auto")
        if data is None:
            raise InputError(
                "expected --data DIR with --method auto, got none: a repair is chosen by a task, which needs its data"
            )
        _check(spec, out, **options)
        selection = _choose(spec, task, data, cache, json=json, html=html)
        if selection.leaves_it:
            return
        method = selection.chosen
    elif data is not None or cache is not None or task != RETRIEVAL:
        flag = "--data" if data is not None else "--cache" if cache is not None else "--task"
        raise InputError(
            f"expected {flag} with --method auto, got it with {_method(method)}: other methods ask no task"
        )
    from uncone.verbs.repair import repair as run

    with progress_bar() as progress:
        result = run(spec, out, method=method, progress=progress, **options)
    if selection is not None:
        result = replace(result, notes=(*result.notes, _why(task, data)))
    # the selection was printed when it was made, and is kept with the rest
    hand_over(replace(result, selection=selection), json=json, html=html, shown=result)
    tell(Path(out), save)


def _check(spec: str, out: str, **options: Any) -> None:
    """What is missing or out of place is said before a task is asked, which takes minutes."""
    from uncone.verbs.repair import RepairOptions, check_repair

    check_repair(spec, out, RepairOptions(**options))


def _choose(
    spec: str, task: Literal["retrieval", "sts"], data: Path, cache: Path | None, **files: Any
) -> Selection:
    """The task's choice, printed with its evidence; kept by itself where no repair is written."""
    from uncone.verbs.select_repair import select_repair

    with progress_bar() as progress:
        selection = select_repair(spec, task=task, data=data, cache=cache, progress=progress)
    hand_over(selection, **(files if selection.leaves_it else {}))
    return selection


def _why(task: str, data: Path | None) -> str:
    """What a repair that was chosen rests on: the task's own fit, and not the geometry that is shown."""
    fitted = "documents" if task == RETRIEVAL else "training sentences"
    return (
        f"Chosen by {task} on {'' if data is None else data.name}, whose interval above decides, and not these measures. There it was fitted on the task's "
        f"own {fitted}."
    )


def _method(method: str | None) -> str:
    return "no method" if method is None else f"--method {method}"


def _given(**options: object) -> list[str]:
    return [f"--{name.replace('_', '-')}" for name, value in options.items() if value is not None]


def _refuse(flags: list[str], what: str) -> None:
    if flags:
        raise InputError(f"expected no {flags[0]} with {what}, got it: leave it out")
