"""The file of a run: it survives kills, full disks and resumes, and is no other run's."""

import errno
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from uncone import InputError
from uncone.training.monitor.run_file import RunFile

HEADER: dict[str, Any] = {"model": "GPT2LMHeadModel", "vocabulary": 97, "dimensions": 32, "every": 2, "groups": {}}


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def written(path: Path, *steps: int) -> RunFile:
    run = RunFile(path, HEADER)
    run.begin(0)
    for step in steps:
        run.record(step, {"table.mean_cosine": step / 10})
        run.append(step, {}, warning={"rule": "rank", "name": "table.effective_rank", "text": "It fell."})
    return run


def test_each_line_is_whole_and_a_number_that_is_none_is_null(tmp_path: Path) -> None:
    run = written(tmp_path / "run.jsonl", 1, 2)
    run.record(3, {"loss.cross_entropy": float("nan"), "table.norm_largest": float("inf"), "table.dead": 0.0})
    header, first, warning, *_, last = lines(run.path)
    assert header == {"schema": "uncone.run/1", **HEADER}
    assert set(first) == {"step", "time", "table.mean_cosine"}
    assert first["time"] > 1.7e9
    assert warning["warning"]["rule"] == "rank"
    assert last["loss.cross_entropy"] is last["table.norm_largest"] is None
    run.close()


@pytest.mark.parametrize("torn", ["", '{"step": 6, "tim'])
def test_a_resumed_run_is_one_file_without_a_seam(tmp_path: Path, torn: str) -> None:
    whole, path = written(tmp_path / "whole", 1, 2, 4, 6), tmp_path / "run"
    written(path, 1, 2, 4).close()
    kept = path.read_text()
    with path.open("a") as file:
        file.write(torn)
    run = RunFile(path, HEADER)
    run.begin(3)
    assert path.read_text() == "".join(kept.splitlines(True)[:5])
    for step in (4, 6):
        run.record(step, {"table.mean_cosine": step / 10})
        run.append(step, {}, warning={"rule": "rank", "name": "table.effective_rank", "text": "It fell."})
    without_time = [[{**line, "time": 0} for line in lines(at)] for at in (path, whole.path)]
    assert without_time[0] == without_time[1]
    run.close()
    whole.close()


@pytest.mark.parametrize("cut", [0, 1, 9, 40])
def test_a_run_that_was_killed_in_its_header_begins_again(tmp_path: Path, cut: int) -> None:
    written(tmp_path / "run").close()
    text = (tmp_path / "run").read_text()
    (tmp_path / "run").write_text(text[:cut])
    written(tmp_path / "run").close()
    assert (tmp_path / "run").read_text() == text


def test_another_file_is_refused_and_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "run"
    written(path, 1, 2).close()
    own = path.read_text()
    for content, said in (
        (own.replace('"step": 2', '"step": 0', 1), "another in line 4"),
        (own.replace('{"step": 1', '{"stp": 1', 1), "another in line 2"),
        (own + "a note\n", "another in line 6"),
        ('{"step": 3, "loss": 2.5}\n', "another in line 1"),
        ("\x00\x01\x02", "another in line 1"),
        (own.replace("uncone.run/1", "uncone.run/9"), "another in line 1"),
        (own.replace("GPT2LMHeadModel", "BertModel"), r"run of run .model 'BertModel'.*got model 'GPT2LMHeadModel'"),
        (own.replace('"every": 2', '"every": 5'), "every 5.*got every 2"),
    ):
        path.write_text(content)
        with pytest.raises(InputError, match=said):
            RunFile(path, HEADER)
        assert path.read_text() == content
    path.write_text(own)
    with pytest.raises(InputError, match=re.escape("got one with records up to step 2: name a new file")):
        RunFile(path, HEADER).begin(0)
    for other in (tmp_path, tmp_path / "none" / "run"):
        with pytest.raises(InputError, match="expected a file in a folder that exists"):
            RunFile(other, HEADER)


def test_two_writers_of_one_file_are_refused(tmp_path: Path) -> None:
    first = written(tmp_path / "run", 1)
    second = RunFile(tmp_path / "run", HEADER)
    with pytest.raises(InputError, match="for this run alone, got another process or monitor"):
        second.begin(1)
    assert not second.is_open
    first.close()
    second.begin(1)
    second.close()


@pytest.mark.parametrize("partial", [False, True])
def test_a_full_disk_leaves_no_part_of_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, partial: bool) -> None:
    run, own = written(tmp_path / "run", 1), os.pwrite
    before = run.path.read_text()

    def full(descriptor: int, text: bytes, at: int) -> int:
        if partial:
            return own(descriptor, text[:7], at)
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(OSError, match="No space left"):
            run.record(2, {"table.dead": 0.0})
    assert run.path.read_text() == before
    run.record(4, {"table.dead": 0.0})
    assert lines(run.path)[-1]["step"] == 4
    run.close()
