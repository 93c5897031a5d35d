"""Texts of any size, read piece by piece: plain text, JSON lines, Parquet."""

import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from uncone.errors import InputError
from uncone.regular import PACKED, lines_of, misspelt, open_unpacked
from uncone.roles import Path_
from uncone.rows.names import named
from uncone.rows.open import split_part
from uncone.rows.parquet import guarded, pyarrow_parquet

PIECE_BYTES = 2**14  # a piece of plain text ends with the line that reaches this size
LONGEST_PIECE = 2**22  # longer lines are cut, at a space if there is one
MOST_TEXT = 2**20  # characters read from the beginning of texts
DEFAULT_PART = "text"
_ROWS_AT_ONCE = 1024
_MARK = b"\xef\xbb\xbf"  # which some editors put before UTF-8
_SURROGATE = re.compile("[\ud800-\udfff]")  # half a character, which JSON may hold
_HOW = "give a text in UTF-8 (.txt), JSON lines (.jsonl#field) or Parquet (.parquet#column)"


@dataclass(frozen=True)
class TextSource:
    path: Path
    part: str | None = None  # the field of JSON lines, or the column of Parquet; None for a plain text
    kept: tuple[str, ...] = ()  # its first pieces, if an earlier reader has kept them
    is_whole: bool = False  # whether the kept pieces are the whole text

    @property
    def name(self) -> str:
        return self.path.name + ("" if self.part is None else f"#{self.part}")

    @property
    def size(self) -> int:
        return self.path.stat().st_size

    def pieces(self) -> Iterator[str]:
        """Whole lines of a plain text, about 16 KiB at once, or documents. Every reading gives the same pieces."""
        yield from self.kept
        if not self.is_whole:
            yield from islice(_reader(self.path)(self.path, self.part or DEFAULT_PART), len(self.kept), None)

    def passages(self) -> Iterator[str]:
        """The lines of a plain text that are not blank, without their ends, or the documents of other files."""
        for piece in self.pieces():
            yield from ([piece] if self.part is not None else filter(str.strip, piece.splitlines()))


def open_texts(texts: Path_ | Sequence[Path_]) -> tuple[TextSource, ...]:
    """The sources that paths name: `.txt` or other text files, `.jsonl#field`, `.parquet#column`, also compressed."""
    given = [texts] if isinstance(texts, str | os.PathLike) else list(texts)
    if not given:
        raise InputError(f"expected a text, got none: {_HOW}")
    return tuple(map(_open, given))


def read_texts(texts: Path_ | Sequence[Path_], most: int = MOST_TEXT) -> list[str]:
    """The first `most` characters: a string for each plain text or document."""
    read, left = list[str](), most
    for source in open_texts(texts):
        whole = []
        for piece in source.pieces() if left > 0 else ():
            whole.append(piece[:left])
            left -= len(whole[-1])
            if left <= 0:
                break
        read += filter(None, whole if source.part is not None else ["".join(whole)])
    return read


def _open(text: Path_) -> TextSource:
    name, part = split_part(text)
    if part is None and not os.path.exists(name) and "#" in name:
        name, _, part = name.rpartition("#")
    path = Path(name)
    if not path.is_file():
        what = "a folder" if path.is_dir() else "no such file"
        raise InputError(f"cannot read {name}: {what}: {misspelt(path)}{_HOW}")
    is_plain = _reader(path) is _of_text
    if is_plain and part is not None:
        raise InputError(f"expected a plain text without parts, got #{part} of {path.name}: leave it out")
    return TextSource(path, None if is_plain else part or DEFAULT_PART)


def _reader(path: Path) -> Callable[[Path, str], Iterator[str]]:
    suffixes = [suffix for suffix in path.suffixes[-2:] if suffix.lower() not in PACKED]
    last = suffixes[-1].lower() if suffixes else ""
    if last == ".parquet":
        return _of_parquet
    return _of_json if last in (".jsonl", ".ndjson", ".json") else _of_text


def _of_text(path: Path, _: str) -> Iterator[str]:
    """Count the `seen` bytes, so that an error can give its position."""
    with open_unpacked(path, how=_HOW) as file:
        rest, seen = b"", 0
        while block := file.read(PIECE_BYTES):
            rest += block
            end = rest.find(b"\n", PIECE_BYTES - 1) + 1
            if end == 0 and len(rest) >= LONGEST_PIECE:
                end = _cut(rest)
            while end:
                yield _decoded(rest[:end], path, seen)
                rest, seen = rest[end:], seen + end
                end = rest.find(b"\n", PIECE_BYTES - 1) + 1
        if rest:
            yield _decoded(rest, path, seen)


def _cut(text: bytes) -> int:
    """The place after the last space, or before the last character that begins."""
    space = text.rfind(b" ", PIECE_BYTES) + 1
    begins = (i for i in range(len(text) - 1, len(text) - 5, -1) if text[i] & 0xC0 != 0x80)
    return space or next(begins, len(text))


def _decoded(piece: bytes, path: Path, seen: int) -> str:
    if seen == 0 and piece.startswith(_MARK):
        piece, seen = piece[len(_MARK) :], len(_MARK)
    try:
        return piece.decode().replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        got = f"byte 0x{piece[error.start]:02x} at position {seen + error.start:,} of the text in {path}"
        raise InputError(f"expected UTF-8, got {got}: convert it, as with iconv -f latin1 -t utf-8") from error


def _of_json(path: Path, field: str) -> Iterator[str]:
    for number, line in lines_of(path, how=_HOW):
        if not line.strip():
            continue
        where = f"line {number} of {path}"
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError(f"expected a JSON object in {where}, got none ({error}): {_HOW}") from error
        if not isinstance(entry, dict):
            raise InputError(f"expected a JSON object in {where}, got {type(entry).__name__}: {_HOW}")
        yield _text(named(entry, field, where, "field"), field, where)


def _of_parquet(path: Path, column: str) -> Iterator[str]:
    with guarded(path), pyarrow_parquet(f"reading {path.name}").ParquetFile(path) as file:
        named(dict.fromkeys(file.schema_arrow.names), column, path, "column")
        row = 0
        for batch in file.iter_batches(_ROWS_AT_ONCE, columns=[column]):
            for value in batch.column(0).to_pylist():
                yield _text(value, column, f"row {row} of {path}")
                row += 1


def _text(value: Any, part: str, where: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise InputError(f"expected text in {part!r} of {where}, got {type(value).__name__}: name another field")
    return _SURROGATE.sub("\N{REPLACEMENT CHARACTER}", value)
