"""New values for the rows of tokens that were never trained: zero, outlying, or newly added rows.

Such a token acts on the model as noise. Every other row stays to the bit, checked in the written files.
"""

import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from uncone.atomic import creatable
from uncone.edits.directory import (
    NewTensor,
    compare_untouched,
    edited_copy,
    open_directory,
    rounded_once,
    rows_at_once,
    stored_blocks,
)
from uncone.edits.loss import text_loss
from uncone.edits.new_rows import Trained, new_rows, sub_tokens, trained_rows
from uncone.edits.proof import Progress
from uncone.edits.texts import Path_, load_tokenizer
from uncone.errors import InputError
from uncone.model import ModelFiles, find_places, rows_of, token_labels
from uncone.model.files import text_parts
from uncone.model.places import Places, same_rows, vocabulary_matrices
from uncone.records.edits import MOST_LISTED, EditedTensor, EditedToken, TokenEdit, Way
from uncone.records.wording import cut_label
from uncone.rows.base import DTYPES
from uncone.rows.safetensors import FLOATS

Tensor = torch.Tensor
WAYS: tuple[Way, ...] = ("sub_tokens", "mean", "covariance")
Labels = Sequence[str | None] | None
_INTEGERS = {8: torch.int64, 4: torch.int32, 2: torch.int16}


@dataclass(frozen=True)
class _Matrix:
    """One matrix to edit, the others with the same numbers, and the new rows (len(ids), D) in float64."""

    name: str
    role: Literal["table", "head", "both"]
    copies: tuple[str, ...]
    trained: Trained
    rows: Tensor


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
    """Write a copy of a model in which the rows of some tokens, and no others, are set anew.

    The token table and, where it is a matrix of its own, the output head are both edited, each from its own
    rows; a bias stays.

    Args:
        ids: the tokens; or "zero": the tokens, but for the padding, whose row is zero or not finite; or
            "added": the tokens behind the tokenizer's own vocabulary, some of which may be trained (the roles
            of a chat).
        method: "sub_tokens": the mean of the rows of the tokens that the string would be split into without
            them; without any, the mean of all trained rows. "mean": that mean. "covariance": a draw around
            it, a tenth as wide as the trained rows are spread, by their shrunk covariance.
        text: the loss is measured on it before and after.
        seed: of the draw.
    """
    way = way_named(method)
    creatable(out, outside=model)
    files = open_directory(model)
    places = find_places(files)
    n = files.entries[places.input].shape[0]
    labels = token_labels(files.path, n).labels
    chosen = _chosen(files, places, ids, n, labels)
    parts = sub_tokens(_tokenizer(files), chosen) if way == "sub_tokens" else {}
    parts = {i: tuple(part for part in parts[i] if part < n) for i in parts}
    edited = _matrices(files, places, chosen, parts, _kept(chosen, n, labels), way, seed)
    tensors = {
        name: _with_rows(files, name, chosen, matrix.rows)
        for matrix in edited
        for name in (matrix.name, *matrix.copies)
    }
    with edited_copy(files, out, tensors) as copy:
        measured = tuple(_compared(files, copy.files, matrix, chosen) for matrix in edited)
        unchanged = compare_untouched(files, copy.files, frozenset(tensors))
        loss, no_loss = text_loss(files, copy.files, set(chosen), n, text, progress)
        ways: dict[int, Way] = {i: "mean" if way == "sub_tokens" and not parts[i] else way for i in chosen}
        tokens = tuple(
            EditedToken(i, None if labels is None else cut_label(labels[i]), ways[i], parts.get(i, ()))
            for i in chosen[:MOST_LISTED]
        )
        return TokenEdit(
            name=files.path.resolve().name, method=way, edited=len(chosen), tokens=tokens, tensors=measured,
            unchanged=unchanged, seed=seed, loss=loss, no_loss=no_loss, notes=_notes(ways, way, labels),
            left_out=copy.left_out,
        )  # fmt: skip


def way_named(method: str) -> Way:
    """The way of this name."""
    if method not in WAYS:
        raise InputError(
            f"expected --method (method=) {', '.join(WAYS)}, got {method!r}: choose what new rows are made of"
        )
    return method


def _matrices(
    files: ModelFiles,
    places: Places,
    chosen: Sequence[int],
    parts: Mapping[int, tuple[int, ...]],
    kept: Tensor,
    method: Way,
    seed: int,
) -> list[_Matrix]:
    """The table, and the head where it is a matrix of its own, with their new rows."""
    roles: dict[str, Literal["table", "head", "both"]] = {places.input: "both" if places.tied else "table"}
    if places.head is not None and not places.tied:
        rows_of_each = files.entries[places.head].shape[0], files.entries[places.input].shape[0]
        if rows_of_each[0] != rows_of_each[1]:
            raise InputError(
                f"expected a head with as many rows as the table, got {rows_of_each[0]} and "
                f"{rows_of_each[1]}: their ids mean different tokens"
            )
        roles[places.head] = "head"
    matrices, taken = list[_Matrix](), set(roles)
    for name, role in roles.items():
        rows = rows_of(files, name)
        trained = trained_rows(rows, kept, with_covariance=method == "covariance")
        others = [other for other in vocabulary_matrices(files) if other not in taken]
        copies = tuple(other for other in others if _is_copy(files, name, other))
        taken |= set(copies)
        fresh = new_rows(rows, chosen, parts, trained, seed=seed)
        matrices.append(_Matrix(name, role, copies, trained, fresh))
    return matrices


def _is_copy(files: ModelFiles, name: str, other: str) -> bool:
    """A checkpoint of torch.save holds shared rows under each of their names."""
    a, b = files.entries[name], files.entries[other]
    return (a.shape, a.dtype) == (b.shape, b.dtype) and same_rows(files, name, other)


def _with_rows(files: ModelFiles, name: str, ids: Sequence[int], rows: Tensor) -> NewTensor:
    """The matrix with `rows` at `ids`; all others as they are stored, to the bit."""
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


def _compared(files: ModelFiles, copy: ModelFiles, matrix: _Matrix, ids: Sequence[int]) -> EditedTensor:
    """Compare all other rows in the written files, bit by bit."""
    at = torch.tensor(ids)
    for name in (matrix.name, *matrix.copies):
        equal = _equal_rows(files, copy, name, at)
        others = files.entries[name].shape[0] - len(ids) - equal
        if others:
            raise InputError(
                f"expected all rows of {name!r} but {len(ids)} to be as they were, got {others} others: the "
                "original was written to meanwhile, or the disk is faulty; nothing was written"
            )
    entry = files.entries[matrix.name]
    before, after = (
        rows_of(where, matrix.name).take(at).double().norm(dim=1).mean() for where in (files, copy)
    )
    return EditedTensor(
        name=matrix.name, role=matrix.role, n=entry.shape[0], d=entry.shape[1], dtype=FLOATS[entry.dtype],
        rows_equal=equal, mean_norm_others=matrix.trained.mean_norm, mean_norm_after=float(after),
        mean_norm_before=float(before) if bool(torch.isfinite(before)) else None,
        shrinkage=matrix.trained.shrinkage,
    )  # fmt: skip


def _equal_rows(files: ModelFiles, copy: ModelFiles, name: str, but: Tensor) -> int:
    """How many rows are the same to the bit, those at `but` aside."""
    (source, entry), (target, written) = files.tensors[name], copy.tensors[name]
    equal = start = 0
    for a in stored_blocks(source, name, entry):
        content = bytearray(a.nbytes)
        target.read_into(written.start + start * a[0].nbytes, memoryview(content))
        kind = _INTEGERS[a.element_size()]
        same = (a.view(kind) == torch.frombuffer(content, dtype=kind).view(a.shape)).all(1)
        same[but[(but >= start) & (but < start + len(a))] - start] = False
        equal, start = equal + int(same.sum()), start + len(a)
    return equal


def _notes(ways: Mapping[int, Way], method: Way, labels: Labels) -> tuple[str, ...]:
    notes = list[str]()
    without = sum(way != method for way in ways.values())
    if without:
        notes.append(
            f"{without} of {len(ways)} tokens cannot be written with others; their rows are the mean of all "
            "trained rows."
        )
    nameless = sum(labels[i] is None for i in ways) if labels is not None else 0
    if nameless:
        notes.append(
            f"{nameless} of {len(ways)} rows stand for no token of the tokenizer: no text reaches them, but "
            "a head now scores them like others."
        )
    return tuple(notes)


def _chosen(files: ModelFiles, places: Places, ids: Sequence[int] | str, n: int, labels: Labels) -> list[int]:
    """The ids that are asked for, ascending, each once."""
    if isinstance(ids, str):
        if ids not in ("zero", "added"):
            raise InputError(f"expected ids, 'zero' or 'added', got {ids!r}: give the numbers of the tokens")
        chosen = _added_tokens(files, n) if ids == "added" else _zero_rows(files, places, labels)
        if not chosen:
            what = "is zero or not finite" if ids == "zero" else "was added behind the vocabulary"
            raise InputError(f"expected a token whose row {what} in {files.path}, got none: give ids")
        return chosen
    chosen = sorted({whole_id(i) for i in ids})
    if not chosen:
        raise InputError("expected ids of tokens to set anew, got none: give at least one")
    wrong = [i for i in (chosen[0], chosen[-1]) if not 0 <= i < n]
    if wrong:
        raise InputError(
            f"expected ids from 0 to {n - 1}, got {wrong[0]}: give ids of rows that {places.input} has"
        )
    return chosen


def _zero_rows(files: ModelFiles, places: Places, labels: Labels) -> list[int]:
    """The tokens, but for the padding, with a row that is zero or not finite in the table or the head."""
    empty = set[int]()
    for name in filter(None, (places.input, places.head)):
        start, rows = 0, rows_of(files, name)
        for block in rows.blocks(rows_at_once(rows.shape[1])):
            bad = (block == 0).all(1) | ~torch.isfinite(block).all(1)
            empty |= {start + i for i in bad.nonzero().flatten().tolist()}
            start += len(block)
    padding = {part.get("pad_token_id") for part in text_parts(files.config)}
    return sorted(i for i in empty - padding if labels is None or labels[i] is not None)


def _added_tokens(files: ModelFiles, n: int) -> list[int]:
    """The ids below `n` of tokens that were added behind the vocabulary of the tokenizer's model."""
    tokenizer = _tokenizer(files)
    own = set(tokenizer.get_vocab(with_added_tokens=False).values())
    return sorted(i for i in tokenizer.get_added_tokens_decoder() if i not in own and i < n)


def whole_id(value: Any) -> int:
    """`value` as an int; `int` would cut one that is not whole."""
    try:
        return operator.index(value)
    except TypeError as error:
        raise InputError(f"expected ids of tokens, got {value!r}: give whole numbers") from error


def _kept(chosen: Sequence[int], n: int, labels: Labels) -> Tensor:
    """The rows to learn from: those that stay and stand for a token."""
    stays = torch.ones(n, dtype=torch.bool)
    stays[torch.tensor(chosen)] = False
    if labels is not None:
        named = stays & torch.tensor([label is not None for label in labels])
        stays = named if bool(named.any()) else stays
    return stays.nonzero().flatten()


def _tokenizer(files: ModelFiles) -> Any:
    tokenizer, why = load_tokenizer(files)
    if tokenizer is None:
        raise InputError(
            f"expected a tokenizer in {files.path}, got none that works ({why}): use the method 'mean' or "
            "'covariance' (--method mean), with ids"
        )
    return tokenizer
