"""A text as the ids of a model's tokenizer, in windows that the model has positions for."""

from collections.abc import Callable
from typing import Any

import torch

from uncone.errors import InputError, UnconeError, first_line
from uncone.model.files import ModelFiles
from uncone.model.hugging_face import attempt, open_tokenizer
from uncone.model.open import Opened

Tensor = torch.Tensor


def cut(ids: Tensor, length: int) -> Tensor | None:
    """Windows (B, length) of ids (N,) without the rest, one shorter window of few ids, or None below two ids."""
    if len(ids) < 2:
        return None
    full = len(ids) // length
    return ids[: full * length].view(full, length) if full else ids[None]


def longest_input(model: Any, most: int = 128) -> int:
    """The number of ids in a window: `most`, or as many as the model has positions for."""
    config = model.config.get_text_config() if hasattr(model.config, "get_text_config") else model.config
    known = [
        value
        for name in ("max_position_embeddings", "n_positions", "n_ctx", "max_target_positions", "max_seq_len")
        if type(value := getattr(config, name, None)) is int and value > 0
    ]
    positions = min(known, default=most)
    # some models count positions from 2, after the padding's
    return max(2, min(most, positions - 4 if positions > 16 else positions // 2))


def token_ids(files: ModelFiles, text: str, n: int) -> tuple[Tensor | None, str]:
    """(ids of the text (N,), "") or (None, why not)."""
    tokenizer, why = load_tokenizer(files)
    if tokenizer is None:
        return None, why
    read, error = attempt(lambda: tokenizer.encode(text).ids)
    if error is not None:
        return None, f"the tokenizer fails ({first_line(error)})"
    ids = torch.tensor(read, dtype=torch.int64)
    if (most := max(read or (), default=-1)) >= n:
        return None, f"the tokenizer gives id {most}, but the model has {n} rows"
    return ids, ""


def load_tokenizer(files: ModelFiles) -> tuple[Any, str]:
    """(the tokenizer of a directory, which neither truncates nor pads, "") or (None, why not)."""
    return _tokenizer(lambda: open_tokenizer(files.path))


def _tokenizer(call: Callable[[], Any]) -> tuple[Any, str]:
    try:
        found = call()
    except UnconeError as error:
        return None, f"its tokenizer cannot be read ({first_line(error)})"
    return found, "" if found is not None else "the model has no tokenizer"


def tokenizer_for_text(model: Opened) -> Any:
    found, why = _tokenizer(lambda: model.tokenizer)
    if found is None:
        raise InputError(f"expected a tokenizer in {model.path} for the text, got none ({why}): add tokenizer.json")
    return found
