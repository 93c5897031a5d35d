"""Sentences to fit an encoder's repair on: one a line, plain or compressed."""

import lzma
import os
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from io import BufferedIOBase
from pathlib import Path
from random import Random

from uncone.errors import InputError
from uncone.regular import open_unpacked

LEAST = 20
MOST = 100_000
"""Sentences that are kept. More embeddings would not move a mean or a covariance, and all are held in memory."""
LONGEST_LINE = 2**20


@dataclass(frozen=True)
class Sentences:
    """Different lines of a text, in their order, and how many it has: more where some were drawn."""

    lines: tuple[str, ...] = ()
    n: int = 0

    def notes(self) -> tuple[str, ...]:
        """What is to be said of a text of which not every line is kept."""
        if self.n <= len(self.lines):
            return ()
        return (
            f"The text has {self.n:,} sentences: {len(self.lines):,} of them were taken, drawn at random from all of it.",
        )


def read_sentences(path: str | os.PathLike[str], *, most: int = MOST) -> Sentences:
    """The different lines of a text in UTF-8, in the order in which they first stand; empty ones are passed over.

    It is read once, line by line. Of a text with more than `most` different lines so many are drawn, each line as likely as the others and the same ones every
    time (Vitter 1985, algorithm R); of lines that were not kept it is not known whether they stood there before, and a repeated one counts anew.

    Args:
        path: a text file; `.gz` and `.xz` are unpacked as they are read.
        most: how many lines are kept, at least 20.

    Raises:
        InputError: no such file, no UTF-8, damaged, a line longer than 1 MiB, or fewer than 20 different sentences; `most` below 20.
    """
    if most < LEAST:
        raise InputError(
            f"expected to keep at least {LEAST} sentences, got {most}: fewer say nothing of others"
        )
    found = _drawn(_lines(Path(path)), most)
    if len(found.lines) < LEAST:
        raise InputError(
            f"expected at least {LEAST} different sentences in {path}, one a line, got {len(found.lines)}: give more text"
        )
    return found


def _drawn(lines: Iterable[str], most: int) -> Sentences:
    """At most `most` different lines, any of them with the same chance, in their order."""
    kept, held, n = list[tuple[int, str]](), set[str](), 0
    random = Random(0)
    for line in lines:
        if line in held:
            continue
        n += 1
        if len(kept) < most:
            kept.append((n, line))
        elif (at := random.randrange(n)) < most:
            held.discard(kept[at][1])
            kept[at] = (n, line)
        else:
            continue
        held.add(line)
    return Sentences(tuple(line for _, line in sorted(kept)), n)


def _lines(path: Path) -> Iterator[str]:
    try:
        with open_unpacked(path, how="give a text file, one sentence a line") as file:
            yield from _decoded(file, path)
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise InputError(
            f"cannot read {path}: {getattr(error, 'strerror', None) or error}: give a text file, one sentence a line"
        ) from error


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
            raise InputError(
                f"expected UTF-8, got other bytes in line {number} of {path}: save the text as UTF-8"
            ) from error
        if text:
            yield text
