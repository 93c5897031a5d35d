"""A retrieval data set in the layout of BEIR: documents, queries, and which documents answer which query."""

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from uncone.errors import InputError
from uncone.tasks.text_files import find_file, lines_of, table_of


@dataclass(frozen=True)
class RetrievalData:
    """The documents, the queries that are judged, and the judgements.

    `judged[split][query]` holds the relevance of documents by their ids; queries are those that some split judges.
    """

    name: str
    document_ids: tuple[str, ...]
    documents: tuple[str, ...]
    """Title and text of each, joined by a space, as BEIR does."""
    queries: Mapping[str, str]
    judged: Mapping[str, Mapping[str, Mapping[str, int]]]

    def query_ids(self, split: str) -> tuple[str, ...]:
        """The queries that `split` judges with at least one relevant document, in the file's order.

        Raises:
            InputError: there is no such split.
        """
        if split not in self.judged:
            raise InputError(
                f"expected qrels/{split}.tsv in {self.name}, got {', '.join(self.judged) or 'no qrels'}"
            )
        return tuple(
            query
            for query, relevant in self.judged[split].items()
            if any(rank > 0 for rank in relevant.values())
        )


def read_retrieval(directory: str | os.PathLike[str]) -> RetrievalData:
    """Read `corpus.jsonl` and `queries.jsonl` (each may be .xz or .gz) and every `qrels/SPLIT.tsv` of a directory.

    Raises:
        InputError: a file is missing, a line is no object with the fields it must have, an id comes twice, or a judgement names a
            query or document that is not there.
    """
    root = Path(directory)
    if not root.is_dir():
        raise InputError(
            f"expected a directory in the layout of BEIR, got {root}: it holds corpus.jsonl, queries.jsonl and qrels/"
        )
    corpus, queries = find_file(root, "corpus.jsonl"), find_file(root, "queries.jsonl")
    qrels = sorted((root / "qrels").glob("*.tsv*")) if (root / "qrels").is_dir() else []
    missing = [
        name
        for name, there in (("corpus.jsonl", corpus), ("queries.jsonl", queries), ("qrels/test.tsv", qrels))
        if not there
    ]
    if corpus is None or queries is None or missing:
        raise InputError(
            f"expected {', '.join(missing)} in {root}, got no such file: give a directory in the layout of BEIR"
        )
    documents = dict(_texts(corpus))
    asked = dict(_texts(queries))
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
    """(id, title and text) of each line."""
    seen = set[str]()
    for number, line in lines_of(file):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError(
                f"expected one JSON object a line in {file}, got line {number} that does not parse: {error}"
            ) from error
        key, text = (entry.get("_id"), entry.get("text")) if isinstance(entry, dict) else (None, None)
        if not isinstance(key, str) or not isinstance(text, str):
            raise InputError(
                f'expected "_id" and "text" as strings in line {number} of {file}, got {line[:60]!r}'
            )
        if key in seen:
            raise InputError(
                f"expected ids that come once in {file}, got {key[:60]!r} again in line {number}"
            )
        seen.add(key)
        title = entry.get("title")
        yield key, f"{title} {text}".strip() if isinstance(title, str) and title else text
    if not seen:
        raise InputError(f"expected at least one text in {file}, got none: copy it again")


def _judgements(
    file: Path, documents: Mapping[str, str], queries: Mapping[str, str]
) -> dict[str, dict[str, int]]:
    found = dict[str, dict[str, int]]()
    for number, (query, document, rank) in table_of(file, ("query-id", "corpus-id", "score")):
        try:
            relevance = int(rank)
        except ValueError:
            raise InputError(
                f"expected a whole number as score in line {number} of {file}, got {rank[:40]!r}"
            ) from None
        if query not in queries or document not in documents:
            what, key = ("query", query) if query not in queries else ("document", document)
            raise InputError(
                f"line {number} of {file} judges the {what} {key[:60]!r}, which is not there: copy the data again"
            )
        found.setdefault(query, {})[document] = relevance
    return found
