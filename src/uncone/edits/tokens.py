"""New values for the rows of tokens that were never trained: zero, outlying, or newly added rows.

Such a row holds what it was initialised with, or where the loss pushed it away from every text. Its token then acts on the model as noise. The row is
set to where a token of its kind would start well: the mean of the rows of the tokens it would be written with without it, or the
mean of all trained rows. Every other row stays as it is to the bit, which is checked in the written files.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from uncone.atomic import creatable
from uncone.edits.model_files import Copy, compare_untouched, edited_copy, open_directory
from uncone.edits.model_shards import NewTensor, rounded_once, stored_blocks
from uncone.edits.tokens_choice import Labels, chosen_ids, kept_ids, tokenizer_of
from uncone.edits.tokens_loss import text_loss
from uncone.edits.tokens_rows import Trained, new_rows, trained_rows
from uncone.edits.tokens_split import sub_tokens
from uncone.errors import InputError
from uncone.model import ModelFiles, find_places, rows_of, token_labels
from uncone.model.places import Places, same_rows, vocabulary_matrices
from uncone.records.token_edit import MOST_LISTED, EditedTensor, EditedToken, TokenEdit, Way
from uncone.records.wording import cut_label
from uncone.rows.bytes import LocalFile
from uncone.rows.flat import TORCH_DTYPES
from uncone.rows.safetensors import FLOATS, Entry

Tensor = torch.Tensor
Progress = Callable[[str, int, int], None]
WAYS: tuple[Way, ...] = ("sub_tokens", "mean", "covariance")
_INTEGERS = {8: torch.int64, 4: torch.int32, 2: torch.int16}


@dataclass(frozen=True)
class Part:
    """One matrix to edit, and the others that hold the same numbers."""

    name: str
    role: Literal["table", "head", "both"]
    copies: tuple[str, ...]
    trained: Trained
    rows: Tensor
    """(len(ids), D): the new rows, in float64."""


def reinitialise_tokens(
    model: str | os.PathLike[str],
    out: str | os.PathLike[str],
    ids: Sequence[int] | Literal["zero", "added"] = "zero",
    *,
    method: Way = "sub_tokens",
    text: str | os.PathLike[str] | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> TokenEdit:
    """Write a copy of a model in which the rows of some tokens, and no others, are set anew.

    The token table and, where it is a matrix of its own, the output head are both edited, each from its own rows; a bias stays.

    Args:
        model: a directory of transformers (config.json, safetensors or a checkpoint of torch.save).
        out: the directory to write. It must not exist; it appears whole or not at all.
        ids: the tokens, such as `measure.under_trained_tokens` finds; or "zero": those that stand for a token and whose row is
            zero or not finite, but for the padding's; or "added": those that were added behind the tokenizer's own vocabulary, among which may be
            trained ones (the roles of a chat).
        method: "sub_tokens": the mean of the rows of the tokens that the string would be split into without them; where there are none, the
            mean of all trained rows. "mean": that mean. "covariance": a draw around it, a tenth as wide as the trained rows are
            spread, with the covariance shrunk as Ledoit & Wolf (2004) do, which makes it positive definite for any number of rows.
        text: a text in UTF-8 on which the loss is measured before and after; None for none.
        seed: of the draw.
        progress: called with what is done, how much is, and of how much.

    Returns:
        `TokenEdit`: the tokens with what their rows were made of, the matrices with what was compared, the loss.

    Raises:
        InputError: no such model, ids that are not there, no tokenizer for their strings, trained rows that are not finite, `out` exists or cannot be
            written, a GGUF model.
        UnsupportedModel: quantised weights, an adapter, a table that is not found.
    """
    if method not in WAYS:
        raise InputError(f"expected a method of {', '.join(WAYS)}, got {method!r}: choose one of them")
    creatable(out, outside=model)
    files = open_directory(model)
    places = find_places(files)
    n = files.entries[places.input].shape[0]
    labels = token_labels(files.path, n).labels
    chosen = chosen_ids(files, places, ids, n, labels)
    parts = sub_tokens(tokenizer_of(files), chosen) if method == "sub_tokens" else {}
    kept = kept_ids(chosen, n, labels)
    parts = {i: tuple(part for part in parts[i] if part < n) for i in parts}
    edited = _parts(files, places, chosen, parts, kept, method, seed)
    tensors = {
        name: _with_rows(files, name, chosen, part.rows)
        for part in edited
        for name in (part.name, *part.copies)
    }
    with edited_copy(files, out, tensors) as copy:
        measured = tuple(_compared(files, copy, part, chosen) for part in edited)
        unchanged = compare_untouched(files, copy.files, frozenset(tensors))
        loss, no_loss = text_loss(files, copy.files, set(chosen), n, text, progress)
        return TokenEdit(
            name=files.path.resolve().name, method=method, edited=len(chosen), tokens=_listed(chosen, labels, parts, method),
            tensors=measured, unchanged=unchanged, seed=seed, loss=loss, no_loss=no_loss,
            notes=_notes(chosen, parts, method, labels), left_out=copy.left_out,
        )  # fmt: skip


def _parts(
    files: ModelFiles,
    places: Places,
    chosen: Sequence[int],
    parts: Mapping[int, tuple[int, ...]],
    kept: Tensor,
    method: Way,
    seed: int,
) -> list[Part]:
    """The table, and the head where it is a matrix of its own, with their new rows."""
    roles: list[tuple[str, Literal["table", "head", "both"]]] = [
        (places.input, "both" if places.tied else "table")
    ]
    if places.head is not None and not places.tied:
        if files.entries[places.head].shape[0] != files.entries[places.input].shape[0]:
            raise InputError(
                f"expected a head with as many rows as the table, got {files.entries[places.head].shape[0]} and {files.entries[places.input].shape[0]}: "
                "their ids mean different tokens"
            )
        roles.append((places.head, "head"))
    found, taken = list[Part](), {name for name, _ in roles}
    for name, role in roles:
        rows = rows_of(files, name)
        trained = trained_rows(rows, kept, with_covariance=method == "covariance")
        copies = [
            other
            for other in vocabulary_matrices(files)
            if other not in taken and _is_copy(files, name, other)
        ]
        taken |= set(copies)
        found.append(
            Part(name, role, tuple(copies), trained, new_rows(rows, chosen, parts, trained, seed=seed))
        )
    return found


def _is_copy(files: ModelFiles, name: str, other: str) -> bool:
    """A checkpoint of torch.save holds shared rows under each of their names."""
    a, b = files.entries[name], files.entries[other]
    return (a.shape, a.dtype) == (b.shape, b.dtype) and same_rows(files, name, other)


def _with_rows(files: ModelFiles, name: str, ids: Sequence[int], rows: Tensor) -> NewTensor:
    """The matrix with `rows` at `ids`; all others as they are stored, to the bit."""
    source, entry = _stored(files, name)
    at = torch.tensor(ids)

    def blocks() -> Iterator[Tensor]:
        start, dtype = 0, TORCH_DTYPES[FLOATS[entry.dtype]]
        for block in stored_blocks(source, name, entry):
            here = (at >= start) & (at < start + len(block))
            fresh = block.clone()
            fresh[at[here] - start] = rounded_once(rows[here], dtype)
            yield fresh
            start += len(block)

    return NewTensor(entry.dtype, entry.shape, blocks)


def _compared(files: ModelFiles, copy: Copy, part: Part, ids: Sequence[int]) -> EditedTensor:
    """Compare all other rows in the written files, bit by bit.

    Raises:
        InputError: one differs.
    """
    at = torch.tensor(ids)
    for name in (part.name, *part.copies):
        equal = _equal_rows(files, copy.files, name, at)
        others = files.entries[name].shape[0] - len(ids) - equal
        if others:
            raise InputError(
                f"expected all rows of {name!r} but {len(ids)} to be as they were, got {others} others: the original was written to "
                "meanwhile, or the disk is faulty; nothing was written"
            )
    entry = files.entries[part.name]
    before, after = (
        rows_of(where, part.name).take(at).double().norm(dim=1).mean() for where in (files, copy.files)
    )
    return EditedTensor(
        name=part.name, role=part.role, n=entry.shape[0], d=entry.shape[1], dtype=FLOATS[entry.dtype], rows_equal=equal,
        mean_norm_others=part.trained.mean_norm, mean_norm_before=float(before) if bool(torch.isfinite(before)) else None,
        mean_norm_after=float(after), shrinkage=part.trained.shrinkage,
    )  # fmt: skip


def _equal_rows(files: ModelFiles, copy: ModelFiles, name: str, but: Tensor) -> int:
    """How many rows are the same to the bit, those at `but` aside."""
    (source, entry), (target, written) = _stored(files, name), _stored(copy, name)
    equal = start = 0
    for a in stored_blocks(source, name, entry):
        content = bytearray(a.nbytes)
        target.read_into(written.start + start * a[0].nbytes, memoryview(content))
        kind = _INTEGERS[a.element_size()]
        same = (a.view(kind) == torch.frombuffer(content, dtype=kind).view(a.shape)).all(1)
        same[but[(but >= start) & (but < start + len(a))] - start] = False
        equal, start = equal + int(same.sum()), start + len(a)
    return equal


def _stored(files: ModelFiles, name: str) -> tuple[LocalFile, Entry]:
    source, entry = files.tensors[name]
    assert isinstance(source, LocalFile)
    return source, entry


def _listed(
    ids: Sequence[int], labels: Labels, parts: Mapping[int, tuple[int, ...]], method: Way
) -> tuple[EditedToken, ...]:
    def way(i: int) -> Way:
        return ("sub_tokens" if parts.get(i) else "mean") if method == "sub_tokens" else method

    return tuple(
        EditedToken(i, None if labels is None else cut_label(labels[i]), way(i), parts.get(i, ()))
        for i in ids[:MOST_LISTED]
    )


def _notes(
    ids: Sequence[int], parts: Mapping[int, tuple[int, ...]], method: Way, labels: Labels
) -> tuple[str, ...]:
    notes = list[str]()
    without = sum(not parts.get(i) for i in ids) if method == "sub_tokens" else 0
    if without:
        notes.append(
            f"{without} of {len(ids)} tokens cannot be written with others; their rows are the mean of all trained rows."
        )
    nameless = sum(labels[i] is None for i in ids) if labels is not None else 0
    if nameless:
        notes.append(
            f"{nameless} of {len(ids)} rows stand for no token of the tokenizer: no text reaches them, but a head now scores them like others."
        )
    return tuple(notes)
