"""Retrieval: do the documents nearest to a query answer it, with and without each repair?"""

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from uncone.errors import InputError, expect, needed
from uncone.evaluation.encoding import Encoding, texts_digest, unit
from uncone.evaluation.fitting import Repairs, Texts
from uncone.evaluation.results import Settings, TaskResult
from uncone.evaluation.text_files import Columns, find_file, judgement_columns, objects_of, table
from uncone.records.text import listing
from uncone.regular import number_in
from uncone.roles import Path_
from uncone.rows import Array, Rows

Qrels = Path_ | Mapping[Any, Mapping[Any, float]]  # a table of judgements, or the relevance by query and document
_SCORES = 1 << 24  # at a time: 64 MiB
_DOCUMENTS = 8192
_DEPTH = 100
Hint = Callable[[str], str] | None
_COLUMNS = ("query-id", "corpus-id", "score")
_DOCUMENTS_ONLY = (
    "inner_documents: inner products of repaired documents with queries as they are. Left out where a repair "
    "turns the axes (whiten_pca), because the two sides would no longer match."
)


@dataclass(frozen=True)
class RetrievalData:
    """Documents, judged queries, and the relevance `judged[split][query][document]`."""

    name: str
    document_ids: tuple[str, ...]
    documents: tuple[str, ...]  # title and text of each, joined by a space, as BEIR does
    queries: Mapping[str, str]
    judged: Mapping[str, Mapping[str, Mapping[str, int]]]

    def query_ids(self, split: str) -> tuple[str, ...]:
        """The queries with a relevant document in `split`, in the order of the file."""
        there = ", ".join(self.judged) or "none"
        expect(split in self.judged, f"qrels/{split}.tsv in {self.name}, got {there}: add it")
        return tuple(query for query, ranks in self.judged[split].items() if max(ranks.values()) > 0)

    def texts_of(self, queries: Sequence[str]) -> list[str]:
        return [self.queries[query] for query in queries]


def read_retrieval(directory: Path_) -> RetrievalData:
    """Read `corpus.jsonl`, `queries.jsonl` and every `qrels/SPLIT.tsv` of a directory."""
    root = Path(directory)
    expect(root.is_dir(), f"a directory in BEIR's layout, got {root}: name the one with corpus.jsonl")
    corpus, queries = find_file(root, "corpus.jsonl"), find_file(root, "queries.jsonl")
    qrels = sorted((root / "qrels").glob("*.tsv*"))
    files = {"corpus.jsonl": corpus, "queries.jsonl": queries, "qrels/test.tsv": qrels}
    if corpus is None or queries is None or not qrels:
        missing = [name for name, there in files.items() if not there]
        raise InputError(f"expected {', '.join(missing)} in {root}, got no such file: give a BEIR data set")
    documents, asked = dict(_texts(corpus)), dict(_texts(queries))
    judged = {file.name.split(".")[0]: read_judgements(file, documents, asked, columns=_COLUMNS) for file in qrels}
    wanted = {query: asked[query] for split in judged.values() for query in split}
    name = "/".join(root.resolve().parts[-2:])
    return RetrievalData(name, tuple(documents), tuple(documents.values()), wanted, judged)


def _texts(file: Path) -> Iterator[tuple[str, str]]:
    seen = set[str]()
    for where, entry in objects_of(file):
        key, text, title = entry.get("_id"), entry.get("text"), entry.get("title")
        if not isinstance(key, str) or not isinstance(text, str):
            raise InputError(f'expected strings "_id", "text" in {where}, got {str(entry)[:60]!r}: add them')
        expect(key not in seen, f"unique ids, got {key[:60]!r} again in {where}: rename one")
        seen.add(key)
        yield key, f"{title} {text}".strip() if isinstance(title, str) and title else text
    expect(bool(seen), f"at least one text in {file}, got none: copy it again")


def read_judgements(
    qrels: Qrels, documents: Container[str], queries: Container[str], *, columns: Columns = None, hint: Hint = None
) -> dict[str, dict[str, int]]:
    """The relevance `[query][document]` from a table or a mapping. One message refuses all unknown ids; it ends with
    `hint` of "query" or "document"."""
    judged, unknown = dict[str, dict[str, int]](), dict[tuple[str, str], str]()
    for where, (query, document, rank) in _entries(qrels, columns):
        value = number_in(rank)
        if value is None or not value.is_integer():
            raise InputError(f"expected an integer in {where}, got {rank[:40]!r}: 0 is irrelevant")
        for what, key, known in (("query", query, queries), ("document", document, documents)):
            if key not in known:
                unknown.setdefault((what, key), where)
        judged.setdefault(query, {})[document] = int(value)
    swapped = (query in documents and all(one in queries for one in of) for query, of in judged.items())
    if unknown and all(swapped):
        got = f"got them the other way round from {next(iter(unknown.values()))} on, by their ids"
        way = "swap the two columns, or name them in a header (query-id, corpus-id, score)"
        raise InputError(f"expected queries before documents, {got}: {way}")
    for what in ("query", "document"):
        missing = [(repr(key[:60]), where) for (kind, key), where in unknown.items() if kind == what]
        if missing:
            (first, where), others = missing[0], [key for key, _ in missing[1:3]]
            advice = hint(what) if hint else "copy it again"
            more = f" and {len(missing) - 1:,} more ({listing(others)})" if others else ""
            raise InputError(f"expected known ids, got the {what} {first} in {where}{more}: {advice}")
    return judged


def _entries(qrels: Qrels, columns: Columns) -> Iterator[tuple[str, Sequence[str]]]:
    if isinstance(qrels, Mapping):
        for query, ranks in qrels.items():
            yield from ((f"qrels[{query!r}]", (str(query), str(one), str(rank))) for one, rank in ranks.items())
    else:
        yield from table(file := Path(qrels), columns or judgement_columns(file))


def nearest(queries: Array, documents: Array, k: int) -> Array:
    """The numbers (Q, min(k, N)) of the documents (N, D) with the highest inner products with queries (Q, D); highest
    first, ties by number."""
    asked, stored = queries.shape[1], documents.shape[1]
    expect(asked == stored, f"queries as wide as documents, got {asked} and {stored} features: use one encoder")
    search = Search(queries, len(documents), k)
    for start in range(0, len(documents), _DOCUMENTS):
        search.add(documents[start : start + _DOCUMENTS])
    return search.numbers()


class Search:
    """`nearest` among `n` documents that come block by block, in order."""

    def __init__(self, queries: Array, n: int, k: int) -> None:
        import torch

        self._queries, self._seen, self._k = torch.split(_floats(queries), max(1, _SCORES // min(_DOCUMENTS, n))), 0, k
        empty = (torch.empty((len(part), 0)) for part in self._queries)
        self._best = [(scores, scores.to(torch.int64)) for scores in empty]

    def add(self, documents: Array) -> None:
        block = _floats(documents).T
        for at, (queries, best) in enumerate(zip(self._queries, self._best, strict=True)):
            self._best[at] = _best(*best, queries @ block, self._seen, self._k)
        self._seen += block.shape[1]

    def numbers(self) -> Array:
        import torch

        ordered = [ids.gather(1, torch.sort(x, dim=1, descending=True, stable=True)[1]) for x, ids in self._best]
        return torch.cat(ordered).numpy()


def _floats(x: Array) -> Any:
    import torch

    return torch.from_numpy(np.ascontiguousarray(x, np.float32))


def _best(scores: Any, ids: Any, block: Any, start: int, k: int) -> tuple[Any, Any]:
    """The `k` best of `scores` (Q, K) of documents `ids` and of the block (Q, n) from document `start` on, by number.
    Of equal scores the first are kept, where topk takes any."""
    import torch

    known, both = scores.shape[1], torch.cat([scores, block], 1)
    columns = torch.arange(both.shape[1]).expand(both.shape)
    if both.shape[1] > k:
        least = torch.topk(both, k, dim=1, sorted=True).values[:, -1:]
        above, equal = both > least, both == least
        first = equal.cumsum(1, dtype=torch.int32) <= k - above.sum(1, keepdim=True)
        columns = (above | (equal & first)).nonzero()[:, 1].view(-1, k)
    old = ids.gather(1, columns.clamp(max=known - 1)) if known else columns
    return both.gather(1, columns), torch.where(columns < known, old, columns - known + start)


def scores_of(found: Array, data: RetrievalData, query_ids: Sequence[str], *, split: str) -> dict[str, Array]:
    """`ndcg10`, `recall10` and `recall100`, (Q,) in [0, 1], of the documents `found` (Q, K).

    nDCG@10 = DCG of the first ten over the DCG of the best order, gain = relevance, discount log2(rank + 1) (Jarvelin &
    Kekalainen 2002, as in trec_eval; computed by ir-measures). A document with the id and the text of the query is
    skipped: in some sets it is its own answer."""
    ir_measures = needed("ir_measures", "retrieval is measured by ir-measures: pip install 'uncone[evaluate]'")
    asked = set(query_ids)
    text_of = {name: text for name, text in zip(data.document_ids, data.documents, strict=True) if name in asked}
    run = {}
    for query, numbers in zip(query_ids, found.tolist(), strict=True):
        itself = query if text_of.get(query) == data.queries[query] else None
        ranked = [name for at in numbers if (name := data.document_ids[at]) != itself][:_DEPTH]
        # ranks instead of scores: the library cannot order equal scores
        run[query] = {name: float(_DEPTH - rank) for rank, name in enumerate(ranked)}
    judged = {query: data.judged[split][query] for query in query_ids}
    wanted = {ir_measures.nDCG @ 10: "ndcg10", ir_measures.R @ 10: "recall10", ir_measures.R @ _DEPTH: "recall100"}
    place = {query: at for at, query in enumerate(run)}
    scores = {name: np.zeros(len(run)) for name in wanted.values()}
    for metric in ir_measures.iter_calc(list(wanted), judged, run):
        scores[wanted[metric.measure]][place[metric.query_id]] = metric.value
    return scores


@dataclass(frozen=True)
class Corpus(RetrievalData):
    vectors: Texts  # of the documents: arrays, or `Rows`
    repairs: Repairs
    asked: Callable[[Sequence[str]], Texts]  # the vectors of queries by their ids
    documents_sha256: str
    inner: bool = True  # whether to measure inner products too
    notes: tuple[str, ...] = ()
    provenance: Mapping[str, Any] = field(default_factory=dict)
    qrels: str = ""  # the file of judgements, where it is not qrels/SPLIT.tsv
    caution: str = ""
    is_one_sided: bool = False

    def told(self, split: str) -> str:
        return self.qrels or f"qrels/{split}.tsv"

    def repaired(self, name: str) -> Iterator[Texts]:
        x, y = self.vectors.cosine, self.vectors.inner
        if isinstance(x, Rows):
            blocks: Iterator[Texts] = (Texts(one, one) for one in x.blocks())
        else:
            parts = (slice(at, at + _DOCUMENTS) for at in range(0, len(x), _DOCUMENTS))
            blocks = (Texts(one := x[part], one if y is x else y[part]) for part in parts)
        return (self.repairs.apply(name, block) for block in blocks)


def evaluate_retrieval(corpus: Corpus, settings: Settings) -> TaskResult:
    queries, name = corpus.query_ids("test"), corpus.name.rpartition("/")[2]
    result = TaskResult(provenance=dict(corpus.provenance), caution=corpus.caution, is_one_sided=corpus.is_one_sided)
    result.add_means(name, ranked(corpus, "test", queries, settings), len(queries), settings)
    digests = {f"{name}_sha256": corpus.documents_sha256, "queries_sha256": texts_digest(corpus.texts_of(queries))}
    result.provenance |= digests | {"documents": len(corpus.documents)}
    result.prices[name] = corpus.repairs.prices()
    result.notes += [*corpus.repairs.notes, _DOCUMENTS_ONLY, *corpus.notes]
    return result


def open_corpus(encoding: Encoding, directory: Path_, settings: Settings) -> Corpus:
    data = read_retrieval(directory)
    vectors = encoding.texts(data.documents, role="document", tick=settings.tick("encoding documents"))
    repairs = encoding.fit(settings.names, vectors, fitted_on="the documents", tick=settings.progress)
    digest, tick = texts_digest(data.documents), settings.tick("encoding queries")

    def asked(queries: Sequence[str]) -> Texts:
        return encoding.texts(data.texts_of(queries), role="query", tick=tick)

    told: Any = {"inner": encoding.inner, "notes": encoding.notes(), "provenance": encoding.provenance()}
    return Corpus(**vars(data), vectors=vectors, repairs=repairs, asked=asked, documents_sha256=digest, **told)


def ranked(corpus: Corpus, split: str, queries: Sequence[str], settings: Settings) -> dict[str, dict[str, Array]]:
    """Scores (Q,) by repair and measure."""
    where = f"{corpus.name}, {corpus.told(split)}, got {len(queries)}"
    expect(len(queries) > 1, f"at least 2 queries with a relevant document in {where}: judge more")
    asked = corpus.asked(queries)
    scores, names = dict[str, dict[str, Array]](), corpus.repairs.names()
    for at, name in enumerate(names):
        settings.progress(f"searching with {name}", at, len(names))
        x = corpus.repairs.apply(name, asked)
        sides = {"": unit(x.cosine)}
        if corpus.inner:
            sides["_inner"] = x.inner
            if corpus.repairs.keeps_axes(name):
                sides["_inner_documents"] = asked.inner
        searches = {way: Search(vectors, len(corpus.documents), _DEPTH + 1) for way, vectors in sides.items()}
        for block in corpus.repaired(name):
            for way, search in searches.items():
                search.add(block.inner if way else unit(block.cosine))
        scores[name] = {
            f"{measure}{way}": per_query
            for way, search in searches.items()
            for measure, per_query in scores_of(search.numbers(), corpus, queries, split=split).items()
        }
    return scores
