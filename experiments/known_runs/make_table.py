"""Make the table of known readings that comes with the package, src/uncone/diagnosis/known/known_readings.csv.

    python experiments/known_runs/make_table.py --models NAME=DIRECTORY ... --vectors NAME=FILE.npy ...   # see README.md

Readings of four sources: the runs without a remedy of readings.csv (35, untied) and tied.csv (35), Table 1 of "Too Much
in Common" (from experiments/too_much_in_common/paper.py), the tokens that Land and Bartolo verified
(verified_tokens.csv), and uncone's own of the models and vectors given. The first two keep the digits of their source.
"""

import argparse
import csv
import importlib.util
import io
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from runs import TABLE, TIED, diverged, read

import uncone
from uncone import atomic
from uncone.diagnosis.known.known import (
    ALONG_MEAN,
    EFFECTIVE_RANK_SHARE,
    LARGEST_OVER_MEAN,
    ONE_SIGN,
    SMALLEST_OVER_LARGEST,
    SMALLEST_OVER_MEAN,
    kind_of,
    singular_ratio,
)
from uncone.diagnosis.record import Subject
from uncone.records.tokens import UNDER_TRAINED_SHARE

ROOT = Path(__file__).parents[2]
OUT = ROOT / "src/uncone/diagnosis/known/known_readings.csv"
COLUMNS = ("model", "parameters", "kind", "rows", "measure", "value", "diverged", "source")
STORED, REMOVED = "as stored", "mean removed"
RUNS = "Stollenwerk 2026, arXiv 2601.02031"
VERIFIED = Path(__file__).parent / "verified_tokens.csv"
MAGIKARP = "Land & Bartolo 2024, cohere-ai/magikarp"
KINDS = {"input": "untied input table", "head": "untied head", "tied": "tied table"}
OWN = "uncone"
_OWN_MEASURES = ("mean_cosine", "mean_shift", "isoscore", "partition_isotropy", "effective_rank")
Line = tuple[str, ...]


def main() -> None:
    """Write the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--models", nargs="*", default=[], metavar="NAME=DIRECTORY", help="real models that uncone reads"
    )
    parser.add_argument(
        "--vectors", nargs="*", default=[], metavar="NAME=FILE", help="rows of no model, such as vectors of documents"
    )
    parser.add_argument("--out", type=Path, default=OUT)
    given = parser.parse_args()
    lines = [*of_runs(TABLE), *of_runs(TIED), *of_paper(), *of_verified()]
    for model in given.models:
        name, _, directory = model.partition("=")
        lines += of_model(name, Path(directory))
    for vectors in given.vectors:
        name, _, file = vectors.partition("=")
        lines += of_spec(name, "", file)
    atomic.write_text(given.out, as_csv(lines))


def as_csv(lines: list[Line]) -> str:
    """The text of the file."""
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerows([COLUMNS, *lines])
    return written.getvalue()


def of_runs(table: Path) -> Iterator[Line]:
    """The matrices of the runs without a remedy, rows as stored; a run that diverged is marked."""
    gone = {(run.size, run.learning_rate) for run in diverged(read(table)) if run.remedy[0] == "baseline"}
    with table.open(encoding="utf-8", newline="") as file:
        for line in csv.DictReader(file):
            if line["remedy"] != "baseline":
                continue
            rate, size = int(line["learning_rate_label"]) * 1e-4, int(line["parameters"])
            mean, kind = float(line["mean_norm"]), KINDS[line["table"]]
            largest, smallest = (f"{float(line[name]) / mean:.2f}" for name in ("max_norm", "min_norm"))
            named = (
                (ONE_SIGN, line["isotropy"]),
                ("mean_shift", line["mean_shift"]),
                (LARGEST_OVER_MEAN, largest),  # three digits: the source has as many
                (SMALLEST_OVER_MEAN, smallest),
                *_of_spectrum(line),
            )
            for measure, value in named:
                model = f"GPT {size // 10**6}M{', tied' * (kind == 'tied table')}, learning rate {rate:g}"
                is_gone = "yes" if (size // 10**6, rate) in gone else "no"
                yield model, str(size), kind, STORED, measure, value.replace("nan", ""), is_gone, RUNS


def _of_spectrum(line: dict[str, str]) -> Iterator[tuple[str, str]]:
    """What the source has of heads and tied tables alone: the smallest over the largest singular value, to its digits, and
    how far along the mean row the rows of frequent tokens lie (of heads)."""
    if smallest := line["smallest_singular_value"]:
        ratio, digits = (
            float(smallest) / float(line["largest_singular_value"]),
            len(smallest.replace(".", "").lstrip("0")),
        )
        yield SMALLEST_OVER_LARGEST, f"{ratio:.{digits - 1 - math.floor(math.log10(ratio))}f}"
    if along := line.get("rank_correlation_along_mean"):
        yield ALONG_MEAN, along


def of_verified() -> Iterator[Line]:
    """The share of its vocabulary that prompts verified as untrained, of models whose reports agree with each other.

    Left out are models whose versions differ, or differ from the summary, and those of which none or all of the tokens
    that were tried are verified: that does not show whether the prompts tell tokens apart.
    """
    found: dict[str, set[tuple[str, str]]] = {}
    with VERIFIED.open(encoding="utf-8", newline="") as file:
        for line in csv.DictReader(file):
            verified, summary = line["n_verified"], line["summary_verified_without_special_bytes"].partition("/")[0]
            tried = {"0", line["n_tested"], line["n_tested_non_special"]}
            told = "" if verified in tried or summary not in ("", verified) else verified
            found.setdefault(line["model"], set()).add((told, line["vocab_size"]))
    for model, ((verified, tokens), *others) in ((model, sorted(of)) for model, of in found.items()):
        if verified and not others:
            share = f"{int(verified) / int(tokens):.6f}"
            yield model, "", "language model", "", UNDER_TRAINED_SHARE, share, "no", MAGIKARP


def of_paper() -> Iterator[Line]:
    """Table 1 of Bis et al., tied tables: as stored, and I(W) of the centred rows; and the one mean cosine that its text has."""
    spec = importlib.util.spec_from_file_location("paper", ROOT / "experiments/too_much_in_common/paper.py")
    assert spec is not None
    assert spec.loader is not None
    paper: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(paper)
    source = paper.SOURCE.format(1)
    for row in paper.TABLE_1:
        named = (
            (STORED, ONE_SIGN, row.isotropy),
            (STORED, "mean_shift", row.ratio),
            (REMOVED, ONE_SIGN, row.isotropy_centred),
        )
        for rows, measure, value in named:
            yield row.label, "", "tied table", rows, measure, f"{value:.2f}", "no", source
    cosine = f"{paper.STATED['mean cosine']:.2f}"
    yield "roberta-large", "", "tied table", STORED, "mean_cosine", cosine, "no", f"{source}, footnote"


def of_model(name: str, directory: Path) -> Iterator[Line]:
    """What `uncone diagnose` reads of a model, to six digits. A tied head gives the readings with the mean row removed."""
    yield from of_spec(name, str(count(directory)), str(directory))


def of_spec(name: str, parameters: str, spec: str) -> Iterator[Line]:
    """The same of anything that `uncone diagnose` takes."""
    d = uncone.diagnose(spec)
    for subject in d.subjects:
        kind = kind_of(subject, d.subjects)
        for rows, measure, value in _own(subject):
            seen_before = kind == "tied table" and subject.name == "head" and (rows == STORED or measure == "isoscore")
            if not seen_before and not (subject.name == "head" and measure == EFFECTIVE_RANK_SHARE):
                yield name, parameters, kind, rows, measure, f"{value:.6f}", "no", OWN


def _own(subject: Subject) -> Iterator[tuple[str, str, float]]:
    for one in (*subject.measurements, *subject.without_effect):
        if one.name not in _OWN_MEASURES or one.value is None:
            continue
        rows = REMOVED if one.centered else STORED
        if one.name == "effective_rank":
            yield rows, EFFECTIVE_RANK_SHARE, one.value / min(subject.n, subject.d)
        else:
            yield rows, one.name, one.value
        if one.name == "partition_isotropy":
            yield rows, ONE_SIGN, one.details["one_sign"]
    if subject.name != "rows" and (ratio := singular_ratio(subject)) is not None:
        yield STORED, SMALLEST_OVER_LARGEST, ratio
    if subject.norms is not None and subject.name != "rows":  # what lengths a collection has, its maker chose
        rows, norms = REMOVED if subject.name == "head" else STORED, subject.norms
        yield rows, LARGEST_OVER_MEAN, norms.largest / norms.mean
        yield rows, SMALLEST_OVER_MEAN, norms.smallest / norms.mean


def count(directory: Path) -> int:
    """The parameters in the model's safetensors files."""
    from safetensors import safe_open

    total = 0
    for path in sorted(directory.glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            for key in file.keys():  # noqa: SIM118 - no mapping
                size = 1
                for length in file.get_slice(key).get_shape():
                    size *= length
                total += size
    return total


if __name__ == "__main__":
    main()
