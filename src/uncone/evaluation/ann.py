"""Recall of quantised search with and without each repair."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from uncone.errors import InputError
from uncone.evaluate.ann import DEFINITIONS, QUANTISERS, Quantiser, exact_neighbours, overlap, quantised_neighbours
from uncone.evaluate.retrieval_data import read_retrieval
from uncone.evaluate.search import unit
from uncone.evaluate.vector_cache import texts_digest
from uncone.evaluation.encoded import Encoding, Texts
from uncone.evaluation.fitting import FittedRepairs, finite_rows, fit_repairs
from uncone.evaluation.found import Found, Settings, mean_differences
from uncone.repair.fitted import digest
from uncone.rows import as_rows

_HELD_OUT = 1000
_K = 10
_WAYS = (
    "recall10: cosine; the exact ten of the original vectors that are found. recall10_own: the same of the exact ten under the "
    "repair, so what quantisation alone loses. recall10_inner: inner products of repaired queries with repaired documents; "
    "recall10_inner_documents: of repaired documents with queries as they are.",
)


@dataclass(frozen=True)
class _Sides:
    """Queries and documents, and the repairs fitted on the documents for cosine and for inner products."""

    queries: Texts
    documents: Texts
    cosine: FittedRepairs
    inner: FittedRepairs


def evaluate_ann(encoding: Encoding, directory: str | os.PathLike[str], names: Sequence[str], settings: Settings) -> Found:
    """The corpus and test queries of a directory in the layout of BEIR."""
    data = read_retrieval(directory)
    documents = encoding.texts(data.documents, role="document", tick=settings.tell("encoding documents"))
    texts = [data.queries[query] for query in data.query_ids("test")]
    queries = encoding.texts(texts, role="query", tick=settings.tell("encoding queries"))
    found = _evaluate(queries, documents, names, settings)
    found.provenance |= encoding.provenance() | {
        "documents_sha256": texts_digest(data.documents),
        "queries_sha256": texts_digest(texts),
    }
    found.note(*encoding.notes())
    return found


def evaluate_ann_of_rows(spec: Any, queries: Any, names: Sequence[str], settings: Settings) -> Found:
    """Stored vectors `spec`, searched with those of `queries`; without these, with up to 1,000 of its own rows, taken out first."""
    documents = _whole(spec)
    if queries is None:
        count = min(_HELD_OUT, len(documents) // 10)
        order = np.random.Generator(np.random.PCG64(settings.seed)).permutation(len(documents))
        asked, documents = documents[np.sort(order[:count])], documents[np.sort(order[count:])]
    else:
        asked = _whole(queries)
    if len(asked) < 2 or asked.shape[1] != documents.shape[1]:
        raise InputError(
            f"expected at least two queries of {documents.shape[1]} features, got shape {asked.shape}: "
            "name a file of queries made by the same encoder with --data"
        )
    found = _evaluate(Texts(asked, asked), Texts(documents, documents), names, settings)
    found.provenance |= {"documents_sha256": digest(as_rows(documents)), "queries_sha256": digest(as_rows(asked))}
    if queries is None:
        found.note(f"{len(asked)} of the rows, drawn with seed {settings.seed}, are taken out and asked for.")
    return found


def _whole(spec: Any) -> npt.NDArray[Any]:
    rows = finite_rows(spec)
    return np.asarray(torch.cat([block.clone() for block in rows.blocks()]).numpy(), np.float32)


def _evaluate(queries: Texts, documents: Texts, names: Sequence[str], settings: Settings) -> Found:
    cosine = fit_repairs(names, documents.cosine, fitted_on="the documents", tick=settings.progress)
    inner = cosine
    if documents.inner is not documents.cosine:
        inner = fit_repairs(names, documents.inner, fitted_on="the documents", tick=settings.progress)
    sides = _Sides(queries, documents, cosine, inner)
    found = Found(provenance={"documents": len(documents.cosine), "queries": len(queries.cosine)})
    repairs = [name for name in cosine.names() if name in inner.names()]
    usable = [quantiser for quantiser in QUANTISERS if quantiser != "pq" or len(documents.cosine) >= 256]
    if "pq" not in usable:
        found.note(f"Product quantisation is left out: it needs 256 documents, there are {len(documents.cosine)}.")
    recalls = {name: _recalls(sides, name, usable, settings, (at, len(repairs))) for at, name in enumerate(repairs)}
    for quantiser in usable:
        per_query = {name: recalls[name][quantiser] for name in repairs}
        found.results[quantiser] = {
            name: {measure: float(scores.mean()) for measure, scores in measures.items()} | {"n": len(queries.cosine)}
            for name, measures in per_query.items()
        }
        found.differences[quantiser] = mean_differences(per_query, settings)
        found.prices[quantiser] = cosine.prices()
        found.note(f"{quantiser}: {DEFINITIONS[quantiser]}.")
    found.note(*cosine.notes, *_WAYS)
    return found


def _recalls(
    sides: _Sides, name: str, quantisers: Sequence[Quantiser], settings: Settings, place: tuple[int, int]
) -> dict[str, dict[str, npt.NDArray[np.float64]]]:
    """Per-query recalls of one repair: quantiser -> measure -> (queries,)."""
    raw_queries, raw_documents = unit(sides.queries.cosine), unit(sides.documents.cosine)
    truth = exact_neighbours(raw_queries, raw_documents, k=_K)
    queries, documents = (unit(sides.cosine.apply(name, x)) for x in (sides.queries.cosine, sides.documents.cosine))
    own = exact_neighbours(queries, documents, k=_K)
    inner_truth = exact_neighbours(sides.queries.inner, sides.documents.inner, k=_K)
    stored, moved = (sides.inner.apply(name, x, timed=False) for x in (sides.documents.inner, sides.queries.inner))
    # Both kinds of queries at once: the documents are quantised once.
    asked = np.concatenate((moved, sides.queries.inner)) if sides.inner.keeps_axes(name) else moved
    recalls = dict[str, dict[str, npt.NDArray[np.float64]]]()
    for quantiser in quantisers:
        if settings.progress is not None:
            settings.progress(f"{quantiser} with {name}", *place)
        found = quantised_neighbours(queries, documents, quantiser, k=_K, seed=settings.seed)
        recalls[quantiser] = {"recall10": overlap(found, truth), "recall10_own": overlap(found, own)}
        found = quantised_neighbours(asked, stored, quantiser, k=_K, seed=settings.seed)
        recalls[quantiser]["recall10_inner"] = overlap(found[: len(moved)], inner_truth)
        if len(asked) > len(moved) and quantiser != "binary_hamming":  # signs of queries that were not moved would mean others
            recalls[quantiser]["recall10_inner_documents"] = overlap(found[len(moved) :], inner_truth)
    return recalls
