"""`evaluate`: what tasks say of a model with and without each repair."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from uncone.errors import InputError
from uncone.model.spec import name_of, split
from uncone.records import Evaluation
from uncone.tasks.ann import evaluate_ann, evaluate_ann_of_rows
from uncone.tasks.encoded import open_encoding
from uncone.tasks.fitting import repair_names
from uncone.tasks.found import Found, Progress, Settings, versions
from uncone.tasks.retrieval import evaluate_retrieval
from uncone.tasks.sts import evaluate_sts
from uncone.tasks.verdict import primary, verdict
from uncone.tasks.wordsim import evaluate_wordsim

__all__ = ["Progress", "evaluate"]

TASKS = ("wordsim", "sts", "retrieval", "ann")
PROTOCOLS = ("paper", "field")


def evaluate(
    spec: str | os.PathLike[str],
    *,
    task: Literal["wordsim", "sts", "retrieval", "ann"],
    data: str | os.PathLike[str] | None,
    protocol: Literal["paper", "field"] = "field",
    repairs: Sequence[str] | None = None,
    cache: str | os.PathLike[str] | None = None,
    seed: int = 0,
    resamples: int = 2000,
    progress: Progress | None = None,
) -> Evaluation:
    """What a task says of a model as it is and under each repair, with a paired interval of every difference.

    Args:
        spec: for "wordsim" a model (its token table) or word vectors; for "sts" and "retrieval" an encoder: a directory of Sentence
            Transformers, of transformers (mean of the last layer), or word vectors (mean of the words). For "ann" an encoder, or
            a file of vectors.
        task: "wordsim" (the sets of Bis et al. 2021), "sts" (STS12 to 16 and the STS Benchmark), "retrieval" (nDCG@10 and
            recall@100), or "ann" (recall@10 of quantised search).
        data: the directory of the sets; for "ann" of stored vectors a file of queries, or None to take some rows out.
        protocol: for "wordsim", the paper's (single tokens, Pearson) or the field's (mean of sub-tokens, Spearman).
        repairs: names out of `uncone.transforms.REPAIRS`; all by default. The original is always there.
        cache: a folder in which vectors of texts are kept, so that the next run need not encode them; for tasks that encode texts.
        seed: of the resampling, of what is drawn, and of product quantisation.
        resamples: how many for each interval; with 2,000 its ends move by about 3 % of its half-width from seed to seed.
        progress: called with (what is done, done, in all).

    Returns:
        `results[task][set][repair]`, differences and prices. Correlations are times 100, the others in [0, 1]; higher is better.

    Raises:
        InputError: data that is missing or wrong, a spec that is no encoder, an unknown repair, or an extra that is not installed.
        UnsupportedModel: the model cannot be loaded.
    """
    if task not in TASKS:
        raise InputError(f"expected a task out of {', '.join(TASKS)}, got {task!r}")
    if protocol not in PROTOCOLS:
        raise InputError(f"expected a protocol out of {', '.join(PROTOCOLS)}, got {protocol!r}")
    check_protocol(task, protocol)
    names = repair_names(repairs)
    settings = Settings(seed=seed, resamples=resamples, progress=progress)
    found = _run(spec, task, data, names, protocol, None if cache is None else Path(cache), settings)
    path, part = split(spec)
    name = name_of(spec, path) + (f"#{part}" if part else "")
    measure = primary(task, protocol)
    return Evaluation(
        verdict=verdict(name, task, measure, found.differences),
        name=name,
        task=task,
        protocol=protocol if task == "wordsim" else "",
        results={task: found.results},
        differences={task: found.differences},
        prices=found.prices,
        notes=tuple(found.notes),
        intervals=f"Intervals: 95 %, percentile bootstrap over {_items(task)}, {resamples:,} resamples, seed {seed}; "
        "the same resamples for a repair and the original. Each is taken by itself.",
        provenance=found.provenance | {"seed": seed, "measure": measure, "versions": versions()},
    )


def check_protocol(task: str, protocol: str) -> None:
    """Refuses a protocol of word similarity where another task is asked."""
    if protocol != "field" and task != "wordsim":
        raise InputError(
            f"expected the protocol {protocol!r} with the task wordsim, got it with {task}: leave it out"
        )


def no_data(task: str) -> InputError:
    """What is said where a task is asked without its data."""
    return InputError(f"expected a directory of data for the task {task}, got none: name it with --data")


def _run(
    spec: str | os.PathLike[str],
    task: str,
    data: str | os.PathLike[str] | None,
    names: Sequence[str],
    protocol: Literal["paper", "field"],
    cache: Path | None,
    settings: Settings,
) -> Found:
    path, _ = split(spec)
    stored = task == "ann" and path.is_file()
    if cache is not None and (stored or task == "wordsim"):
        which = f"{task} of stored vectors" if stored else task
        raise InputError(
            f"expected no cache with the task {which}, got one (--cache, cache=): no text is encoded; leave it out"
        )
    if stored:
        return evaluate_ann_of_rows(spec, data, names, settings)
    if data is None:
        raise no_data(task)
    if task == "wordsim":
        return evaluate_wordsim(spec, data, names, settings, protocol=protocol)
    tasks: dict[str, Any] = {"sts": evaluate_sts, "retrieval": evaluate_retrieval, "ann": evaluate_ann}
    found: Found = tasks[task](open_encoding(spec, cache=cache), data, names, settings)
    return found


def _items(task: str) -> str:
    sentences = "pairs of sentences (for a mean over subsets within each of them)"
    return {"wordsim": "pairs of words", "sts": sentences}.get(task, "queries")
