"""`uncone saturation` as a user meets it: each question from its source to its files, and what is refused."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.command import run_command
from tests.saturation.families import losses, table_of, write_family
from uncone.records.load import load_record
from uncone.records.record import Record
from uncone.saturation.checkpoints.record import CheckpointTrace
from uncone.saturation.contexts.record import ContextRank
from uncone.saturation.curves.record import CurveVerdicts
from uncone.saturation.head.examine_head import _verdict
from uncone.saturation.head.rank.record import SmallestRank
from uncone.saturation.head.record import HeadExamination
from uncone.saturation.law.record import ScalingLaw

_run = partial(run_command, "saturation")


def _files(tmp_path: Path) -> list[str | Path]:
    return ["--json", tmp_path / "result.json", "--html", tmp_path / "result.html"]


def _answered(tmp_path: Path, done: tuple[int, str, str], kind: type[Record]) -> Any:
    """The record that was written; its verdict was printed first and stands on the page."""
    status, out, error = done
    assert (status, error) == (0, "")
    record = load_record(tmp_path / "result.json")
    assert isinstance(record, kind)
    verdict = str(record).splitlines()[0]
    assert verdict.split()[0] in out.partition("\n\n")[0]
    assert " ".join(verdict.split()[:3]) in (tmp_path / "result.html").read_text()
    return record


def _curves(folder: Path) -> Path:
    steps = np.arange(1000, 41000, 1000)
    noise = np.random.default_rng(0).normal(0, 0.003, (2, len(steps)))
    rising = 0.4 - 0.3 * np.exp(-steps / 4000)
    falling = rising - 0.15 * np.maximum(steps / 40000 - 0.4, 0)
    models = {"small": falling + noise[0], "large": rising + noise[1]}
    points = [(model, *point) for model, values in models.items() for point in zip(steps, values, strict=True)]
    rows = [f"{model},lambada,{step},{value:.5f},0.003" for model, step, value in points]
    (folder / "curves.csv").write_text("\n".join(["model,task,iteration,value,stderr", *rows]) + "\n")
    return folder / "curves.csv"


def test_curves(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = _run(capsys, "curves", _curves(tmp_path), "--columns", "step=iteration", "value=value", *_files(tmp_path))
    record = _answered(tmp_path, done, CurveVerdicts)
    assert {curve.model: curve.declined for curve in record.curves} == {"small": True, "large": False}


def test_a_scaling_law(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [f"m{n:g},{n:g},3e11,{119.09 / n**0.246 + 410.7 / 3e11**0.28 + 1.69}" for n in (1e8, 4e8, 1e9, 6e9)]
    (tmp_path / "runs.csv").write_text("\n".join(["model,params,t,loss", *rows]) + "\n")
    given = ["--columns", "n=params", "--fixed", "B=410.7", "beta=0.28", "E=1.69", "--smallest", "2e8"]
    record = _answered(tmp_path, _run(capsys, "law", tmp_path / "runs.csv", *given, *_files(tmp_path)), ScalingLaw)
    values = {constant.name: constant.value for constant in record.constants}
    assert (values["A"], values["alpha"]) == (pytest.approx(119.09, rel=1e-3), pytest.approx(0.246, rel=1e-4))
    assert [run.fitted for run in record.runs] == [False, True, True, True]


def test_checkpoints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_family(tmp_path / "run", 4, 9)
    table = table_of(losses(4, 9), tmp_path / "losses.csv")
    given = ["checkpoints", *sorted((tmp_path / "run").iterdir()), "--losses", table]
    kept = ["--out", tmp_path / "trace.jsonl"]
    record = _answered(tmp_path, _run(capsys, *given, *kept, *_files(tmp_path)), CheckpointTrace)
    assert len(record.checkpoints) == 9
    assert len((tmp_path / "trace.jsonl").read_text().splitlines()) >= 9
    assert _run(capsys, *given, *kept)[0] == 0


def test_a_head(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    pytest.importorskip("scipy")
    from tests.edits.language_models import TEXT, add_tokenizer, drifted

    drifted("GPT2LMHeadModel").save_pretrained(tmp_path / "model")
    add_tokenizer(tmp_path / "model")
    (tmp_path / "text.txt").write_text(TEXT * (1 + 6000 // len(TEXT)))
    capsys.readouterr()  # transformers tells of what it wrote
    given = ["head", tmp_path / "model", "--text", tmp_path / "text.txt", "--ranks", "2", "4"]
    record = _answered(tmp_path, _run(capsys, *given, *_files(tmp_path)), HeadExamination)
    assert record.rank.ranks[:2] == (2, 4)
    assert record.contexts.tokens > 100
    d, lines = record.rank.d, [replace(line, smallest=SmallestRank(None, None, None)) for line in record.rank.lines]
    unsure = replace(lines[1], smallest=SmallestRank(4, 2, d))
    parts = record.gradient, record.excision
    rank = replace(record.rank, lines=(lines[0], unsure, *lines[2:]), fit=None)
    size, estimate, *_ = _verdict(rank, *parts).split(". ")
    assert size.startswith(f"No head of a lower rank than {d} was shown to stay within")
    assert estimate == f"The smallest estimate is rank 4, with an interval from 2 to {d}"
    quick = _answered(tmp_path, _run(capsys, *given, "--no-refits", *_files(tmp_path)), HeadExamination)
    assert quick.rank.lines == record.rank.lines[:2]
    assert quick.rank.refitting is None


def test_contexts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("scipy")
    words = np.random.default_rng(0).zipf(1.5, 4000) % 50
    (tmp_path / "text.txt").write_text(" ".join(f"w{word}" for word in words))
    given = ["contexts", tmp_path / "text.txt", "--order", "3", "--dimensions", "20"]
    record = _answered(tmp_path, _run(capsys, *given, *_files(tmp_path)), ContextRank)
    assert (record.order, record.tokens) == (3, 4000)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["curves"], 'Command "saturation curves" parameter SOURCE requires an argument'),
        (["curves", "x.csv", "--text", "x.csv"], "Unknown option: --text"),
        (["head", "x.csv"], "parameter --text requires an argument"),
        (["curves", "x.csv", "--lower"], "expected a value after --lower, got none"),
        (["curves", "x.csv", "--columns", "step"], "expected --columns NAME=VALUE, got 'step'"),
        (["curves", "x.csv", "--columns", "step=a", "step=b"], "expected one --columns for step, got two"),
        (["law", "x.csv", "--fixed", "B=much"], "expected --fixed NAME=VALUE, got 'B=much': give a number"),
        (["head", "m", "--text", "x.csv", "--ranks", "4", "x"], 'for --ranks: unable to convert "x" into int'),
        (["curves", "x.csv"], "expected a column for the step"),
        (["curves", "missing.csv"], "cannot read"),
        (["curves", "x.csv", "--alpha", "2"], "expected alpha between 0 and 1"),
    ],
)
def test_what_is_refused(
    given: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("x.csv").write_text("a,b\n1,2\n")
    status, out, error = _run(capsys, *given)
    assert (status, out) == (1, "")
    assert message in " ".join(error.split())
    assert len(error.strip().splitlines()) == 1


def test_steps_of_checkpoints_without_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_family(tmp_path / "family", 5)
    for path, name in zip(sorted((tmp_path / "family").iterdir())[:2], ("first", "second"), strict=True):
        path.rename(tmp_path / name)
    options = ["checkpoints", tmp_path / "first", tmp_path / "second", "--steps", "7", "3", *_files(tmp_path)]
    record = _answered(tmp_path, _run(capsys, *options), CheckpointTrace)
    assert [(Path(one.name).name, one.step) for one in record.checkpoints] == [("second", 3), ("first", 7)]
