"""A model's tokenizer and the rows that its ids name, opened without weights or torch."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from uncone.errors import InputError
from uncone.model.files import labels_of
from uncone.model.hugging_face import open_tokenizer
from uncone.model.open import open_spec
from uncone.model.sentence_transformers import is_sentence_transformers
from uncone.roles import Path_


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """A `tokenizers.Tokenizer` that neither truncates nor pads, and what its ids stand for."""

    name: str
    tokenizer: Any
    size: int  # rows of the token table; without a model, the largest id plus one
    labels: Sequence[str | None]  # the token of each id

    def digest(self) -> str:
        return hashlib.sha256(f"{self.size} {self.tokenizer.to_str()}".encode()).hexdigest()


def open_vocabulary(spec: Path_) -> Vocabulary:
    """The vocabulary of a model (a directory or a cached name), a tokenizer's directory, or a tokenizer.json."""
    opened = open_spec(spec)
    path = opened.path
    if opened.part is not None:
        raise InputError(f"expected a whole model or a tokenizer, got {opened}: leave out #{opened.part}")
    tokenizer = open_tokenizer(path) if path.is_file() else opened.tokenizer
    if tokenizer is None:
        raise InputError(f"expected a tokenizer in {path}, got none: give a model with tokenizer.json, or that file")
    ids = tokenizer.get_vocab(with_added_tokens=True)
    if is_sentence_transformers(path) or (path / "config.json").is_file():
        size = opened.model.rows(opened.model.places().input).shape[0]
    else:
        size = max(ids.values(), default=-1) + 1
    return Vocabulary(opened.name, tokenizer, size, labels_of(sorted(ids.items()), size))
