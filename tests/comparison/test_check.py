"""Numbers against bars: the statuses a script relies on, names, and what cannot be measured."""

import json
import math
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import SupportsFloat

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import uncone
from tests.command import run_command
from tests.report.records_example import HOSTILE, make_diagnosis, make_hostile, make_measurements, make_subject
from uncone.comparison.bars.record import Bar, Check
from uncone.diagnosis.record import Diagnosis
from uncone.errors import InputError
from uncone.evaluation.record import Evaluation, Interval
from uncone.records.blocks import Table
from uncone.records.parts import Finding, Measurement
from uncone.records.text import visible


@pytest.fixture
def saved(tmp_path: Path) -> str:
    make_diagnosis().save(tmp_path / "d.json")
    return str(tmp_path / "d.json")


_run = partial(run_command, "check")


def _one_subject(value: float | None = None) -> Diagnosis:
    """The example with its input table alone; with a value, of one reading m."""
    table = make_subject("input")
    kept = table if value is None else replace(table, measurements=(Measurement("m", value),))
    return replace(make_diagnosis(), subjects=(kept,))


def test_within_all_bars_is_status_0(saved: str, capsys: pytest.CaptureFixture[str]) -> None:
    bars = ("--max", "input.mean_cosine=0.3", "--min", "input.isoscore=0.2", "--max=head.isoscore=1")
    status, out, err = _run(capsys, saved, *bars)
    assert (status, err) == (0, "")
    lines = [line.split() for line in out.splitlines()]
    assert out.startswith("OK  example-model is within all 3 bars.\nThe input token table is severely")
    assert ["ok", "input.mean_cosine", "0.0181", "at", "most", "0.3"] in lines
    assert ["ok", "input.isoscore", "0.9996", "at", "least", "0.2"] in lines


def test_beyond_a_bar_is_status_2(saved: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = _run(capsys, saved, "--max", "input.mean_cosine=0.01", "--min", "input.isoscore=0.2")
    assert (status, err) == (2, "")
    assert out.startswith("FAILED  example-model is beyond 1 of 2 bars: input.mean_cosine.\n")
    lines = [line.split() for line in out.splitlines()]
    assert ["BEYOND", "input.mean_cosine", "0.0181", "at", "most", "0.01"] in lines


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "expected at least one bar or fail_on, got neither: give one such as --max mean_cosine=0.3"),
        (("--max", "input.two_nn=3"), "input.two_nn is undefined here: more than half of the rows have a duplicate: "),
        (("--max", "input.mean_cosin=3"), "got 'input.mean_cosin': the nearest are input.mean_cosine"),
        (("--max", "input.mean_cosine.=3"), "got 'input.mean_cosine.'"),
        (("--max", "mean_cosine=3"), "got 'mean_cosine': the nearest are input.mean_cosine, head.mean_cosine"),
        (("--max", "output.mean_cosine=3"), "the nearest are input.mean_cosine, head.mean_cosine"),
        (("--max", "q.zzz=3"), "names are SUBJECT.MEASURE, such as "),
        (("--max", "input.mean_cosine"), "expected --max NAME=VALUE, got 'input.mean_cosine'"),
        (("--max", "input.mean_cosine=low"), "expected --max NAME=VALUE, got 'input.mean_cosine=low'"),
        (("--min", "=1"), "expected --min NAME=VALUE, got '=1'"),
        (("--max", "input.mean_cosine=nan"), "expected a finite number as the max of input.mean_cosine, got nan"),
        (("--max", "input.isoscore=1", "--max", "input.isoscore=2"), "expected one --max for input.isoscore, got two"),
        (("--max", "input.rogue_dimensions.dimensions=3"), "at input.rogue_dimensions.dimensions, got [3, 1]"),
        (("--max", "input.rogue_dimensions.exact=3"), "a finite number at input.rogue_dimensions.exact, got True"),
        (("--max", "input.rogue_dimensions.dimensions.2=3"), "there are items 0 to 1"),
        (("--max", f"input.rogue_dimensions.dimensions.{'1' * 5000}=3"), "there are items 0 to 1"),
        (("--max", "input.rogue_dimensions.nothing=3"), "choose from dimensions, shares, exact, map"),
        (("--max", "input.isoscore.nothing=3"), "there is nothing further"),
        (("--nope",), "Unknown option: --nope. See `uncone --help`."),
    ],
)
def test_what_cannot_be_measured_is_status_1(
    saved: str, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str
) -> None:
    status, out, err = _run(capsys, saved, *arguments)
    assert (status, out, err[:8], err.count("\n")) == (1, "", "uncone: ", 1)
    assert message in err


def test_a_file_that_is_no_diagnosis_is_status_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "d.json").write_text("[")
    (tmp_path / "c.json").write_text('{"schema": "uncone.check/1"}')
    files = {"none.json": "cannot read", "": "cannot read", "d.json": "d.json: expected a diagnosis or evaluation"}
    files["c.json"] = "expected a diagnosis of schema 'uncone.diagnosis/1', got 'uncone.check/1'"
    for name, message in files.items():
        status, _, err = _run(capsys, tmp_path / name, "--max", "a.b=1")
        assert (status, message in err, "uncone diagnose SPEC --json" in err) == (1, True, True)


def test_unmeasured_wins_over_beyond(saved: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(capsys, saved, "--max", "input.mean_cosine=0", "--max", "input.two_nn=9")[0] == 1


def test_the_result_as_json(saved: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "c.json"
    status, out, _ = _run(capsys, saved, "--max", "input.mean_cosine=0.01", "--json", str(target))
    assert status == 2
    assert f"wrote {target}" in out.replace("\n", "")
    bar = {"name": "input.mean_cosine", "value": 0.0181, "kind": "max", "bar": 0.01, "ok": False}
    of = {"name": "example-model", "verdict": make_diagnosis().verdict, "level": "severe", "fail_on": None}
    assert json.loads(target.read_text()) == of | {"ok": False, "schema": "uncone.check/1", "bars": [bar]}
    assert Check.load(target).to_json() == target.read_text()
    target.unlink()
    assert _run(capsys, saved, "--max", "no=1", "--json", str(target))[0] == 1
    assert not target.exists()


@pytest.mark.parametrize(
    ("level", "fail_on", "status", "words"),
    [
        ("severe", "severe", 2, "has a severe defect"),
        ("warning", "severe", 0, "has no severe defect"),
        ("severe", "warning", 2, "has a defect"),
        ("warning", "warning", 2, "has a defect"),
        ("note", "warning", 0, "has no defect"),
        ("structure", "warning", 0, "has no defect"),
        ("no_effect", "warning", 0, "has no defect"),
        ("healthy", "severe", 0, "has no severe defect"),
    ],
)
def test_a_defect_as_bad_as_asked_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], level: str, fail_on: str, status: int, words: str
) -> None:
    findings = (Finding("no_defect", "healthy", "s"), Finding("a", level, "s"))  # type: ignore[arg-type]
    one = replace(_one_subject(), subjects=(replace(make_subject(), findings=findings[-1:]),))
    one.save(tmp_path / "d.json")
    found, out, _ = _run(capsys, str(tmp_path / "d.json"), "--fail-on", fail_on)
    assert found == status
    assert out.startswith(f"{'FAILED' if status else 'OK'}  example-model {words}.\n")
    both = uncone.check(one, max={"mean_cosine": 0.01}, fail_on=fail_on)  # type: ignore[arg-type]
    assert not both.ok
    assert both.summary == f"example-model is beyond its bar: input.mean_cosine and {words}."
    assert uncone.check(one, max={"mean_cosine": 0.9}).ok, "findings are not asked about without fail_on"
    assert uncone.check(replace(one, subjects=(replace(make_subject(), findings=()),)), fail_on="warning").ok


def test_another_level_to_fail_on_is_refused(saved: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(capsys, saved, "--fail-on", "note")[0] == 1
    with pytest.raises(Exception, match=r"expected fail_on severe or warning|violates type hint"):
        uncone.check(make_diagnosis(), fail_on="note")  # type: ignore[arg-type]


def test_a_check_of_an_older_file_is_still_drawn() -> None:
    old = {"schema": "uncone.check/1", "name": "m", "ok": True, "bars": []}
    old["bars"] = [{"name": "a.b", "value": 1.0, "kind": "max", "bar": 2.0, "ok": True}]
    check = Check.from_json(json.dumps(old))
    assert check.summary == "m is within its bar."
    assert "m is within its bar." in uncone.report.to_html(check)


def test_names() -> None:
    d = make_diagnosis()
    named = {"input.rogue_dimensions.dimensions.0": 3.0, "head.without_effect.mean_cosine": 0.613}
    assert {bar.name: bar.value for bar in uncone.check(d, max=dict.fromkeys(named, 3)).bars} == named
    both = uncone.check(_one_subject(), max={"mean_cosine": 1, "input.mean_cosine": 1})
    assert both.bars[0].name == "input.mean_cosine"
    readings = (Measurement("c.d", 1.0, details={"e": 2}), Measurement("c", 3.0))
    dotted = replace(make_subject(), name="a.b", measurements=readings)
    found = uncone.check(replace(d, subjects=(dotted,)), min={"a.b.c.d": 0, "a.b.c.d.e": 0, "c": 0})
    assert [bar.value for bar in found.bars] == [1.0, 2.0, 3.0]


def test_equal_to_the_bar_is_within_it() -> None:
    assert uncone.check(_one_subject(), max={"mean_cosine": 0.0181}, min={"mean_cosine": 0.0181}).ok
    assert not uncone.check(_one_subject(), max={"mean_cosine": math.nextafter(0.0181, 0)}).ok


@pytest.mark.parametrize("value", [math.nan, math.inf, 10**400])
def test_a_number_that_is_not_finite_is_refused(value: float) -> None:
    with pytest.raises(InputError, match=f"expected a finite number at input.m, got {str(value)[:50]}"):
        uncone.check(_one_subject(value), max={"m": 1})


def test_a_diagnosis_with_nothing_in_it() -> None:
    with pytest.raises(InputError, match="it has no measurements"):
        uncone.check(replace(make_diagnosis(), subjects=()), max={"a": 1})


def test_no_number_is_rounded_onto_a_bar_it_did_not_reach(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    near = {0.29996: "0.29996", 0.3: "0.300", 0.29999999999: "<0.300", 0.30000000001: ">0.300", 0.5: "0.500"}
    for value, shown in near.items():
        _one_subject(value).save(tmp_path / "d.json")
        status, out, _ = _run(capsys, tmp_path / "d.json", "--min", "m=0.3")
        expected, word = (0, "ok") if value >= 0.3 else (2, "BEYOND")
        assert status == expected
        assert [word, "input.m", shown, "at", "least", "0.3"] in [line.split() for line in out.splitlines()]


def _evaluation(*sets: str) -> Evaluation:
    """Retrieval, with a repair that raises nDCG@10 and an undefined number."""
    numbers = {"original": {"ndcg10": 0.6, "recall100": 0.9, "spearman_cosine": 40.0, "recall10": None, "n": 300}}
    numbers["center"] = {"ndcg10": 0.62, "recall100": 0.8, "n": 300}
    changes = {"center": {"ndcg10": Interval(0.02, 0.01, 0.03), "recall100": Interval(-0.1, -0.2, -0.05)}}
    results, differences = ({"retrieval": dict.fromkeys(sets, of)} for of in (numbers, changes))
    return Evaluation("It rises.", "m", "retrieval", "", results, differences)


def test_an_evaluation_gates_a_build(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _evaluation("scifact").save(tmp_path / "e.json")
    run = partial(_run, capsys, tmp_path / "e.json")
    status, out, err = run("--min", "ndcg10=0.6", "--min", "center.nDCG@10.low=0.01", "--max", "scifact.original.n=300")
    assert (status, err) == (0, "")
    assert out.startswith("OK  m is within all 3 bars.\nIt rises.\n")
    assert ["ok", "scifact.center.ndcg10.low", "0.0100", "at", "least", "0.01"] in map(str.split, out.splitlines())
    status, out, err = run("--min", "NDCG@10=0.7", "--json", tmp_path / "c.json")
    assert (status, err, out[:49]) == (2, "", "FAILED  m is beyond its bar: scifact.original.ndc")
    check = Check.load(tmp_path / "c.json")
    assert (check.ok, check.level, check.verdict) == (False, None, "It rises.")
    for bar, message in (
        ("ndgc10=0", "got 'ndgc10': did you mean 'ndcg10'?"),
        ("recall=0", "got 'recall': did you mean 'recall10' or 'recall100'"),
        ("map=0", "SET.REPAIR.MEASURE, with the measures ndcg10, recall100, spearman_cosine, recall10 and n"),
        ("recall@10=0", "scifact.original.recall10 is undefined here: no reason is given: remove its bar"),
        ("whiten.ndcg10=0", "got 'whiten.ndcg10': did you mean"),
    ):
        status, out, err = run("--min", bar)
        assert (status, out, message in err) == (1, "", True), err
    status, _, err = run("--min", "ndcg10=0", "--fail-on", "severe")
    assert (status, "expected a diagnosis with fail_on, got the evaluation m: a task shows no defect" in err) == (
        1,
        True,
    )


def test_names_of_an_evaluation() -> None:
    several = _evaluation("sts12", "center", "a.b")
    given = {"sts12.ndcg10": 0.6, "sts12.center.ndcg-10": 0.62, "A.B.original.nDCG@10": 0.6, "a.b.spearman": 40.0}
    given |= {"a.b.center.recall_100.difference": -0.1, "sts12.center.recall100.HIGH": -0.05}
    assert {name: bar.value for name, bar in zip(given, uncone.check(several, min=given).bars, strict=True)} == given
    assert uncone.check(several, min=given).ok
    with pytest.raises(
        InputError, match=r"got 'ndcg10', which 3 sets have: name a set, as in sts12\.ndcg10, center\.ndcg10 and a\.b"
    ):
        uncone.check(several, min={"ndcg10": 0})
    assert (
        uncone.check(_evaluation("original"), min={"original.ndcg10": 0.6}).bars[0].name == "original.original.ndcg10"
    )


number = st.floats(-1e6, 1e6, allow_nan=False)


@given(number, number)
def test_printed_numbers_stand_on_their_side_of_the_bar(value: float, bar: float) -> None:
    check = Check("d", True, (Bar("a.b", value, "max", bar, value <= bar),))
    (table,) = (block for block in check.blocks() if isinstance(block, Table))
    _, _, cell, words = table.rows[0]
    shown = cell.text
    assert float(words.removeprefix("at most ")) == bar
    if shown[0] in "<>":
        assert (value < bar) == (shown[0] == "<") or value != bar
    elif value != bar:
        assert (float(shown) < bar) == (value < bar)


@given(number, number)
def test_either_side_of_a_bar(value: float, bar: float) -> None:
    d = _one_subject(value)
    assert uncone.check(d, max={"m": bar}).ok == (value <= bar)
    assert uncone.check(d, min={"m": bar}).ok == (value >= bar)
    assert uncone.check(d, max={"m": bar}, min={"m": bar}).ok == (value == bar)


@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
def test_hostile_names_are_text(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    hostile = make_hostile(text)
    (subject,) = hostile.subjects
    replace(hostile, subjects=(replace(subject, measurements=subject.measurements[:1]),)).save(tmp_path / "d.json")
    for bar, status in ((f"{text}=1", 0), (f"{text}=0", 2), ("nothing=0", 1)):
        found, out, err = _run(capsys, tmp_path / "d.json", f"--max={bar}")
        if text.strip() == text and "\ud800" not in text:
            assert found == status
        assert not {"\x1b", "\x07", "\u202e", "\u200b", "\ud800"} & set(out + err)
        assert status == 1 or visible(text)[:10] in out.replace("\n", "") or found == 1


def test_all_of_the_examples_numbers_can_be_named() -> None:
    named = {f"input.{m.name}": m.value for m in make_measurements() if m.value is not None}
    found = uncone.check(make_diagnosis(), max=dict.fromkeys(named, 1e9))
    assert {bar.name: bar.value for bar in found.bars} == named


@pytest.mark.parametrize("name", ["a\x1b[31m.json", "\udcff.json"])
def test_a_name_that_cannot_be_printed_changes_no_status(
    saved: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    target = tmp_path / name
    code, out, _ = _run(capsys, saved, "--max", "input.mean_cosine=-1", "--json", str(target))
    assert (code, out.splitlines()[-1]) == (2, f"wrote {visible(str(target))}")
    assert not Check.load(target).ok


def test_bars_are_any_real_numbers() -> None:
    kinds = (np.float32, np.float16, np.longdouble, np.float64)
    for bar in (*(kind(0.3) for kind in kinds), np.int64(1), np.uint8(1), Fraction(1, 3), 1):
        found = uncone.check(_one_subject(), max={"mean_cosine": bar}).bars[0]
        assert (found.bar, type(found.bar), found.ok) == (float(bar), float, True)


@pytest.mark.parametrize("bar", [True, math.nan, math.inf, np.float32("nan"), np.float16("inf"), 10**400])
def test_bars_that_are_no_real_numbers_are_refused(bar: SupportsFloat) -> None:
    with pytest.raises(InputError, match="expected a finite number as the max of mean_cosine"):
        uncone.check(_one_subject(), max={"mean_cosine": bar})


def test_bars_of_other_types_are_refused(saved: str) -> None:
    """In a process of its own: here the tests' type checker would refuse them first."""
    code = f"""
import numpy as np, uncone
for bar in ("0.3", None, 1j, np.complex64(1), np.True_, [0.3], np.array(0.3)):
    try:
        uncone.check(uncone.Diagnosis.load({saved!r}), max={{"input.mean_cosine": bar}})
    except uncone.InputError as error:
        print(str(error).startswith("expected a finite number as the max of input.mean_cosine"))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["True"] * 7
