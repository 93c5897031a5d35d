"""Which rows are to be set anew, and which the new ones are made of."""

import operator
from collections.abc import Sequence
from typing import Any

import torch

from uncone.edits.model_shards import rows_at_once
from uncone.edits.proof_text import load_tokenizer
from uncone.errors import InputError
from uncone.model import ModelFiles, Places, rows_of
from uncone.model.files import text_parts

Labels = Sequence[str | None] | None


def zero_rows(files: ModelFiles, names: Sequence[str]) -> list[int]:
    """The ids whose row, in one of the matrices, is zero or not finite."""
    found = set[int]()
    for name in names:
        start, rows = 0, rows_of(files, name)
        for block in rows.blocks(rows_at_once(rows.shape[1])):
            empty = (block == 0).all(1) | ~torch.isfinite(block).all(1)
            found |= {start + i for i in empty.nonzero().flatten().tolist()}
            start += len(block)
    return sorted(found)


def added_tokens(files: ModelFiles, n: int) -> list[int]:
    """The ids below `n` of tokens that were added behind the vocabulary of the tokenizer's model.

    Raises:
        InputError: no tokenizer.
    """
    tokenizer = tokenizer_of(files)
    own = set(tokenizer.get_vocab(with_added_tokens=False).values())
    return sorted(i for i in tokenizer.get_added_tokens_decoder() if i not in own and i < n)


def chosen_ids(
    files: ModelFiles, places: Places, ids: Sequence[int] | str, n: int, labels: Labels
) -> list[int]:
    """The ids that are asked for, ascending, each once.

    Raises:
        InputError: none, or one that is no row; no tokenizer where added tokens are asked for.
    """
    if isinstance(ids, str):
        if ids not in ("zero", "added"):
            raise InputError(f"expected ids, 'zero' or 'added', got {ids!r}: give the numbers of the tokens")
        names = [places.input, *([places.head] if places.head else [])]
        found = added_tokens(files, n) if ids == "added" else _empty(files, names, labels)
        if not found:
            what = "is zero or not finite" if ids == "zero" else "was added behind the vocabulary"
            raise InputError(
                f"expected a token whose row {what} in {files.path}, got none: give ids, such as under_trained_tokens finds"
            )
        return found
    chosen = sorted({whole_id(i) for i in ids})
    if not chosen:
        raise InputError("expected ids of tokens to set anew, got none: give at least one")
    if chosen[0] < 0 or chosen[-1] >= n:
        wrong = chosen[0] if chosen[0] < 0 else chosen[-1]
        raise InputError(
            f"expected ids from 0 to {n - 1}, got {wrong}: give ids of rows that {places.input} has"
        )
    return chosen


def whole_id(value: Any) -> int:
    """`value` as an int; `int` would cut what is no whole number.

    Raises:
        InputError: it is none.
    """
    try:
        return operator.index(value)
    except TypeError as error:
        raise InputError(f"expected ids of tokens, got {value!r}: give whole numbers") from error


def _empty(files: ModelFiles, names: Sequence[str], labels: Labels) -> list[int]:
    """Zero rows that stand for a token, but for the padding's, which is zero by design."""
    padding = {part.get("pad_token_id") for part in text_parts(files.config)}
    return [
        i for i in zero_rows(files, names) if i not in padding and (labels is None or labels[i] is not None)
    ]


def kept_ids(chosen: Sequence[int], n: int, labels: Labels) -> torch.Tensor:
    """The rows to learn from: those that stay and stand for a token."""
    stays = torch.ones(n, dtype=torch.bool)
    stays[torch.tensor(chosen)] = False
    if labels is not None:
        has_token = torch.tensor([label is not None for label in labels])
        stays = stays & has_token if bool((stays & has_token).any()) else stays
    return stays.nonzero().flatten()


def tokenizer_of(files: ModelFiles) -> Any:
    """The `tokenizers.Tokenizer` of the directory.

    Raises:
        InputError: there is none, or it cannot be read.
    """
    tokenizer, why = load_tokenizer(files)
    if tokenizer is None:
        raise InputError(
            f"expected a tokenizer in {files.path}, got none that works ({why}): use the method 'mean' or 'covariance' (--method mean), with ids"
        )
    return tokenizer
