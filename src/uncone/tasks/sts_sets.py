"""Pairs of sentences with a similarity that people gave: STS12 to STS16 and the STS Benchmark, in the files in which they are passed on."""

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from uncone.errors import InputError
from uncone.tasks.text_files import find_file, found_sets, lines_of, table_of

SETS = ("sts12", "sts13", "sts14", "sts15", "sts16", "stsb")
"""SemEval's tasks of 2012 to 2016 and the STS Benchmark (Cer et al. 2017)."""
_BENCHMARK = {
    "train": ("stsb_train.tsv", "sts-train.csv"),
    "dev": ("stsb_dev.tsv", "sts-dev.csv"),
    "test": ("stsb_test.tsv", "sts-test.csv"),
}
_LAYOUTS = "stsb_test.tsv or sts-test.csv for the STS Benchmark, sts12.tsv to sts16.tsv, or SentEval's STS12-en-test/STS.input.*.txt"


@dataclass(frozen=True)
class StsPairs:
    """Pairs of sentences, their gold scores (0 to 5), and which subset each is of ("" where there are none)."""

    first: tuple[str, ...]
    second: tuple[str, ...]
    gold: tuple[float, ...]
    subset: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.gold)

    def sentences(self) -> tuple[str, ...]:
        """The different sentences, in the order of their first use."""
        return tuple(dict.fromkeys((*self.first, *self.second)))

    def only(self, places: Sequence[int]) -> "StsPairs":
        """The pairs at `places`, in their order."""
        rows = [(self.first[at], self.second[at], self.gold[at], self.subset[at]) for at in places]
        first, second, gold, subset = zip(*rows, strict=True) if rows else ((), (), (), ())
        return StsPairs(first, second, gold, subset)


@dataclass(frozen=True)
class StsSet:
    """One set. The STS Benchmark has its training and development pairs beside."""

    name: str
    test: StsPairs
    others: Mapping[str, StsPairs] = field(default_factory=dict)
    """"train" and "dev", where they are there."""


def read_sts(directory: str | os.PathLike[str], *, sets: Sequence[str] | None = None) -> tuple[StsSet, ...]:
    """The sets that lie in `directory` or in a folder of it.

    Known layouts: tidy TSV with a header (`sentence1`, `sentence2`, `score`, and `subset` for STS12 to 16); the STS Benchmark's
    own `sts-test.csv` (tabs, no header); SentEval's `STS12-en-test/STS.input.NAME.txt` beside `STS.gs.NAME.txt`. Any may
    be compressed (.xz, .gz). Pairs without a gold score are left out, as SentEval does.

    Raises:
        InputError: no set there, one of `sets` not there or unknown, or a line that is no pair with a finite score.
    """
    found = found_sets(directory, SETS, sets, _find, what="STS sets", looked_for=lambda _: _LAYOUTS)
    return tuple(found.values())


def _find(root: Path, name: str) -> StsSet | None:
    places = [root, *sorted(path for path in root.iterdir() if path.is_dir())]
    return _benchmark(places) if name == "stsb" else _semeval(places, name)


def _benchmark(places: Sequence[Path]) -> StsSet | None:
    files = {split: _first(places, *names) for split, names in _BENCHMARK.items()}
    test = files.pop("test")
    if test is None:
        return None
    return StsSet("stsb", _pairs(test, _split_lines(test)), {
        split: _pairs(file, _split_lines(file)) for split, file in files.items() if file is not None
    })  # fmt: skip


def _split_lines(file: Path) -> Iterator[tuple[int, str, str, str, str]]:
    """(line, sentence, sentence, score, subset) of one split of the STS Benchmark in either layout."""
    if ".csv" in file.suffixes:
        for number, line in lines_of(file):
            fields = line.split("\t")
            if len(fields) < 7:  # beyond the seventh stand the licences of some lines
                raise InputError(
                    f"expected 7 fields between tabs in line {number} of {file}, got {len(fields)}: it was cut"
                )
            yield number, fields[5], fields[6], fields[4], ""
        return
    for number, (first, second, score) in table_of(file, ("sentence1", "sentence2", "score")):
        yield number, first, second, score, ""


def _semeval(places: Sequence[Path], name: str) -> StsSet | None:
    file = _first(places, f"{name}.tsv")
    if file is not None:
        rows = table_of(file, ("sentence1", "sentence2", "score", "subset"))
        return StsSet(
            name, _pairs(file, ((number, a, b, score, subset) for number, (a, b, score, subset) in rows))
        )
    folder = next(
        (
            p
            for place in places
            for p in (place, place / f"{name.upper()}-en-test")
            if p.name == f"{name.upper()}-en-test"
        ),
        None,
    )
    if folder is None or not folder.is_dir():
        return None
    inputs = sorted(folder.glob("STS.input.*.txt"))
    if not inputs:
        raise InputError(f"expected files STS.input.NAME.txt in {folder}, got none: copy the set again")
    return StsSet(name, _pairs(folder, (row for file in inputs for row in _senteval_lines(file))))


def _senteval_lines(file: Path) -> Iterator[tuple[int, str, str, str, str]]:
    subset = file.name.removeprefix("STS.input.").removesuffix(".txt")
    gold_file = file.with_name(f"STS.gs.{subset}.txt")
    inputs, golds = list(lines_of(file)), [line for _, line in lines_of(gold_file)]
    if len(inputs) != len(golds):
        raise InputError(
            f"expected a score for each of the {len(inputs)} lines of {file}, got {len(golds)} in {gold_file.name}"
        )
    for (number, line), score in zip(inputs, golds, strict=True):
        fields = line.split("\t")
        if len(fields) < 2:
            raise InputError(f"expected two sentences between tabs in line {number} of {file}, got one")
        yield number, fields[0], fields[1], score, subset


def _pairs(file: Path, rows: Iterator[tuple[int, str, str, str, str]]) -> StsPairs:
    kept: list[tuple[str, str, float, str]] = []
    for number, first, second, score, subset in rows:
        if not score.strip():
            continue
        kept.append((first, second, _score(score, number, file), subset))
    if len(kept) < 2:
        raise InputError(
            f"expected at least two pairs with scores in {file}, got {len(kept)}: is it the right file?"
        )
    first_, second_, gold, subsets = zip(*kept, strict=True)
    return StsPairs(first_, second_, gold, subsets)


def _score(text: str, number: int, file: Path) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InputError(
            f"expected a score in line {number} of {file}, got {text[:40]!r}: the columns are others than expected"
        )
    return value


def _first(places: Sequence[Path], *names: str) -> Path | None:
    return next((file for place in places if (file := find_file(place, *names)) is not None), None)
