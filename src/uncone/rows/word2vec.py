"""word2vec binary: a line "N D", then each word, a space, D little-endian float32.

Words have any length, so one pass finds the place of every `GRID`-th row, where reading begins later.
"""

import re
from collections.abc import Iterator

import numpy as np

from uncone.errors import InputError
from uncone.roles import Path_
from uncone.rows.base import GRID, Source, Target, Writer, check_shape, raw_bytes
from uncone.rows.bytes import LocalFile, was_cut
from uncone.rows.floats import Array
from uncone.rows.word_lines import number
from uncone.rows.word_vectors import WordRows, written_words

_LONGEST_WORD = 65536
_PIECE_BYTES = 2**20
_HEADER = re.compile(rb"\s{0,8}([0-9]{1,18})[ \t]+([0-9]{1,18})[ \t]*\r?\n")


class Word2VecRows(WordRows):
    def __init__(self, path: Path_) -> None:
        super().__init__()
        source = LocalFile(path)
        header = _HEADER.match(source.head(64))
        if header is None:
            way = "save it with gensim's save_word2vec_format(binary=True)"
            raise InputError(f"expected word2vec binary, got {source.name} without a first line 'N D': {way}")
        n, d, offset = int(header[1]), int(header[2]), header.end()
        check_shape((n, d), source.name)
        _refuse_text(source, n, d, offset)
        least = offset + n * (1 + 4 * d)
        if least > source.size:
            why = f"{n} words with {d} float32 each take at least {least} bytes, the file has {source.size}"
            raise InputError(f"the header of {source.name} is wrong: {why}; it was cut, or is not word2vec binary")
        self._source, self.shape, self.name = source, (n, d), source.name
        self._places = np.empty(-(-n // GRID), np.int64)
        self._find_places(offset)

    def begin(self, row: int) -> int:
        return row // GRID * GRID

    def pieces(self, begin: int) -> Iterator[Array]:
        d = self.shape[1]
        for _, content, places in self._records(begin, int(self._places[begin // GRID])):
            vectors = bytearray().join(content[at : at + 4 * d] for _, at in places)
            yield np.frombuffer(vectors, "<f4").astype(np.float32, copy=False).reshape(-1, d)

    def words(self) -> Iterator[bytes]:
        for _, content, places in self._records(0, int(self._places[0])):
            for start, vector in places:
                yield bytes(content[start : vector - 1])

    def _find_places(self, offset: int) -> None:
        (n, d), row, end = self.shape, 0, 0
        for at, _, places in self._records(0, offset):
            for i in range(-row % GRID, len(places), GRID):
                self._places[(row + i) // GRID] = at + places[i][0]
            row, end = row + len(places), at + places[-1][1] + 4 * d
        rest = self._source.size - end
        if rest > _PIECE_BYTES or self._source.read(end, rest).strip():
            why = f"{rest} bytes follow the last of {n} words of {d} float32"
            raise InputError(
                f"the header of {self.name} is wrong: {why}; correct the header, or convert the file again"
            )

    def _records(self, row: int, offset: int) -> Iterator[tuple[int, memoryview, list[tuple[int, int]]]]:
        """Whole records from `row` on, some MiB at once: the first byte, the content, and where each word and its
        vector begin in it."""
        n, vector = self.shape[0], 4 * self.shape[1]
        size = max(_PIECE_BYTES, 2 * (vector + _LONGEST_WORD + 2))
        while row < n:
            content = self._source.read(offset, min(size, self._source.size - offset))
            places, end = list[tuple[int, int]](), 0
            while row + len(places) < n:
                # word2vec writes a newline after a vector, gensim none.
                begin = end + (content[end : end + 1] == b"\n")
                space = content.find(b" ", begin, begin + _LONGEST_WORD + 1)
                if space < 0 or space + 1 + vector > len(content):
                    break
                places.append((begin, space + 1))
                end = space + 1 + vector
            if places:
                yield offset, memoryview(content), places
                row, offset = row + len(places), offset + end
            elif b" " not in content[: _LONGEST_WORD + 1] and len(content) > _LONGEST_WORD:
                raise InputError(
                    f"expected word {row + 1} at byte {offset} of {self.name}, got no space within "
                    f"{_LONGEST_WORD} bytes: the header's D is wrong, or the file is not word2vec binary"
                )
            else:
                raise was_cut(f"{n} words with {self.shape[1]} float32 in {self.name}", f"{row} and a part")


def _refuse_text(source: LocalFile, n: int, d: int, offset: int) -> None:
    """Numbers like 0.1 take four bytes with a space: text, which has the same first line, could pass for float32.

    Two lines are read, as the bytes of one float32 can be a digit and a newline.
    """

    def is_text(line: bytes) -> bool:
        _, *numbers = line.rsplit(None, d) or (b"",)
        printable = all(byte >= ord(" ") or byte in b"\t\r" for byte in line)
        return printable and len(numbers) == d and all(number(field) is not None for field in numbers)

    head = source.read(offset, min(source.size - offset, _PIECE_BYTES))
    if all(is_text(line) for line in head.split(b"\n", 2)[: min(n, 2)]):
        way = "rename it to end in .vec or .txt"
        raise InputError(f"expected float32 after line 1 of {source.name}, got numbers as text: {way}")


class Word2VecWriter(Writer):
    def begin(self, target: Target, source: Source) -> None:
        self._words = written_words(target, source, _unreadable_in_binary)
        self._handle.write(b"%d %d\n" % target.shape)

    def write(self, rows: Array) -> None:
        content, size = raw_bytes(rows), rows.shape[1] * rows.itemsize
        parts = list[bytes | memoryview]()
        for start in range(0, len(content), size):
            parts += (next(self._words), b" ", content[start : start + size])
        self._handle.write(b"".join(parts))


def _unreadable_in_binary(word: bytes) -> str:
    if b" " in word:
        return "with a space"
    return "with a newline at its beginning" if word.startswith(b"\n") else ""
