"""The sentences that a repair of an encoder is fitted on."""

from collections.abc import Iterable
from dataclasses import dataclass
from random import Random

from uncone.errors import InputError
from uncone.regular import lines_of
from uncone.repairs.vectors import MOST_SENTENCES
from uncone.roles import Path_

LEAST_SENTENCES = 20
LONGEST_LINE = 2**20


@dataclass(frozen=True)
class Sentences:
    """Different lines of a text, in their order. The text has `n` of them, more than `lines` where some were drawn."""

    lines: tuple[str, ...] = ()
    n: int = 0

    def notes(self) -> tuple[str, ...]:
        drawn = f"{len(self.lines):,} of them were drawn at random from all of it"
        return (f"The text has {self.n:,} sentences: {drawn}.",) if self.n > len(self.lines) else ()


def read_sentences(path: Path_, *, most: int = MOST_SENTENCES) -> Sentences:
    """The different lines of a text in UTF-8 that are not empty, in the order in which they first occur. From more than
    `most` lines, `most` are drawn in one pass, all equally likely and the same every time (Vitter 1985, algorithm R). A
    line that was not kept counts again where it is repeated."""
    if most < LEAST_SENTENCES:
        raise InputError(f"expected to keep at least {LEAST_SENTENCES} sentences, got {most}: fewer say too little")
    lines = lines_of(path, how="give a text file in UTF-8, one sentence per line", longest=LONGEST_LINE)
    sentences = _drawn(filter(None, (line.strip() for _, line in lines)), most)
    if (n := len(sentences.lines)) < LEAST_SENTENCES:
        text = f"different sentences in {path}, one per line"
        raise InputError(f"expected at least {LEAST_SENTENCES} {text}, got {n}: give more text")
    return sentences


def _drawn(lines: Iterable[str], most: int) -> Sentences:
    kept, held, n, random = list[tuple[int, str]](), set[str](), 0, Random(0)
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
