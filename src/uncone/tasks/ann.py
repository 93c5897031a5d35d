"""Quantised search: how many of the exact nearest neighbours are still found when the documents' vectors are stored in few bits.

Recall of quantised search with and without each repair.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch

from uncone.errors import InputError
from uncone.rows import as_rows
from uncone.tasks.encoded import Encoding, Texts
from uncone.tasks.fitting import FittedRepairs, finite_rows, fit_repairs
from uncone.tasks.found import Found, Settings, mean_differences
from uncone.tasks.retrieval_data import read_retrieval
from uncone.tasks.search import nearest, unit
from uncone.tasks.vector_cache import texts_digest
from uncone.transforms.fitted import digest

Array = npt.NDArray[np.float32]
Quantiser = Literal["int8", "int8_uniform", "pq", "binary", "binary_hamming"]
QUANTISERS: tuple[Quantiser, ...] = ("int8", "int8_uniform", "pq", "binary", "binary_hamming")
DEFINITIONS = {
    "int8": "8 bits a feature, each feature with its own range (faiss QT_8bit)",
    "int8_uniform": "8 bits a feature, all features with one range (faiss QT_8bit_uniform)",
    "pq": "product quantisation, 8 bits for about 8 features (faiss)",
    "binary": "1 bit a feature, its sign; the query keeps its numbers",
    "binary_hamming": "1 bit a feature, its sign, of the query too (Hamming distance)",
}
_FEATURES_A_CODE = 8


def exact_neighbours(
    queries: npt.NDArray[Any], documents: npt.NDArray[Any], *, k: int = 10
) -> npt.NDArray[np.int64]:
    """The numbers (Q, k) of the documents with the highest inner products."""
    return nearest(queries, documents, k)[1]


def quantised_neighbours(
    queries: npt.NDArray[Any],
    documents: npt.NDArray[Any],
    quantiser: Quantiser,
    *,
    k: int = 10,
    seed: int = 0,
) -> npt.NDArray[np.int64]:
    """As `exact_neighbours`, of documents that went through a quantiser and back; it is trained on the documents.

    The queries stay as they are (asymmetric distances, as Faiss computes them) but for `binary_hamming`. Every document is
    compared, so what is lost is lost by the quantiser and not by an index.

    Args:
        queries: (Q, D) vectors; for cosine of length 1.
        documents: (N, D) vectors.
        quantiser: one of `QUANTISERS`; `DEFINITIONS` says what each is.
        k: how many.
        seed: of the product quantiser's k-means.

    Raises:
        InputError: the extra is not installed (`pip install 'uncone[faiss]'`), or fewer than 256 documents for "pq".
    """
    x, y = (np.ascontiguousarray(given, np.float32) for given in (queries, documents))
    if quantiser == "binary_hamming":
        x = _signs(x)
    stored = _signs(y) if quantiser.startswith("binary") else _through_faiss(y, quantiser, seed)
    return nearest(x, stored, k)[1]


def overlap(found: npt.NDArray[np.int64], truth: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """The share of each row of `truth` (Q, k) that is in the same row of `found` (Q, K), (Q,) in [0, 1]: recall@k."""
    return np.asarray((truth[:, :, None] == found[:, None, :]).any(axis=2).mean(axis=1))


def _signs(x: Array) -> Array:
    return np.where(x > 0, np.float32(1), np.float32(-1))


def _through_faiss(documents: Array, quantiser: str, seed: int) -> Array:
    try:
        import faiss
    except ImportError as error:
        raise InputError(
            f"the quantiser {quantiser} is that of Faiss: pip install 'uncone[faiss]'"
        ) from error
    n, d = documents.shape
    makers: dict[str, Callable[[], Any]] = {
        "int8": lambda: faiss.IndexScalarQuantizer(d, faiss.ScalarQuantizer.QT_8bit),
        "int8_uniform": lambda: faiss.IndexScalarQuantizer(d, faiss.ScalarQuantizer.QT_8bit_uniform),
        "pq": lambda: _product_quantiser(faiss, n, d, seed),
    }
    if quantiser not in makers:
        raise InputError(f"expected a quantiser out of {', '.join(QUANTISERS)}, got {quantiser!r}")
    index = makers[quantiser]()
    index.train(documents)
    return np.asarray(index.sa_decode(index.sa_encode(documents)), np.float32)


def _product_quantiser(faiss: Any, n: int, d: int, seed: int) -> Any:
    if n < 256:
        raise InputError(
            f"expected at least 256 documents for product quantisation with 8 bits, got {n}: use more"
        )
    codes = next(count for count in range(max(1, d // _FEATURES_A_CODE), 0, -1) if d % count == 0)
    index = faiss.IndexPQ(d, codes, 8)
    index.pq.cp.seed = seed + 1234  # Faiss' own where seed is 0
    index.pq.cp.niter = 10  # of Faiss' 25: the last ones take most of the time and change little
    index.pq.cp.min_points_per_centroid = 1  # else it warns on standard error of sets below 10,000 documents
    return index


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


def evaluate_ann(
    encoding: Encoding, directory: str | os.PathLike[str], names: Sequence[str], settings: Settings
) -> Found:
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
    found.provenance |= {
        "documents_sha256": digest(as_rows(documents)),
        "queries_sha256": digest(as_rows(asked)),
    }
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
        found.note(
            f"Product quantisation is left out: it needs 256 documents, there are {len(documents.cosine)}."
        )
    recalls = {
        name: _recalls(sides, name, usable, settings, (at, len(repairs))) for at, name in enumerate(repairs)
    }
    for quantiser in usable:
        per_query = {name: recalls[name][quantiser] for name in repairs}
        found.results[quantiser] = {
            name: {measure: float(scores.mean()) for measure, scores in measures.items()}
            | {"n": len(queries.cosine)}
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
    queries, documents = (
        unit(sides.cosine.apply(name, x)) for x in (sides.queries.cosine, sides.documents.cosine)
    )
    own = exact_neighbours(queries, documents, k=_K)
    inner_truth = exact_neighbours(sides.queries.inner, sides.documents.inner, k=_K)
    stored, moved = (
        sides.inner.apply(name, x, timed=False) for x in (sides.documents.inner, sides.queries.inner)
    )
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
        if (
            len(asked) > len(moved) and quantiser != "binary_hamming"
        ):  # signs of queries that were not moved would mean others
            recalls[quantiser]["recall10_inner_documents"] = overlap(found[len(moved) :], inner_truth)
    return recalls
