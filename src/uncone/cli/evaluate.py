"""`uncone evaluate`."""

from functools import partial
from typing import Annotated, Any, Literal

from uncone.cli.answer import answer
from uncone.cli.files import Html, Ids, Json, Keep, Qrels, Queries, QueryIds, Read, Several, Vectors
from uncone.errors import InputError
from uncone.evaluation.record import Task


def evaluate(
    spec: Vectors = None,
    /,
    *,
    task: Task | None = None,
    data: Read = None,
    columns: str | None = None,
    queries: Queries = None,
    documents: Vectors = None,
    qrels: Qrels = None,
    ids: Ids = None,
    query_ids: QueryIds = None,
    protocol: Literal["paper", "field"] = "field",
    repair: Annotated[list[str] | None, Several] = None,
    method: Literal["auto"] | None = None,
    cache: Keep = None,
    seed: int = 0,
    json: Json = None,
    html: Html = None,
) -> None:
    """Say what each repair does to a task: word similarity, sentence similarity, retrieval or quantised
    search.

    Every difference to the vectors as they are has a paired bootstrap interval.

    Args:
        spec: A directory of Sentence Transformers or transformers, the name of a cached one, or a file of
            word vectors. For wordsim the token table of a model is taken, or MODEL#tensor. None with
            --documents.
        task: What is asked of the vectors; of own vectors retrieval.
        data: The directory of the sets. For wordsim and sts also a table of two texts and a score. For ann of
            stored vectors: a file of queries, or none to take rows out.
        documents: Own vectors of documents.
        columns: Of such a table: the columns of the two texts and of the score, by names or by numbers from
            1, as in 2,3,5.
        protocol: For wordsim: paper takes single tokens and Pearson, field means of sub-tokens and Spearman.
        repair: Repairs by their names; SPEC stands before. All by default.
        method: auto chooses a repair on a development split and tests it on another; for sts and retrieval.
        cache: A folder where vectors of texts are kept for the next run.
        seed: Of the resampling and of what is drawn.
    """
    from uncone.evaluation.evaluate import check_protocol, no_data
    from uncone.evaluation.evaluate import evaluate as run

    options: dict[str, Any] = {
        "task": task, "data": data, "queries": queries, "documents": documents, "qrels": qrels, "ids": ids,
        "query_ids": query_ids, "repairs": repair, "cache": cache, "seed": seed,
    }  # fmt: skip
    if method is None:
        work = partial(run, spec, columns=_columns(columns), protocol=protocol, **options)
        answer(work, json, html)
        return
    if columns is not None:
        raise InputError(
            "expected --columns without --method auto, got both: a choice needs the sets' development parts; "
            "leave one out"
        )
    is_own = queries is not None or qrels is not None
    if not is_own and task not in ("sts", "retrieval"):
        raise InputError(
            f"expected --method auto with the task sts or retrieval, got it with {task}: leave it out"
        )
    check_protocol(task or "retrieval", protocol)
    if data is None and not is_own:
        raise no_data(task or "retrieval")
    from uncone.evaluation.select_repair import select_repair

    answer(partial(select_repair, spec, **options), json, html)


def _columns(given: str | None) -> list[str | int] | None:
    """Names and numbers, parted by commas."""
    parts = [part.strip() for part in (given or "").split(",")]
    return None if given is None else [int(part) if part.isdecimal() else part for part in parts]
