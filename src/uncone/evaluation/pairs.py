"""Pairs of words or sentences with a score that people gave: any table of them, and the well-known sets."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from uncone.errors import InputError
from uncone.evaluation.bootstrap import KINDS, correlation_x100
from uncone.evaluation.text_files import SPACE, Rows, find_file, lines_of, stem_of, table
from uncone.regular import number_in
from uncone.roles import Path_

Scores = npt.NDArray[np.float64]
Vectors = npt.NDArray[Any]
WORD_SETS = ("men", "rw", "simlex999", "wordsim_sim", "wordsim_rel")
"""MEN (3000 pairs), Rare Words (2034), SimLex-999, and the two halves of WordSim-353 (203, 252)."""
STS_SETS = ("sts12", "sts13", "sts14", "sts15", "sts16", "stsb")
"""SemEval's tasks of 2012 to 2016 and the STS Benchmark (Cer et al. 2017)."""


@dataclass(frozen=True)
class PairSet:
    """Pairs and their gold scores as they stand in the file; repeated pairs are kept."""

    name: str
    pairs: tuple[tuple[str, str], ...]
    gold: tuple[float, ...]
    subset: tuple[str, ...] = ()  # which subset each pair is of; "", or nothing at all, where there are none
    file: str = ""  # the name of the file they were read from
    others: Mapping[str, "PairSet"] = field(default_factory=dict)  # "train" and "dev", where the set has them

    def __len__(self) -> int:
        return len(self.pairs)

    def texts(self) -> tuple[str, ...]:
        """The different texts, first ones before second ones, in the order of their first use."""
        return tuple(dict.fromkeys(chain(*zip(*self.pairs, strict=True))))

    def only(self, places: Sequence[int]) -> "PairSet":
        subset = tuple(self.subset[at] for at in places) if self.subset else ()
        pairs, gold = tuple(self.pairs[at] for at in places), tuple(self.gold[at] for at in places)
        return PairSet(self.name, pairs, gold, subset, self.file)


@dataclass(frozen=True)
class PairScores:
    """The scores of one set under one repair, one a scored pair (n,). All repairs of a set have the same pairs."""

    gold: Scores  # what people said
    cosine: Scores  # NaN where a vector is zero
    inner: Scores
    pairs: int  # in the set, scored or not

    def numbers(self) -> dict[str, float | int | None]:
        """Correlations x 100, n and pairs; None where undefined (one pair, equal or not finite scores)."""
        numbers: dict[str, float | int | None] = {
            f"{kind}_{name}": correlation_x100(scores, self.gold, kind=kind)
            for kind in KINDS
            for name, scores in (("cosine", self.cosine), ("inner", self.inner))
        }
        return numbers | {"n": len(self.gold), "pairs": self.pairs}


def pair_scores(
    pairs: PairSet, place: Mapping[str, int], cosine_of: Vectors, inner_of: Vectors, *, total: int
) -> PairScores:
    """The cosine of each pair by one matrix, the inner product by another; `place` is the row of a text."""
    sides = np.array([(place[a], place[b]) for a, b in pairs.pairs], np.intp).reshape(-1, 2).T
    x, y = (np.asarray(cosine_of[rows], np.float64) for rows in sides)
    lengths = np.linalg.norm(x, axis=1) * np.linalg.norm(y, axis=1)
    cosine = np.divide(np.einsum("ij,ij->i", x, y), lengths, out=np.full(len(x), np.nan), where=lengths > 0)
    x, y = (np.asarray(inner_of[rows], np.float64) for rows in sides)
    return PairScores(np.array(pairs.gold, np.float64), cosine, np.einsum("ij,ij->i", x, y), total)


def read_pairs(path: Path_, *, columns: Sequence[str | int] | None = None) -> PairSet:
    """Pairs and scores from a table of any of the forms that `table` reads; the set is named after the file.

    `columns` are those of the two texts and of the score. Refused are a row without two texts and a finite number, and
    fewer than two pairs.
    """
    if columns is not None and (len(columns) != 3 or any(isinstance(one, int) and one < 1 for one in columns)):
        raise InputError(f"expected 3 columns (text, text, score), got {columns!r}: give names or numbers")
    file = Path(path)
    rows = ((where, [cell.strip() for cell in cells]) for where, cells in table(file, columns))
    return _pair_set(stem_of(file), file, rows)


def read_word_sets(directory: Path_, *, sets: Sequence[str] | None = None) -> tuple[PairSet, ...]:
    """The word-similarity sets in `directory` or its folders wordsim, too_much_in_common, datasets.

    Two layouts of each set are known: the original release, as the authors of Bis et al. 2021 pass it on, and a tidy
    TSV with the header `word1 word2 score`. Where both are there the original is read. Lines are split at white space.
    Any file may be packed (.xz, .gz).

    Args:
        directory: where to look.
        sets: names out of `WORD_SETS`; each must be there. None takes those that are there, in this order.

    Returns:
        The sets. Words are as they stand in the file, without the part of speech that MEN's lemma form adds ("sun-n").

    Raises:
        InputError: no set there, one of `sets` not there or unknown, or a line that is no pair with a finite score.
    """
    return _sets(directory, sets, "word-similarity sets", _word_set, _WORD_FILES)


def read_sts(directory: Path_, *, sets: Sequence[str] | None = None) -> tuple[PairSet, ...]:
    """The sets of sentence pairs in `directory` or in a folder of it, as `read_word_sets` has `sets` out of `STS_SETS`.

    Known layouts: tidy TSV with a header (`sentence1`, `sentence2`, `score`, and `subset` for STS12 to 16); the STS
    Benchmark's own `sts-test.csv` (tabs, no header); SentEval's `STS12-en-test/STS.input.NAME.txt` beside
    `STS.gs.NAME.txt`. Pairs without a gold score are left out, as SentEval does.
    """
    return _sets(directory, sets, "STS sets", _sts_set, dict.fromkeys(STS_SETS, (_STS_FILES,)))


def _sets(
    directory: Path_,
    asked: Sequence[str] | None,
    what: str,
    read: Callable[[Path, str], PairSet | None],
    files: Mapping[str, Sequence[str]],
) -> tuple[PairSet, ...]:
    """The sets out of `files` (which says where each may be) that lie there; those that are `asked` must."""

    def told(sets: Iterable[str]) -> str:
        return "; ".join(dict.fromkeys(" or ".join(files[name]) for name in sets))

    root = Path(directory)
    if not root.is_dir():
        raise InputError(f"expected a directory of {what}, got {root}: name the one that holds {told(files)}")
    if unknown := [name for name in asked or () if name not in files]:
        raise InputError(f"expected sets out of {', '.join(files)}, got {', '.join(unknown)}: leave them out")
    there = {name: read(root, name) for name in asked or files}
    missing = [name for name, one in there.items() if one is None]
    if missing and (asked is not None or len(missing) == len(there)):
        advice = f"looked for {told(missing)}; put it there, or name its directory"
        raise InputError(f"expected {', '.join(missing)} in {root}, got no file of them: {advice}")
    return tuple(one for one in there.values() if one is not None)


def _pair_set(name: str, file: Path, rows: Rows, *, least: int = 2, scored_alone: bool = False) -> PairSet:
    """Rows of two texts, a score and perhaps a subset; `scored_alone` leaves out those without a score."""
    kept = list[tuple[tuple[str, str], float, str]]()
    for where, (first, second, score, *subset) in rows:
        if scored_alone and not score.strip():
            continue
        if not first.strip() or not second.strip():
            raise InputError(f"expected two texts in {where}, got {first[:40]!r} and {second[:40]!r}: add it")
        value = number_in(score)
        if value is None or not math.isfinite(value):
            raise InputError(f"expected a finite score in {where}, got {score[:40]!r}: mend it or `columns`")
        kept.append(((first, second), value, "".join(subset)))
    if len(kept) < least:
        wanted = "pairs" if least == 1 else "at least two pairs"
        raise InputError(f"expected {wanted} with scores in {file}, got {len(kept) or 'none'}: right file?")
    pairs, gold, subsets = zip(*kept, strict=True)
    return PairSet(name, pairs, gold, subsets if any(subsets) else (), file.name)


_TAGGED, _SCORED_IN_FOURTH = "MEN_dataset_lemma_form_full", "SimLex-999.txt"
_WORD_FILES = {
    "men": (_TAGGED, "men3000.tsv"),
    "rw": ("rw.txt", "rw2034.tsv"),
    "simlex999": (_SCORED_IN_FOURTH, "simlex999.tsv"),
    "wordsim_sim": ("wordsim_similarity_goldstandard.txt", "ws353_sim.tsv"),
    "wordsim_rel": ("wordsim_relatedness_goldstandard.txt", "ws353_rel.tsv"),
}
"""The original file of each set, and a tidy one."""
_WORD_FOLDERS = ("", "too_much_in_common", "wordsim/too_much_in_common", "wordsim", "datasets")


def _word_set(root: Path, name: str) -> PairSet | None:
    for wanted in _WORD_FILES[name]:
        file = _first((root / folder for folder in _WORD_FOLDERS), wanted)
        if file is not None:
            rows = table(file, (1, 2, 4 if wanted == _SCORED_IN_FOURTH else 3), delimiter=SPACE)
            return _pair_set(name, file, _without_tags(rows) if wanted == _TAGGED else rows, least=1)
    return None


def _without_tags(rows: Rows) -> Rows:
    """The lemma of `lemma-n`. Only the tag after the last hyphen goes: a hyphenated word stays whole."""
    for where, cells in rows:
        parts = [word.rpartition("-") for word in cells[:2]]
        if any(not lemma or len(tag) != 1 for lemma, _, tag in parts):
            advice = "take men3000.tsv"
            raise InputError(f"expected words like sun-n in {where}, got {' '.join(cells[:2])[:80]!r}: {advice}")
        yield where, [*(lemma for lemma, _, _ in parts), cells[2]]


_STS_FILES = (
    "stsb_test.tsv or sts-test.csv for the STS Benchmark, sts12.tsv to sts16.tsv, "
    "or SentEval's STS12-en-test/STS.input.*.txt"
)
_TIDY = ("sentence1", "sentence2", "score")


def _sts_set(root: Path, name: str) -> PairSet | None:
    folders = [root, *sorted(path for path in root.iterdir() if path.is_dir())]
    if name == "stsb":
        found = {split: _first(folders, f"stsb_{split}.tsv", f"sts-{split}.csv") for split in ("test", "train", "dev")}
        parts = dict[str, PairSet]()
        for split, file in found.items():
            if file is not None:  # some lines of its own layout have licences after the seventh column
                rows = table(file, (6, 7, 5) if ".csv" in file.suffixes else _TIDY, delimiter="\t")
                parts[split] = _pair_set(name, file, rows, scored_alone=True)
        test = parts.pop("test", None)
        return None if test is None else replace(test, others=parts)
    file = _first(folders, f"{name}.tsv")
    if file is not None:
        return _pair_set(name, file, table(file, (*_TIDY, "subset"), delimiter="\t"), scored_alone=True)
    release = f"{name.upper()}-en-test"
    places = chain.from_iterable((folder, folder / release) for folder in folders)
    folder = next((place for place in places if place.name == release and place.is_dir()), None)
    if folder is None:
        return None
    inputs = sorted(folder.glob("STS.input.*.txt"))
    if not inputs:
        raise InputError(f"expected files STS.input.NAME.txt in {folder}, got none: copy the set again")
    return _pair_set(name, folder, chain.from_iterable(map(_senteval_rows, inputs)), scored_alone=True)


def _senteval_rows(file: Path) -> Rows:
    subset = file.name.removeprefix("STS.input.").removesuffix(".txt")
    gold = file.with_name(f"STS.gs.{subset}.txt")
    inputs, scores = list(lines_of(file)), [line for _, line in lines_of(gold)]
    if len(inputs) != len(scores):
        raise InputError(f"expected {len(inputs)} scores of {file}, got {len(scores)} in {gold}: copy it")
    for (at, line), score in zip(inputs, scores, strict=True):
        first, tab, second = line.partition("\t")
        if not tab:
            raise InputError(f"expected two sentences between tabs in line {at} of {file}, got one: copy it")
        yield f"line {at} of {file}", [first, second.partition("\t")[0], score, subset]


def _first(folders: Iterable[Path], *names: str) -> Path | None:
    return next((file for folder in folders if (file := find_file(folder, *names))), None)
