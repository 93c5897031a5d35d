"""Messages stay short whatever the files hold, and keep what was expected and what to do."""

import inspect
import json
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from tests.command import run_command
from uncone import Diagnosis, calibrate, check, diagnose, evaluate, open_rows, select_repair
from uncone.errors import InputError, UnconeError, UndefinedMeasure, UnsupportedModel, bounded

LONG = "x" * 100_000
ESCAPES = "\x1b[31m" * 20_000


@pytest.mark.parametrize("kind", [UnconeError, InputError, UndefinedMeasure, UnsupportedModel])
@pytest.mark.parametrize("long", [LONG, ESCAPES, "word " * 20_000, "\n" * 100_000, "\U0001f600" * 100_000])
def test_a_long_message_keeps_its_ends(kind: type[UnconeError], long: str) -> None:
    told = str(kind(f"expected a name, got {long!r} in a.json: name a tensor"))
    assert len(told) <= 1000
    assert told.startswith("expected a name, got '")
    assert told.endswith(" in a.json: name a tensor")
    assert bounded(told) == told
    assert str(pickle.loads(pickle.dumps(kind(told)))) == told


@pytest.mark.parametrize("length", [10, 999, 1000])
def test_a_short_message_stays_as_it_is(length: int) -> None:
    assert str(InputError("x" * length)) == "x" * length
    assert InputError().args == ()
    assert InputError("told", 7).args == ("told", 7)


@pytest.mark.parametrize(
    ("function", "given", "advice"),
    [
        (evaluate, {"task": "retreival", "data": "y"}, "did you mean 'retrieval'?"),
        (evaluate, {"task": "chess", "data": "y"}, "choose among these"),
        (select_repair, {"task": "STS", "data": "y"}, "did you mean 'sts'?"),
        (calibrate, {"metric": "cosin"}, "did you mean 'cosine'?"),
    ],
)
def test_the_nearest_choice_is_told(function: Callable[..., object], given: dict[str, str], advice: str) -> None:
    unchecked = inspect.unwrap(function)  # beartype would say it first
    with pytest.raises(UnconeError) as refused:
        unchecked("x", **given)
    assert str(refused.value).endswith(advice)


def test_long_words_are_cut_before_the_sentence_is() -> None:
    sentence = " and ".join(["a name", LONG, "another", ESCAPES, "the last"])
    assert bounded(sentence).count("…") == 2
    assert all(word in bounded(sentence) for word in ("a name", "another", "the last"))


def test_long_names_of_tensors_labels_and_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_file({LONG: np.eye(3, dtype=np.float32), f"{LONG}2": np.eye(3, dtype=np.float32)}, tmp_path / "x.safetensors")
    found = diagnose(np.eye(8, dtype=np.float32))
    (tmp_path / "d.json").write_text(json.dumps({LONG: 1, "schema": "uncone.diagnosis/1"}))
    np.save(tmp_path / "x.npy", np.eye(4, dtype=np.float32))
    for ask in (
        lambda: open_rows(tmp_path / "x.safetensors"),
        lambda: open_rows(f"{tmp_path}/x.safetensors#{LONG}"[:3900]),
        lambda: Diagnosis.load(tmp_path / "d.json"),
        lambda: Diagnosis.from_json(json.dumps({"schema": LONG})),
        lambda: check(found, max={LONG: 1.0}),
        lambda: found.save(tmp_path / LONG),
    ):
        with pytest.raises(InputError) as told:
            ask()
        assert len(str(told.value)) <= 1000
    option = ("diagnose", tmp_path / "x.npy", f"--{LONG}")
    for verb, *rest in (("report", tmp_path / "d.json"), ("report", LONG), option, (LONG[:5000],)):
        status, _, err = run_command(str(verb), capsys, *rest)
        assert status == 1
        assert len(err) < 1100


def test_an_error_of_others_is_short_too(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from uncone.cli import report

    def fail(*_: object) -> None:
        raise RuntimeError(ESCAPES)

    monkeypatch.setattr(report, "load_record", fail)
    status, _, err = run_command("report", capsys, "x.json")
    assert status == 1
    assert err.startswith("uncone: unexpected RuntimeError: ")
    assert err.endswith("a defect in uncone; --debug shows where\n")
    assert len(err) < 1100
