"""`repair_tokens`: new rows for tokens of a language model that no text has trained."""

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

from uncone.edits.record import TokenEdit
from uncone.edits.token_names import HOW, Labels, TokenNames, are_ids
from uncone.errors import InputError, UndefinedMeasure, need_torch
from uncone.measure import under_trained_tokens
from uncone.model import open_language_model
from uncone.model.counts import read_counts
from uncone.regular import lines_of
from uncone.roles import Model, Out, Path_, Progress, Read, Role

_LONGEST_LINE = 2**20


def repair_tokens(
    model: Model,
    out: Out,
    *,
    tokens: Annotated[str | Sequence[int | str], Role.READ] = "auto",
    method: Literal["sub_tokens", "mean", "covariance"] = "sub_tokens",
    counts: Read = None,
    text: Read = None,
    progress: Progress | None = None,
) -> TokenEdit:
    """Write a copy of a language model in which some tokens have new rows, and measure its loss.

    Args:
        model: a directory of transformers, or the name of a cached one.
        out: a new directory.
        tokens: ids, spans such as 90-99 and token strings such as <|user|>, separated by commas; a file with one per
            line; "zero", "added", or "auto": those that `under_trained_tokens` finds. A string is spelled as the
            tokenizer spells it, or as text. In such a list digits are always an id. A sequence holds ids (int) and
            token strings (str).
        method: what new rows are made of, "sub_tokens", "mean" or "covariance".
        counts: with "auto", how often each token occurs, as for `diagnose`: where few tokens are reserved by
            name, those of count 0 are known to be unused.
        text: on which the loss is measured before and after.
        progress: called with (the step, how much is done, of how much).

    Raises:
        InputError: no such ids, token strings (the nearest are given) or method, counts of other rows or without
            "auto", or no token that looks untrained, and what `reinitialise_tokens` raises.
    """
    need_torch("uncone.repair_tokens")
    from uncone.edits.tokens import reinitialise_tokens, way_named
    from uncone.model.directory import whole_model

    directory, way = whole_model(model), way_named(method)
    if counts is not None and tokens != "auto":
        raise InputError("expected --counts (counts=) with tokens that are found (auto), got named ones: leave it out")
    ids: str | Sequence[int]
    notes: tuple[str, ...] = ()
    if tokens == "auto":
        ids, notes = _untrained(directory, counts)
    elif tokens in ("zero", "added"):
        ids = str(tokens)
    else:
        ids = _ids(TokenNames(partial(_labels, directory)), tokens)
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
        raise InputError(f"cannot tell which tokens of {directory} are untrained: {error}; {HOW}") from error
    ids = [token.id for token in report.tokens if not token.expected]
    if not ids:
        why = report.reason or "none stands out at a false-discovery rate of 1%"
        raise InputError(
            f"expected a token that looks untrained, got none ({why}): leave the rows as they are, or {HOW}"
        )
    return ids, () if seen is None else seen.notes


def _ids(names: TokenNames, given: str | Sequence[int | str]) -> list[int]:
    """The ids of the tokens that are named in a text, in the file of that name, or one by one."""
    if not isinstance(given, str):
        return [names.of_string(name) if isinstance(name, str) else name for name in given]
    if are_ids(given) or not os.path.isfile(given):
        return names.in_list(given)
    return names.in_lines(line for _, line in lines_of(given, how=HOW, longest=_LONGEST_LINE))


def _labels(directory: Path) -> Labels:
    model = open_language_model(directory)
    return model.rows(model.places().input, with_tokens=True).labels
