"""Writers of vectors with words: text (word2vec's, with a first line "N D", or GloVe's), plain or gzipped, and word2vec binary.

Text has nine significant digits: what is read back from it is each float32 as it was.
"""

import gzip
from collections.abc import Callable, Iterator
from io import BufferedIOBase

import numpy as np
import torch

from uncone.errors import InputError
from uncone.rows.safetensors import raw_bytes
from uncone.rows.word_vectors import WordVectorRows
from uncone.rows.word_vectors_binary import Word2VecRows
from uncone.rows.word_vectors_lines import WHITE, number
from uncone.rows.writers_plan import Plan, Source

_HEADERLESS = ".glove"
_SHOWN = 40
_LEVEL = 6


class TextWriter:
    """One line a row: the word and its numbers. There is a first line "N D" if the source has one; else if the name is not `.glove`."""

    def __init__(self, handle: BufferedIOBase, plan: Plan, source: Source) -> None:
        n, k = plan.shape
        self._handle = handle
        self._line = b" ".join([b"%.9g"] * k) + b"\n"
        self._words = _numbered(_words(plan, source), plan, _unreadable_in_text)
        has_header = (
            source.rows.has_header
            if isinstance(source.rows, WordVectorRows)
            else plan.path.suffix != _HEADERLESS
        )
        if has_header or k == 1:  # a word and one number would read as such a line
            handle.write(b"%d %d\n" % (n, k))

    def write(self, rows: torch.Tensor) -> None:
        values = rows.numpy().astype(np.float64).tolist()
        self._handle.write(
            b"".join(b"%b %b" % (next(self._words), self._line % tuple(row)) for row in values)
        )

    def close(self) -> None:
        """Nothing follows the last row."""


class GzipWriter:
    """The same text, gzipped; equal rows give equal bytes."""

    def __init__(self, handle: BufferedIOBase, plan: Plan, source: Source) -> None:
        self._stream = gzip.GzipFile(filename="", mode="wb", compresslevel=_LEVEL, fileobj=handle, mtime=0)
        self._text = TextWriter(self._stream, plan, source)

    def write(self, rows: torch.Tensor) -> None:
        self._text.write(rows)

    def close(self) -> None:
        self._stream.close()


class Word2VecWriter:
    """word2vec binary as gensim writes it: "N D", then each word, a space, and its float32."""

    def __init__(self, handle: BufferedIOBase, plan: Plan, source: Source) -> None:
        self._handle = handle
        self._words = _numbered(_words(plan, source), plan, _unreadable_in_binary)
        handle.write(b"%d %d\n" % plan.shape)

    def write(self, rows: torch.Tensor) -> None:
        content, size = raw_bytes(rows), rows.shape[1] * rows.itemsize
        parts = list[bytes | memoryview]()
        for start in range(0, len(content), size):
            parts += (next(self._words), b" ", content[start : start + size])
        self._handle.write(b"".join(parts))

    def close(self) -> None:
        """Nothing follows the last row."""


def _words(plan: Plan, source: Source) -> Iterator[bytes | None]:
    """The words as they stand in the source, or its labels."""
    if isinstance(source.rows, WordVectorRows | Word2VecRows):
        return source.rows.words()
    labels = source.rows.labels
    if labels is None:
        raise InputError(
            f"expected words for {plan.path.name}, got rows of {source.rows.name} without labels: write .npy or .safetensors, "
            "which need none"
        )
    return (None if label is None else label.encode("utf-8", "replace") for label in labels)


def _numbered(
    words: Iterator[bytes | None], plan: Plan, unreadable: Callable[[bytes], str]
) -> Iterator[bytes]:
    """The words, each of which can be read back; `unreadable` says why one could not, or nothing."""
    for row, word in enumerate(words):
        why = "none" if word is None else unreadable(word)
        if word is None or why:
            told = "" if word is None else f"{word[:_SHOWN].decode('utf-8', 'replace')!r}, {why}"
            raise InputError(
                f"expected a word that {plan.path.name} can hold in row {row}, got {told or 'none'}: write .parquet, which holds any, "
                "or .npy without words"
            )
        yield word


def _unreadable_in_text(word: bytes) -> str:
    if b"\n" in word:
        return "with a line's end"
    if word != word.rstrip(WHITE):
        return "with white space at its end"
    parts = word.rsplit(None, 1)
    if len(parts) == 2 and b"." in parts[1] and number(parts[1]) is not None:
        return "which ends like one more number"
    return ""


def _unreadable_in_binary(word: bytes) -> str:
    if b" " in word:
        return "with a space"
    return "with a line's end at its begin" if word.startswith(b"\n") else ""
