"""The file of a run: it survives kills, full disks and resumes, and is no other run's."""

import errno
import json
import os
import re
import signal
import subprocess
import sys
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
        (own.replace('"step": 2', '"step": 0', 1), "something else in line 4"),
        (own.replace('{"step": 1', '{"stp": 1', 1), "something else in line 2"),
        (own + "a note\n", "something else in line 6"),
        ('{"step": 3, "loss": 2.5}\n', "something else in line 1"),
        ("\x00\x01\x02", "something else in line 1"),
        (own.replace("uncone.run/1", "uncone.run/9"), "something else in line 1"),
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


_OTHER = """
import os, signal, sys
from uncone.training.monitor.run_file import RunFile
from tests.training.monitor.test_run_file import HEADER

run, own, how = RunFile(sys.argv[1], HEADER), os.pwrite, sys.argv[2]
run.begin(0)
run.record(1, {"table.dead": 0.0})
if how == "killed":
    def cut(descriptor, text, at):
        own(descriptor, text[:20], at)
        os.kill(os.getpid(), signal.SIGKILL)
    os.pwrite = cut
else:
    print("ready", flush=True)
    sys.stdin.readline()
run.record(2, {"table.dead": 0.0})
"""


def other(path: Path, how: str) -> "subprocess.Popen[str]":
    command, pipe = [sys.executable, "-c", _OTHER, str(path), how], subprocess.PIPE
    return subprocess.Popen(command, cwd=Path(__file__).parents[3], stdin=pipe, stdout=pipe, text=True)


def test_another_process_is_refused_until_it_ends(tmp_path: Path) -> None:
    path = tmp_path / "run"
    with other(path, "waits") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        before = path.read_text()
        with pytest.raises(InputError, match="for this run alone, got another process or monitor"):
            RunFile(path, HEADER).begin(1)
        assert path.read_text() == before
        process.communicate("\n")
    assert process.returncode == 0
    run = RunFile(path, HEADER)
    run.begin(2)
    run.close()
    assert [line.get("step") for line in lines(path)] == [None, 1, 2]


def test_what_a_process_killed_amid_a_write_left_is_dropped(tmp_path: Path) -> None:
    with other(tmp_path / "run", "killed") as process:
        process.wait()
    assert process.returncode == -signal.SIGKILL
    assert (tmp_path / "run").read_text().endswith('}\n{"step": 2, "time": ')
    run = RunFile(tmp_path / "run", HEADER)
    run.begin(1)
    run.record(2, {"table.dead": 0.0})
    run.close()
    assert [line.get("step") for line in lines(tmp_path / "run")] == [None, 1, 2]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_device_that_is_full_is_said(tmp_path: Path) -> None:
    run = written(tmp_path / "run", 1)
    before, own = run.path.read_text(), run._descriptor
    run._descriptor = os.open("/dev/full", os.O_RDWR)
    with pytest.raises(OSError, match="No space left"):
        run.record(2, {"table.dead": 0.0})
    os.close(run._descriptor)
    run._descriptor = own
    run.record(3, {"table.dead": 0.0})
    run.close()
    assert run.path.read_text().startswith(before)
    assert lines(run.path)[-1]["step"] == 3


def test_a_file_that_may_not_grow_keeps_its_whole_lines(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    run = written(tmp_path / "run", 1)
    before, limits = run.path.read_text(), resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 20, limits[1]))
        with pytest.raises(OSError, match="No space left"):
            run.record(2, {"table.dead": 0.0})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, ignored)
    assert run.path.read_text() == before
    run.record(3, {"table.dead": 0.0})
    run.close()
    assert lines(run.path)[-1]["step"] == 3


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
