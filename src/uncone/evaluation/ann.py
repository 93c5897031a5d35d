"""Quantised search: the exact neighbours still found among vectors of few bits, under each repair."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from uncone.errors import expect
from uncone.evaluation.encoding import Encoding, texts_digest, unit
from uncone.evaluation.fitting import Texts, finite_rows, fit_repairs
from uncone.evaluation.results import Settings, TaskResult
from uncone.evaluation.retrieval import nearest, read_retrieval
from uncone.roles import Path_
from uncone.rows import Array, as_rows
from uncone.transforms.faiss import need_faiss
from uncone.transforms.fitting import digest

Quantiser = Literal["int8", "int8_uniform", "pq", "binary", "binary_hamming"]
DEFINITIONS: dict[Quantiser, str] = {
    "int8": "8 bits per feature, each feature with its own range (faiss QT_8bit)",
    "int8_uniform": "8 bits per feature, all features with one range (faiss QT_8bit_uniform)",
    "pq": "product quantisation, 8 bits for about 8 features (faiss)",
    "binary": "1 bit per feature, its sign; the query keeps its numbers",
    "binary_hamming": "1 bit per feature, its sign, for the query too (Hamming distance)",
}
QUANTISERS = tuple(DEFINITIONS)
_LEAST_OF_PQ = 256
K = 10
_WAYS = (
    "recall10: of the ten documents nearest to a query by cosine, unrepaired and not quantised, the share that the "
    "quantised search finds. recall10_own: the same share of the ten nearest after queries and documents are "
    "repaired, so it shows what quantisation alone loses. recall10_inner: recall10 by inner products. "
    "recall10_inner_documents: recall10_inner where only the documents are repaired."
)


def quantised_neighbours(queries: Array, documents: Array, quantiser: Quantiser, *, k: int = K, seed: int = 0) -> Array:
    """`nearest` among documents that were quantised and decoded; the quantiser is trained on them. No index loses any,
    as every document is compared. Only "binary_hamming" changes the queries. `seed` is for the k-means of "pq"."""
    x, y = (np.ascontiguousarray(given, np.float32) for given in (queries, documents))
    stored = _signs(y) if quantiser.startswith("binary") else _through_faiss(y, quantiser, seed)
    return nearest(_signs(x) if quantiser == "binary_hamming" else x, stored, k)


def overlap(neighbours: Array, truth: Array) -> Array:
    """The share (Q,) of each row of `truth` (Q, k) in the same row of `neighbours` (Q, K)."""
    return np.asarray((truth[:, :, None] == neighbours[:, None, :]).any(axis=2).mean(axis=1))


def _signs(x: Array) -> Array:
    return np.where(x > 0, np.float32(1), np.float32(-1))


def _through_faiss(documents: Array, quantiser: str, seed: int) -> Array:
    faiss = need_faiss(f"the quantiser {quantiser}")
    n, d = documents.shape
    if quantiser != "pq":
        kind = "QT_8bit" if quantiser == "int8" else "QT_8bit_uniform"
        index: Any = faiss.IndexScalarQuantizer(d, getattr(faiss.ScalarQuantizer, kind))
    else:
        expect(n >= _LEAST_OF_PQ, f"at least {_LEAST_OF_PQ} documents for pq (8 bits), got {n}: use more")
        index = faiss.IndexPQ(d, next(count for count in range(max(1, d // 8), 0, -1) if d % count == 0), 8)
        index.pq.cp.seed = seed + 1234  # Faiss' default where seed is 0
        index.pq.cp.niter = 10  # Faiss' other 15 take most of the time and change little
        index.pq.cp.min_points_per_centroid = 1  # else it warns of sets below 10,000 documents
    index.train(documents)
    return np.asarray(index.sa_decode(index.sa_encode(documents)), np.float32)


def quantiser_names(names: Sequence[str] | None) -> tuple[Quantiser, ...]:
    """All by default. InputError: there is no such quantiser."""
    names = QUANTISERS if names is None else tuple(dict.fromkeys([names] if isinstance(names, str) else names))
    among, unknown = f"quantisers out of {', '.join(QUANTISERS)}", next((x for x in names if x not in QUANTISERS), None)
    expect(len(names) > 0, f"{among}, got none: name at least one, or leave them out for all")
    expect(unknown is None, f"{among}, got {unknown!r}: correct it")
    return tuple(name for name in QUANTISERS if name in names)


def evaluate_ann(encoding: Encoding, directory: Path_, settings: Settings) -> TaskResult:
    data = read_retrieval(directory)
    documents = encoding.texts(data.documents, role="document", tick=settings.tick("encoding documents"))
    asked = data.texts_of(data.query_ids("test"))
    result = _evaluate(encoding.texts(asked, role="query", tick=settings.tick("encoding queries")), documents, settings)
    result.provenance |= encoding.provenance()
    result.provenance |= {"documents_sha256": texts_digest(data.documents), "queries_sha256": texts_digest(asked)}
    result.notes += encoding.notes()
    return result


def evaluate_ann_of_rows(spec: Any, queries: Any, settings: Settings) -> TaskResult:
    """Search stored vectors with `queries`, or else with up to 1,000 of their own rows, taken out first."""
    documents = _whole(spec)
    if queries is None:
        count = min(1000, len(documents) // 10)
        order = np.random.Generator(np.random.PCG64(settings.seed)).permutation(len(documents))
        asked, documents = documents[np.sort(order[:count])], documents[np.sort(order[count:])]
    else:
        asked = _whole(queries)
    way = "name queries made by the same encoder with --queries"
    fits, d = len(asked) > 1 and asked.shape[1] == documents.shape[1], documents.shape[1]
    expect(fits, f"at least two queries of {d} features, got shape {asked.shape}: {way}")
    result = _evaluate(Texts(asked, asked), Texts(documents, documents), settings)
    result.provenance |= {"documents_sha256": digest(as_rows(documents)), "queries_sha256": digest(as_rows(asked))}
    if queries is None:
        result.notes += [f"{len(asked)} rows, drawn with seed {settings.seed}, were taken out as queries."]
    return result


def _whole(spec: Any) -> Array:
    return np.concatenate([block.astype(np.float32) for block in finite_rows(spec).blocks()])


def _evaluate(queries: Texts, documents: Texts, settings: Settings) -> TaskResult:
    repairs = fit_repairs(settings.names, documents, fitted_on="the documents", tick=settings.progress)
    n, result = len(documents.cosine), TaskResult()
    result.provenance |= {"documents": n, "queries": len(queries.cosine)}
    usable = list(settings.quantisers)
    if n < _LEAST_OF_PQ and "pq" in usable:
        expect(len(usable) > 1, f"at least {_LEAST_OF_PQ} documents for pq (8 bits), got {n}: use more")
        usable.remove("pq")
        result.notes += [f"Product quantisation is left out: it needs {_LEAST_OF_PQ} documents, got {n}."]
    truth = nearest(unit(queries.cosine), unit(documents.cosine), K)
    inner_truth = nearest(queries.inner, documents.inner, K)
    recalls: dict[Quantiser, dict[str, dict[str, Array]]] = {quantiser: {} for quantiser in usable}
    for at, name in enumerate(repairs.names()):
        asked, stored = (repairs.apply(name, texts) for texts in (queries, documents))
        x, y = unit(asked.cosine), unit(stored.cosine)
        own = nearest(x, y, K)
        # both kinds of queries at once, so that documents are quantised once
        both = np.concatenate((asked.inner, queries.inner)) if repairs.keeps_axes(name) else asked.inner
        for quantiser in usable:
            settings.progress(f"{quantiser} with {name}", at, len(repairs.names()))
            near = quantised_neighbours(x, y, quantiser, seed=settings.seed)
            inner = quantised_neighbours(both, stored.inner, quantiser, seed=settings.seed)
            found = recalls[quantiser][name] = {"recall10": overlap(near, truth), "recall10_own": overlap(near, own)}
            found["recall10_inner"] = overlap(inner[: len(x)], inner_truth)
            unmoved = inner[len(x) :]
            if len(unmoved) and quantiser != "binary_hamming":  # their signs would mean something else
                found["recall10_inner_documents"] = overlap(unmoved, inner_truth)
    for quantiser, per_query in recalls.items():
        result.add_means(quantiser, per_query, len(queries.cosine), settings)
        result.prices[quantiser] = repairs.prices()
        result.notes += [f"{quantiser}: {DEFINITIONS[quantiser]}."]
    result.notes += [*repairs.notes, _WAYS]
    return result
