"""`uncone compare` as a user meets it, and the workflow of the examples: valid, with commands and flags that exist."""

import json
import re
import shlex
import sys
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import uncone
from tests.command import run_command
from tests.report.records_example import make_diagnosis, make_subject
from tests.saturation.families import head_at, write_checkpoint
from uncone import Diagnosis, cli
from uncone.comparison.record import Comparison
from uncone.errors import InputError
from uncone.records.load import load_record
from uncone.records.parts import Finding

WORKFLOW = Path(__file__).parents[2] / "examples" / "check_model.yml"


_run = partial(run_command, "compare")


@pytest.fixture
def saved(tmp_path: Path) -> tuple[Path, Path]:
    """The example, and a twin with a mean cosine that is a defect."""
    subject = make_subject("input")
    cosine = replace(subject.measurements[0], value=0.61, interval=(0.6, 0.62))
    drift = Finding("common_direction_drift", "severe", "It drifts.", measures=("mean_cosine",), extent=0.61)
    drifted = replace(subject, measurements=(cosine, *subject.measurements[1:]), findings=(*subject.findings, drift))
    make_diagnosis().save(tmp_path / "a.json")
    replace(make_diagnosis(), name="drifted", subjects=(drifted,)).save(tmp_path / "b.json")
    return tmp_path / "a.json", tmp_path / "b.json"


def test_from_start_to_files(saved: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = _run(capsys, *saved, "--json", tmp_path / "c.json", "--html", tmp_path / "c.html")
    assert (status, err) == (0, "")
    found = Comparison.load(tmp_path / "c.json")
    assert " ".join(out.split()).startswith(f"WORSE {found.verdict}")
    assert found.verdict in (tmp_path / "c.html").read_text()
    assert out.endswith(f"wrote {tmp_path / 'c.json'}\nwrote {tmp_path / 'c.html'}\n")
    subject = json.loads((tmp_path / "c.json").read_text())["subjects"][0]
    assert subject["measures"][0]["changes"][1]["direction"] == "worse"


def test_worse_is_status_2_where_it_was_asked_for_and_nowhere_else(
    saved: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad = saved
    shown = _run(capsys, good, bad)[1]
    status, out, err = _run(capsys, good, bad, "--fail-on", "worse", "--json", tmp_path / "c.json")
    assert (status, err) == (2, "")
    assert out == f"{shown}wrote {tmp_path / 'c.json'}\n"
    assert Comparison.load(tmp_path / "c.json").worse
    for others in ((bad, good), (good, good), (bad, bad)):
        assert _run(capsys, *others, "--fail-on", "worse")[0] == 0, others
    assert _run(capsys, good, good, bad, "--fail-on", "worse")[0] == 2
    status, out, err = _run(capsys, good, bad, "--fail-on", "better")
    assert (status, out) == (1, "")
    assert "worse" in err
    (tmp_path / "file").touch()
    beyond = (good, bad, "--fail-on", "worse", "--json", tmp_path / "file" / "c.json")
    assert _run(capsys, *beyond)[0] == 1, "refused before the work"


def test_a_defect_that_appears_or_grows_is_worse_and_a_note_is_not(saved: tuple[Path, Path]) -> None:
    one, none = Diagnosis.load(saved[0]), Finding("no_defect", "healthy", "no defect")

    def worse(*levels: str | None) -> bool:
        found = (none if level is None else Finding("rank_loss", level, "rank is lost") for level in levels)
        sides = (replace(one.subjects[0], findings=(finding,)) for finding in found)
        return uncone.compare([replace(one, subjects=(side,)) for side in sides]).worse

    assert [worse(None, level) for level in ("note", "warning", "severe")] == [False, True, True]
    assert [worse("warning", level) for level in (None, "note", "warning", "severe")] == [False] * 3 + [True]
    assert [worse("severe", level) for level in (None, "warning", "severe")] == [False] * 3


def test_models_and_matrices_are_diagnosed_and_mix_with_old(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sources = [tmp_path / "one", tmp_path / "two"]
    for at, folder in enumerate(sources):
        write_checkpoint(folder, head_at(at, 1))
    first, second = map(uncone.diagnose, sources)
    expected = uncone.compare([first, second])
    assert [d.name for d in expected.diagnoses] == [d.name for d in (first, second)]
    first.save(tmp_path / "first.json")
    (tmp_path / "kept").write_bytes((tmp_path / "first.json").read_bytes())  # under a name without an ending
    for baseline in (sources[0], first, str(tmp_path / "first.json"), tmp_path / "kept"):
        assert uncone.compare([baseline, sources[1]]) == expected
    out, page = tmp_path / "c.json", tmp_path / "c.html"
    status, shown, err = _run(capsys, tmp_path / "first.json", sources[1], "--json", out, "--html", page)
    assert (status, err) == (0, "")
    assert Comparison.load(out) == expected
    assert expected.verdict in " ".join(shown.split())
    x = np.random.default_rng(0).normal(size=(200, 8))
    np.save(tmp_path / "x.npy", x)
    status, shown, err = _run(capsys, tmp_path / "x.npy", tmp_path / "x.npy", sources[0], "--names", "a", "b", "c")
    assert (status, err) == (0, "")
    assert uncone.compare([x, x + 1]).verdict == uncone.compare(map(uncone.diagnose, (x, x + 1))).verdict


def test_progress_names_the_model_that_is_read(tmp_path: Path) -> None:
    for at, name in enumerate(("one", "two")):
        write_checkpoint(tmp_path / name, head_at(at, 1))
    steps = list[str]()
    uncone.compare([tmp_path / "one", tmp_path / "two"], progress=lambda step, *_: steps.append(step))
    assert {step.partition(":")[0] for step in steps} == {"one", "two"}


def test_saved_diagnoses_are_compared_with_no_model(saved: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uncone.diagnosis.diagnose", None)
    assert uncone.compare(saved).worse


def test_names_are_separated_by_commas(saved: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = _run(capsys, *saved, "--names", "before", "after")
    assert out.startswith("WORSE  after is worse than before: common direction drift")


def test_errors_are_one_line(saved: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.npy").write_bytes(b"\x93NUMPY\xff")
    (tmp_path / "e.json").write_text("")
    (tmp_path / "b.bin").write_text(' {"schema": "unc')
    (tmp_path / "empty").mkdir()
    (tmp_path / "c.json").write_text('{"schema": "uncone.comparison/1"}')
    for arguments, message in (
        ((), "parameter DIAGNOSES requires an argument"),
        (saved[:1], "expected 2 to 6 diagnoses to compare, got 1: give the baseline first"),
        ([saved[0]] * 7, "got 7"),
        ((saved[0], tmp_path / "empty"), "empty without config.json: give what save_pretrained wrote"),
        ((saved[0], tmp_path / "no"), "no', and no model of that name in the Hugging Face cache"),
        ((saved[0], tmp_path / "no.json"), "no.json: No such file or directory: did you mean"),
        ((saved[0], tmp_path / "x.npy"), "x.npy"),
        ((saved[0], tmp_path / "b.bin"), "b.bin: expected a diagnosis in JSON, got text that does not parse"),
        ((saved[0], tmp_path / "e.json"), "e.json: expected a diagnosis in JSON, got text that does not parse"),
        ((saved[0], tmp_path / "c.json"), "schema 'uncone.diagnosis/1', got 'uncone.comparison/1'"),
        ((*saved, "--names", "a"), "expected 2 different names, one for each diagnosis, got 'a'"),
        ((*saved, "--html", tmp_path / "no" / "c.html"), "folder that exists"),
        ((*saved, "--zzzz"), "Unknown option: --zzzz."),
    ):
        status, out, err = _run(capsys, *arguments)
        assert (status, out, err[:8], err.count("\n")) == (1, "", "uncone: ", 1), arguments
        assert message in err


def test_the_workflow_is_valid_and_its_commands_exist() -> None:
    yaml = pytest.importorskip("yaml", reason="PyYAML, which transformers brings, is not installed")
    flow = yaml.safe_load(WORKFLOW.read_text())
    assert set(flow) == {"name", True, "env", "permissions", "jobs"}  # YAML 1.1 reads `on` as true
    steps = flow["jobs"]["representation"]["steps"]
    assert all(("uses" in step) != ("run" in step) for step in steps)
    assert all(re.fullmatch(r"[\w.-]+/[\w.-]+@v\d+", step["uses"]) for step in steps if "uses" in step)
    ran = [shlex.split(re.sub(r"\$\w+", "x", step["run"])) for step in steps if "run" in step]
    commands = [tokens[1:] for tokens in ran if tokens[0] == "uncone"]
    assert [tokens[0] for tokens in commands] == ["diagnose", "compare", "check"]
    pairs = [pair for tokens in commands for pair in pairwise(tokens)]
    written = {file for option, file in pairs if option in ("--json", "--html")}
    for tokens in commands:
        command, bound, _ = cli.app.parse_args(tokens, exit_on_error=False, print_error=False)
        assert command.__name__ == tokens[0]
        assert bound.arguments
    (kept,) = [step["with"] for step in steps if "upload-artifact" in step.get("uses", "")]
    assert set(kept["path"].split()) == written


def test_a_saved_check_is_printed_again_and_has_a_page(
    saved: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept, page, text = (tmp_path / f"k.{suffix}" for suffix in ("json", "html", "md"))
    _, printed, _ = run_command("check", capsys, saved[0], "--max", "input.mean_cosine=0.5", "--json", kept)
    assert printed.startswith(run_command("report", capsys, kept)[1])
    _, told, _ = run_command("report", capsys, kept, "--html", page, "--markdown", text)
    assert "is within its bar." in page.read_text()
    assert text.read_text().startswith("# ")
    assert told.count("wrote ") == 2


@pytest.mark.parametrize("text", ['{"schema": ["x"]}', '{"schema": "uncone.other/1"}', "[]", "{}"])
def test_a_record_of_no_known_kind_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(InputError, match=r"expected a record whose schema is one of 'uncone.diagnosis/1', "):
        load_record(tmp_path / "x.json")
