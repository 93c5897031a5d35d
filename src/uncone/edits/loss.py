"""The loss of a language model on a text, before and after an edit."""

import math
from collections.abc import Collection
from pathlib import Path
from typing import Any, Literal

import torch

from uncone.edits.record import TextLoss
from uncone.errors import InputError, UnconeError
from uncone.model import ModelFiles
from uncone.model.files import special_tokens
from uncone.model.head_map import is_seq2seq, run_model
from uncone.model.model_class import load_model
from uncone.model.text_sources import read_texts
from uncone.model.texts import cut, load_tokenizer, longest_input, token_ids
from uncone.roles import Path_, Progress

Tensor = torch.Tensor
Kind = Literal["next_token", "masked_token"]
_MOST_NUMBERS = 2**30  # logits computed in all; they are let go batch by batch
_MOST_TOKENS, _BATCH, _EVERY, _FIRST = 16_384, 4, 7, 3
_IGNORED = -100


def text_loss(
    original: ModelFiles,
    edited: ModelFiles,
    ids: Collection[int],
    n: int,
    text: Path_ | None,
    tell: Progress | None = None,
) -> tuple[TextLoss | None, str]:
    """(the loss of both models on the same text, "") or (None, why there is no loss). A causal model predicts the next
    tokens, any other model every seventh token, masked; at most 16,384 tokens are read. Edited `ids` among the targets
    are counted."""
    if text is None:
        return None, "no text was given"
    tokens, why = token_ids(original, "\n".join(read_texts(text)), n)
    if tokens is None:
        return None, why
    if len(tokens) < 2:
        raise InputError(f"expected a text of at least two tokens, got {len(tokens)} in {text}: give a longer one")
    try:
        model = load_model(original)
        if model.get_output_embeddings() is None or is_seq2seq(model):
            has = "an encoder and a decoder" if is_seq2seq(model) else "no head"
            return None, f"{type(model).__name__} has {has}, so it is not a language model of a single text"
        windows = cut(tokens[: max(2, min(_MOST_TOKENS, _MOST_NUMBERS // n))], longest_input(model))
        assert windows is not None
        kind: Kind = "next_token" if is_causal(model, windows[:1]) else "masked_token"
        inputs, labels = _asked(original, windows, kind)
        before = _mean_loss(model, inputs, labels, tell)
        del model
        after = _mean_loss(load_model(edited), inputs, labels, tell)
    except UnconeError as error:
        return None, str(error)
    if not math.isfinite(before + after):
        return None, f"the mean was {before:.4g} before the edit and {after:.4g} after it"
    targets = labels[labels != _IGNORED]
    edits = int(torch.isin(targets, torch.tensor(sorted(ids), dtype=torch.int64)).sum())
    return TextLoss(Path(text).name, kind, len(targets), edits, before, after), ""


def is_causal(model: Any, ids: Tensor) -> bool:
    """Whether the logits at the first position stay the same when the last token changes."""
    other = ids.clone()
    other[:, -1] = (other[:, -1] + 1) % int(model.get_input_embeddings().weight.shape[0])
    with torch.no_grad():
        first, second = (run_model(model, {"input_ids": x}).logits[:, 0] for x in (ids, other))
    return bool(torch.equal(first, second) or (first - second).abs().max() <= 1e-5 * first.abs().max())


def _asked(files: ModelFiles, windows: Tensor, kind: Kind) -> tuple[Tensor, Tensor]:
    """(input ids, labels (B, T) aligned with the logits)."""
    labels = torch.full_like(windows, _IGNORED)
    if kind == "next_token":
        labels[:, :-1] = windows[:, 1:]
        return windows, labels
    tokenizer, _ = load_tokenizer(files)
    masks = map(tokenizer.token_to_id, (*special_tokens(files.path, "mask_token"), "[MASK]", "<mask>"))
    mask = next((int(i) for i in masks if i is not None), None)
    if mask is None:
        raise InputError("the model sees later tokens, and its tokenizer has no mask token to hide them behind")
    inputs, start = windows.clone(), min(_FIRST, windows.shape[1] - 1)
    labels[:, start::_EVERY] = windows[:, start::_EVERY]
    inputs[:, start::_EVERY] = mask
    return inputs, labels


def _mean_loss(model: Any, inputs: Tensor, labels: Tensor, tell: Progress | None) -> float:
    total, count = 0.0, int((labels != _IGNORED).sum())
    with torch.no_grad():
        for start in range(0, len(inputs), _BATCH):
            part = slice(start, start + _BATCH)
            logits = run_model(model, {"input_ids": inputs[part]}).logits.flatten(0, 1).float()
            targets = labels[part].flatten()  # without _IGNORED by default
            total += float(torch.nn.functional.cross_entropy(logits, targets, reduction="sum"))
            if tell is not None:
                tell("measuring the loss", min(start + _BATCH, len(inputs)), len(inputs))
    return total / max(count, 1)
