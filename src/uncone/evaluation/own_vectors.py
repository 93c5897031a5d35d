"""Retrieval without a model: the user's own vectors of queries and documents, with the user's own judgements."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from uncone.errors import InputError, expect
from uncone.evaluation.encoding import texts_digest
from uncone.evaluation.fitting import Texts, finite_rows, fit_repairs
from uncone.evaluation.results import Settings
from uncone.evaluation.retrieval import Corpus, Qrels, read_judgements
from uncone.evaluation.text_files import stem_of
from uncone.model.open import open_rows
from uncone.records.text import counted, plural
from uncone.rows import ArrayRows, Rows
from uncone.rows.ids import Ids, ids_beside, note_on_ids, places_of
from uncone.transforms.fitting import digest, shared_name
from uncone.transforms.one_side import check_same_width, one_sided
from uncone.transforms.row_numbers import PairedRows, remarks_on_numbers

_HELD_BYTES = 512 * 2**20  # of documents; larger ones are read again by every repair
_APPLIED = "Repairs are fitted on the documents alone, and applied to documents and queries."
_WAYS = "Cosine: vectors are divided by their norm after the repair. Inner product: as the repair leaves them."


@dataclass(frozen=True)
class OwnVectors:
    """Vectors of queries and documents, judgements, and the ids of both where the vectors do not have them."""

    queries: Any
    documents: Any
    qrels: Qrels
    ids: Ids | None = None
    query_ids: Ids | None = None

    @property
    def told(self) -> str:
        return "qrels" if isinstance(self.qrels, Mapping) else Path(self.qrels).name


def own_vectors(
    spec: Any, *, queries: Any, documents: Any, qrels: Any, task: str | None, others: Mapping[str, Any], **ids: Any
) -> OwnVectors | None:
    """The user's own vectors, with `ids` and `query_ids`; None if there are none. `spec` holds the documents if
    `documents` is None. Another task is refused, and so are the options `others`, which belong to its data."""
    own = {"queries": queries, "qrels": qrels, "documents": documents, **ids}
    given = [f"--{name.replace('_', '-')}" for name, value in own.items() if value is not None]
    if not given:
        return None
    missing = [f"--{name}" for name in ("queries", "qrels") if own[name] is None]
    if spec is None and documents is None:
        missing.append("--documents")
    got = f"got {', '.join(given)} without {', '.join(missing)}: add {'it' if len(missing) == 1 else 'them'}"
    expect(not missing, f"--queries, --documents and --qrels together, {got}")
    if spec is not None and documents is not None:
        raise InputError(f"expected one set of documents, got {spec} and --documents: leave one out")
    expect(task in (None, "retrieval"), f"the task retrieval with --queries and --qrels, got {task}: leave it out")
    for name, value in others.items():
        expect(value is None, f"either --queries and --qrels or --{name}, got both: leave one out")
    return OwnVectors(queries, spec if documents is None else documents, qrels, **ids)


def open_own(own: OwnVectors, settings: Settings, *, inner: bool = True) -> Corpus:
    documents, queries = _rows(own.documents, "documents"), _rows(own.queries, "queries")
    check_same_width(documents, queries)
    beside = tuple(
        ids_beside(rows) if ids is None else None for rows, ids in ((documents, own.ids), (queries, own.query_ids))
    )
    own = replace(own, ids=beside[0] or own.ids, query_ids=beside[1] or own.query_ids)
    place, place_of_query = _places(documents, own.ids, "ids"), _places(queries, own.query_ids, "query-ids")
    judged = _judged(own, place, place_of_query)
    n, d = documents.shape
    is_large = n * d * documents.widened.itemsize > _HELD_BYTES
    held = documents if is_large else ArrayRows(documents.read(0, n), name=documents.name)
    asked = queries.read(0, queries.shape[0])
    numbered = [ids is None and rows.keys is None for rows, ids in ((queries, own.query_ids), (documents, own.ids))]
    texts = [""] * len(place)
    for query in () if any(numbered) else sorted(judged.keys() & place.keys(), key=place.__getitem__):
        at = place[query]
        if np.array_equal(held.read(at, at + 1)[0], asked[place_of_query[query]]):
            texts[at] = query  # `scores_of` passes over the query itself
    relevant = ((query, one) for query, ranks in judged.items() for one, rank in ranks.items() if rank > 0)
    of_queries, of_documents = np.array([(place_of_query[query], place[one]) for query, one in relevant]).T
    paired = (
        PairedRows("queries", queries, of_queries, "--query-ids", numbered[0]),
        PairedRows("documents", documents, of_documents, "--ids", numbered[1]),
    )
    numbers, shifted = remarks_on_numbers(paired, own.told)
    apart = one_sided(held, queries)
    vectors = Texts(held, held)
    repairs = fit_repairs(settings.names, vectors, fitted_on="the documents alone", tick=settings.progress)

    def vectors_of(names: Sequence[str]) -> Texts:
        x = asked[[place_of_query[name] for name in names]]
        return Texts(x, x)

    unjudged = len(place_of_query) - len(judged)
    left_out = f"{counted(unjudged, 'query', 'queries')} left out: no relevant document in {own.told}."
    lines = [f"{query}\t{one}\t{rank}" for query in sorted(judged) for one, rank in sorted(judged[query].items())]
    return Corpus(
        stem_of(Path(documents.name.partition("#")[0])),
        tuple(place),
        tuple(texts),
        {query: query for query in judged},
        {"test": judged},
        vectors,
        repairs,
        vectors_of,
        digest(held),
        inner=inner,
        notes=tuple(filter(None, (note_on_ids(*beside), numbers, _APPLIED, _WAYS * inner, left_out * bool(unjudged)))),
        qrels=own.told,
        provenance={"query_vectors_sha256": digest(queries), "qrels_sha256": texts_digest(lines)},
        caution=" ".join(filter(None, (shifted, apart))),
        is_one_sided=bool(apart),
    )


def name_of_own(own: OwnVectors) -> str:
    return shared_name(os.fspath(own.documents)) if isinstance(own.documents, str | os.PathLike) else "documents"


def _rows(spec: Any, name: str) -> Rows:
    rows = open_rows(spec)
    if not isinstance(spec, str | os.PathLike | Rows):
        rows.name = name
    return finite_rows(rows)


def _places(rows: Rows, ids: Ids | None, option: str) -> dict[str, int]:
    places = places_of(rows, ids)
    lacking = rows.shape[0] - len(places)
    got = f"got {counted(lacking, 'row')} with no id or the id of another row"
    way = f"give others with --{option} FILE, one per line"
    expect(not lacking, f"an id of its own for each row of {rows.name}, {got}: {way}")
    return places


def _judged(own: OwnVectors, place: Mapping[str, int], place_of_query: Mapping[str, int]) -> dict[str, dict[str, int]]:
    known = {"document": ("ids", place), "query": ("query-ids", place_of_query)}

    def hint(what: str) -> str:
        option, places = known[what]
        like = ", ".join(repr(name[:60]) for name in islice(places, 3))
        noun = plural(len(places), what, "queries" if what == "query" else "documents")
        return f"the ids of {len(places):,} {noun} look like {like}; give others with --{option} FILE, one per line"

    judged = read_judgements(own.qrels, place, place_of_query, hint=hint)
    useful = {query: ranks for query, ranks in judged.items() if max(ranks.values()) > 0}
    got = f"got none in {counted(len(judged), 'query', 'queries')}: a document that answers a query has 1 or more"
    expect(bool(useful), f"a relevance above 0 in {own.told}, {got}")
    return useful
