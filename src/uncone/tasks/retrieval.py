"""Retrieval: do the documents nearest to a query answer it?

Retrieval with and without each repair: of queries and documents, and of documents alone.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from uncone.errors import InputError
from uncone.tasks.encoded import Encoding, Texts
from uncone.tasks.fitting import FittedRepairs
from uncone.tasks.found import Found, Settings, mean_differences
from uncone.tasks.retrieval_data import RetrievalData, read_retrieval
from uncone.tasks.search import nearest, unit
from uncone.tasks.vector_cache import texts_digest

Scores = npt.NDArray[np.float64]
_DEPTH = 100


@dataclass(frozen=True)
class PerQuery:
    """What each query scored, in the order of the queries, in [0, 1]; higher is better."""

    ndcg10: Scores
    recall100: Scores

    def __getitem__(self, chosen: Any) -> "PerQuery":
        return PerQuery(self.ndcg10[chosen], self.recall100[chosen])

    def means(self) -> dict[str, float]:
        """The mean over the queries."""
        return {"ndcg10": float(self.ndcg10.mean()), "recall100": float(self.recall100.mean())}


def retrieve(
    queries: npt.NDArray[Any],
    documents: npt.NDArray[Any],
    data: RetrievalData,
    query_ids: Sequence[str],
    *,
    split: str,
) -> PerQuery:
    """nDCG@10 and recall@100 of an exact search by inner product, per query, through ir-measures.

    nDCG@10 = DCG of the first ten over the DCG of the best order, gain = relevance, discount log2(rank + 1) (Jarvelin &
    Kekalainen 2002, as trec_eval has it). Of equal scores the document that stands first in the corpus ranks first. A document
    with the id and the text of the query itself is not counted as found (it is its own answer in some sets).

    Args:
        queries: (Q, D) vectors of `query_ids`; for cosine of length 1.
        documents: (N, D) vectors of the corpus in its order; for cosine of length 1.
        data: from `read_retrieval`.
        query_ids: which queries.
        split: whose judgements.

    Raises:
        InputError: the extra is not installed (`pip install 'uncone[evaluate]'`), or widths that differ.
    """
    _, ids = nearest(queries, documents, _DEPTH + 1)
    own = {query: data.documents[at] for at, query in enumerate(data.document_ids) if query in data.queries}
    run = {}
    for query, numbers in zip(query_ids, ids.tolist(), strict=True):
        is_itself = own.get(query) == data.queries[query]
        found = [data.document_ids[at] for at in numbers]
        kept = [document for document in found if not (is_itself and document == query)][:_DEPTH]
        # Ranks instead of scores: the order is then the one above, however the library treats equal scores.
        run[query] = {document: float(_DEPTH - rank) for rank, document in enumerate(kept)}
    return _measured({query: data.judged[split][query] for query in query_ids}, run)


def _measured(judged: Mapping[str, Mapping[str, int]], run: Mapping[str, Mapping[str, float]]) -> PerQuery:
    try:
        import ir_measures
    except ImportError as error:
        raise InputError("retrieval is measured by ir-measures: pip install 'uncone[evaluate]'") from error
    wanted = {"ndcg10": ir_measures.nDCG @ 10, "recall100": ir_measures.R @ _DEPTH}
    place = {query: at for at, query in enumerate(run)}
    found = {measure: np.zeros(len(run)) for measure in wanted.values()}
    for metric in ir_measures.iter_calc(list(wanted.values()), judged, run):
        found[metric.measure][place[metric.query_id]] = metric.value
    return PerQuery(**{name: found[measure] for name, measure in wanted.items()})


NamedScores = dict[str, npt.NDArray[np.float64]]
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
    encoding: Encoding,
    directory: str | os.PathLike[str],
    names: Sequence[str],
    settings: Settings,
    *,
    inner: bool = True,
) -> Corpus:
    """Read and encode the documents, and fit the repairs on them; without `inner` those for cosine alone."""
    data = read_retrieval(directory)
    documents = encoding.texts(data.documents, role="document", tick=settings.tell("encoding documents"))
    cosine = encoding.fit(names, documents.cosine, fitted_on="the documents", tick=settings.progress)
    if documents.inner is documents.cosine or not inner:
        return Corpus(data, documents, cosine, cosine)
    return Corpus(
        data,
        documents,
        cosine,
        encoding.fit(names, documents.inner, fitted_on="the documents", tick=settings.progress),
    )


def ranked(
    encoding: Encoding,
    corpus: Corpus,
    split: str,
    queries: Sequence[str],
    settings: Settings,
    *,
    inner: bool = True,
) -> dict[str, NamedScores]:
    """Per-query scores of every repair and measure, over `queries` of `split`; without `inner` those for cosine alone."""
    if len(queries) < 2:
        raise InputError(
            f"expected at least two queries in qrels/{split}.tsv of {corpus.data.name}, got {len(queries)}"
        )
    asked = encoding.texts(
        [corpus.data.queries[query] for query in queries],
        role="query",
        tick=settings.tell("encoding queries"),
    )
    found = dict[str, NamedScores]()
    for at, name in enumerate(corpus.names()):
        if settings.progress is not None:
            settings.progress(f"searching with {name}", at, len(corpus.names()))
        found[name] = _ranked(corpus, name, asked, split, queries, inner=inner)
    return found


def _ranked(
    corpus: Corpus, name: str, asked: Texts, split: str, queries: Sequence[str], *, inner: bool
) -> NamedScores:
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
        scores |= _named(
            retrieve(asked.inner, documents, corpus.data, queries, split=split), "_inner_documents"
        )
    return scores


def _named(scores: PerQuery, suffix: str) -> NamedScores:
    return {f"ndcg10{suffix}": scores.ndcg10, f"recall100{suffix}": scores.recall100}
