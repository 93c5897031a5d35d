"""Retrieval: do the documents nearest to a query answer it, with and without each repair? Data are BEIR's."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from uncone.errors import InputError
from uncone.tasks.encoding import Encoding, texts_digest, unit
from uncone.tasks.fitting import Repairs, Texts
from uncone.tasks.pairs import Scores
from uncone.tasks.results import Settings, TaskResult
from uncone.tasks.text_files import find_file, objects_of, table

Array = npt.NDArray[Any]
_SCORES = 1 << 24
"""Scores held at a time: 64 MiB."""
_DOCUMENTS = 8192
_DEPTH = 100
_DOCUMENTS_ONLY = (
    "inner_documents: inner products of repaired documents with queries as they are. Left out where a repair "
    "turns the axes (whiten_pca), since the two sides would no longer mean the same."
)


@dataclass(frozen=True)
class RetrievalData:
    """Documents, the queries that some split judges, and the relevance `judged[split][query][document]`."""

    name: str
    document_ids: tuple[str, ...]
    documents: tuple[str, ...]
    """Title and text of each, joined by a space, as BEIR does."""
    queries: Mapping[str, str]
    judged: Mapping[str, Mapping[str, Mapping[str, int]]]

    def query_ids(self, split: str) -> tuple[str, ...]:
        """The queries that `split` judges with at least one relevant document, in the order of the file."""
        if split not in self.judged:
            raise InputError(
                f"expected qrels/{split}.tsv in {self.name}, got {', '.join(self.judged) or 'none'}: add it"
            )
        judged = self.judged[split].items()
        return tuple(query for query, relevant in judged if any(rank > 0 for rank in relevant.values()))

    def texts_of(self, queries: Sequence[str]) -> list[str]:
        """The texts of queries by their ids."""
        return [self.queries[query] for query in queries]


def read_retrieval(directory: str | os.PathLike[str]) -> RetrievalData:
    """Read `corpus.jsonl`, `queries.jsonl` (.xz and .gz too) and every `qrels/SPLIT.tsv` of a directory."""
    root = Path(directory)
    if not root.is_dir():
        raise InputError(f"expected a directory in BEIR's layout, got {root}: name the one with corpus.jsonl")
    corpus, queries = find_file(root, "corpus.jsonl"), find_file(root, "queries.jsonl")
    qrels = sorted((root / "qrels").glob("*.tsv*"))
    files = {"corpus.jsonl": corpus, "queries.jsonl": queries, "qrels/test.tsv": qrels}
    missing = [name for name, there in files.items() if not there]
    if corpus is None or queries is None or missing:
        raise InputError(f"expected {', '.join(missing)} in {root}, got no such file: give a BEIR data set")
    documents, asked = dict(_texts(corpus)), dict(_texts(queries))
    judged = {file.name.split(".")[0]: _judgements(file, documents, asked) for file in qrels}
    wanted = dict.fromkeys(query for split in judged.values() for query in split)
    return RetrievalData(
        "/".join(root.resolve().parts[-2:]),
        tuple(documents),
        tuple(documents.values()),
        {query: asked[query] for query in wanted},
        judged,
    )


def _texts(file: Path) -> Iterator[tuple[str, str]]:
    """(id, title and text) of each object."""
    seen = set[str]()
    for where, entry in objects_of(file):
        key, text, title = entry.get("_id"), entry.get("text"), entry.get("title")
        if not isinstance(key, str) or not isinstance(text, str):
            raise InputError(f'expected strings "_id", "text" in {where}, got {str(entry)[:60]!r}: add them')
        if key in seen:
            raise InputError(f"expected unique ids, got {key[:60]!r} again in {where}: rename one")
        seen.add(key)
        yield key, f"{title} {text}".strip() if isinstance(title, str) and title else text
    if not seen:
        raise InputError(f"expected at least one text in {file}, got none: copy it again")


def _judgements(
    file: Path, documents: Mapping[str, str], queries: Mapping[str, str]
) -> dict[str, dict[str, int]]:
    judged = dict[str, dict[str, int]]()
    for where, (query, document, rank) in table(file, ("query-id", "corpus-id", "score"), delimiter="\t"):
        try:
            relevance = int(rank)
        except ValueError:
            raise InputError(f"expected an integer in {where}, got {rank[:40]!r}: 0 is irrelevant") from None
        for what, key, known in (("query", query, queries), ("document", document, documents)):
            if key not in known:
                raise InputError(f"expected known ids, got the {what} {key[:60]!r} in {where}: copy it again")
        judged.setdefault(query, {})[document] = relevance
    return judged


def nearest(queries: Array, documents: Array, k: int) -> npt.NDArray[np.int64]:
    """The numbers (Q, min(k, N)) of the documents (N, D) with the highest inner product of queries (Q, D).

    Highest first, ties by number; for cosine both are of length 1.
    """
    if queries.shape[1] != documents.shape[1]:
        raise InputError(f"expected one width, got {queries.shape[1]} and {documents.shape[1]}: encode alike")
    x, y = (torch.from_numpy(np.ascontiguousarray(given, np.float32)) for given in (queries, documents))
    step = max(1, _SCORES // min(_DOCUMENTS, len(y)))
    return np.concatenate([_nearest(part, y, min(k, len(y))).numpy() for part in torch.split(x, step)])


def _nearest(queries: torch.Tensor, documents: torch.Tensor, k: int) -> torch.Tensor:
    scores = torch.empty((len(queries), 0))
    ids = torch.empty((len(queries), 0), dtype=torch.int64)
    for start in range(0, len(documents), _DOCUMENTS):
        block = queries @ documents[start : start + _DOCUMENTS].T
        numbers = torch.arange(start, start + block.shape[1]).expand(len(block), -1)
        # Blocks come in the order of their numbers, so that columns stay in it too.
        scores, ids = _best(torch.cat([scores, block], 1), torch.cat([ids, numbers], 1), k)
    return ids.gather(1, torch.sort(scores, dim=1, descending=True, stable=True).indices)


def _best(scores: torch.Tensor, ids: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The columns of the `k` highest scores in their order, of equal ones the first: topk alone takes any."""
    if scores.shape[1] <= k:
        return scores, ids
    least = torch.topk(scores, k, dim=1, sorted=True).values[:, -1:]
    above, equal = scores > least, scores == least
    kept = above | (equal & (equal.cumsum(1) <= k - above.sum(1, keepdim=True)))
    return scores[kept].view(-1, k), ids[kept].view(-1, k)


def retrieve(
    queries: Array, documents: Array, data: RetrievalData, query_ids: Sequence[str], *, split: str
) -> dict[str, Scores]:
    """`ndcg10` and `recall100` of each query, (Q,) in [0, 1], of an exact search by inner product.

    nDCG@10 = DCG of the first ten over the DCG of the best order, gain = relevance, discount log2(rank + 1)
    (Jarvelin & Kekalainen 2002, as trec_eval has it; computed by ir-measures). Of equal scores the document
    that stands first in the corpus ranks first. A document with the id and the text of the query itself is
    passed over (it is its own answer in some sets).
    """
    try:
        import ir_measures
    except ImportError as error:
        raise InputError("retrieval is measured by ir-measures: pip install 'uncone[evaluate]'") from error
    ids = nearest(queries, documents, _DEPTH + 1)
    text_of = dict(zip(data.document_ids, data.documents, strict=True))
    run = {}
    for query, numbers in zip(query_ids, ids.tolist(), strict=True):
        itself = query if text_of.get(query) == data.queries[query] else None
        ranked = [name for at in numbers if (name := data.document_ids[at]) != itself][:_DEPTH]
        # Ranks instead of scores: the order is then the one above, however the library treats equal scores.
        run[query] = {name: float(_DEPTH - rank) for rank, name in enumerate(ranked)}
    judged = {query: data.judged[split][query] for query in query_ids}
    wanted = {ir_measures.nDCG @ 10: "ndcg10", ir_measures.R @ _DEPTH: "recall100"}
    place = {query: at for at, query in enumerate(run)}
    scores = {name: np.zeros(len(run)) for name in wanted.values()}
    for metric in ir_measures.iter_calc(list(wanted), judged, run):
        scores[wanted[metric.measure]][place[metric.query_id]] = metric.value
    return scores


@dataclass(frozen=True)
class Corpus(RetrievalData):
    """With the vectors of the documents, and the repairs fitted on them."""

    vectors: Texts
    repairs: Repairs


def evaluate_retrieval(
    encoding: Encoding, directory: str | os.PathLike[str], names: Sequence[str], settings: Settings
) -> TaskResult:
    """nDCG@10 and recall@100 on the queries of qrels/test.tsv; repairs are fitted on the corpus."""
    corpus = open_corpus(encoding, directory, names, settings)
    queries = corpus.query_ids("test")
    name = corpus.name.rpartition("/")[2]
    result = TaskResult(provenance=encoding.provenance())
    result.add_means(name, ranked(encoding, corpus, "test", queries, settings), len(queries), settings)
    result.provenance |= {
        f"{name}_sha256": texts_digest(corpus.documents),
        "queries_sha256": texts_digest(corpus.texts_of(queries)),
        "documents": len(corpus.documents),
    }
    result.prices[name] = corpus.repairs.prices()
    result.notes += [*corpus.repairs.notes, _DOCUMENTS_ONLY, *encoding.notes()]
    return result


def open_corpus(
    encoding: Encoding, directory: str | os.PathLike[str], names: Sequence[str], settings: Settings
) -> Corpus:
    """Read and encode the documents, and fit the repairs on them."""
    data = read_retrieval(directory)
    vectors = encoding.texts(data.documents, role="document", tick=settings.tick("encoding documents"))
    repairs = encoding.fit(names, vectors, fitted_on="the documents", tick=settings.progress)
    return Corpus(**vars(data), vectors=vectors, repairs=repairs)


def ranked(
    encoding: Encoding, corpus: Corpus, split: str, queries: Sequence[str], settings: Settings
) -> dict[str, dict[str, Scores]]:
    """Scores of every repair and measure, one a query; without `encoding.inner` those of the cosine alone."""
    if len(queries) < 2:
        raise InputError(
            f"expected at least 2 queries in {corpus.name}/qrels/{split}.tsv, got {len(queries)}: judge more"
        )
    tick = settings.tick("encoding queries")
    asked = encoding.texts(corpus.texts_of(queries), role="query", tick=tick)
    scores, names = dict[str, dict[str, Scores]](), corpus.repairs.names()
    for at, name in enumerate(names):
        if settings.progress is not None:
            settings.progress(f"searching with {name}", at, len(names))
        x, y = (corpus.repairs.apply(name, texts) for texts in (asked, corpus.vectors))
        sides = {"": (unit(x.cosine), unit(y.cosine))}
        if encoding.inner:
            sides["_inner"] = (x.inner, y.inner)
            if corpus.repairs.keeps_axes(name):
                sides["_inner_documents"] = (asked.inner, y.inner)
        scores[name] = {
            f"{measure}{way}": per_query
            for way, vectors in sides.items()
            for measure, per_query in retrieve(*vectors, corpus, queries, split=split).items()
        }
    return scores
