"""`evaluate`: a task on a model with and without each repair."""

import os
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from uncone.errors import InputError, expect, nearest, need_torch
from uncone.evaluation.ann import evaluate_ann, evaluate_ann_of_rows, quantiser_names
from uncone.evaluation.encoding import open_encoding
from uncone.evaluation.fitting import repair_names
from uncone.evaluation.language_model.record import LanguageModelEvaluation
from uncone.evaluation.own_vectors import name_of_own, open_own, own_vectors
from uncone.evaluation.record import ORIGINAL, Evaluation, Selection, Task
from uncone.evaluation.results import ONE_SIDED, PACKAGES, PRIMARY, Settings, items_of, silent, verdict
from uncone.evaluation.retrieval import Qrels, evaluate_retrieval, open_corpus
from uncone.evaluation.sts import evaluate_sts
from uncone.evaluation.wordsim import PROTOCOLS, evaluate_wordsim
from uncone.model.open import open_spec
from uncone.roles import Keep, Path_, Progress, Read, Role, Source, Vectors
from uncone.rows.ids import Ids
from uncone.version import versions

TASKS: tuple[Task, ...] = ("wordsim", "sts", "retrieval", "ann")
AUTO = "auto"
_ITEMS = {"wordsim": "pairs of words", "sts": "pairs of sentences (for a mean over subsets, within each subset)"}


def evaluate(
    spec: Vectors = None,
    *,
    task: Literal["wordsim", "sts", "retrieval", "ann", "lm"] | None = None,
    data: Read = None,
    queries: Vectors = None,
    documents: Vectors = None,
    qrels: Annotated[Qrels | None, Role.READ] = None,
    ids: Annotated[Ids | None, Role.READ] = None,
    query_ids: Annotated[Ids | None, Role.READ] = None,
    columns: Sequence[int | str] | None = None,
    protocol: Literal["paper", "field"] = "field",
    method: str | Sequence[str] | None = None,
    text: Annotated[Path_ | Sequence[str] | None, Role.READ] = None,
    counts: Source = None,
    device: str | None = None,
    dtype: Literal["float32", "bfloat16", "float16"] | None = None,
    quantisers: Sequence[str] | None = None,
    cache: Keep = None,
    seed: int = 0,
    resamples: int | None = None,
    progress: Progress | None = None,
) -> Evaluation | Selection | LanguageModelEvaluation:
    """Score a task on a model as it is and under each repair, with a paired interval for every difference.

    Args:
        spec: for "wordsim" a model (its token table) or word vectors; for "sts" and "retrieval" an encoder: a directory
            of Sentence Transformers, of transformers (mean of the last layer), or word vectors (mean of the words). For
            "ann" an encoder, or a file of vectors. None with `documents`.
        task: "wordsim" (pairs of words), "sts" (pairs of sentences), "retrieval" (nDCG@10 and recall@100), or "ann"
            (recall@10 of quantised search); or "lm", as `evaluate_language_model`: how well a language model predicts a
            text, without repairs.
        data: the directory of the sets (for "wordsim" those of Bis et al. 2021, for "sts" STS12 to 16 and the STS
            Benchmark); for these two tasks also a table of two texts and a score: TSV, CSV, JSON lines or a JSON array
            of objects, with or without header. None for "ann" of stored vectors. For "lm" passages, one per line, whose
            last words are predicted (LAMBADA); or None.
        queries: your own vectors of queries (M, D), for `open_rows`: retrieval without a model. Use them with
            `documents` and `qrels`, instead of `spec` and `data`. For "ann" of stored vectors, the vectors to search
            with; by default some rows are taken out for it.
        documents: your own vectors of documents (N, D), for `open_rows`.
        qrels: your judgements: TREC's `qid 0 docid relevance`, a table with or without header (query, document,
            relevance; BEIR's query-id, corpus-id, score), JSON lines with such names; or `{query: {document:
            relevance}}`. Relevance above 0 counts.
        ids: the ids of the documents, one per line; by default the source's own, or the lines of NAME.ids next to NAME.npy,
            or row numbers from 0.
        query_ids: the same for the queries.
        columns: of a table, the columns of the two texts and of the score, by name or by number from 1. By default
            `word1`, `word2`, `score` or `sentence1`, `sentence2`, `score` where the header has them, else the first
            three.
        protocol: for "wordsim", the paper's (one token, Pearson) or the field's (mean of tokens, Spearman).
        method: names of repairs to compare (`uncone.transforms.REPAIRS`); all by default. The original is always
            included. For sts and retrieval, auto chooses a repair on a development split and tests it on another, as
            `select_repair` does; with names, as in auto center whiten, it chooses among these.
        text: for "lm", a text file, plain, JSON lines or Parquet, also packed, or a list of texts.
        counts: for "lm", how often each id occurs in the training text: a file of `uncone count`, or an array. With
            counts, losses are also shown by frequency.
        device: for "lm", the device that runs the model, such as "cuda"; the CPU by default.
        dtype: for "lm", the precision of the run, such as "bfloat16"; float32 by default.
        quantisers: for "ann", how the documents are stored: int8, int8_uniform, pq, binary (their signs, with queries
            unchanged) or binary_hamming (signs of both); by default all five.
        cache: a folder that keeps vectors of texts for the next run; for tasks that encode texts.
        seed: of resampling, of drawn queries, and of product quantisation.
        resamples: resamples for each interval; by default 10,000 where auto chooses, else 2,000, with which the ends of
            an interval move by about 3% of its half-width from seed to seed.
        progress: called with (the step, done, in all).

    Returns:
        `results[task][set][repair]`, differences and prices; a table gives one set, named after its file. Correlations
        are times 100, the others in [0, 1]; higher is better.

    Raises:
        InputError: data that is missing or wrong, a spec that is no encoder, an unknown repair, or an extra that is not
            installed.
        UnsupportedModel: the model cannot be loaded.
    """
    need_torch("uncone.evaluate")
    if task == "lm":
        refused = {"queries": queries, "documents": documents, "qrels": qrels, "ids": ids, "query_ids": query_ids}
        refused |= {"columns": columns, "method": method, "cache": cache, "resamples": resamples}
        refused |= {"quantisers": quantisers}
        surplus = next((name for name, value in refused.items() if value is not None), None)
        expect(surplus is None, f"a model, a text, counts and data for the task lm, got {surplus} too: leave it out")
        expect(
            spec is not None and text is not None, "a model and a text for the task lm, got none: name it with --text"
        )
        from uncone.evaluation.language_model.evaluate_language_model import evaluate_language_model

        options: Any = {"counts": counts, "data": data, "seed": seed, "device": device, "dtype": dtype}
        return evaluate_language_model(spec, text or (), **options, progress=progress)
    of_lm = {"text": text, "counts": counts, "device": device, "dtype": dtype}
    surplus = next((name for name, value in of_lm.items() if value is not None), None)
    expect(surplus is None, f"{surplus} with the task lm alone, got it with {task or 'no task'}: leave it out")
    got = f"got them with {task or 'no task'}: leave them out"
    expect(quantisers is None or task == "ann", f"quantisers (--quantisers) only with the task ann, {got}")
    given: Any = {"queries": queries, "documents": documents, "qrels": qrels, "ids": ids, "query_ids": query_ids}
    names = [method] if isinstance(method, str) else method
    if names is not None and AUTO in names:
        _check_choice(task, data, columns, protocol, is_own=queries is not None or qrels is not None)
        from uncone.evaluation.select_repair import select_repair

        options = {"task": task, "data": data, "cache": cache, "progress": progress}
        options["method"] = [name for name in names if name != AUTO] or None
        return select_repair(spec, **given, **options, seed=seed, resamples=resamples or 10_000)
    resamples = 2000 if resamples is None else resamples
    searching = queries if task == "ann" and qrels is None and documents is None else None
    given["queries"] = queries if searching is None else None
    own = own_vectors(spec, **given, task=task, others={"data": data, "columns": columns, "cache": cache})
    task = "retrieval" if own is not None else _checked_task(task, spec)
    expect(protocol in PROTOCOLS, f"a protocol out of {', '.join(PROTOCOLS)}, got {protocol!r}: field is usual")
    _check_protocol(task, protocol)
    fits = columns is None or (task in _ITEMS and data is not None and not os.path.isdir(data))
    got = f"got them with {task} of {data}: leave them out"
    expect(fits, f"columns (--columns) with a table as data of wordsim or sts, {got}")
    settings = Settings(repair_names(names), seed, resamples, progress or silent, quantiser_names(quantisers))
    got = f"got {type(spec).__name__}: write the vectors to a file, or give documents and queries"
    expect(own is not None or isinstance(spec, str | os.PathLike), f"a path as the spec of {task}, {got}")
    opened = None if own is not None else open_spec(spec)
    stored = task == "ann" and opened is not None and opened.path.is_file()
    spec = opened or spec
    which = f"{task} of stored vectors" if stored else task
    expect(data is None or not stored, f"the queries of {which} as --queries (queries=), got --data: leave it out")
    got = f"got them with {spec}: name the directory of its texts with --data"
    expect(searching is None or stored, f"--queries of ann with a file of vectors, {got}")
    fits = cache is None or not (stored or task == "wordsim")
    expect(fits, f"no cache with the task {which}, got one (--cache, cache=): leave it out")
    if own is not None:
        result = evaluate_retrieval(open_own(own, settings), settings)
    elif stored:
        result = evaluate_ann_of_rows(spec, searching, settings)
    elif data is None:
        raise _no_data(task)
    elif task == "wordsim":
        result = evaluate_wordsim(spec, data, settings, protocol=protocol, columns=columns)
    else:
        encoding = open_encoding(spec, cache=cache)
        if task == "sts":
            result = evaluate_sts(encoding, data, settings, columns=columns)
        elif task == "retrieval":
            result = evaluate_retrieval(open_corpus(encoding, data, settings), settings)
        else:
            result = evaluate_ann(encoding, data, settings)
    measure = "pearson_cosine" if protocol == "paper" else PRIMARY[task]
    name = name_of_own(own) if own is not None else open_spec(spec).full_name
    originals = [numbers[ORIGINAL] for numbers in result.results.values()]
    items = items_of(task, originals[0]["n"]) if len(originals) == 1 else ""
    # correlations reach their highest value only by chance
    is_full = task not in _ITEMS and all(numbers.get(measure) == 1 for numbers in originals)
    intervals = (
        f"Intervals: 95%, percentile bootstrap over {_ITEMS.get(task, 'queries')}, {resamples:,} resamples, "
        f"seed {seed}. A repair and the original share resamples. Each interval holds for one comparison alone."
    )
    sentence = verdict(name, task, measure, result.differences, items, is_full=is_full)
    return Evaluation(
        f"{name}, {task}: no verdict, since {ONE_SIDED}." if result.is_one_sided else sentence,
        name,
        task,
        intervals=intervals,
        protocol=protocol if task == "wordsim" else "",
        results={task: result.results},
        differences={task: result.differences},
        prices=result.prices,
        notes=tuple(dict.fromkeys(result.notes)),
        caution=result.caution,
        provenance=result.provenance | {"seed": seed, "measure": measure, "versions": versions(*PACKAGES)},
    )


def _check_choice(task: Task | None, data: Any, columns: Any, protocol: str, *, is_own: bool) -> None:
    advice = "a choice needs the sets' development parts; leave one out"
    expect(columns is None, f"--columns without --method auto, got both: {advice}")
    fits = is_own or task in ("sts", "retrieval")
    expect(fits, f"--method auto with the task sts or retrieval, got it with {task}: leave it out")
    _check_protocol(task or "retrieval", protocol)
    if data is None and not is_own:
        raise _no_data(task or "retrieval")


def _checked_task(task: str | None, spec: Any) -> Task:
    known, lacking = ", ".join((*TASKS, "lm")), "task" if task is None else "spec"
    wanted = f"a spec and a task out of {known}, or own vectors (--queries, --documents and --qrels)"
    expect(task is not None and spec is not None, f"{wanted}, got no {lacking}: name it")
    for one in TASKS:
        if one == task:
            return one
    advice = nearest(task, TASKS, "choose among these")
    raise InputError(f"expected a task out of {known}, got {task!r}: {advice}")


def _check_protocol(task: str, protocol: str) -> None:
    fits = protocol == "field" or task == "wordsim"
    expect(fits, f"the protocol {protocol!r} with the task wordsim, got it with {task}: leave it out")


def _no_data(task: str) -> InputError:
    form = "a directory or a table" if task in _ITEMS else "a directory"
    return InputError(f"expected {form} of data for the task {task}, got none: name it with --data")
