"""New rows for tokens that were never trained."""

import math
import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import torch

from uncone.atomic import creatable
from uncone.edits.loss import text_loss
from uncone.edits.new_rows import alike, new_rows, sub_tokens, trained_rows
from uncone.edits.record import MOST_LISTED, EditedTensor, EditedToken, TokenEdit, Way
from uncone.errors import InputError, nearest
from uncone.model import ModelFiles, find_places, rows_of, token_labels
from uncone.model.directory import (
    NewTensor,
    compare_untouched,
    edited_copy,
    open_directory,
    rounded_once,
    rows_at_once,
    stored_blocks,
)
from uncone.model.files import text_parts
from uncone.model.places import Places, same_rows, vocabulary_matrices
from uncone.model.texts import load_tokenizer
from uncone.records.text import plural
from uncone.records.token_text import token_texts
from uncone.roles import Path_, Progress
from uncone.rows.safetensors import FLOATS
from uncone.tensors import DTYPES

Tensor = torch.Tensor
WAYS: tuple[Way, ...] = ("sub_tokens", "mean", "covariance")
Labels = Sequence[str | None] | None
_BY_ROWS = "use the method 'mean' or 'covariance' (--method mean)"
_INTEGERS = {8: torch.int64, 4: torch.int32, 2: torch.int16}


def reinitialise_tokens(
    model: Path_,
    out: Path_,
    ids: Sequence[int] | str = "zero",
    *,
    method: str = "sub_tokens",
    text: Path_ | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> TokenEdit:
    """Write a copy of a model with new rows for some tokens, and for no others.

    The table and a separate head are both edited, each from its own rows; a bias stays. `ids` may be "zero", the rows
    that are zero or not finite (except for padding), or "added", the tokens after the tokenizer's own vocabulary, some
    of which may be trained (chat roles). Methods: "sub_tokens", the mean of the rows that the token's string is split
    into without these tokens, or a draw for a string without such parts; "mean", the mean of all trained rows;
    "covariance", a draw around that mean, from `seed`.
    """
    way = way_named(method)
    creatable(out, outside=model)
    files = open_directory(model)
    places = find_places(files)
    n = files.entries[places.input].shape[0]
    labels = token_labels(files.path, n).labels
    chosen = _chosen(files, places, ids, n, labels)
    parts = sub_tokens(_tokenizer(files, _BY_ROWS), chosen) if way == "sub_tokens" else {}
    parts = {i: tuple(part for part in parts[i] if part < n) for i in parts}
    edited, tensors, equal = _edited(files, places, chosen, parts, _kept(chosen, n, labels), way, seed)
    with edited_copy(files, out, tensors) as copy:
        for name in tensors:
            _require_other_rows(files, copy.files, name, chosen)
        measured = tuple(replace(x, mean_norm_after=_mean_norm(copy.files, x.name, chosen)) for x in edited)
        unchanged = compare_untouched(files, copy.files, frozenset(tensors))
        loss, no_loss = text_loss(files, copy.files, set(chosen), n, text, progress)
        ways: dict[int, Way] = {i: "covariance" if way == "sub_tokens" and not parts[i] else way for i in chosen}
        drawn = {i for i in alike(chosen, parts) if parts.get(i)}
        listed = zip(chosen, token_texts(labels, chosen[:MOST_LISTED]), strict=False)
        tokens = tuple(EditedToken(i, text, ways[i], parts.get(i, ()), i in drawn) for i, text in listed)
        made = files.path.resolve().name, way, len(chosen), tokens, measured, unchanged, seed
        notes = (*_notes(ways, way, labels, len(drawn)), *_of_equal(equal, len(chosen), way))
        return TokenEdit(*made, loss, no_loss, notes, copy.left_out)


def way_named(method: str) -> Way:
    if method not in WAYS:
        how = nearest(method, WAYS, "choose what new rows are made from")
        raise InputError(f"expected --method (method=) {', '.join(WAYS)}, got {method!r}: {how}")
    return method


def _edited(
    files: ModelFiles,
    places: Places,
    chosen: Sequence[int],
    parts: Mapping[int, tuple[int, ...]],
    kept: Tensor,
    method: Way,
    seed: int,
) -> tuple[list[EditedTensor], dict[str, NewTensor], int]:
    """The edited tensors, and how many new rows equal another new row once stored."""
    roles: dict[str, Literal["table", "head", "both"]] = {places.input: "both" if places.tied else "table"}
    if places.head is not None and not places.tied:
        own, n = files.entries[places.head].shape[0], files.entries[places.input].shape[0]
        if own != n:
            got = f"got {own} and {n}: their ids mean different tokens"
            raise InputError(f"expected a head with as many rows as the table, {got}")
        roles[places.head] = "head"
    edited, tensors, equal = list[EditedTensor](), dict[str, NewTensor](), 0
    draws = method == "covariance" or (method == "sub_tokens" and bool(alike(chosen, parts)))
    for name, role in roles.items():
        rows = rows_of(files, name)
        trained = trained_rows(rows, kept, with_covariance=draws)
        fresh = new_rows(rows, chosen, parts, trained, seed=seed)
        others = [other for other in vocabulary_matrices(files) if other not in roles.keys() | tensors.keys()]
        # torch.save stores shared rows under each of their names
        for same in (name, *(other for other in others if same_rows(files, name, other))):
            tensors[same] = _with_rows(files, same, chosen, fresh)
        (n, d), before = rows.shape, _mean_norm(files, name, chosen)
        norms = trained.mean_norm, before if math.isfinite(before) else None, 0.0
        dtype = FLOATS[files.entries[name].dtype]
        different = torch.unique(rounded_once(fresh, DTYPES[dtype]).view(_INTEGERS[DTYPES[dtype].itemsize]), dim=0)
        equal = max(equal, len(chosen) - len(different))
        edited.append(EditedTensor(name, role, n, d, dtype, n - len(chosen), *norms, trained.shrinkage))
    return edited, tensors, equal


def _with_rows(files: ModelFiles, name: str, ids: Sequence[int], rows: Tensor) -> NewTensor:
    """The tensor with `rows` at `ids`; all other rows stay as stored, bit for bit."""
    source, entry = files.tensors[name]
    at = torch.tensor(ids)

    def blocks() -> Iterator[Tensor]:
        start, dtype = 0, DTYPES[FLOATS[entry.dtype]]
        for block in stored_blocks(source, name, entry):
            here = (at >= start) & (at < start + len(block))
            fresh = block.clone()
            fresh[at[here] - start] = rounded_once(rows[here], dtype)
            yield fresh
            start += len(block)

    return NewTensor(entry.dtype, entry.shape, blocks)


def _mean_norm(files: ModelFiles, name: str, ids: Sequence[int]) -> float:
    return float(np.linalg.norm(rows_of(files, name).take(np.array(ids)).astype(np.float64), axis=1).mean())


def _require_other_rows(files: ModelFiles, copy: ModelFiles, name: str, ids: Sequence[int]) -> None:
    """Compare the rows that are not at `ids` in the written files, bit by bit."""
    (source, entry), (target, written), at = files.tensors[name], copy.tensors[name], torch.tensor(ids)
    changed = start = 0
    for a in stored_blocks(source, name, entry):
        content = bytearray(a.nbytes)
        target.read_into(written.start + start * a[0].nbytes, memoryview(content))
        kind = _INTEGERS[a.element_size()]
        other = (a.view(kind) != torch.frombuffer(content, dtype=kind).view(a.shape)).any(1)
        other[at[(at >= start) & (at < start + len(a))] - start] = False
        changed, start = changed + int(other.sum()), start + len(a)
    if changed:
        got = f"got {changed} others changed: the original was written to, or the disk is faulty; nothing was written"
        raise InputError(f"expected all rows of {name!r} except {len(ids)} to stay the same, {got}")


def _notes(ways: Mapping[int, Way], method: Way, labels: Labels, drawn: int) -> tuple[str, ...]:
    n, without = len(ways), sum(way != method for way in ways.values())
    nameless = sum(labels[i] is None for i in ways) if labels else 0
    draws = f"{without} of {n} tokens cannot be split into others. Their rows are draws around the mean of all trained"
    same = f"{drawn} of {n} tokens {plural(drawn, 'has', 'have')} the same sub-tokens as another, or only one. A draw"
    rows = f"{nameless} of {n} rows belong to no token of the tokenizer. No text reaches them, but a head now scores"
    return (
        (f"{draws} rows.",) * bool(without)
        + (f"{same} keeps their rows different.",) * bool(drawn)
        + (f"{rows} them like the others.",) * bool(nameless)
    )


def _of_equal(equal: int, n: int, method: Way) -> tuple[str, ...]:
    why = "the trained rows are too similar for draws to differ once stored."
    if method == "mean":
        why = (
            "nothing distinguishes these tokens. The method 'covariance' (--method covariance) gives rows that differ."
        )
    return (f"{equal} of {n} new rows are equal to another new row: {why}",) * bool(equal)


def _chosen(files: ModelFiles, places: Places, ids: Sequence[int] | str, n: int, labels: Labels) -> list[int]:
    if isinstance(ids, str):
        if ids not in ("zero", "added"):
            raise InputError(f"expected ids, 'zero' or 'added', got {ids!r}: give the ids of the tokens")
        chosen = _added_tokens(files, n) if ids == "added" else _zero_rows(files, places, labels)
        if not chosen:
            what = "is zero or not finite" if ids == "zero" else "was added after the vocabulary"
            raise InputError(f"expected a token whose row {what} in {files.path}, got none: give ids")
        return chosen
    chosen = sorted(set(map(whole_id, ids)))
    if not chosen:
        raise InputError("expected ids of tokens that get new rows, got none: give at least one")
    if wrong := [i for i in (chosen[0], chosen[-1]) if not 0 <= i < n]:
        raise InputError(f"expected ids from 0 to {n - 1}, got {wrong[0]}: give ids of rows that {places.input} has")
    return chosen


def _zero_rows(files: ModelFiles, places: Places, labels: Labels) -> list[int]:
    """Tokens with a row that is zero or not finite in the table or the head, except for padding."""
    empty = set[int]()
    for name in filter(None, (places.input, places.head)):
        start, rows = 0, rows_of(files, name)
        for block in rows.blocks(rows_at_once(rows.shape[1])):
            bad = ~block.any(axis=1) | ~np.isfinite(block).all(axis=1)
            empty |= {start + i for i in np.flatnonzero(bad).tolist()}
            start += len(block)
    padding = {part.get("pad_token_id") for part in text_parts(files.config)}
    return sorted(i for i in empty - padding if labels is None or labels[i] is not None)


def _added_tokens(files: ModelFiles, n: int) -> list[int]:
    tokenizer = _tokenizer(files, "give ids, or zero (--tokens zero)")
    own = set(tokenizer.get_vocab(with_added_tokens=False).values())
    return sorted(i for i in tokenizer.get_added_tokens_decoder() if i not in own and i < n)


def whole_id(value: Any) -> int:
    """The id as an int; `int` itself would cut a number that is not whole."""
    try:
        return operator.index(value)
    except TypeError as error:
        raise InputError(f"expected ids of tokens, got {value!r}: give whole numbers") from error


def _kept(chosen: Sequence[int], n: int, labels: Labels) -> Tensor:
    stays = torch.ones(n, dtype=torch.bool)
    stays[torch.tensor(chosen)] = False
    if labels is not None:
        named = stays & torch.tensor([label is not None for label in labels])
        stays = named if bool(named.any()) else stays
    return stays.nonzero().flatten()


def _tokenizer(files: ModelFiles, way_out: str) -> Any:
    tokenizer, why = load_tokenizer(files)
    if tokenizer is None:
        raise InputError(f"expected a tokenizer in {files.path}, got none that works ({why}): {way_out}")
    return tokenizer
