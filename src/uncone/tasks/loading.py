"""Models for encoding, loaded from their directories: no network, no code of theirs, no messages on the way."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from uncone.errors import InputError, UnsupportedModel
from uncone.model.files import read_json

_OWN = "sentence_transformers."
_LONGEST = 512
"""Tokens of a text, where a model says no limit or a larger one."""


def load_sentence_transformer(directory: Path) -> tuple[Any, bool]:
    """The model without a last Normalize, and whether it had one."""
    _check_modules(directory)
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError as error:
        raise InputError(
            f"{directory} needs Sentence Transformers: pip install 'uncone[sentence]'"
        ) from error
    with _loading(directory):
        model = SentenceTransformer(
            str(directory), device="cpu", local_files_only=True, trust_remote_code=False
        )
    model.eval()
    normalizes = len(model) > 1 and type(model[len(model) - 1]).__name__ == "Normalize"
    if normalizes:
        del model[len(model) - 1]
    return model, normalizes


def load_transformer(directory: Path) -> tuple[Any, Any, int]:
    """The model (the encoder, of an encoder-decoder), its tokenizer, and the most tokens of a text."""
    try:
        from transformers import AutoModel, AutoTokenizer
    except ImportError as error:
        raise InputError(f"{directory} needs transformers: pip install 'uncone[hf]'") from error
    with _loading(directory):
        model = (
            AutoModel.from_pretrained(directory, local_files_only=True, trust_remote_code=False)
            .float()
            .eval()
        )
        tokenizer = AutoTokenizer.from_pretrained(directory, local_files_only=True, trust_remote_code=False)
        if tokenizer.pad_token is None:
            # Padding is masked, so any token will do.
            tokenizer.pad_token = (
                tokenizer.eos_token or tokenizer.unk_token or tokenizer.convert_ids_to_tokens(0)
            )
        tokenizer.padding_side = "right"
        positions = getattr(model.config, "max_position_embeddings", None) or _LONGEST
        longest = min(_LONGEST, tokenizer.model_max_length, positions)
        return (model.get_encoder() if model.config.is_encoder_decoder else model), tokenizer, longest


def _check_modules(directory: Path) -> None:
    """Sentence Transformers imports the classes that modules.json names: none but its own are let in."""
    try:
        modules = read_json(directory / "modules.json", list)
        kinds = [str(module["type"]) for module in modules]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(
            f"expected a list of modules with their types in {directory / 'modules.json'}, got another content: copy the model again"
        ) from error
    foreign = [kind for kind in kinds if not kind.startswith(_OWN)]
    if foreign:
        raise UnsupportedModel(
            f"the module {foreign[0][:200]!r} of {directory} is not one of Sentence Transformers: uncone runs no code of a model"
        )


@contextmanager
def _loading(directory: Path) -> Iterator[None]:
    """Damaged files make loaders raise nearly anything; a panic in Rust is not even an Exception."""
    try:
        with _quiet(), _offline():
            yield
    except (KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise UnsupportedModel(f"the encoder in {directory} cannot be loaded: {first[:300]}") from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Loaders talk on standard error, of bars and of weights that an encoder does not use."""
    from transformers.utils import logging as messages

    noisy = [logging.getLogger(name) for name in ("transformers", "sentence_transformers")]
    levels = [logger.level for logger in noisy]
    had_bars = messages.is_progress_bar_enabled()
    messages.disable_progress_bar()
    for logger in noisy:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for logger, level in zip(noisy, levels, strict=True):
            logger.setLevel(level)
        if had_bars:
            messages.enable_progress_bar()


@contextmanager
def _offline() -> Iterator[None]:
    """The hub's libraries read this when they look for files; local_files_only does not reach all of them."""
    before = os.environ.get("HF_HUB_OFFLINE")
    os.environ["HF_HUB_OFFLINE"] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["HF_HUB_OFFLINE"]
        else:
            os.environ["HF_HUB_OFFLINE"] = before
