"""`repair_tokens`: new rows for tokens of a language model that no text has trained."""

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Literal

from uncone.edits.directory import whole_model
from uncone.edits.proof import Progress
from uncone.edits.tokens import WAYS, reinitialise_tokens, way_named
from uncone.errors import InputError, UndefinedMeasure
from uncone.measure import under_trained_tokens
from uncone.model import open_language_model
from uncone.model.counts import read_counts
from uncone.model.texts import Path_
from uncone.records import TokenEdit
from uncone.regular import open_regular

MOST_IDS = 100_000
_IDS = re.compile(r"\s*([0-9]{1,9})(?:-([0-9]{1,9}))?\s*")
_HOW = "give ids such as 3,17,90-99, a file of ids, zero or added"


def repair_tokens(
    model: Path_,
    out: Path_,
    *,
    tokens: str = "auto",
    method: str = WAYS[0],
    counts: Path_ | None = None,
    text: Path_ | None = None,
    progress: Progress | None = None,
) -> TokenEdit:
    """Write a copy of a language model in which some tokens have new rows, and measure its loss.

    Args:
        model: a directory of transformers, or the name of a cached one.
        out: a new directory.
        tokens: ids and spans such as 90-99 separated by commas, a file with one a line, "zero", "added", or "auto": those that
            `under_trained_tokens` finds.
        method: what new rows are made of, "sub_tokens", "mean" or "covariance".
        counts: with "auto", how often each token occurs, as for `diagnose`: where few tokens are reserved by
            name, those of count 0 are known to be unused.
        text: on which the loss is measured before and after.
        progress: called with (the step, how much is done, of how much).

    Raises:
        InputError: no such ids or method, counts of other rows or without "auto", or no token that looks
            untrained, and what `reinitialise_tokens` raises.
    """
    directory, way = whole_model(model), way_named(method)
    if counts is not None and tokens != "auto":
        raise InputError(
            "expected --counts (counts=) with tokens that are found (auto), got named ones: leave it out"
        )
    ids: str | list[int] = tokens
    notes: tuple[str, ...] = ()
    if tokens == "auto":
        ids, notes = _untrained(directory, counts)
    elif tokens not in ("zero", "added"):
        ids = _ids(tokens)
    edit = reinitialise_tokens(directory, out, ids, method=way, text=text, progress=progress)
    return replace(edit, notes=(*edit.notes, *notes))


def _untrained(directory: Path, counts: Path_ | None) -> tuple[list[int], tuple[str, ...]]:
    """The ids that look untrained and are not reserved by name; and notes on the counts."""
    model = open_language_model(directory)
    places = model.places()
    is_apart = places.head is None or not places.tied
    name = places.input if places.head is None or places.tied else places.head
    rows = model.rows(name, with_tokens=True)
    seen = None if counts is None else read_counts(counts, rows.shape[0], rows.labels)
    prefer: Literal["cosine", "norm"] = "norm" if is_apart and name == places.input else "cosine"
    try:
        report = under_trained_tokens(
            rows, prefer=prefer, counts=None if seen is None else seen.counts, most=rows.shape[0]
        )
    except UndefinedMeasure as error:
        raise InputError(f"cannot tell which tokens of {directory} are untrained: {error}; {_HOW}") from error
    ids = [token.id for token in report.tokens if not token.expected]
    if not ids:
        why = report.reason or "none stands out at a false-discovery rate of 1%"
        raise InputError(
            f"expected a token that looks untrained, got none ({why}): leave the rows as they are, or {_HOW}"
        )
    return ids, () if seen is None else seen.notes


def _ids(text: str) -> list[int]:
    fields = text.split(",")
    if not all(map(_IDS.fullmatch, fields)) and os.path.isfile(text):
        with open_regular(Path(text)) as file:
            fields = file.read(20 * MOST_IDS).decode("ascii", "replace").split()
    ids = list[int]()
    for field in fields:
        span = _IDS.fullmatch(field)
        first, last = (0, -1) if span is None else (int(span[1]), int(span[2] or span[1]))
        if not first <= last < first + MOST_IDS - len(ids):
            raise InputError(f"expected ids of tokens, got {field[:60]!r}: {_HOW}")
        ids += range(first, last + 1)
    return ids
