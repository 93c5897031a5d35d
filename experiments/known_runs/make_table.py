"""Make the table of known readings that comes with the package, src/uncone/diagnosis/known/known_readings.csv.

    python experiments/known_runs/make_table.py --models stories260K=build/stories260K all-MiniLM-L6-v2=$MINILM

Readings of three sources: the 35 runs without a remedy of readings.csv, Table 1 of "Too Much in Common" (from
experiments/too_much_in_common/paper.py), and uncone's own of the models given. The first two keep the digits of their source.
"""

import argparse
import csv
import importlib.util
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from runs import TABLE, diverged, read

import uncone
from uncone import atomic
from uncone.diagnosis.known.known import EFFECTIVE_RANK_SHARE, LARGEST_OVER_MEAN, ONE_SIGN, kind_of
from uncone.diagnosis.record import Subject

ROOT = Path(__file__).parents[2]
OUT = ROOT / "src/uncone/diagnosis/known/known_readings.csv"
COLUMNS = ("model", "parameters", "kind", "rows", "measure", "value", "diverged", "source")
STORED, REMOVED = "as stored", "mean removed"
RUNS = "Stollenwerk 2026, arXiv 2601.02031"
OWN = "uncone"
_OWN_MEASURES = ("mean_cosine", "mean_shift", "isoscore", "partition_isotropy", "effective_rank")
Line = tuple[str, ...]


def main() -> None:
    """Write the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--models", nargs="*", default=[], metavar="NAME=DIRECTORY", help="real models that uncone reads"
    )
    parser.add_argument("--out", type=Path, default=OUT)
    given = parser.parse_args()
    lines = [*of_runs(), *of_paper()]
    for model in given.models:
        name, _, directory = model.partition("=")
        lines += of_model(name, Path(directory))
    atomic.write_text(given.out, as_csv(lines))


def as_csv(lines: list[Line]) -> str:
    """The text of the file."""
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerows([COLUMNS, *lines])
    return written.getvalue()


def of_runs() -> Iterator[Line]:
    """The input tables and heads of the runs without a remedy: untied, rows as stored."""
    gone = {(run.size, run.learning_rate) for run in diverged(read()) if run.remedy[0] == "baseline"}
    with TABLE.open(encoding="utf-8", newline="") as file:
        for line in csv.DictReader(file):
            if line["remedy"] != "baseline":
                continue
            rate, size = int(line["learning_rate_label"]) * 1e-4, int(line["parameters"])
            kind = {"input": "untied input table", "head": "untied head"}[line["table"]]
            ratio = f"{float(line['max_norm']) / float(line['mean_norm']):.2f}"  # three digits: the source has as many
            named = ((ONE_SIGN, line["isotropy"]), ("mean_shift", line["mean_shift"]), (LARGEST_OVER_MEAN, ratio))
            for measure, value in named:
                model = f"GPT {size // 10**6}M, learning rate {rate:g}"
                is_gone = "yes" if (size // 10**6, rate) in gone else "no"
                yield model, str(size), kind, STORED, measure, value.replace("nan", ""), is_gone, RUNS


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
    d, parameters = uncone.diagnose(str(directory)), str(count(directory))
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
    if subject.norms is not None:
        yield (
            REMOVED if subject.name == "head" else STORED,
            LARGEST_OVER_MEAN,
            subject.norms.largest / subject.norms.mean,
        )


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
