"""How often each token occurs in texts of any size, resumed after a stop."""

import json
import os
import re
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from uncone.atomic import write_bytes
from uncone.errors import InputError
from uncone.model.counts import is_counts, read_counts
from uncone.model.hugging_face import encoded
from uncone.model.text_sources import TextSource, open_texts
from uncone.model.vocabulary import Vocabulary, open_vocabulary
from uncone.roles import Path_, Progress
from uncone.rows import Array
from uncone.rows.bytes import LocalFile, one_ahead
from uncone.rows.safetensors import read_header, read_tensors, sealed_bytes

MOST_BLOCKS = 40  # stretches with their own counts, for intervals
FIRST_BLOCK = 2**14  # characters of a stretch at first; neighbours are joined when there are too many
MOST_WORDS = 2**22  # different words; further new words are left out
WORD = re.compile(r"\w+")  # in lower case
_BATCH = 2**21  # characters that are tokenised at once, on all cores
_SAVE_AFTER_S, _SHARE_OF_SAVING = 10.0, 0.05
_FORMAT, _PLACES = "uncone.count/2", ("width", "characters", "source", "pieces")
_HOW = "choose another name to save, or use --overwrite (overwrite=True) to replace it and count from the beginning"


@dataclass(frozen=True, eq=False)
class Counted:
    vocabulary: Vocabulary
    counts: Array  # int64 (V,)
    blocks: Array | None  # (B, V), for stretches of the text; None if counts are added
    words: dict[str, int] | None  # None unless words were counted
    characters: int
    sources: tuple[str, ...]
    texts: tuple[TextSource, ...] = ()  # with the pieces that were kept
    notes: tuple[str, ...] = ()


def count_tokens(
    model: Path_,
    texts: Path_ | Sequence[Path_],
    *,
    words: bool = True,
    resume: Path | None = None,
    overwrite: bool = False,
    keep: int = 0,
    progress: Progress | None = None,
) -> Counted:
    """Count the tokens of texts, and also their words.

    The tokenizer reads pieces of whole lines (about 16 KiB) or whole documents, without special tokens at their ends.
    A token across the end of a piece is read as two.

    Args:
        texts: as for `open_texts`; and counts, as for `read_counts`, to be added.
        resume: a file for the state, written about every ten seconds. A run that finds it goes on, if texts, tokenizer
            and options are the same. `forget` removes the file.
        overwrite: replace any other content of that file.
        keep: how many characters to keep from the beginning of the texts, for another reader.
    """
    given = [texts] if isinstance(texts, str | os.PathLike) else list(texts)
    made = [Path(one) for one in given if is_counts(one)]
    rest = [one for one in given if not is_counts(one)]
    sources = list(open_texts(rest)) if rest or not made else []
    vocabulary = open_vocabulary(model)
    notes, resume = tuple[str, ...](), resume if sources else None
    state = _begun(vocabulary, sources, words, resume, overwrite=overwrite)
    _count(vocabulary, sources, state, resume, keep, progress)
    if sources and not state.characters:
        names = ", ".join(one.name for one in sources)
        raise InputError(f"expected a text, got nothing in {names}: give a text with at least one character")
    counts = state.blocks.sum(0)
    for path in made:
        read = read_counts(path, vocabulary.size, vocabulary.labels)
        counts += read.counts
        notes += read.notes
    if not counts.any():
        raise InputError("expected a text with at least one token, got none: give another text")
    if state.words is not None and len(state.words) >= MOST_WORDS:
        notes += (f"Only the first {MOST_WORDS:,} different words were counted.",)
    return Counted(
        vocabulary,
        counts,
        None if made else state.blocks[state.blocks.any(axis=1)],
        None if made else state.words,
        state.characters,
        tuple(one.name for one in sources) + tuple(path.name for path in made),
        tuple(sources),
        notes,
    )


@dataclass(eq=False)
class _State:
    """`pieces` of `source` are done, and all sources before it."""

    blocks: Array
    words: Counter[str] | None
    width: int = FIRST_BLOCK
    characters: int = 0
    source: int = 0
    pieces: int = 0
    of: dict[str, Any] = field(default_factory=dict)

    def add(self, pieces: Sequence[str], ids: Sequence[Array]) -> None:
        """Each piece counts for the stretch in which it begins."""
        for piece, tokens in zip(pieces, ids, strict=True):
            while self.characters // self.width >= MOST_BLOCKS:
                half = MOST_BLOCKS // 2
                self.blocks[:half], self.blocks[half:] = self.blocks[::2] + self.blocks[1::2], 0
                self.width *= 2
            row = self.blocks[self.characters // self.width]
            if len(tokens) < len(row) // 8:  # as in short documents
                np.add.at(row, tokens, 1)
            else:
                row += np.bincount(tokens, minlength=len(row))
            self.characters += len(piece)
            if self.words is not None:
                known, is_full = self.words, len(self.words) >= MOST_WORDS
                found = WORD.findall(piece.lower())
                known.update((word for word in found if word in known) if is_full else found)
        self.pieces += len(pieces)


def _count(
    vocabulary: Vocabulary,
    sources: list[TextSource],
    state: _State,
    resume: Path | None,
    keep: int,
    progress: Progress | None,
) -> None:
    """Replace each of `sources` by a copy with the pieces that are kept."""
    saved, took = time.monotonic(), 0.0
    total, before = sum(source.size for source in sources), state.source
    while state.source < len(sources):
        source = sources[state.source]
        done = sum(one.size for one in sources[: state.source])
        kept, is_whole = [], state.pieces == 0
        batches = _batches(islice(source.pieces(), state.pieces, None))
        read = ((pieces, encoded(vocabulary.tokenizer, pieces, source.name)) for pieces in one_ahead(batches))
        for pieces, encodings in one_ahead(read):
            is_whole = is_whole and state.characters < keep
            kept += pieces if is_whole else []
            state.add(pieces, _ids(vocabulary, source, encodings))
            if progress is not None:
                progress(f"counting tokens of {source.name}", state.characters, 0)
            if resume is not None and time.monotonic() - saved > max(_SAVE_AFTER_S, took / _SHARE_OF_SAVING):
                began = time.monotonic()
                _save(state, resume)
                saved = time.monotonic()
                took = saved - began
        sources[state.source] = replace(source, kept=tuple(kept), is_whole=is_whole)
        state.source, state.pieces = state.source + 1, 0
        if progress is not None:
            progress("counting tokens", done + source.size, total)
    if resume is not None and state.source > before and state.blocks.any():
        _save(state, resume)


def _batches(pieces: Iterator[str]) -> Iterator[list[str]]:
    batch, size = [], 0
    for piece in pieces:
        batch.append(piece)
        size += len(piece)
        if size >= _BATCH:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _ids(vocabulary: Vocabulary, source: TextSource, encodings: Sequence[Any]) -> list[Array]:
    ids = [np.array(one.ids, np.int64) for one in encodings]
    most = max((int(one.max(initial=0)) for one in ids), default=0)
    if most >= vocabulary.size:
        token = vocabulary.tokenizer.id_to_token(most)
        got = f"{most:,} ({token!r}) in {source.name}: the tokenizer belongs to another model"
        raise InputError(f"expected ids below {vocabulary.size:,}, the rows of {vocabulary.name}, got {got}")
    return ids


def _begun(
    vocabulary: Vocabulary, sources: Sequence[TextSource], words: bool, resume: Path | None, *, overwrite: bool
) -> _State:
    files = [[one.name, one.size, one.path.stat().st_mtime_ns] for one in sources]
    of = {"format": _FORMAT, "tokenizer": vocabulary.digest(), "sources": files, "words": words}
    new = _State(np.zeros((MOST_BLOCKS, vocabulary.size), np.int64), Counter[str]() if words else None, of=of)
    if resume is not None and os.path.lexists(resume):
        try:
            return _load(resume, of, new.blocks.shape)
        except InputError:
            if not overwrite:
                raise
    return new


def _save(state: _State, path: Path) -> None:
    told = {name: getattr(state, name) for name in ("of", "words", *_PLACES)}
    tensors = {"told": np.frombuffer(json.dumps(told).encode(), np.uint8), "blocks": state.blocks}
    write_bytes(path, sealed_bytes(tensors, {"format": _FORMAT}))


def _load(path: Path, of: dict[str, Any], shape: tuple[int, ...]) -> _State:
    tensors, _ = read_tensors(
        path, format=_FORMAT, what="the state of an earlier count by this version of uncone", how=_HOW, sealed=True
    )
    told, blocks = json.loads(tensors["told"].tobytes()), tensors["blocks"]
    if told["of"] != of or blocks.shape != shape:
        raise InputError(f"expected the state of these texts and options, got another state in {path}: {_HOW}")
    words = None if told["words"] is None else Counter[str](told["words"])
    return _State(blocks, words, of=of, **{name: told[name] for name in _PLACES})


def forget(resume: Path) -> None:
    """Remove the state of a finished count. Another file of this name stays."""
    with suppress(InputError):
        if read_header(LocalFile(resume))[1].get("format") == _FORMAT:
            resume.unlink()
