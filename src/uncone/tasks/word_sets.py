"""Pairs of words with a similarity that people gave: the five sets of Bis et al., in the files in which they are passed on."""

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from uncone.errors import InputError
from uncone.tasks.text_files import find_file, found_sets, lines_of

SETS = ("men", "rw", "simlex999", "wordsim_sim", "wordsim_rel")
"""MEN (3000 pairs), Rare Words (2034), SimLex-999, and the similarity (203) and relatedness (252) halves of WordSim-353."""


@dataclass(frozen=True)
class WordSet:
    """Word pairs and their gold scores. Pairs stand as in the file: repeated pairs and pairs of one word with itself are kept."""

    name: str
    pairs: tuple[tuple[str, str], ...]
    gold: tuple[float, ...]
    file: str
    """The name of the file they were read from."""


@dataclass(frozen=True)
class _Layout:
    """One way in which a set is passed on: the file's name, the column of the score, and whether words carry "-n", "-v", "-j"."""

    file: str
    column: int = 2
    part_of_speech: bool = False


_LAYOUTS: dict[str, tuple[_Layout, ...]] = {
    "men": (_Layout("MEN_dataset_lemma_form_full", part_of_speech=True), _Layout("men3000.tsv")),
    "rw": (_Layout("rw.txt"), _Layout("rw2034.tsv")),
    "simlex999": (_Layout("SimLex-999.txt", column=3), _Layout("simlex999.tsv")),
    "wordsim_sim": (_Layout("wordsim_similarity_goldstandard.txt"), _Layout("ws353_sim.tsv")),
    "wordsim_rel": (_Layout("wordsim_relatedness_goldstandard.txt"), _Layout("ws353_rel.tsv")),
}
_FOLDERS = ("", "too_much_in_common", "wordsim/too_much_in_common", "wordsim", "datasets")


def read_word_sets(
    directory: str | os.PathLike[str], *, sets: Sequence[str] | None = None
) -> tuple[WordSet, ...]:
    """The word-similarity sets that lie in `directory` (or in its folders wordsim, too_much_in_common, datasets).

    Two layouts of each set are known: the original release, as the authors of Bis et al. 2021 pass it on, and a tidy
    TSV with the header `word1 word2 score`. Where both are there the original is read. Lines are split at white space. Any file may be
    compressed (.xz, .gz).

    Args:
        directory: where to look.
        sets: names out of `SETS`; each must be there. None takes those that are there, in the order of `SETS`.

    Returns:
        The sets. Words are as they stand in the file, but for the part of speech that MEN's lemma form hangs on ("sun-n").

    Raises:
        InputError: no set there, one of `sets` not there or unknown, or a line that is no pair with a finite score.
    """
    found = found_sets(directory, SETS, sets, _find, what="word-similarity sets", looked_for=_names)
    return tuple(_read(file, name, layout) for name, (file, layout) in found.items())


def _read(file: Path, name: str, layout: _Layout) -> WordSet:
    """One set; an error names the file and the number of the line."""
    pairs, gold = [], []
    for number, line in lines_of(file):
        fields = line.split()
        if not fields or (number == 1 and _is_header(fields, layout)):
            continue
        first, second, score = _parsed(fields, layout, f"{file.name}, line {number}")
        pairs.append((first, second))
        gold.append(score)
    if not pairs:
        raise InputError(f"expected word pairs in {file}, got none: take the file as it was released")
    return WordSet(name, tuple(pairs), tuple(gold), file.name)


def _is_header(fields: list[str], layout: _Layout) -> bool:
    """SimLex-999 as released and the tidy files name their columns; the other originals start at once."""
    return (
        fields[:2] == ["word1", "word2"]
        and len(fields) > layout.column
        and not _is_number(fields[layout.column])
    )


def _parsed(fields: list[str], layout: _Layout, place: str) -> tuple[str, str, float]:
    if len(fields) <= layout.column or not _is_number(fields[layout.column]):
        got = " ".join(fields)[:80]
        raise InputError(
            f"expected two words and a score in column {layout.column + 1} in {place}, got {got!r}: mend the line"
        )
    words = [_without_part_of_speech(word, place) if layout.part_of_speech else word for word in fields[:2]]
    return words[0], words[1], float(fields[layout.column])


def _without_part_of_speech(word: str, place: str) -> str:
    """The lemma of `lemma-n`. Only the tag after the last hyphen goes, so that a hyphenated word stays whole."""
    lemma, hyphen, tag = word.rpartition("-")
    if not hyphen or not lemma or len(tag) != 1:
        raise InputError(
            f"expected words like sun-n in {place}, got {word[:80]!r}: take MEN's lemma form, or its tidy form men3000.tsv"
        )
    return lemma


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _find(root: Path, name: str) -> tuple[Path, _Layout] | None:
    for layout in _LAYOUTS[name]:
        for folder in _FOLDERS:
            file = find_file(root / folder, layout.file)
            if file is not None:
                return file, layout
    return None


def _names(sets: Sequence[str]) -> str:
    return "; ".join(" or ".join(layout.file for layout in _LAYOUTS[name]) for name in sets)
