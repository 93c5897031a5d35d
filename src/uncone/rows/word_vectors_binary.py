"""Rows of a word2vec binary file: a line "N D", then each word, a space, and D float32 in little-endian order.

Words are of any length, so that no row's place can be computed: one pass finds the places of every `GRID`-th row, which is
where reading begins later.
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from uncone.errors import InputError
from uncone.rows.array import check_shape
from uncone.rows.base import GRID
from uncone.rows.bytes import LocalFile
from uncone.rows.decimals import Bytes
from uncone.rows.streamed import StreamedRows
from uncone.rows.word_vectors_lines import number

_LONGEST_HEADER = 64
_LONGEST_WORD = 65536
_PIECE_BYTES = 2**20
_HEADER = re.compile(rb"\s{0,8}([0-9]{1,18})[ \t]+([0-9]{1,18})[ \t]*\r?\n")


def open_word2vec_binary(path: str | os.PathLike[str]) -> "Word2VecRows":
    """Open a word2vec binary file; one pass over it finds the places of its rows.

    Raises:
        InputError: no such file, no header, text instead of float32, a header that promises more than the file holds, a cut file, or
            bytes after the last row.
    """
    return Word2VecRows(LocalFile(path))


class Word2VecRows(StreamedRows):
    """The vectors of a word2vec binary file, float32; `labels` are its words, read in a pass of their own."""

    dtype = "float32"

    def __init__(self, source: LocalFile) -> None:
        super().__init__()
        n, d, offset = _header(source)
        check_shape((n, d), source.name)
        _refuse_text(source, n, d, offset)
        if offset + n * (1 + 4 * d) > source.size:
            raise InputError(
                f"the header of {source.name} lies: {n} words with {d} float32 each take at least {offset + n * (1 + 4 * d)} bytes, "
                f"the file has {source.size}: it was cut, or is no word2vec binary"
            )
        self._source, self.shape, self.name = source, (n, d), source.name
        self._places = np.empty(-(-n // GRID), np.int64)
        self._find_places(offset)

    def begin(self, row: int) -> int:
        return row // GRID * GRID

    def pieces(self, begin: int) -> Iterator[torch.Tensor]:
        d = self.shape[1]
        for records in self._records(begin, int(self._places[begin // GRID])):
            content = np.empty((len(records.vectors), 4 * d), np.uint8)
            for row, at in zip(content, records.vectors, strict=True):
                row[:] = records.buffer[at : at + 4 * d]
            yield torch.from_numpy(content.view("<f4").astype(np.float32, copy=False))

    def _find_places(self, offset: int) -> None:
        row = end = 0
        for records in self._records(0, offset):
            for i in range(-row % GRID, len(records.vectors), GRID):
                self._places[(row + i) // GRID] = records.offset + records.words[i]
            row, end = row + len(records.vectors), records.offset + records.end
        rest = self._source.size - end
        tail = bytearray(min(rest, _PIECE_BYTES))
        self._source.read_into(end, memoryview(tail))
        if rest > _PIECE_BYTES or tail.strip():
            raise InputError(
                f"the header of {self.name} lies: {rest} bytes follow the last of {self.shape[0]} words with {self.shape[1]} float32 "
                "each: mend the header, or convert the file again"
            )

    def load_labels(
        self,
    ) -> list[str | None]:  # a method: an attribute would keep the rows, and their file, in a cycle
        return [word.decode("utf-8", "replace") for word in self.words()]

    def words(self) -> Iterator[bytes]:
        """The words in order, as they stand in the file, in a pass of their own."""
        for records in self._records(0, int(self._places[0])):
            for start, vector in zip(records.words, records.vectors, strict=True):
                yield bytes(records.buffer[start : vector - 1])

    def _records(self, row: int, offset: int) -> Iterator["_Records"]:
        """The records from `row` on, which begins at byte `offset`, a buffer full at a time."""
        n, vector = self.shape[0], 4 * self.shape[1]
        size = max(_PIECE_BYTES, 2 * (vector + _LONGEST_WORD + 2))
        while row < n:
            buffer = np.empty(min(size, self._source.size - offset), np.uint8)
            self._source.read_into(offset, buffer.data)
            words, vectors, end = _scan(buffer, vector, n - row)
            if not words:
                raise self._cut_error(row, offset, bytes(buffer[: _LONGEST_WORD + 1]))
            yield _Records(buffer, offset, words, vectors, end)
            row, offset = row + len(words), offset + end

    def _cut_error(self, row: int, offset: int, ahead: bytes) -> InputError:
        if b" " not in ahead and len(ahead) > _LONGEST_WORD:
            return InputError(
                f"expected word {row + 1} of {self.shape[0]} at byte {offset} of {self.name}, got no space within {_LONGEST_WORD} bytes: "
                "the header's D is wrong, or the file is no word2vec binary"
            )
        return InputError(
            f"expected {self.shape[0]} words with {self.shape[1]} float32 each in {self.name}, got {row} and a part: "
            "the file was cut, copy it again"
        )


@dataclass(frozen=True)
class _Records:
    """Whole records in a buffer read at `offset`: where each word begins and where its vector does; the last ends at `end`."""

    buffer: Bytes
    offset: int
    words: list[int]
    vectors: list[int]
    end: int


def _scan(buffer: Bytes, vector: int, most: int) -> tuple[list[int], list[int], int]:
    """Up to `most` records that are whole in `buffer`. A newline after a vector belongs to it; word2vec writes one, gensim none."""
    content, words, vectors, end = buffer.tobytes(), list[int](), list[int](), 0
    while len(words) < most:
        begin = end + (content[end : end + 1] == b"\n")
        space = content.find(b" ", begin, begin + _LONGEST_WORD + 1)
        if space < 0 or space + 1 + vector > len(content):
            break
        words.append(begin)
        vectors.append(space + 1)
        end = space + 1 + vector
    return words, vectors, end


def _refuse_text(source: LocalFile, n: int, d: int, offset: int) -> None:
    """Text has the same first line, and numbers like 0.1 take four bytes with a space: it could pass for float32.

    Two lines are looked at, as the bytes of one float32 can be a digit and a newline.
    """
    head = bytearray(min(source.size - offset, _PIECE_BYTES))
    source.read_into(offset, memoryview(head))
    lines = bytes(head).split(b"\n", 2)[: min(n, 2)]
    if all(_is_text(line, d) for line in lines):
        raise InputError(
            f"expected float32 after the first line of {source.name}, got numbers as text: rename it to end in .vec or .txt"
        )


def _is_text(line: bytes, d: int) -> bool:
    """A word, which may hold spaces, and D numbers as text."""
    fields = line.rsplit(None, d)
    printable = all(byte >= ord(" ") or byte in b"\t\r" for byte in line)
    return printable and len(fields) == d + 1 and all(number(field) is not None for field in fields[1:])


def _header(source: LocalFile) -> tuple[int, int, int]:
    found = _HEADER.match(source.head(_LONGEST_HEADER))
    if found is None:
        raise InputError(
            f"expected a word2vec binary file, got {source.name} without a first line 'N D': save it with gensim's "
            "save_word2vec_format(binary=True)"
        )
    return int(found[1]), int(found[2]), found.end()
