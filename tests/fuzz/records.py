"""One saved record of every kind with nothing left empty, and its use: loaded, printed, drawn as a page."""

import io
import os
import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
from rich.console import Console

from tests.every_part import KINDS
from tests.report.curves_example import make_curves
from tests.report.every_record import Maker
from tests.report.records_example import make_diagnosis, make_subject
from tests.report.test_comparison_report import make_comparison
from tests.report.test_evaluation_terminal import _evaluation
from tests.report.test_repair_terminal import HEAD, REPAIRED, SELECTION, TOKENS
from tests.report.test_tokens import make_groups, make_under_trained
from uncone import calibrate, compare, report
from uncone.comparison.bars.record import Bar, Check
from uncone.diagnosis.record import Diagnosis
from uncone.evaluation.record import Interval
from uncone.records.brief import LINES
from uncone.records.load import load_record
from uncone.records.record import Record

PAGED = ("diagnosis", "comparison", "calibration")


@cache
def examples() -> dict[str, str]:
    """The JSON of each kind of record, by its name."""
    check = Check("model", False, (Bar("input.isoscore", 0.4, "min", 0.5, False), Bar("rows.n", 4.0, "max", 5.0, True)))
    tested = {"test_original": 0.6, "test": Interval(0.01, 0.0, 0.02), "test_n": 9}
    selection = replace(SELECTION, chosen="center", candidate="center", **tested)
    made: dict[str, Record] = {
        "diagnosis": _diagnosis(),
        "comparison": make_comparison(3),
        "tokens compared": compare([_diagnosis(), _diagnosis()]),
        "calibration": _calibration(),
        "check": check,
        "evaluation": _evaluation("stsb", "sick"),
        "selection": selection,
        "repair": replace(REPAIRED, selection=selection, options={"n_components": 2}),
        "head edit": HEAD,
        "token edit": TOKENS,
        "curves": make_curves(),
    }
    known = {type(record) for record in made.values()}
    made |= {kind.KIND: Maker((0.5, 0.25, 0.75)).make(kind) for kind in KINDS if kind not in known}
    made["whole diagnosis"] = Maker((0.5, 0.25, 0.75), length=1).make(Diagnosis)
    return {name: record.to_json() for name, record in made.items()}


def _diagnosis() -> Diagnosis:
    under_trained = make_under_trained(note="a note")
    subject = replace(make_subject("head"), frequency_groups=make_groups(), under_trained=under_trained)
    assert subject.picture is not None
    count = len(subject.picture.ids)
    norms = "AAEA" * (2 * count // 3)  # two bytes a row, and no padding
    picture = replace(subject.picture, norms=norms, norm_scale=0.01, counts=tuple(range(count)))
    return replace(make_diagnosis(), subjects=(make_subject("input"), replace(subject, picture=picture)))


def _calibration() -> Record:
    x = np.random.default_rng(1).normal(size=(60, 8)).astype(np.float32) + 0.3
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder, "pairs.tsv")
        table.write_text("".join(f"{i}\t{i + 1}\t{i % 2}\n" for i in range(40)))
        return calibrate(x, against=calibrate(x + 0.4, pairs=table), pairs=table)


def use_record(path: str | os.PathLike[str]) -> None:
    """Load a record, show it in every way there is; what is refused is raised."""
    record = load_record(path)
    if len(repr(record).splitlines()) > LINES or not str(record):
        raise AssertionError("a record does not fit on a screen, or has no verdict to print")
    for width in (40, 120):
        stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
        report.print_record(record, Console(file=stream, width=width, highlight=False))
    report.to_html(record)
    report.to_markdown(record)
    if type(record).from_json(record.to_json()) != record:
        raise AssertionError("a record that was loaded does not come back from its own JSON")
