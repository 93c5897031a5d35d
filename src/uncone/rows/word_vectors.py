"""Word vectors in text: word2vec (a first line "N D"), GloVe (no such line), fastText.

Opening reads the file once, to count the lines and to note where every `GRID`-th line begins. Numbers are parsed when
rows are read. Nine significant digits are written, which restore each float32.
"""

import gzip
import io
import re
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np

from uncone.errors import InputError
from uncone.roles import Path_
from uncone.rows import word_lines
from uncone.rows.base import GRID, Source, Target, Writer, check_shape
from uncone.rows.bytes import MOST_INFLATED, LocalFile, SequentialFile, StreamedRows
from uncone.rows.floats import Array
from uncone.rows.word_lines import WHITE, LineError, Piece, extra_number, number, parse_piece, quoted
from uncone.threads import available, waited

LONGEST_LINE = 16 * 2**20
_PIECE_BYTES = 2**17  # so small that its arrays get no mappings of their own, with new pages
_NEWLINE = ord("\n")
_HEADER = re.compile(rb"(?:\xef\xbb\xbf)?[ \t]*([0-9]{1,18})[ \t]+([0-9]{1,18})[ \t\r]*\n?")
_MARK = b"\xef\xbb\xbf"  # which some editors put before UTF-8


class WordRows(StreamedRows):
    dtype = "float32"

    def words(self) -> Iterator[bytes]:
        """The words in order, as stored in the file. They need not be UTF-8."""
        raise NotImplementedError

    # An attribute would keep the rows, and their file, in a cycle.
    def load_labels(self) -> list[str | None]:
        return [word.decode("utf-8", "replace") for word in self.words()]


class WordVectorRows(WordRows):
    """A text file, which may be gzipped: each number is `float` of its text, rounded.

    A word may hold spaces, be empty, or occur twice. A first line "N D" gives D, or else the count of numbers that end
    the first line.
    """

    def __init__(self, path: Path_, *, zipped: bool = False) -> None:
        super().__init__()
        self._source, self._zipped = LocalFile(path), zipped
        self.name = self._source.name
        self._start, self._stop = 0, 2**62
        piece = next(self._text(0), None)
        if piece is None:
            raise InputError(f"expected word vectors in {self.name}, got an empty file: copy it again")
        first = piece.text(0, piece.size).split(b"\n", 1)[0] + b"\n"
        header = _HEADER.fullmatch(first)
        self.has_header = header is not None
        if header is None:
            self._start = len(_MARK) if first.startswith(_MARK) else 0
            promised, d = None, _count_numbers(first, self.name)
        else:
            self._start, promised, d = len(first), int(header[1]), int(header[2])
            check_shape((promised, d), self.name)
            least = promised * (2 * d + 1)
            most = self._source.size * (MOST_INFLATED if zipped else 1)
            if least > most:
                why = f"{promised} lines of {d} numbers take at least {least} bytes, the file has"
                why = f"{why} {'at most ' * zipped}{most}; it was cut, or is not text of word vectors"
                raise InputError(f"line 1 of {self.name} is wrong: {why}")
        n, self._offsets = self._count_lines()
        if promised is not None and promised != n:
            way = f", up to line {n + 1}: the file was cut, or correct line 1"
            way = way if n < promised else f": line {promised + 2} is one too many, correct line 1"
            raise InputError(f"line 1 of {self.name} promises {promised} rows, got {n}{way}")
        self.shape = (n, d)
        self._parse_first()

    def begin(self, row: int) -> int:
        return 0 if self._zipped else row // GRID * GRID

    def pieces(self, begin: int) -> Iterator[Array]:
        text, d = self._text(self._offsets[begin // GRID]), self.shape[1]
        return self._numbered((parse_piece(piece, d) for piece in text), begin)

    def all_pieces(self) -> Iterator[Array]:
        threads = available()
        return self.pieces(0) if threads == 1 else self._numbered(self._parsed_by(threads), 0)

    def _numbered(self, parsed: Iterator[Array], row: int) -> Iterator[Array]:
        """Give a bad line its number in the file."""
        try:
            for x in parsed:
                yield x
                row += len(x)
        except LineError as error:
            line = self.has_header + row + error.index + 1
            raise _bad_line(line, self.name, f"{error}: correct the line, or leave it out") from None

    def _parsed_by(self, threads: int) -> Iterator[Array]:
        coming = deque[Future[Array]]()
        with ThreadPoolExecutor(threads, thread_name_prefix="uncone-text") as pool:
            for piece in self._text(self._start):
                coming.append(pool.submit(parse_piece, piece, self.shape[1]))
                if len(coming) > 2 * threads:
                    yield waited(coming.popleft())
            while coming:
                yield waited(coming.popleft())

    def words(self) -> Iterator[bytes]:
        for piece in self._text(self._start):
            yield from word_lines.words_of(piece, self.shape[1])

    def _count_lines(self) -> tuple[int, list[int]]:
        """How many lines follow the header, without blank lines at the end, and where every GRID-th line begins."""
        begun = n = 0
        stop = offset = self._start
        offsets = []
        for piece in self._text(self._start):
            text = piece.bytes[: piece.size]
            newlines = text == _NEWLINE
            count = int(np.count_nonzero(newlines))
            for row in range(-(-begun // GRID) * GRID, begun + count, GRID):
                at = 0 if row == begun else int(np.flatnonzero(newlines)[row - begun - 1]) + 1
                offsets.append(offset + at)
            filled = len(piece.text(0, piece.size).rstrip(WHITE))
            if filled:
                n, stop = begun + count - int(np.count_nonzero(newlines[filled:])) + 1, offset + filled
            begun, offset = begun + count, offset + piece.size
        self._stop = stop
        return n, offsets

    def _parse_first(self) -> None:
        """Refuse other text at once: its first line may end in a number."""
        first, d = next(self._text(self._start)), self.shape[1]
        one, two, *_ = first.text(0, first.size).split(b"\n", 2)  # the last line of a piece ends in a newline too
        ends_in_word = two.strip() != b"" and number(two.split()[-1]) is None
        if not self.has_header and one.startswith(b"#version:") and (d == 1 or ends_in_word):
            raise InputError(
                f"expected word vectors in {self.name}, got the merges of a BPE tokenizer ({quoted(one)}, "
                "then parts of tokens by pairs): give the model's directory, or DIR#input for its token table"
            )
        if not self.has_header and ends_in_word:
            got = f"got {quoted(two)}: is it text of word vectors? If so, correct the line, or leave it out"
            raise _bad_line(2, self.name, f"expected a word and D = {d} numbers as in line 1, {got}")
        first.size = len(one) + 1
        try:
            parse_piece(first, d)
        except LineError as error:
            way = "expected text of word vectors, correct the line or the header"
            raise _bad_line(self.has_header + 1, self.name, f"{error}: {way}") from None

    def _text(self, offset: int) -> Iterator[Piece]:
        """Whole lines from byte `offset` (of the unpacked text) on, in pieces."""
        kept, stream = b"", self._stream(offset)
        while True:
            buffer = bytearray(len(kept) + _PIECE_BYTES + 1 + word_lines.PADDING)
            buffer[: len(kept)] = kept
            with memoryview(buffer) as view:
                room = view[len(kept) : len(kept) + max(0, min(_PIECE_BYTES, self._stop - offset))]
                filled = len(kept) + self._read(stream, room)
            offset += filled - len(kept)
            if filled == len(kept):
                if filled:  # the last line may lack its newline
                    buffer[filled] = _NEWLINE
                    yield Piece(buffer, filled + 1)
                return
            end = buffer.rfind(b"\n", len(kept), filled) + 1
            if end:
                yield Piece(buffer, end)
            elif filled > LONGEST_LINE:
                got = f"more before {offset}: is it text of word vectors?"
                raise InputError(f"expected lines of {self.name} up to {LONGEST_LINE} bytes, got {got}")
            kept = bytes(buffer[end:filled])

    def _stream(self, offset: int) -> io.RawIOBase | gzip.GzipFile:
        if not self._zipped:
            return SequentialFile(self._source, offset)
        stream = gzip.GzipFile(fileobj=io.BufferedReader(SequentialFile(self._source), _PIECE_BYTES))
        with memoryview(bytearray(offset)) as header:
            self._read(stream, header)
        return stream

    def _read(self, stream: io.RawIOBase | gzip.GzipFile, room: memoryview) -> int:
        try:
            return stream.readinto(room) or 0
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            got = f"data that do not unpack ({error}): copy it again"
            raise InputError(f"expected gzipped text in {self.name}, got {got}") from error


def _bad_line(line: int, name: str, what: str) -> InputError:
    return InputError(f"line {line} of {name}: {what}")


def _count_numbers(line: bytes, name: str) -> int:
    """D of a file without a header: how many numbers end its first line."""
    fields = line.split()
    count = next((i for i, field in enumerate(reversed(fields)) if number(field) is None), len(fields))
    if fields and count == len(fields) and not line[:1].isspace():
        if b"." in fields[0]:
            got = f"got the number {quoted(fields[0])} first: "
            way = "load a matrix without words with numpy.loadtxt and pass the array"
            raise _bad_line(1, name, f"expected a word, then numbers, {got}{way}")
        count -= 1  # the word is a number too
    elif count and any(b"." in field and number(field) is not None for field in fields[1 : len(fields) - count]):
        got = f"got {quoted(fields[-count - 1])} between numbers: correct it"
        raise _bad_line(1, name, f"expected a word, then only numbers, {got}")
    if count == 0:
        got = f"got {quoted(line)}: are these word vectors?"
        raise _bad_line(1, name, f"expected a word and its numbers, or 'N D', {got}")
    return count


class TextWriter(Writer):
    """A line "N D", unless the source or `.glove` has no such line, then one line per row."""

    def begin(self, target: Target, source: Source) -> None:
        n, k = target.shape
        self._line = b" ".join([b"%.9g"] * k) + b"\n"
        self._words = written_words(target, source, _unreadable_in_text)
        rows, headerless = source.rows, target.path.suffix == ".glove"
        has_header = rows.has_header if isinstance(rows, WordVectorRows) else not headerless
        if has_header or k == 1:  # a word and one number would read as such a line
            self._handle.write(b"%d %d\n" % (n, k))

    def write(self, rows: Array) -> None:
        lines = (b"%b %b" % (next(self._words), self._line % tuple(row)) for row in rows.astype(np.float64).tolist())
        self._handle.write(b"".join(lines))


class GzipWriter(TextWriter):
    """Equal rows give equal bytes."""

    def begin(self, target: Target, source: Source) -> None:
        self._handle = gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=self._handle, mtime=0)
        super().begin(target, source)

    def close(self) -> None:
        self._handle.close()


def written_words(target: Target, source: Source, unreadable: Callable[[bytes], str]) -> Iterator[bytes]:
    """The words of the source, or its labels. A word is refused when its turn comes, if `unreadable` explains why it
    could not be read back."""
    labels = None if isinstance(source.rows, WordRows) else source.rows.labels
    if isinstance(source.rows, WordRows):
        words: Iterator[bytes | None] = source.rows.words()
    elif labels is not None:
        words = (None if label is None else label.encode("utf-8", "replace") for label in labels)
    else:
        way = "write .npy or .safetensors, which need no words"
        raise InputError(f"expected words for {target.path.name}, got {source.rows.name} without labels: {way}")

    def checked() -> Iterator[bytes]:
        for row, word in enumerate(words):
            why = "none" if word is None else unreadable(word)
            if word is None or why:
                told = why if word is None else f"{word[:40].decode('utf-8', 'replace')!r}, {why}"
                expected = f"a word that {target.path.name} can hold in row {row}"
                way = "write .parquet, which holds any word, or .npy without words"
                raise InputError(f"expected {expected}, got {told}: {way}")
            yield word

    return checked()


def _unreadable_in_text(word: bytes) -> str:
    if b"\n" in word:
        return "with a newline"
    if word != word.rstrip(WHITE):
        return "with white space at its end"
    return "which ends like another number" if extra_number(word) else ""
