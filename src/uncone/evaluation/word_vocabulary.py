"""From a word to rows of a table: by a tokenizer, or by the words of a file of word vectors."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from uncone.errors import InputError, expect
from uncone.model.files import special_tokens
from uncone.model.hugging_face import attempt, open_tokenizer

PROBES = ("water", "time", "house", "people", "small", "world", "light", "hand", "night", "school", "cat", "dog")
_IN_TEXT = "the"


@dataclass(frozen=True)
class Vocabulary:
    ids: Callable[[str], tuple[int, ...]]  # () for a word with an unknown token, or without a vector
    leading_space: bool  # before each word, as the tokenizer spells it inside a text
    described: str  # how words are looked up


def vocabulary_of(source: Any) -> Vocabulary:
    """The vocabulary of a model, of a tokenizer, or of the labels of word vectors.

    Only the tokenizer's own normaliser changes words (lower case, accents). A space goes before the word where the
    tokenizer spells words inside a text with it, as byte-level BPE does (GPT-2, RoBERTa). Known words, encoded alone,
    after a space and inside a text, decide this, not the model's name.

    Args:
        source: a directory with tokenizer.json (or the files of a slow tokenizer, which need transformers), a
            `tokenizers.Tokenizer`, a fast tokenizer of transformers, or the words themselves, one per row.

    Raises:
        InputError: no tokenizer there, one that cannot be read, or rows without words.
    """
    if isinstance(source, str | os.PathLike):
        tokenizer = open_tokenizer(Path(source))
        if tokenizer is None:
            raise InputError(f"expected tokenizer.json in {source}, got no tokenizer: put the model's there")
        return _of_tokenizer(tokenizer, set(special_tokens(Path(source), "unk_token")))
    if hasattr(source, "backend_tokenizer"):
        return _of_tokenizer(source.backend_tokenizer, {source.unk_token} - {None})
    if hasattr(source, "encode") and hasattr(source, "get_vocab"):
        return _of_tokenizer(source, set())
    # of a repeated word the first row counts
    rows = {label: row for row, label in reversed(list(enumerate(source or ()))) if label is not None}
    advice = "open word vectors (.vec, .txt, .bin) or name the directory of the model's tokenizer"
    expect(bool(rows), f"words for the rows, got rows without labels: {advice}")
    described = "words as the rows are labelled, matched exactly"
    return Vocabulary(lambda word: (rows[word],) if word in rows else (), False, described)


def _of_tokenizer(tokenizer: Any, unknown: set[str]) -> Vocabulary:
    own = type(tokenizer).from_str(tokenizer.to_str())  # the caller's keeps its padding and truncation
    own.no_padding()  # sentence encoders may pad to a fixed length
    own.no_truncation()
    # A word must not hold the unknown token, by any of its names.
    tokens = unknown | {getattr(own.model, "unk_token", None)}
    refused = {own.token_to_id(token) for token in tokens if isinstance(token, str)}
    refused.add(getattr(own.model, "unk_id", None))
    prefix, described = _prefix(own)

    def ids(word: str) -> tuple[int, ...]:
        pieces = tuple(_encoded(own, prefix + word))
        return () if refused & set(pieces) else pieces

    return Vocabulary(ids, prefix == " ", described)


def _encoded(tokenizer: Any, text: str) -> list[int]:
    """The ids of a text; none where a tokenizer without an unknown token fails."""
    return attempt(lambda: list(tokenizer.encode(text, add_special_tokens=False).ids))[0] or []


def _prefix(tokenizer: Any) -> tuple[str, str]:
    """The prefix, "" or " ", that spells more probe words as inside a text; and the reason."""
    start = _encoded(tokenizer, _IN_TEXT)
    alike = {"": 0, " ": 0}
    for word in PROBES:
        inside = _encoded(tokenizer, f"{_IN_TEXT} {word}")
        for prefix in alike:
            spelled = _encoded(tokenizer, prefix + word)
            alike[prefix] += bool(spelled) and inside == start + spelled
    prefix = " " if alike[" "] > alike[""] else ""
    form = "after a space" if prefix else "without a space before them"
    probed = f"which spells {alike[prefix]} of {len(PROBES)} probe words as a text spells them"
    return prefix, f"words are encoded {form}, {probed}"
