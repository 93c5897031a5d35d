"""Pairs of words or sentences with a score that people gave: any table of them, and the well-known sets."""

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from uncone.errors import InputError
from uncone.tasks.text_files import PACKED, SPACE, Rows, find_file, lines_of, table

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
    subset: tuple[str, ...] = ()
    """Which subset each pair is of; "", or nothing at all, where there are none."""
    file: str = ""
    """The name of the file they were read from."""
    others: Mapping[str, "PairSet"] = field(default_factory=dict)
    """"train" and "dev", where the set has them beside its test pairs."""

    def __len__(self) -> int:
        return len(self.pairs)

    def texts(self) -> tuple[str, ...]:
        """The different texts, in the order of their first use."""
        return tuple(
            dict.fromkeys((*(first for first, _ in self.pairs), *(second for _, second in self.pairs)))
        )

    def only(self, places: Sequence[int]) -> "PairSet":
        """The pairs at `places`, in their order."""
        subset = tuple(self.subset[at] for at in places) if self.subset else ()
        pairs, gold = tuple(self.pairs[at] for at in places), tuple(self.gold[at] for at in places)
        return PairSet(self.name, pairs, gold, subset, self.file)


def read_pairs(path: str | os.PathLike[str], *, columns: Sequence[str | int] | None = None) -> PairSet:
    """Pairs and scores from a table of any of the forms that `table` reads; the set is named after the file.

    Args:
        path: TSV, CSV, JSON lines or a JSON array of objects, in UTF-8, plain or packed as .gz or .xz.
        columns: the columns of the two texts and of the score, by name or by number from 1. By default
            `word1`, `word2` and `score`, or `sentence1`, `sentence2` and `score`, where the header has them;
            else the first three.

    Raises:
        InputError: what cannot be read, a row without two texts and a finite number (with its line), or fewer
            than two pairs.
    """
    if columns is not None and (
        len(columns) != 3 or any(isinstance(one, int) and one < 1 for one in columns)
    ):
        raise InputError(
            f"expected three columns, of two texts and of a score, got {columns!r}: give names or numbers"
        )
    file = Path(path)
    name = Path(file.stem if file.suffix in PACKED else file.name).stem
    rows = ((where, [cell.strip() for cell in cells]) for where, cells in table(file, columns))
    return _pair_set(name, file, rows)


def read_word_sets(
    directory: str | os.PathLike[str], *, sets: Sequence[str] | None = None
) -> tuple[PairSet, ...]:
    """The word-similarity sets in `directory` or its folders wordsim, too_much_in_common, datasets.

    Two layouts of each set are known: the original release, as the authors of Bis et al. 2021 pass it on, and
    a tidy TSV with the header `word1 word2 score`. Where both are there the original is read. Lines are split
    at white space. Any file may be packed (.xz, .gz).

    Args:
        directory: where to look.
        sets: names out of `WORD_SETS`; each must be there. None takes those that are there, in the order of
            `WORD_SETS`.

    Returns:
        The sets. Words are as they stand in the file, without the part of speech that MEN's lemma form adds
        ("sun-n").

    Raises:
        InputError: no set there, one of `sets` not there or unknown, or a line that is no pair with a finite
            score.
    """
    return _sets(directory, WORD_SETS, sets, _word_set, "word-similarity sets", _word_files)


def read_sts(directory: str | os.PathLike[str], *, sets: Sequence[str] | None = None) -> tuple[PairSet, ...]:
    """The sets of sentence pairs that lie in `directory` or in a folder of it.

    Known layouts: tidy TSV with a header (`sentence1`, `sentence2`, `score`, and `subset` for STS12 to 16);
    the STS Benchmark's own `sts-test.csv` (tabs, no header); SentEval's `STS12-en-test/STS.input.NAME.txt`
    beside `STS.gs.NAME.txt`. Any may be packed (.xz, .gz). Pairs without a gold score are left out, as
    SentEval does.

    Raises:
        InputError: no set there, one of `sets` not there or unknown, or a line that is no pair with a finite
            score.
    """
    return _sets(directory, STS_SETS, sets, _sts_set, "STS sets", lambda _: _STS_FILES)


def _sets(
    directory: str | os.PathLike[str],
    known: Sequence[str],
    asked: Sequence[str] | None,
    find: Callable[[Path, str], PairSet | None],
    what: str,
    files: Callable[[Sequence[str]], str],
) -> tuple[PairSet, ...]:
    """The sets that lie there; those that are `asked` must. `files` says which files hold them."""
    root = Path(directory)
    if not root.is_dir():
        raise InputError(
            f"expected a directory of {what}, got {root}: name the one that holds {files(known)}"
        )
    unknown = [name for name in asked or () if name not in known]
    if unknown:
        raise InputError(f"expected sets out of {', '.join(known)}, got {', '.join(unknown)}: leave them out")
    there = {name: find(root, name) for name in asked or known}
    missing = [name for name, one in there.items() if one is None]
    if missing and (asked is not None or len(missing) == len(there)):
        raise InputError(
            f"expected {', '.join(missing)} in {root}, got no file of them: looked for {files(missing)}; "
            "put it there, or name its directory"
        )
    return tuple(one for one in there.values() if one is not None)


def _pair_set(
    name: str,
    file: Path,
    rows: Iterable[tuple[str, list[str]]],
    *,
    least: int = 2,
    scored_alone: bool = False,
) -> PairSet:
    """Rows of two texts, a score and perhaps a subset; `scored_alone` leaves out those without a score."""
    kept = list[tuple[str, str, float, str]]()
    for where, (first, second, score, *subset) in rows:
        if scored_alone and not score.strip():
            continue
        if not first.strip() or not second.strip():
            raise InputError(
                f"expected two texts in {where}, got {first[:40]!r} and {second[:40]!r}: fill them in"
            )
        kept.append((first, second, _score(score, where), "".join(subset)))
    if len(kept) < least:
        wanted = "pairs" if least == 1 else "at least two pairs"
        raise InputError(
            f"expected {wanted} with scores in {file}, got {len(kept) or 'none'}: is it the right file?"
        )
    pairs = tuple((first, second) for first, second, _, _ in kept)
    gold, subsets = tuple(score for _, _, score, _ in kept), tuple(one for *_, one in kept)
    return PairSet(name, pairs, gold, subsets if any(subsets) else (), file.name)


def _score(text: str, where: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InputError(
            f"expected a finite number as score in {where}, got {text[:40]!r}: mend it, or name other columns"
        )
    return value


@dataclass(frozen=True)
class _Layout:
    """A form of a word set: the file's name, the column of the score, and whether words end in "-n"."""

    file: str
    score: int = 3
    part_of_speech: bool = False


_LAYOUTS: dict[str, tuple[_Layout, ...]] = {
    "men": (_Layout("MEN_dataset_lemma_form_full", part_of_speech=True), _Layout("men3000.tsv")),
    "rw": (_Layout("rw.txt"), _Layout("rw2034.tsv")),
    "simlex999": (_Layout("SimLex-999.txt", score=4), _Layout("simlex999.tsv")),
    "wordsim_sim": (_Layout("wordsim_similarity_goldstandard.txt"), _Layout("ws353_sim.tsv")),
    "wordsim_rel": (_Layout("wordsim_relatedness_goldstandard.txt"), _Layout("ws353_rel.tsv")),
}
_WORD_FOLDERS = ("", "too_much_in_common", "wordsim/too_much_in_common", "wordsim", "datasets")


def _word_files(sets: Sequence[str]) -> str:
    return "; ".join(" or ".join(layout.file for layout in _LAYOUTS[name]) for name in sets)


def _word_set(root: Path, name: str) -> PairSet | None:
    for layout in _LAYOUTS[name]:
        file = _first((root / folder for folder in _WORD_FOLDERS), layout.file)
        if file is not None:
            rows = table(file, (1, 2, layout.score), delimiter=SPACE)
            return _pair_set(name, file, _without_tags(rows) if layout.part_of_speech else rows, least=1)
    return None


def _without_tags(rows: Rows) -> Rows:
    """The lemma of `lemma-n`. Only the tag after the last hyphen goes: a hyphenated word stays whole."""
    for where, cells in rows:
        parts = [word.rpartition("-") for word in cells[:2]]
        if any(not lemma or len(tag) != 1 for lemma, _, tag in parts):
            raise InputError(
                f"expected words like sun-n in {where}, got {' '.join(cells[:2])[:80]!r}: take men3000.tsv"
            )
        yield where, [*(lemma for lemma, _, _ in parts), cells[2]]


_BENCHMARK = {
    "test": ("stsb_test.tsv", "sts-test.csv"),
    "train": ("stsb_train.tsv", "sts-train.csv"),
    "dev": ("stsb_dev.tsv", "sts-dev.csv"),
}
_STS_FILES = (
    "stsb_test.tsv or sts-test.csv for the STS Benchmark, sts12.tsv to sts16.tsv, "
    "or SentEval's STS12-en-test/STS.input.*.txt"
)
_TIDY = ("sentence1", "sentence2", "score")


def _sts_set(root: Path, name: str) -> PairSet | None:
    folders = [root, *sorted(path for path in root.iterdir() if path.is_dir())]
    if name == "stsb":
        splits = {split: _first(folders, *names) for split, names in _BENCHMARK.items()}
        test, *others = (None if file is None else _split(file) for file in splits.values())
        parts = {split: one for split, one in zip(("train", "dev"), others, strict=True) if one is not None}
        return None if test is None else PairSet(name, test.pairs, test.gold, file=test.file, others=parts)
    file = _first(folders, f"{name}.tsv")
    if file is not None:
        return _pair_set(name, file, table(file, (*_TIDY, "subset"), delimiter="\t"), scored_alone=True)
    release = f"{name.upper()}-en-test"
    places = chain.from_iterable((folder, folder / release) for folder in folders)
    folder = next((place for place in places if place.name == release and place.is_dir()), None)
    return None if folder is None else _senteval(folder, name)


def _split(file: Path) -> PairSet:
    """One split of the STS Benchmark. Some lines of its own layout have licences after the seventh column."""
    columns = (6, 7, 5) if ".csv" in file.suffixes else _TIDY
    return _pair_set("stsb", file, table(file, columns, delimiter="\t"), scored_alone=True)


def _senteval(folder: Path, name: str) -> PairSet:
    inputs = sorted(folder.glob("STS.input.*.txt"))
    if not inputs:
        raise InputError(f"expected files STS.input.NAME.txt in {folder}, got none: copy the set again")
    rows = chain.from_iterable(map(_senteval_rows, inputs))
    return _pair_set(name, folder, rows, scored_alone=True)


def _senteval_rows(file: Path) -> Rows:
    subset = file.name.removeprefix("STS.input.").removesuffix(".txt")
    gold = file.with_name(f"STS.gs.{subset}.txt")
    inputs, scores = list(lines_of(file)), [line for _, line in lines_of(gold)]
    if len(inputs) != len(scores):
        raise InputError(
            f"expected {len(inputs)} scores, one a line of {file}, got {len(scores)} in {gold.name}: copy it"
        )
    for (number, line), score in zip(inputs, scores, strict=True):
        first, tab, second = line.partition("\t")
        if not tab:
            raise InputError(
                f"expected two sentences between tabs in line {number} of {file}, got one: copy it again"
            )
        yield f"line {number} of {file}", [first, second.partition("\t")[0], score, subset]


def _first(folders: Iterable[Path], *names: str) -> Path | None:
    return next((file for folder in folders if (file := find_file(folder, *names)) is not None), None)
