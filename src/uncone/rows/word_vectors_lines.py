"""Lines of word vectors: a word, which may hold spaces, and D numbers in decimal.

A piece of text is taken apart as a whole. A line that has not the usual form (a number without a point, tabs, two spaces) is
read by the plain rule of `split_line` and `float`: that rule is what the format means here, and all errors come from it.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from uncone.rows.decimals import PADDING, Bytes, Places, parse_decimals

_SPACE, _NEWLINE, _RETURN, _POINT, _MINUS = b" \n\r.-"
WHITE = b" \t\r\n\x0b\x0c"
_QUOTED = 40
_FEW = 16
"""One number in so many may be doubtful before its whole line is read by the plain rule."""


class LineError(Exception):
    """What is wrong with line `index` of a piece, counted from 0."""

    def __init__(self, index: int, message: str) -> None:
        super().__init__(message)
        self.index = index


class Piece:
    """Whole lines of text: `size` bytes of `buffer`, the last of them a newline, and at least `PADDING` bytes after them."""

    def __init__(self, buffer: bytearray, size: int) -> None:
        self.bytes: Bytes = np.frombuffer(buffer, np.uint8)
        self.size = size
        assert len(self.bytes) >= size + PADDING

    def text(self, begin: int, end: int) -> bytes:
        return self.bytes[begin:end].tobytes()


def parse_piece(piece: Piece, d: int) -> npt.NDArray[np.float32]:
    """The numbers of each line, (lines, D): each is `float` of its text, rounded to float32.

    Raises:
        LineError: a line without D numbers at its end; the first such line.
    """
    found = _locate(piece, d)
    _refuse_short_lines(piece, found, d)
    slow = np.ones(len(found.begin), np.bool_)
    slow[found.usual] = False
    x = np.empty((len(slow), d), np.float32)
    with np.errstate(over="ignore"):  # 1e39 becomes inf, which is looked for like any other
        if len(found.usual):
            value, unread = _usual_numbers(piece, found.places)
            slow[found.usual[unread]] = True
            x[found.usual] = value
        for i in np.flatnonzero(slow).tolist():
            x[i] = _plain_numbers(piece.text(int(found.begin[i]), int(found.end[i])), d, i)
    return x


def words_of(piece: Piece, d: int) -> list[bytes]:
    """The word of each line, as it stands there: it may be no UTF-8."""
    found = _locate(piece, d)
    end = np.full(len(found.begin), -1)
    end[found.usual] = found.places[:, 0]
    words = []
    for begin, word_end, line_end in zip(found.begin.tolist(), end.tolist(), found.end.tolist(), strict=True):
        words.append(
            piece.text(begin, word_end).rstrip(WHITE)
            if word_end >= 0
            else split_line(piece.text(begin, line_end), d)[0]
        )
    return words


def split_line(line: bytes, d: int) -> tuple[bytes, list[bytes]]:
    """The word of a line, and the up to `d` fields at its end; what white space separates is a field, and a word may be empty."""
    fields = line.rstrip(WHITE).rsplit(None, d)
    if len(fields) <= d and line[:1] not in (b" ", b"\t"):
        return (fields[0], fields[1:]) if fields else (b"", [])
    return (b"", fields) if len(fields) <= d else (fields[0], fields[1:])


def number(field: bytes) -> float | None:
    """The number that a field spells, or None. Python's underscores between digits are not meant here."""
    try:
        return None if b"_" in field else float(field)
    except ValueError:
        return None


def quoted(field: bytes) -> str:
    """A field for a message."""
    return repr(field[:_QUOTED].decode("utf-8", "replace"))


@dataclass(frozen=True)
class _Located:
    """Where things are in the lines of a piece."""

    begin: Places
    """The first byte of each line, (n,)"""
    end: Places
    """The newline of each line, (n,)"""
    usual: Places
    """Which lines have the usual form, (m,)"""
    places: Places
    """For those: the space before the first number, then in turn the point of a number and what follows it, (m, 2D + 1)"""


def _locate(piece: Piece, d: int) -> _Located:
    text = piece.bytes[: piece.size]
    marks = np.flatnonzero(
        (text <= _POINT) & (text != _MINUS)
    )  # white space, points, and a few others that are never usual
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
    for i in np.flatnonzero(
        good & (first > before + 1)[usual]
    ).tolist():  # marks in the word: most are harmless
        word = piece.text(int(begin[usual[i]]), int(marks[grid[i, 0]]))
        good[i] = word[-1] > _SPACE and _RETURN not in word and _extra_number(word) is None
    if not good.all():
        usual, grid = usual[good], grid[good]
    return _Located(begin, end, usual, marks.take(grid))


def _without_white_end(marks: Places, kinds: Bytes, newline: Places, before: Places) -> Places:
    """Where the last number of each line ends, as an index of `marks`: two bytes of "\\r" or space are passed over."""
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


def _refuse_short_lines(piece: Piece, found: _Located, d: int) -> None:
    """Before room is made for D numbers a line: a line without room for them is an error, or an earlier line is."""
    short = found.end - found.begin < 2 * d - 1
    if short.any():
        for i in range(int(short.argmax()) + 1):
            _plain_numbers(piece.text(int(found.begin[i]), int(found.end[i])), d, i)


def _extra_number(word: bytes) -> bytes | None:
    """The last part of a word of several parts, if it is a number like "1.5": the line has more than D numbers."""
    parts = word.rsplit(None, 1)
    return parts[1] if len(parts) == 2 and b"." in parts[1] and number(parts[1]) is not None else None


def _usual_numbers(piece: Piece, places: Places) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    """The numbers of lines of the usual form, (m, D), and which of the lines the plain rule has to read, (m,)."""
    start, end = places[:, :-1:2] + 1, places[:, 2::2]
    value, doubtful = parse_decimals(piece.bytes, start, places[:, 1::2], end)
    unread = np.zeros(len(places), np.bool_)
    if doubtful.any():
        unread = doubtful.sum(1) * _FEW > places.shape[1]
        for i, j in np.argwhere(doubtful & ~unread[:, None]).tolist():
            found = number(piece.text(int(start[i, j]), int(end[i, j])))
            if found is None:
                unread[i] = True
            else:
                value[i, j] = found
    return value, unread


def _plain_numbers(line: bytes, d: int, index: int) -> npt.NDArray[np.float64]:
    word, fields = split_line(line, d)
    if _RETURN in line.rstrip(WHITE):
        raise LineError(
            index,
            r"expected a line that ends in \n or \r\n, got \r alone inside it (convert the line ends to \n)",
        )
    if len(fields) < d:
        raise LineError(index, f"expected D = {d} numbers after the word, got {len(fields)}")
    if (extra := _extra_number(word)) is not None:
        raise LineError(
            index, f"expected D = {d} numbers after the word, got more: {quoted(extra)} stands before them"
        )
    if b"_" not in line:
        try:
            return np.fromiter(map(float, fields), np.float64, d)
        except ValueError:
            pass
    for field in fields:
        if number(field) is None:
            raise LineError(index, f"expected a number, got {quoted(field)}")
    return np.array([float(field) for field in fields])
