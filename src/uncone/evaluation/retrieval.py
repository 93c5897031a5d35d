"""Retrieval with and without each repair: of queries and documents, and of documents alone."""

import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from uncone.errors import InputError
from uncone.evaluate.retrieval import PerQuery, retrieve
from uncone.evaluate.retrieval_data import RetrievalData, read_retrieval
from uncone.evaluate.search import unit
from uncone.evaluate.vector_cache import texts_digest
from uncone.evaluation.encoded import Encoding, Texts
from uncone.evaluation.fitting import FittedRepairs
from uncone.evaluation.found import Found, Settings, mean_differences

Scores = dict[str, npt.NDArray[np.float64]]
DOCUMENTS_ONLY = (
    "inner_documents: inner products of repaired documents with queries as they are. Left out where a repair turns the axes "
    "(whiten_pca), since the two sides would no longer mean the same."
)


@dataclass(frozen=True)
class Corpus:
    """The documents' vectors, and the repairs fitted on them for cosine and for inner products."""

    data: RetrievalData
    documents: Texts
    cosine: FittedRepairs
    inner: FittedRepairs

    def names(self) -> tuple[str, ...]:
        """The original and every repair that could be fitted."""
        return tuple(name for name in self.cosine.names() if name in self.inner.names())


def evaluate_retrieval(
    encoding: Encoding, directory: str | os.PathLike[str], names: Sequence[str], settings: Settings
) -> Found:
    """nDCG@10 and recall@100 on the queries of qrels/test.tsv; repairs are fitted on the corpus."""
    corpus = open_corpus(encoding, directory, names, settings)
    queries = corpus.data.query_ids("test")
    per_query = ranked(encoding, corpus, "test", queries, settings)
    found = Found(provenance=encoding.provenance())
    name = corpus.data.name.rpartition("/")[2]
    found.provenance |= {
        f"{name}_sha256": texts_digest(corpus.data.documents),
        "queries_sha256": texts_digest([corpus.data.queries[query] for query in queries]),
        "documents": len(corpus.data.documents),
    }
    found.results[name] = {
        repair: {measure: float(scores.mean()) for measure, scores in measures.items()} | {"n": len(queries)}
        for repair, measures in per_query.items()
    }
    found.differences[name] = mean_differences(per_query, settings)
    found.prices[name] = corpus.cosine.prices()
    found.note(*corpus.cosine.notes, DOCUMENTS_ONLY, *encoding.notes())
    return found


def open_corpus(
    encoding: Encoding, directory: str | os.PathLike[str], names: Sequence[str], settings: Settings, *, inner: bool = True
) -> Corpus:
    """Read and encode the documents, and fit the repairs on them; without `inner` those for cosine alone."""
    data = read_retrieval(directory)
    documents = encoding.texts(data.documents, role="document", tick=settings.tell("encoding documents"))
    cosine = encoding.fit(names, documents.cosine, fitted_on="the documents", tick=settings.progress)
    if documents.inner is documents.cosine or not inner:
        return Corpus(data, documents, cosine, cosine)
    return Corpus(
        data, documents, cosine, encoding.fit(names, documents.inner, fitted_on="the documents", tick=settings.progress)
    )


def ranked(
    encoding: Encoding, corpus: Corpus, split: str, queries: Sequence[str], settings: Settings, *, inner: bool = True
) -> dict[str, Scores]:
    """Per-query scores of every repair and measure, over `queries` of `split`; without `inner` those for cosine alone."""
    if len(queries) < 2:
        raise InputError(f"expected at least two queries in qrels/{split}.tsv of {corpus.data.name}, got {len(queries)}")
    asked = encoding.texts(
        [corpus.data.queries[query] for query in queries], role="query", tick=settings.tell("encoding queries")
    )
    found = dict[str, Scores]()
    for at, name in enumerate(corpus.names()):
        if settings.progress is not None:
            settings.progress(f"searching with {name}", at, len(corpus.names()))
        found[name] = _ranked(corpus, name, asked, split, queries, inner=inner)
    return found


def _ranked(corpus: Corpus, name: str, asked: Texts, split: str, queries: Sequence[str], *, inner: bool) -> Scores:
    cosine = retrieve(
        unit(corpus.cosine.apply(name, asked.cosine)), unit(corpus.cosine.apply(name, corpus.documents.cosine)),
        corpus.data, queries, split=split,
    )  # fmt: skip
    scores = _named(cosine, "")
    if not inner:
        return scores
    documents = corpus.inner.apply(name, corpus.documents.inner, timed=False)
    both = corpus.inner.apply(name, asked.inner, timed=False)
    scores |= _named(retrieve(both, documents, corpus.data, queries, split=split), "_inner")
    if corpus.inner.keeps_axes(name):
        scores |= _named(retrieve(asked.inner, documents, corpus.data, queries, split=split), "_inner_documents")
    return scores


def _named(scores: PerQuery, suffix: str) -> Scores:
    return {f"ndcg10{suffix}": scores.ndcg10, f"recall100{suffix}": scores.recall100}
