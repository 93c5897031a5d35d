"""Exit statuses where standard output takes nothing: a closed pipe, a full disk. A verdict that is known stands."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.report.records_example import make_diagnosis
from uncone.cli import main

FULL = Path("/dev/full")


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("streams") / "d.json"
    make_diagnosis().save(path)
    return str(path)


def _ends(*arguments: str, out: str) -> tuple[int, str]:
    """The exit status and standard error, with `out` a closed pipe ("pipe"), a full disk ("full") or both streams full."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
    command = [sys.executable, "-m", "uncone", *arguments]
    if out == "pipe":
        reading, target = os.pipe()
        os.close(reading)
    elif FULL.exists():
        target = os.open(FULL, os.O_WRONLY)
    else:
        pytest.skip("there is no /dev/full here")
    error = target if out == "both" else subprocess.PIPE
    done = subprocess.run(command, stdout=target, stderr=error, text=True, env=environment, timeout=60, check=False)
    os.close(target)
    return done.returncode, done.stderr or ""


@pytest.mark.parametrize("out", ["pipe", "full", "both"])
def test_a_number_beyond_its_bar_is_status_2_though_it_cannot_be_printed(saved: str, out: str) -> None:
    status, error = _ends("check", saved, "--max", "input.mean_cosine=0.01", out=out)
    assert status == 2
    if out != "both":
        assert error.startswith("uncone: standard output: ")
        assert error.count("\n") == 1


@pytest.mark.parametrize("out", ["pipe", "full"])
def test_numbers_within_their_bars_are_status_1_if_that_cannot_be_printed(saved: str, out: str) -> None:
    assert _ends("check", saved, "--max", "input.mean_cosine=0.5", out=out)[0] == 1


def test_what_is_printed_last_is_flushed_before_the_status(saved: str, tmp_path: Path) -> None:
    status, error = _ends("report", saved, "--html", str(tmp_path / "d.html"), out="full")
    assert (status, error) == (1, "uncone: standard output: No space left on device\n")
    assert (tmp_path / "d.html").exists()


def test_help_into_a_closed_pipe_leaves_no_traceback() -> None:
    assert _ends("--help", out="pipe") == (1, "")


def test_debug_keeps_the_status(saved: str) -> None:
    status, error = _ends("check", saved, "--max", "input.mean_cosine=0.01", "--debug", out="full")
    assert status == 2
    assert "No space left on device" in error
    assert "Traceback" in error


def test_a_command_that_is_stopped_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], saved: str
) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("uncone.report.print_record", stop)
    with pytest.raises(SystemExit) as ended:
        main(["report", saved])
    assert ended.value.code == 130
    assert capsys.readouterr().err == "uncone: stopped\n"
