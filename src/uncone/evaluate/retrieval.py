"""Retrieval: do the documents nearest to a query answer it?"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from uncone.errors import InputError
from uncone.evaluate.retrieval_data import RetrievalData
from uncone.evaluate.search import nearest

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
    queries: npt.NDArray[Any], documents: npt.NDArray[Any], data: RetrievalData, query_ids: Sequence[str], *, split: str
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
