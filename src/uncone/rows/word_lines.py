"""Lines of word vectors: a word, which may hold spaces, and D numbers in decimal, many at once.

A line without the usual form (a number without a point, tabs, two spaces) is read by `split_line` and `float`. That
rule defines the format here, and all errors come from it.

A number of up to 8 digits, a point and up to 16 digits is m / 10^k with whole m and k. If m is below 2^53 both are
exact in float64 and the quotient is rounded once (Clinger, 1990, the fast path). Eight digits at a time become a whole
number inside one 64-bit word: four times as fast as NumPy and Arrow, and without the interpreter's lock.
"""

from contextlib import suppress
from typing import NamedTuple

import numpy as np

from uncone.rows.floats import Array

PADDING = 32  # bytes after the last number of a text: words of 8 are read beyond its end
_POWERS = np.array([float(f"1e{k}") for k in range(17)])
_SPACE, _NEWLINE, _RETURN, _POINT, _MINUS, _ZERO = b" \n\r.-0"
WHITE = b" \t\r\n\x0b\x0c"


class LineError(Exception):
    """An error in line `index` of a piece, counted from 0."""

    def __init__(self, index: int, message: str) -> None:
        super().__init__(message)
        self.index = index


class Piece:
    """Whole lines of text: `size` bytes of `buffer`, then at least `PADDING` bytes more."""

    def __init__(self, buffer: bytearray, size: int) -> None:
        self.bytes: Array = np.frombuffer(buffer, np.uint8)
        self.size = size
        assert len(self.bytes) >= size + PADDING

    def text(self, begin: int, end: int) -> bytes:
        return self.bytes[begin:end].tobytes()


def parse_piece(piece: Piece, d: int) -> Array:
    """The numbers of each line, (lines, D); LineError for the first line without D numbers at its end."""
    lines = _locate(piece, d)
    short = np.flatnonzero(lines.end - lines.begin < 2 * d - 1)
    for i in range(short[0] + 1 if len(short) else 0):  # one of these lines raises before memory is allocated
        _plain_numbers(lines.text(piece, i), d, i)
    slow = np.ones(len(lines.begin), np.bool_)
    slow[lines.usual] = False
    x = np.empty((len(slow), d), np.float32)
    with np.errstate(over="ignore"):  # 1e39 becomes inf, which is found like any other inf
        if len(lines.usual):
            start, end = lines.places[:, :-1:2] + 1, lines.places[:, 2::2]
            value, doubtful = parse_decimals(piece.bytes, start, lines.places[:, 1::2], end)
            if doubtful.any():
                unread = doubtful.sum(1) * 16 > d  # one number in 16 may be read alone
                for i, j in np.argwhere(doubtful & ~unread[:, None]).tolist():
                    single = number(piece.text(int(start[i, j]), int(end[i, j])))
                    unread[i] |= single is None
                    value[i, j] = np.nan if single is None else single
                slow[lines.usual[unread]] = True
            x[lines.usual] = value
        for i in np.flatnonzero(slow).tolist():
            x[i] = _plain_numbers(lines.text(piece, i), d, i)
    return x


def words_of(piece: Piece, d: int) -> list[bytes]:
    lines = _locate(piece, d)
    words = [b""] * len(lines.begin)
    for i, end in zip(lines.usual.tolist(), lines.places[:, 0].tolist(), strict=True):
        words[i] = piece.text(int(lines.begin[i]), end).rstrip(WHITE)
    for i in np.setdiff1d(np.arange(len(words)), lines.usual).tolist():
        words[i] = split_line(lines.text(piece, i), d)[0]
    return words


def split_line(line: bytes, d: int) -> tuple[bytes, list[bytes]]:
    """The word, which may be empty, and the up to `d` fields between white space at the line's end."""
    fields = line.rstrip(WHITE).rsplit(None, d)
    if not fields or (len(fields) <= d and line[:1] in (b" ", b"\t")):
        return b"", fields
    return fields[0], fields[1:]


def number(field: bytes) -> float | None:
    """The number, or None for other text. Python's underscores between digits are not allowed here."""
    try:
        return None if b"_" in field else float(field)
    except ValueError:
        return None


def quoted(field: bytes) -> str:
    return repr(field[:40].decode("utf-8", "replace"))


class _Lines(NamedTuple):
    """The first byte and the newline of each line, (n,); the lines of the usual form, (m,); their first space, then in
    turn the point of a number and the mark after it, (m, 2D + 1)."""

    begin: Array
    end: Array
    usual: Array
    places: Array

    def text(self, piece: Piece, i: int) -> bytes:
        return piece.text(int(self.begin[i]), int(self.end[i]))


def _locate(piece: Piece, d: int) -> _Lines:
    text = piece.bytes[: piece.size]
    # White space, points, and a few bytes that are never usual.
    marks = np.flatnonzero((text <= _POINT) & (text != _MINUS))
    kinds = text.take(marks)
    newline = np.flatnonzero(kinds == _NEWLINE)
    end = marks.take(newline)
    before = np.concatenate(([-1], newline[:-1]))
    last = _without_white_end(marks, kinds, newline, before)
    first = last - 2 * d
    usual = np.flatnonzero(first > before)
    grid = first.take(usual)[:, None] + np.arange(2 * d + 1)
    kind = kinds.take(grid)
    good = (kind[:, :-1:2] == _SPACE).all(1)
    good &= (kind[:, 1::2] == _POINT).all(1)
    begin = np.concatenate(([0], end[:-1] + 1))
    marked = np.flatnonzero(good & (first > before + 1)[usual])
    for i in marked.tolist():  # a space or point in the word: most are harmless
        word = piece.text(int(begin[usual[i]]), int(marks[grid[i, 0]]))
        good[i] = word[-1] > _SPACE and _RETURN not in word and extra_number(word) is None
    if not good.all():
        usual, grid = usual[good], grid[good]
    return _Lines(begin, end, usual, marks.take(grid))


def _without_white_end(marks: Array, kinds: Array, newline: Array, before: Array) -> Array:
    """Where the last number of each line ends in `marks`: up to two bytes of "\\r" or space may follow."""
    last = newline.copy()
    for _ in range(2):
        earlier = np.maximum(last - 1, 0)
        kind = kinds.take(earlier)
        white = (kind == _SPACE) | (kind == _RETURN)
        white &= (last - 1 > before) & (marks.take(earlier) == marks.take(last) - 1)
        if not white.any():
            break
        last -= white
    return last


def extra_number(word: bytes) -> bytes | None:
    """The end of a word if it is a number like "1.5": the line has more than D numbers."""
    parts = word.rsplit(None, 1)
    return parts[1] if len(parts) == 2 and b"." in parts[1] and number(parts[1]) is not None else None


def _plain_numbers(line: bytes, d: int, index: int) -> Array:
    word, fields = split_line(line, d)
    if _RETURN in line.rstrip(WHITE):
        got = r"got a lone \r inside it (convert the line ends to \n)"
        raise LineError(index, rf"expected a line that ends in \n or \r\n, {got}")
    numbers = f"expected D = {d} numbers after the word, got"
    if len(fields) < d:
        raise LineError(index, f"{numbers} {len(fields)}")
    if (extra := extra_number(word)) is not None:
        raise LineError(index, f"{numbers} more: {quoted(extra)} comes before them")
    with suppress(ValueError):
        if b"_" not in line:
            return np.fromiter(map(float, fields), np.float64, d)
    values = [number(field) for field in fields]
    if None in values:
        raise LineError(index, f"expected a number, got {quoted(fields[values.index(None)])}")
    return np.array(values, np.float64)


def parse_decimals(text: Array, start: Array, point: Array, end: Array) -> tuple[Array, Array]:
    """The numbers text[start:end] with a '.' at `point`, and which of them are doubtful.

    start <= point < end, and `PADDING` bytes follow the last number. A value that is not doubtful equals
    `float(text[start:end])` to the bit. A doubtful text has an exponent, too many digits, or is not a number.
    """
    words = text[: len(text) // 8 * 8].view("<u8")
    negative = text.take(start) == _MINUS
    first = start + negative
    whole, doubtful = _whole_part(text, words, first, point)
    after = point + 1
    count = end - after
    doubtful |= count + (point - first) == 0
    most = int(count.max(initial=0))
    if most > 16:
        doubtful |= count > 16
        count = np.minimum(count, 16)
    early = np.minimum(count, 8)
    fraction, wrong = _digits(words, after, early)
    doubtful |= wrong
    scale = _POWERS.take(count)
    value = whole * scale
    if most > 8:
        later = count - early
        fraction *= _POWERS.take(later)
        rest, wrong = _digits(words, after + 8, later)
        value += rest
        doubtful |= wrong
    value += fraction
    if most + 8 > 15:
        doubtful |= value >= 2.0**53
    value /= scale
    return np.copysign(value, 0.5 - negative), doubtful


def _whole_part(text: Array, words: Array, first: Array, point: Array) -> tuple[Array, Array]:
    """Flags are set where there is no number of up to 8 digits before the point."""
    count = point - first
    if (count == 1).all():  # as in nearly all files of vectors
        digit = text.take(first) ^ _ZERO
        return digit.astype(np.float64), digit > 9
    value, wrong = _digits(words, first, np.minimum(count, 8))
    return value, wrong | (count > 8)


def _digits(words: Array, at: Array, count: Array) -> tuple[Array, Array]:
    """Flags are set where one of `count` (0 to 8) bytes from `at` on is not a digit."""
    index = at >> 3
    bits = ((at & 7) << 3).astype(np.uint64)
    packed = words.take(index)
    packed >>= bits
    packed |= words.take(index + 1) << (np.uint64(64) - bits)  # a shift by 64 gives 0 in NumPy
    packed ^= np.uint64(0x3030303030303030)
    packed <<= ((8 - count) << 3).astype(np.uint64)  # what follows the number goes, and zeros come before it
    wrong = packed + np.uint64(0x7676767676767676)  # a byte above 9 gets its highest bit
    wrong |= packed
    wrong &= np.uint64(0x8080808080808080)
    # Pairs of digits, then of pairs, then of fours, all at once.
    for base, bits_each, kept in ((10, 8, 0x00FF00FF00FF00FF), (100, 16, 0x0000FFFF0000FFFF), (10000, 32, 2**32 - 1)):
        packed *= np.uint64(base * 2**bits_each + 1)
        packed >>= np.uint64(bits_each)
        packed &= np.uint64(kept)
    return packed.astype(np.float64), wrong != 0
