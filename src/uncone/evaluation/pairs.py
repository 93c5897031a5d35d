"""Pairs of words or sentences with scores by people: any table of them, and the well-known sets."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path

import numpy as np

from uncone.errors import InputError, expect
from uncone.evaluation.bootstrap import KINDS, correlation_x100
from uncone.evaluation.text_files import SPACE, Rows, find_file, lines_of, stem_of, table
from uncone.regular import number_in
from uncone.roles import Path_
from uncone.rows import Array

STS_SETS = ("sts12", "sts13", "sts14", "sts15", "sts16", "stsb")
"""SemEval's tasks of 2012 to 2016 and the STS Benchmark (Cer et al. 2017)."""


@dataclass(frozen=True)
class PairSet:
    """Pairs and their gold scores as in the file; repeated pairs are kept."""

    name: str
    pairs: tuple[tuple[str, str], ...]
    gold: tuple[float, ...]
    subset: tuple[str, ...] = ()  # of each pair; "", or nothing at all, where there are none
    file: str = ""  # the name of the source
    others: Mapping[str, "PairSet"] = field(default_factory=dict)  # "train" and "dev", where the set has them

    def __len__(self) -> int:
        return len(self.pairs)

    def texts(self) -> tuple[str, ...]:
        """The different texts, all first texts before the second texts."""
        return tuple(dict.fromkeys(chain(*zip(*self.pairs, strict=True))))

    def only(self, places: Sequence[int]) -> "PairSet":
        pairs, gold = tuple(self.pairs[at] for at in places), tuple(self.gold[at] for at in places)
        subset = tuple(self.subset[at] for at in places) if self.subset else ()
        return PairSet(self.name, pairs, gold, subset, self.file)


@dataclass(frozen=True)
class PairScores:
    """The scores (n,) of one set under one repair. All repairs of a set have the same pairs."""

    gold: Array  # the scores that people gave
    cosine: Array  # NaN where a vector is zero
    inner: Array
    pairs: int  # in the set, scored or not

    def numbers(self) -> dict[str, float | int | None]:
        """Correlations x 100, n and pairs; None where undefined (one pair, equal or not finite scores)."""
        correlations = {
            f"{kind}_{way}": correlation_x100(getattr(self, way), self.gold, kind=kind)
            for kind in KINDS
            for way in ("cosine", "inner")
        }
        return {**correlations, "n": len(self.gold), "pairs": self.pairs}


def pair_scores(pairs: PairSet, place: Mapping[str, int], cosine_of: Array, inner: Array, *, total: int) -> PairScores:
    sides = np.array([(place[a], place[b]) for a, b in pairs.pairs], np.intp).reshape(-1, 2).T
    x, y = (np.asarray(cosine_of[rows], np.float64) for rows in sides)
    lengths = np.linalg.norm(x, axis=1) * np.linalg.norm(y, axis=1)
    cosine = np.divide(np.einsum("ij,ij->i", x, y), lengths, out=np.full(len(x), np.nan), where=lengths > 0)
    x, y = (np.asarray(inner[rows], np.float64) for rows in sides)
    return PairScores(np.array(pairs.gold, np.float64), cosine, np.einsum("ij,ij->i", x, y), total)


def read_pairs(path: Path_, *, columns: Sequence[str | int] | None = None) -> PairSet:
    """Pairs and scores from any `table`, with the `columns` of the two texts and of the score; the set is named after
    the file. InputError: a row without two texts and a finite number, or fewer than two pairs."""
    fits = columns is None or (len(columns) == 3 and not any(isinstance(one, int) and one < 1 for one in columns))
    expect(fits, f"3 columns (text, text, score), got {columns!r}: give names or numbers")
    file = Path(path)
    rows = ((where, [cell.strip() for cell in cells]) for where, cells in table(file, columns))
    return _pair_set(stem_of(file), file, rows)


def read_word_sets(directory: Path_, *, sets: Sequence[str] | None = None) -> tuple[PairSet, ...]:
    """The word-similarity sets in `directory` or its folders wordsim, too_much_in_common, datasets.

    Two layouts of each set are known: the original release, as the authors of Bis et al. 2021 pass it on, and a tidy
    TSV with the header `word1 word2 score`. The original is preferred. Lines are split at white space. Any file may be
    packed (.xz, .gz).

    Args:
        directory: where to look.
        sets: names out of `WORD_SETS`; each must be there. None takes those that are there, in this order.

    Returns:
        The sets. Words are as in the file, without the part of speech that MEN's lemma form adds ("sun-n").

    Raises:
        InputError: no set there, one of `sets` missing or unknown, or a line that is no pair with a finite score.
    """
    return _sets(directory, sets, "word-similarity sets", _word_set, _WORD_FILES)


def read_sts(directory: Path_, *, sets: Sequence[str] | None = None) -> tuple[PairSet, ...]:
    """The sets of sentence pairs in `directory` or a folder of it; `sets` are as in `read_word_sets`, of `STS_SETS`.

    Layouts: tidy TSV with a header (`sentence1`, `sentence2`, `score`, and `subset` for STS12 to 16); the STS
    Benchmark's own `sts-test.csv` (tabs, no header); SentEval's `STS12-en-test/STS.input.NAME.txt` with
    `STS.gs.NAME.txt`. Pairs without a gold score are left out, as SentEval does."""
    return _sets(directory, sets, "STS sets", _sts_set, dict.fromkeys(STS_SETS, (_STS_FILES,)))


def _sets(
    directory: Path_,
    asked: Sequence[str] | None,
    what: str,
    read: Callable[[Path, str], PairSet | None],
    files: Mapping[str, Sequence[str]],
) -> tuple[PairSet, ...]:
    """The sets that are there; those `asked` for must be. `files` names the files of each."""

    def names_of(sets: Iterable[str]) -> str:
        return "; ".join(dict.fromkeys(" or ".join(files[name]) for name in sets))

    root = Path(directory)
    expect(root.is_dir(), f"a directory of {what}, got {root}: name the one that holds {names_of(files)}")
    unknown = [name for name in asked or () if name not in files]
    expect(not unknown, f"sets out of {', '.join(files)}, got {', '.join(unknown)}: leave them out")
    there = {name: read(root, name) for name in asked or files}
    missing = [name for name, one in there.items() if one is None]
    advice = f"looked for {names_of(missing)}; put it there, or name its directory"
    fits = not missing or (asked is None and len(missing) < len(there))
    expect(fits, f"{', '.join(missing)} in {root}, got no file of them: {advice}")
    return tuple(one for one in there.values() if one is not None)


def _pair_set(name: str, file: Path, rows: Rows, *, least: int = 2, scored_alone: bool = False) -> PairSet:
    """From rows of two texts, a score and perhaps a subset; `scored_alone` skips those without a score."""
    kept = list[tuple[tuple[str, str], float, str]]()
    for where, (first, second, score, *subset) in rows:
        if scored_alone and not score.strip():
            continue
        are_texts = bool(first.strip() and second.strip())
        expect(are_texts, f"two texts in {where}, got {first[:40]!r} and {second[:40]!r}: add it")
        value = number_in(score)
        if value is None or not math.isfinite(value):
            raise InputError(f"expected a finite score in {where}, got {score[:40]!r}: correct it or `columns`")
        kept.append(((first, second), value, "".join(subset)))
    wanted = "pairs" if least == 1 else "at least two pairs"
    expect(len(kept) >= least, f"{wanted} with scores in {file}, got {len(kept) or 'none'}: right file?")
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
"""The original and the tidy file of each set."""
WORD_SETS = tuple(_WORD_FILES)
"""MEN (3000 pairs), Rare Words (2034), SimLex-999, and the two halves of WordSim-353 (203, 252)."""
_WORD_FOLDERS = ("", "too_much_in_common", "wordsim/too_much_in_common", "wordsim", "datasets")


def _word_set(root: Path, name: str) -> PairSet | None:
    for wanted in _WORD_FILES[name]:
        file = _first((root / folder for folder in _WORD_FOLDERS), wanted)
        if file is not None:
            rows = table(file, (1, 2, 4 if wanted == _SCORED_IN_FOURTH else 3), delimiter=SPACE)
            return _pair_set(name, file, _without_tags(rows) if wanted == _TAGGED else rows, least=1)
    return None


def _without_tags(rows: Rows) -> Rows:
    """The lemma of `lemma-n`, which may hold other hyphens."""
    for where, (*words, score) in rows:
        parts = [word.rpartition("-") for word in words]
        fits = all(lemma and len(tag) == 1 for lemma, _, tag in parts)
        expect(fits, f"words like sun-n in {where}, got {' '.join(words)[:80]!r}: take men3000.tsv")
        yield where, [*(lemma for lemma, _, _ in parts), score]


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
            if file is not None:  # lines of its own layout may have licences after the seventh column
                rows = table(file, (6, 7, 5) if ".csv" in file.suffixes else _TIDY, delimiter="\t")
                parts[split] = _pair_set(name, file, rows, scored_alone=True)
        test = parts.pop("test", None)
        return test and replace(test, others=parts)
    file = _first(folders, f"{name}.tsv")
    if file is not None:
        return _pair_set(name, file, table(file, (*_TIDY, "subset"), delimiter="\t"), scored_alone=True)
    release = f"{name.upper()}-en-test"
    places = chain.from_iterable((folder, folder / release) for folder in folders)
    folder = next((place for place in places if place.name == release and place.is_dir()), None)
    if folder is None:
        return None
    inputs = sorted(folder.glob("STS.input.*.txt"))
    expect(bool(inputs), f"files STS.input.NAME.txt in {folder}, got none: copy the set again")
    return _pair_set(name, folder, chain.from_iterable(map(_senteval_rows, inputs)), scored_alone=True)


def _senteval_rows(file: Path) -> Rows:
    subset = file.name.removeprefix("STS.input.").removesuffix(".txt")
    gold = file.with_name(f"STS.gs.{subset}.txt")
    inputs, scores = list(lines_of(file)), [line for _, line in lines_of(gold)]
    expect(len(inputs) == len(scores), f"{len(inputs)} scores of {file}, got {len(scores)} in {gold}: copy it")
    for (at, line), score in zip(inputs, scores, strict=True):
        first, tab, second = line.partition("\t")
        expect(bool(tab), f"two sentences between tabs in line {at} of {file}, got one: copy it")
        yield f"line {at} of {file}", [first, second.partition("\t")[0], score, subset]


def _first(folders: Iterable[Path], *names: str) -> Path | None:
    return next((file for folder in folders if (file := find_file(folder, *names))), None)
