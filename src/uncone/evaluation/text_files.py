"""Text files of data sets, plain or packed: lines, and columns of tables or JSON objects."""

import csv
import json
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal

from uncone import regular
from uncone.errors import InputError, expect

Rows = Iterator[tuple[str, list[str]]]  # where a row is ("line 3 of FILE"), and its cells
Columns = Sequence[str | int] | None
"""By name, or by number from 1; None takes `_KNOWN` (and `subset`) where a header has them, else the first three."""
_PACKED = (".gz", ".xz")
_KNOWN = (("word1", "word2", "score"), ("sentence1", "sentence2", "score"))
_JUDGEMENTS = (
    ("query-id", "query_id", "qid", "query"),
    ("corpus-id", "corpus_id", "doc_id", "docid", "doc-id", "document", "pid"),
    ("score", "relevance", "rel", "label", "qrel"),
)
"""Names of the columns of judgements, BEIR's first."""
SPACE = " "  # as a delimiter: any white space
_JSON = "{"


def stem_of(file: Path) -> str:
    return Path(file.stem if file.suffix in _PACKED else file.name).stem


def find_file(directory: Path, *names: str) -> Path | None:
    candidates = (directory / f"{name}{suffix}" for name in names for suffix in ("", *_PACKED))
    return next((file for file in candidates if file.is_file()), None)


lines_of = partial(regular.lines_of, how="give a text file in UTF-8, plain or packed as .gz or .xz")


def objects_of(file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """(place, object) of JSON lines, or of one JSON array of objects."""
    lines = ((f"line {at} of {file}", line) for at, line in lines_of(file) if line.strip())
    start = list(islice(lines, 1))
    placed: Iterable[tuple[str, Any]] = ((where, _parsed(line, where)) for where, line in chain(start, lines))
    if start and start[0][1].lstrip().startswith("["):
        entries = enumerate(_parsed("\n".join(line for _, line in chain(start, lines)), f"the array in {file}"), 1)
        placed = ((f"entry {at} of {file}", entry) for at, entry in entries)
    for where, entry in placed:
        if not isinstance(entry, dict):
            raise InputError(f"expected an object in {where}, got {json.dumps(entry)[:60]}: name its fields")
        yield where, entry


def _parsed(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        got = f"got {where}, which does not parse: {error}"
        raise InputError(f"expected one JSON object per line or an array of objects, {got}") from error


def table(file: Path, columns: Columns = None, *, delimiter: str | None = None) -> Rows:
    """The wanted cells of each row of a table whose third wanted column holds numbers.

    The first row is a header if columns are named, or if its third wanted cell is no number; for JSON objects the keys
    of the first object are the header. Quotes matter only between commas and semicolons. The file's name gives the
    `delimiter`, or else its first line does."""
    rows = _rows(file, delimiter or _delimiter(file))
    where, first = next(rows, (f"line 1 of {file}", []))
    places, is_header = _places(first, columns, where)
    width = len(first) if is_header else 0
    if not is_header and first:
        yield where, _cells(first, places, width, where)
    for where, row in rows:
        yield where, _cells(row, places, width if delimiter != SPACE else 0, where)


def judgement_columns(file: Path) -> Sequence[str | int]:
    """The columns of query, document and relevance: by known names, else the first three; of four columns the second is
    skipped (TREC's `qid 0 docid relevance`)."""
    _, first = next(_rows(file, _delimiter(file)), ("", []))
    names = [name for known in _JUDGEMENTS for name in [name for name in known if name in first][:1]]
    return names if len(names) == 3 else (1, 3, 4) if len(first) == 4 else (1, 2, 3)


def _delimiter(file: Path) -> str:
    line = next((line for _, line in lines_of(file) if line.strip()), "")
    suffix = Path(file.stem if file.suffix in _PACKED else file.name).suffix
    if suffix in (".json", ".jsonl", ".ndjson") or line.lstrip().startswith(("{", "[{")):
        return _JSON
    if suffix == ".tsv" or line.count("\t") > 1:
        return "\t"
    try:
        widths = {mark: len(next(csv.reader([line], delimiter=mark), ())) for mark in (",", ";")}
    except csv.Error as error:
        why = f"whose first line does not parse ({error}): end lines with a line feed"
        raise InputError(f"expected a table, got {file}, {why}") from error
    widest = max(widths, key=widths.__getitem__)
    return widest if widths[widest] > 2 or suffix == ".csv" else SPACE


def _rows(file: Path, delimiter: str) -> Rows:
    """The rows that are not empty; for JSON the keys come first."""
    if delimiter == _JSON:
        keys: list[str] = []
        for where, entry in objects_of(file):
            if not keys:
                keys = list(entry)
                yield where, keys
            yield where, [str(x) if isinstance(x, str | int | float) else "" for x in map(entry.get, keys)]
    elif delimiter == SPACE:
        for at, line in lines_of(file):
            if cells := line.split():
                yield f"line {at} of {file}", cells
    else:
        lines = (f"{line}\n" for _, line in lines_of(file))
        quoting: Literal[0, 3] = csv.QUOTE_NONE if delimiter == "\t" else csv.QUOTE_MINIMAL
        reader = csv.reader(lines, delimiter=delimiter, quoting=quoting, strict=True)
        try:
            for cells in filter(None, reader):
                yield f"line {reader.line_num} of {file}", cells
        except csv.Error as error:
            raise InputError(f"expected a table, got line {reader.line_num} of {file}: {error}") from error


def _places(first: Sequence[str], columns: Columns, where: str) -> tuple[list[int], bool]:
    if columns is None:
        known = next((names for names in _KNOWN if {*names} <= {*first}), None)
        columns = (1, 2, 3) if known is None else (*known, "subset") if "subset" in first else known
    is_there = all(isinstance(name, int) or name in first for name in columns)
    got = f"got {' '.join(first)[:120]!r}: name others"
    expect(is_there, f"columns {', '.join(map(str, columns))} in {where}, {got}")
    places = [name - 1 if isinstance(name, int) else first.index(name) for name in columns]
    by_name = any(isinstance(name, str) for name in columns)
    score = first[places[2]] if places[2] < len(first) else ""
    return places, by_name or (bool(score.strip()) and regular.number_in(score) is None)


def _cells(row: Sequence[str], places: Sequence[int], width: int, where: str) -> list[str]:
    """The cells at `places`; a `width` of 0 is unknown."""
    least, n = max(places) + 1, len(row)
    if n < least or n != (width or n):
        wanted = width or f"at least {least}"
        raise InputError(f"expected {wanted} columns in {where}, got {n} ({str(row)[:60]}): correct the line")
    return [row[place] for place in places]
