"""`uncone evaluate`."""

from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from uncone.cli.files import Html, Json, Role, hand_over
from uncone.cli.progress import progress_bar
from uncone.errors import InputError


def evaluate(
    spec: Annotated[str, Role.SPEC],
    /,
    *,
    task: Annotated[
        Literal["wordsim", "sts", "retrieval", "ann"], Parameter(help="What is asked of the vectors.")
    ],
    data: Annotated[
        Path | None,
        Role.READ,
        Parameter(
            help="The directory of the sets. For wordsim and sts also a table of two texts and a score. For ann of stored "
            "vectors: a file of queries, or none to take rows out."
        ),
    ] = None,
    columns: Annotated[
        str | None,
        Parameter(
            help="Of such a table: the columns of the two texts and of the score, by names or by numbers from 1, as in 2,3,5."
        ),
    ] = None,
    protocol: Annotated[
        Literal["paper", "field"],
        Parameter(
            help="For wordsim: paper takes single tokens and Pearson, field the mean of sub-tokens and Spearman."
        ),
    ] = "field",
    repair: Annotated[
        list[str] | None,
        Parameter(
            negative="",
            consume_multiple=True,
            help="Repairs by their names; SPEC stands before. All by default.",
        ),
    ] = None,
    method: Annotated[
        Literal["auto"] | None,
        Parameter(
            help="auto chooses a repair on a development split and reports on the test split; for sts and retrieval."
        ),
    ] = None,
    cache: Annotated[
        Path | None, Role.KEEP, Parameter(help="A folder where vectors of texts are kept for the next run.")
    ] = None,
    seed: Annotated[int, Parameter(help="Of the resampling and of what is drawn.")] = 0,
    json: Json = None,
    html: Html = None,
) -> None:
    """Say what each repair does to a task: word similarity, sentence similarity, retrieval or quantised
    search.

    Every difference to the vectors as they are has a paired bootstrap interval.

    Parameters
    ----------
    spec
        A directory of Sentence Transformers or transformers, the name of a cached one, or a file of word
        vectors. For wordsim the token table of a model is taken, or MODEL#tensor.
    """
    from uncone.verbs.evaluate import evaluate as run

    if method is not None:
        if columns is not None:
            raise InputError(
                "expected --columns without --method auto, got both: a choice needs the sets' development "
                "parts; leave one out"
            )
        _choose(
            spec,
            task=task,
            data=data,
            protocol=protocol,
            repairs=repair,
            cache=cache,
            seed=seed,
            json=json,
            html=html,
        )
        return
    with progress_bar() as progress:
        evaluation = run(
            spec,
            task=task,
            data=data,
            columns=_columns(columns),
            protocol=protocol,
            repairs=repair,
            cache=cache,
            seed=seed,
            progress=progress,
        )
    hand_over(evaluation, json=json, html=html)


def _columns(given: str | None) -> list[str | int] | None:
    """Names and numbers, parted by commas."""
    if given is None:
        return None
    parts = [part.strip() for part in given.split(",")]
    return [int(part) if part.isdecimal() else part for part in parts]


def _choose(
    spec: str, *, task: Literal["wordsim", "sts", "retrieval", "ann"], data: Path | None, protocol: str,
    repairs: list[str] | None, cache: Path | None, seed: int, **files: Any,
) -> None:  # fmt: skip
    """Which repair the task calls for, if any; nothing else is written."""
    from uncone.verbs.evaluate import check_protocol, no_data
    from uncone.verbs.select_repair import select_repair

    if task == "wordsim" or task == "ann":
        raise InputError(
            f"expected --method auto with the task sts or retrieval, got it with {task}: leave it out"
        )
    check_protocol(task, protocol)
    if data is None:
        raise no_data(task)
    with progress_bar() as progress:
        selection = select_repair(
            spec, task=task, data=data, repairs=repairs, cache=cache, seed=seed, progress=progress
        )
    hand_over(selection, **files)
