"""Sentences to fit an encoder's repair on: one a line, plain or compressed."""

import gzip
import lzma
import os
import zlib
from collections.abc import Iterator
from io import BufferedIOBase
from pathlib import Path

from uncone.errors import InputError

LEAST = 20
LONGEST_LINE = 2**20


def read_sentences(path: str | os.PathLike[str]) -> list[str]:
    """The different lines of a text in UTF-8, in the order in which they first stand; empty ones are passed over.

    Args:
        path: a text file; `.gz` and `.xz` are unpacked as they are read.

    Raises:
        InputError: no such file, no UTF-8, damaged, a line longer than 1 MiB, or fewer than 20 different sentences.
    """
    found = list(dict.fromkeys(_lines(Path(path))))
    if len(found) < LEAST:
        raise InputError(
            f"expected at least {LEAST} different sentences in {path}, one a line, got {len(found)}: give more text"
        )
    return found


def _lines(path: Path) -> Iterator[str]:
    try:
        with _opened(path) as file:
            yield from _decoded(file, path)
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise InputError(
            f"cannot read {path}: {getattr(error, 'strerror', None) or error}: give a text file, one sentence a line"
        ) from error


def _opened(path: Path) -> BufferedIOBase:
    if path.suffix == ".gz":
        return gzip.open(path, "rb")
    return lzma.open(path, "rb") if path.suffix == ".xz" else open(path, "rb")


def _decoded(file: BufferedIOBase, path: Path) -> Iterator[str]:
    number = 0
    while line := file.readline(LONGEST_LINE + 1):
        number += 1
        if len(line) > LONGEST_LINE:
            raise InputError(
                f"expected lines of at most {LONGEST_LINE} bytes, got a longer line {number} in {path}: one sentence a line"
            )
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8").strip()
        except UnicodeDecodeError as error:
            raise InputError(f"expected UTF-8, got other bytes in line {number} of {path}: save the text as UTF-8") from error
        if text:
            yield text
