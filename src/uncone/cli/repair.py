"""`uncone repair`."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from uncone.atomic import resolved
from uncone.cli.files import check_targets, hand_over, tell
from uncone.cli.progress import progress_bar
from uncone.errors import InputError
from uncone.records import Record, Selection

AUTO = "auto"
RETRIEVAL: Literal["retrieval"] = "retrieval"


def repair(
    spec: str,
    out: str,
    /,
    *,
    method: Annotated[
        str | None,
        Parameter(
            help="A repair by its name; auto, and so --data alone, asks a task which one helps. With --tokens: sub_tokens, mean or "
            "covariance.",
            show_default=False,
        ),
    ] = None,
    fit_on: Annotated[str | None, Parameter(help="Fit on these rows instead, such as the documents for queries.")] = None,
    load: Annotated[Path | None, Parameter(help="Apply a transformation that --save wrote instead of fitting one.")] = None,
    save: Annotated[Path | None, Parameter(help="Also write the fitted transformation to this file.")] = None,
    counts: Annotated[
        Path | None,
        Parameter(help="How often each token occurs: rows weigh as much in the fit; with --tokens auto, count 0 is unused."),
    ] = None,
    text: Annotated[Path | None, Parameter(help="For models: sentences to fit on, or text to prove an edit on.")] = None,
    head: Annotated[
        Literal["center"] | None, Parameter(help="Centre the output head of a language model: no probability changes.")
    ] = None,
    untie: Annotated[
        bool, Parameter(negative="", help="With --head: store a head apart that shares the token table's rows.")
    ] = False,
    tokens: Annotated[
        str | None, Parameter(help="Set rows of tokens anew: ids with commas, a file of ids, zero, added or auto.")
    ] = None,
    data: Annotated[Path | None, Parameter(help="The directory of a task's data, by which --method auto chooses.")] = None,
    cache: Annotated[Path | None, Parameter(help="With --data: keep the model's vectors in this folder.")] = None,
    task: Annotated[Literal["retrieval", "sts"], Parameter(help="With --method auto: by what a repair is chosen.")] = RETRIEVAL,
    overwrite: Annotated[
        bool, Parameter(negative="", help="Replace OUT and the file of --save if they are there; files only.")
    ] = False,
    force: Annotated[bool, Parameter(negative="", help="Whiten on fewer than 5 rows a column too.")] = False,
    skip_nonfinite: Annotated[
        bool, Parameter(negative="", help="Leave rows with NaN or inf out of what is written instead of refusing them.")
    ] = False,
    json: Annotated[Path | None, Parameter(help="Write what was done to this file, for machines.")] = None,
) -> None:
    """Write a repaired copy of vectors or of a model, and say what that changed and what it cost.

    Parameters
    ----------
    spec
        Vectors (FILE, FILE#tensor, MODEL#input), a directory of Sentence Transformers, or with --head or --tokens a
        language model.
    out
        A file, whose ending says its format; for a model a new directory.
    """
    _check_files(spec, out, read=(fit_on, load, counts, text), written=(json, save))
    rows = {"counts": counts, "overwrite": overwrite, "skip_nonfinite": skip_nonfinite}
    if head is not None or tokens is not None:
        unused = _given(fit_on=fit_on, load=load, save=save, data=data, cache=cache)
        _refuse([*unused, *_set(force=force, skip_nonfinite=skip_nonfinite)], "--head and --tokens")
        _edit(
            spec, out, head=head, untie=untie, tokens=tokens, method=method, counts=counts, text=text, overwrite=overwrite, json=json
        )  # fmt: skip
        return
    if untie:
        raise InputError("expected --untie with --head center, got it alone: it stores apart a head that is centred")
    selection = None
    if method == AUTO or (method is None and data is not None):
        _refuse(_given(load=load), "--method auto")
        _check_before_a_task(spec, out, text, fit_on, rows, data)
        selection = _choose(spec, task, data, cache, json=json)
        if selection.leaves_it:
            return
        method = selection.chosen
    elif data is not None or cache is not None or task != RETRIEVAL:
        flag = "--data" if data is not None else "--cache" if cache is not None else "--task"
        raise InputError(f"expected {flag} with --method auto, got it with {_method(method)}: other methods ask no task")
    fit = {"method": method, "fit_on": fit_on, "load": load, "save": save, "force": force}
    why = () if selection is None else (_why(task, data),)
    _repair(spec, out, fit, rows, text, json, selection, why)


def _check_files(spec: str, out: str, *, read: tuple[str | Path | None, ...], written: tuple[Path | None, ...]) -> None:
    """Files beside OUT that cannot be written, or would replace another one of the command's."""
    sources = [path for given in (spec, *read) if given is not None for path in _files(given)]
    check_targets(*written, read=tuple(sources))
    targets = [resolved(path) for path in written if path is not None]
    if any(resolved(path) in targets for path in _files(out)):
        raise InputError(f"expected different files to write, got {out} twice: the second would replace the first")


def _repair(
    spec: str,
    out: str,
    fit: dict[str, Any],
    rows: dict[str, Any],
    text: Path | None,
    json: Path | None,
    selection: Selection | None,
    notes: tuple[str, ...],
) -> None:
    """Vectors into a file, or an encoder into a directory; `rows` are options of vectors alone, `text` one of an encoder.

    The selection was printed when it was made, and is kept with the rest; `notes` are added.
    """
    from uncone.repairing import kind_of, repair_encoder, repair_file

    with progress_bar() as progress:
        if kind_of(spec) == "encoder":
            _refuse(_set(**rows), "a model")
            result = repair_encoder(spec, out, text=text, progress=progress, **fit)
        else:
            _refuse(_given(text=text), "vectors")
            result = repair_file(spec, out, progress=progress, **fit, **rows)
    result = replace(result, notes=(*result.notes, *notes))
    hand_over(replace(result, selection=selection), json=json, shown=result)
    tell(Path(out), fit["save"])


def _edit(
    spec: str,
    out: str,
    *,
    head: str | None,
    untie: bool,
    tokens: str | None,
    method: str | None,
    counts: Path | None,
    text: Path | None,
    overwrite: bool,
    json: Path | None,
) -> None:
    """An edit of a language model into a new directory."""
    from uncone.repairing import edit_head, edit_tokens

    _refuse(_given(method=method, counts=counts) if tokens is None else [], "--head")
    if head is not None and tokens is not None:
        raise InputError(
            "expected either --head or --tokens, got both: set the tokens first, then centre the head of the result"
        )
    _refuse(_set(overwrite=overwrite, untie=untie and head is None), "--tokens" if head is None else "a model")
    result: Record
    with progress_bar() as progress:
        if head is not None:
            result = edit_head(spec, out, how=head, untie=untie, text=text, progress=progress)
        else:
            result = edit_tokens(spec, out, tokens or AUTO, method=method, counts=counts, text=text, progress=progress)
    hand_over(result, json=json)
    tell(Path(out))


def _choose(
    spec: str, task: Literal["retrieval", "sts"], data: Path | None, cache: Path | None, *, json: Path | None
) -> Selection:
    """What the task says, printed with its evidence; kept by itself where it calls for no repair, since then nothing else is written."""
    from uncone.select_repair import select_repair

    assert data is not None  # _check_before_a_task refused it
    with progress_bar() as progress:
        selection = select_repair(spec, task=task, data=data, cache=cache, progress=progress)
    hand_over(selection, json=json if selection.leaves_it else None)
    return selection


def _why(task: str, data: Path | None) -> str:
    """What a repair that was chosen rests on: the task's own fit, and not the geometry that is shown."""
    fitted = "documents" if task == RETRIEVAL else "training sentences"
    return (
        f"Chosen by {task} on {'' if data is None else data.name}, whose interval above decides, and not these measures. There it was fitted on the task's "
        f"own {fitted}."
    )


def _check_before_a_task(
    spec: str, out: str, text: Path | None, fit_on: str | None, rows: dict[str, Any], data: Path | None
) -> None:
    """What is missing or out of place is said before a task is asked, which takes minutes."""
    from uncone.repairing import check_target, kind_of

    if data is None:
        raise InputError("expected --data DIR with --method auto, got none: a repair is chosen by a task, which needs its data")
    if kind_of(spec) == "encoder":
        _refuse(_set(**rows), "a model")
        if text is None and fit_on is None:
            raise InputError("expected --text F or --fit-on VECTORS for a model, got neither: what is chosen is fitted on them")
    else:
        _refuse(_given(text=text), "vectors")
    check_target(spec, out, overwrite=rows["overwrite"])


def _files(spec: str | Path) -> list[Path]:
    """What a spec may name: a file, or a part of the file before its '#'."""
    return [Path(spec), Path(str(spec).partition("#")[0])]


def _method(method: str | None) -> str:
    return "no method" if method is None else f"--method {method}"


def _given(**options: object) -> list[str]:
    return [f"--{name.replace('_', '-')}" for name, value in options.items() if value is not None]


def _set(**options: object) -> list[str]:
    """Those that are not empty, or switched on."""
    return _given(**{name: value or None for name, value in options.items()})


def _refuse(flags: list[str], what: str) -> None:
    if flags:
        raise InputError(f"expected no {flags[0]} with {what}, got it: leave it out")
