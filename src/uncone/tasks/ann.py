"""Quantised search: the exact neighbours still found among vectors of few bits, for each repair."""

import os
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch

from uncone.errors import InputError
from uncone.rows import as_rows
from uncone.tasks.encoding import Encoding, Repairs, Texts, fit_both, texts_digest
from uncone.tasks.fitting import finite_rows, fit_repairs
from uncone.tasks.results import Scores, Settings, TaskResult
from uncone.tasks.retrieval import read_retrieval
from uncone.tasks.search import nearest, unit
from uncone.transforms.faiss import need_faiss
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
_LEAST_OF_PQ = 256
_HELD_OUT = 1000
_K = 10
_WAYS = (
    "recall10: cosine; the exact ten of the original vectors that are found. recall10_own: the same of the "
    "exact ten under the repair, so what quantisation alone loses. recall10_inner: inner products of "
    "repaired queries with repaired documents; recall10_inner_documents: of repaired documents with queries "
    "as they are."
)


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
    """As `exact_neighbours`, of documents that went through a quantiser, trained on them, and back.

    The queries stay as they are (asymmetric distances, as Faiss computes them) but for `binary_hamming`.
    Every document is compared, so what is lost is lost by the quantiser and not by an index.

    Args:
        queries: (Q, D) vectors; for cosine of length 1.
        documents: (N, D) vectors.
        quantiser: one of `QUANTISERS`; `DEFINITIONS` says what each is.
        k: how many.
        seed: of the product quantiser's k-means.

    Raises:
        InputError: the extra is not installed (`pip install 'uncone[faiss]'`), or fewer than 256 documents
            for "pq".
    """
    x, y = (np.ascontiguousarray(given, np.float32) for given in (queries, documents))
    if quantiser == "binary_hamming":
        x = _signs(x)
    stored = _signs(y) if quantiser.startswith("binary") else _through_faiss(y, quantiser, seed)
    return nearest(x, stored, k)[1]


def overlap(neighbours: npt.NDArray[np.int64], truth: npt.NDArray[np.int64]) -> Scores:
    """recall@k: the share of each row of `truth` (Q, k) in the same row of `neighbours` (Q, K); (Q,)."""
    return np.asarray((truth[:, :, None] == neighbours[:, None, :]).any(axis=2).mean(axis=1))


def _signs(x: Array) -> Array:
    return np.where(x > 0, np.float32(1), np.float32(-1))


def _through_faiss(documents: Array, quantiser: str, seed: int) -> Array:
    if quantiser not in QUANTISERS:
        raise InputError(
            f"expected a quantiser out of {', '.join(QUANTISERS)}, got {quantiser!r}: choose among these"
        )
    faiss = need_faiss(f"the quantiser {quantiser}")
    n, d = documents.shape
    if quantiser != "pq":
        kind = faiss.ScalarQuantizer.QT_8bit if quantiser == "int8" else faiss.ScalarQuantizer.QT_8bit_uniform
        index: Any = faiss.IndexScalarQuantizer(d, kind)
    else:
        if n < _LEAST_OF_PQ:
            raise InputError(
                f"expected at least {_LEAST_OF_PQ} documents for product quantisation (8 bits), got {n}: "
                "use more"
            )
        codes = next(count for count in range(max(1, d // _FEATURES_A_CODE), 0, -1) if d % count == 0)
        index = faiss.IndexPQ(d, codes, 8)
        index.pq.cp.seed = seed + 1234  # Faiss' own where seed is 0
        index.pq.cp.niter = 10  # of Faiss' 25: the last ones take most of the time and change little
        # else it warns on standard error of sets below 10,000 documents
        index.pq.cp.min_points_per_centroid = 1
    index.train(documents)
    return np.asarray(index.sa_decode(index.sa_encode(documents)), np.float32)


def evaluate_ann(
    encoding: Encoding, directory: str | os.PathLike[str], names: Sequence[str], settings: Settings
) -> TaskResult:
    """The corpus and test queries of a directory in the layout of BEIR."""
    data = read_retrieval(directory)
    documents = encoding.texts(data.documents, role="document", tick=settings.tick("encoding documents"))
    asked = data.texts_of(data.query_ids("test"))
    queries = encoding.texts(asked, role="query", tick=settings.tick("encoding queries"))
    result = _evaluate(queries, documents, names, settings)
    result.provenance |= encoding.provenance() | {
        "documents_sha256": texts_digest(data.documents),
        "queries_sha256": texts_digest(asked),
    }
    result.note(*encoding.notes())
    return result


def evaluate_ann_of_rows(spec: Any, queries: Any, names: Sequence[str], settings: Settings) -> TaskResult:
    """Stored vectors, searched with `queries`; without, with up to 1,000 of their own, taken out first."""
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
    result = _evaluate(Texts(asked, asked), Texts(documents, documents), names, settings)
    result.provenance |= {
        "documents_sha256": digest(as_rows(documents)),
        "queries_sha256": digest(as_rows(asked)),
    }
    if queries is None:
        result.note(
            f"{len(asked)} of the rows, drawn with seed {settings.seed}, are taken out and asked for."
        )
    return result


def _whole(spec: Any) -> npt.NDArray[Any]:
    rows = finite_rows(spec)
    return np.asarray(torch.cat([block.clone() for block in rows.blocks()]).numpy(), np.float32)


def _evaluate(queries: Texts, documents: Texts, names: Sequence[str], settings: Settings) -> TaskResult:
    repairs = fit_both(
        lambda x: fit_repairs(names, x, fitted_on="the documents", tick=settings.progress), documents
    )
    n, result = len(documents.cosine), TaskResult()
    result.provenance |= {"documents": n, "queries": len(queries.cosine)}
    usable = [quantiser for quantiser in QUANTISERS if quantiser != "pq" or n >= _LEAST_OF_PQ]
    if "pq" not in usable:
        result.note(f"Product quantisation is left out: it needs {_LEAST_OF_PQ} documents, there are {n}.")
    tested = repairs.names()
    recalls = {
        name: _recalls(queries, documents, repairs, name, usable, settings, (at, len(tested)))
        for at, name in enumerate(tested)
    }
    for quantiser in usable:
        per_query = {name: recalls[name][quantiser] for name in tested}
        result.add_means(quantiser, per_query, len(queries.cosine), settings)
        result.prices[quantiser] = repairs.cosine.prices()
        result.note(f"{quantiser}: {DEFINITIONS[quantiser]}.")
    result.note(*repairs.cosine.notes, _WAYS)
    return result


def _recalls(
    queries: Texts,
    documents: Texts,
    repairs: Repairs,
    name: str,
    quantisers: Sequence[Quantiser],
    settings: Settings,
    place: tuple[int, int],
) -> dict[str, dict[str, Scores]]:
    """Per-query recalls of one repair: quantiser -> measure -> (queries,)."""
    truth = exact_neighbours(unit(queries.cosine), unit(documents.cosine), k=_K)
    x, y = (unit(repairs.cosine.apply(name, texts.cosine)) for texts in (queries, documents))
    own = exact_neighbours(x, y, k=_K)
    inner_truth = exact_neighbours(queries.inner, documents.inner, k=_K)
    stored, moved = (repairs.inner.apply(name, texts.inner, timed=False) for texts in (documents, queries))
    # Both kinds of queries at once: the documents are quantised once.
    asked = np.concatenate((moved, queries.inner)) if repairs.inner.keeps_axes(name) else moved
    recalls = dict[str, dict[str, Scores]]()
    for quantiser in quantisers:
        if settings.progress is not None:
            settings.progress(f"{quantiser} with {name}", *place)
        near = quantised_neighbours(x, y, quantiser, k=_K, seed=settings.seed)
        inner = quantised_neighbours(asked, stored, quantiser, k=_K, seed=settings.seed)
        recalls[quantiser] = {
            "recall10": overlap(near, truth),
            "recall10_own": overlap(near, own),
            "recall10_inner": overlap(inner[: len(moved)], inner_truth),
        }
        # signs of queries that were not moved would mean others
        if len(asked) > len(moved) and quantiser != "binary_hamming":
            recalls[quantiser]["recall10_inner_documents"] = overlap(inner[len(moved) :], inner_truth)
    return recalls
