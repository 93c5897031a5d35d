"""Texts as sequences of ids: passages of an encoder, windows of a decoder's running text."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from uncone.errors import InputError
from uncone.model.hugging_face import encoded
from uncone.model.text_sources import TextSource
from uncone.rows import Array

_SHORTEST = 2


@dataclass(frozen=True)
class Template:
    """How a tokenizer frames a sequence, such as [CLS] ... [SEP] or <s> ..."""

    before: tuple[int, ...]
    after: tuple[int, ...]
    special: frozenset[int]  # ids that stand for no text


def template_of(tokenizer: Any) -> Template:
    """All special tokens count as special, except the unknown token."""
    plain = tokenizer.encode("a", add_special_tokens=False).ids
    framed = tokenizer.encode("a").ids
    at = next((i for i in range(len(framed)) if framed[i : i + len(plain)] == plain), 0)
    before, after = framed[:at], framed[at + len(plain) :] if plain else []
    added = tokenizer.get_added_tokens_decoder() if hasattr(tokenizer, "get_added_tokens_decoder") else {}
    unknown = getattr(tokenizer.model, "unk_token", None)
    special = {i for i, token in added.items() if token.special and token.content != unknown}
    return Template(tuple(before), tuple(after), frozenset(special | {*before, *after}))


@dataclass(eq=False)
class Sequences:
    sources: Sequence[TextSource]
    tokenizer: Any
    template: Template
    longest: int  # ids of a sequence, with the special ids around it
    causal: bool  # windows of running text; if false, each line or document is a passage
    rows: int  # of the model's table
    cut: int = 0

    def __iter__(self) -> Iterator[Array]:
        room = self.longest - len(self.template.before) - len(self.template.after)
        if room < _SHORTEST:
            raise InputError(f"expected a model with positions for a text, got {self.longest}: give another model")
        for source in self.sources:
            for ids in self._running(source, room) if self.causal else self._passages(source, room):
                yield np.concatenate([self.template.before, ids, self.template.after]).astype(np.int64)

    def _passages(self, source: TextSource, room: int) -> Iterator[Array]:
        """Each line or document; a longer one as windows of nearly equal length."""
        for ids in self._encoded(source.passages()):
            parts = -(-len(ids) // room)
            self.cut += parts > 1
            yield from (part for part in np.array_split(ids, max(1, parts)) if len(part))

    def _running(self, source: TextSource, room: int) -> Iterator[Array]:
        """Windows of the running text of a plain file, or of each document."""
        rest = np.empty(0, np.int64)
        for ids in self._encoded(source.pieces()):
            rest = np.concatenate([rest, ids])
            full = len(rest) // room * room
            yield from rest[:full].reshape(-1, room)
            rest = rest[full:]
            if source.part is not None:
                yield from [rest] if len(rest) >= _SHORTEST else []
                rest = rest[:0]
        if len(rest) >= _SHORTEST:
            yield rest

    def _encoded(self, texts: Iterator[str]) -> Iterator[Array]:
        batch = []
        for text in texts:
            batch.append(text)
            if len(batch) == 256 or len(text) > 2**15:
                yield from self._ids(batch)
                batch = []
        yield from self._ids(batch)

    def _ids(self, texts: list[str]) -> Iterator[Array]:
        for one in encoded(self.tokenizer, texts, "the text"):
            ids = np.array(one.ids, np.int64)
            if (most := ids.max(initial=-1)) >= self.rows:
                raise InputError(f"expected ids below {self.rows}, got {most}: the tokenizer belongs to another model")
            yield ids
