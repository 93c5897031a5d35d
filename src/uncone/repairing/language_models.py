"""The edits of language models, as the command line asks for them."""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from uncone.errors import InputError, UndefinedMeasure
from uncone.measure import under_trained_tokens
from uncone.model import open_language_model
from uncone.model.counts import read_counts
from uncone.records.head_edit import HeadEdit
from uncone.records.token_edit import TokenEdit, Way
from uncone.regular import open_regular
from uncone.repair.head import center_head
from uncone.repair.tokens import WAYS, reinitialise_tokens
from uncone.sources.spec import split

Progress = Callable[[str, int, int], None]
Path_ = str | os.PathLike[str]
MOST_IDS = 100_000
_HOW = "give ids such as 3,17, a file of ids, zero, added or auto"


def edit_head(
    model: Path_,
    out: Path_,
    *,
    how: str = "center",
    untie: bool = False,
    text: Path_ | None = None,
    progress: Progress | None = None,
) -> HeadEdit:
    """`repair.head.center_head` of the model that a spec names.

    Raises:
        InputError: another way to edit a head than "center", and what `center_head` raises.
    """
    if how != "center":
        raise InputError(f"expected --head center, got {how!r}: it is the one change of a head that changes no probability")
    return center_head(_whole(model), out, untie=untie, text=text, progress=progress)


def edit_tokens(
    model: Path_,
    out: Path_,
    tokens: str = "auto",
    *,
    method: str | None = None,
    counts: Path_ | None = None,
    text: Path_ | None = None,
    progress: Progress | None = None,
) -> TokenEdit:
    """`repair.tokens.reinitialise_tokens` of the model that a spec names, for the tokens that `tokens` names.

    Args:
        model: a directory of transformers, or the name of a cached one.
        out: a new directory.
        tokens: ids separated by commas, a file with an id a line, "zero", "added", or "auto": those that `under_trained_tokens` finds.
        method: what new rows are made of, "sub_tokens" (the default), "mean" or "covariance".
        counts: with "auto", how often each token occurs, as for `diagnose`: where few tokens are reserved by name, those of count 0 are known to be unused.
        text: on which the loss is measured before and after.
        progress: called with what is done, how much is, and of how much.

    Raises:
        InputError: no such ids or method, counts of other rows or without "auto", or no token that looks untrained, and what `reinitialise_tokens` raises.
    """
    directory, way = _whole(model), _way(method)
    if counts is not None and tokens != "auto":
        raise InputError("expected counts with --tokens auto, got them with tokens that are named: leave them out")
    notes, ids = tuple[str, ...](), list[int]()
    if tokens == "auto":
        ids, notes = _found(directory, counts)
    elif tokens not in ("zero", "added"):
        ids = _ids(tokens)
    which: Sequence[int] | Literal["zero", "added"] = "zero" if tokens == "zero" else "added" if tokens == "added" else ids
    edit = reinitialise_tokens(directory, out, which, method=way, text=text, progress=progress)
    return replace(edit, notes=(*edit.notes, *notes)) if notes else edit


def _way(method: str | None) -> Way:
    if method is None:
        return WAYS[0]
    for way in WAYS:
        if way == method:
            return way
    raise InputError(f"expected --method {', '.join(WAYS)} with --tokens, got {method!r}: choose what new rows are made of")


def _whole(spec: Path_) -> Path:
    path, part = split(spec)
    if part is not None:
        raise InputError(f"expected a whole model to edit, got its part #{part}: leave that out")
    return path


def _found(directory: Path, counts: Path_ | None) -> tuple[list[int], tuple[str, ...]]:
    """The ids that look as if no text had trained them, and are not reserved by name; and what is to be said of the counts."""
    model = open_language_model(directory)
    places = model.places()
    apart = places.head is None or not places.tied
    name = places.head if places.head is not None and not places.tied else places.input
    rows = model.rows(name, with_tokens=True)
    seen = None if counts is None else read_counts(counts, rows.shape[0], rows.labels)
    prefer: Literal["cosine", "norm"] = "norm" if apart and name == places.input else "cosine"
    try:
        found = under_trained_tokens(rows, prefer=prefer, counts=None if seen is None else seen.counts, most=rows.shape[0])
    except UndefinedMeasure as error:
        raise InputError(f"cannot tell which tokens of {directory} are untrained: {error}; {_HOW}") from error
    ids = [token.id for token in found.tokens if not token.expected]
    if not ids:
        why = found.reason or "none stands out at a false-discovery rate of 1 %"
        raise InputError(f"expected a token that looks untrained, got none ({why}): leave the rows as they are, or {_HOW}")
    return ids, () if seen is None else seen.notes


def _ids(text: str) -> list[int]:
    path = Path(text)
    fields = text.split(",")
    if not all(_is_id(field) for field in fields) and _is_file(path):
        with open_regular(path) as file:
            fields = file.read(20 * MOST_IDS).decode("ascii", "replace").split()
    wrong = next((field for field in fields if not _is_id(field)), None)
    if wrong is not None or not fields or len(fields) > MOST_IDS:
        raise InputError(f"expected ids of tokens, got {(wrong if wrong is not None else text)[:60]!r}: {_HOW}")
    return [int(field) for field in fields]


def _is_id(text: str) -> bool:
    text = text.strip()
    return text.isascii() and text.isdigit() and len(text) <= 9


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False
