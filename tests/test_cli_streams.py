"""Exit statuses where standard output takes nothing: a closed pipe, a full disk. A verdict that is known stands."""

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import uncone
from tests.report.records_example import make_diagnosis, make_subject
from uncone import Diagnosis
from uncone.cli import main
from uncone.records import Finding, Repaired, load_record

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
    done = subprocess.run(
        command, stdout=target, stderr=error, text=True, env=environment, timeout=60, check=False
    )
    os.close(target)
    return done.returncode, done.stderr or ""


@pytest.mark.parametrize("out", ["pipe", "full", "both"])
def test_a_number_beyond_its_bar_is_status_2_though_it_cannot_be_printed(saved: str, out: str) -> None:
    status, error = _ends("check", saved, "--max", "input.mean_cosine=0.01", out=out)
    assert status == 2
    if out != "both":
        assert error.startswith("uncone: standard output: ")
        assert error.count("\n") == 1


@pytest.mark.parametrize("out", ["pipe", "full", "both"])
def test_the_other_results_beyond_their_bars_are_status_2_though_they_cannot_be_printed(
    saved: str, tmp_path: Path, out: str
) -> None:
    subject = make_subject("input")
    worse = replace(subject, findings=(*subject.findings, Finding("giant_rows", "warning", "long rows")))
    replace(make_diagnosis(), subjects=(worse,)).save(tmp_path / "b.json")
    assert _ends("compare", saved, str(tmp_path / "b.json"), "--fail-on", "worse", out=out)[0] == 2
    assert _ends("compare", saved, str(tmp_path / "b.json"), out=out)[0] == 1
    x = np.random.default_rng(0).normal(size=(600, 16))
    uncone.calibrate(x).save(tmp_path / "c.json")
    for name, rows, status in (("moved", x + 0.4, 2), ("same", x, 1)):
        np.save(tmp_path / f"{name}.npy", rows)
        against = ("--against", str(tmp_path / "c.json"))
        assert _ends("calibrate", str(tmp_path / f"{name}.npy"), *against, out=out)[0] == status


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


def _shell(command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", "-c", command, "sh", sys.executable], capture_output=True, text=True, env=os.environ | environment, timeout=120, check=False
    )  # fmt: skip


@pytest.mark.parametrize("closed", ["2>&-", "2>&- >/dev/null", "<&- 2>&-", "<&- >/dev/null 2>&-"])
def test_closed_standard_streams_stop_no_command(tmp_path: Path, closed: str) -> None:
    """As a job scheduler runs it. A file that took the number of a closed stream would hold what libraries print there."""
    np.save(tmp_path / "x.npy", np.random.default_rng(0).standard_normal((200, 8), dtype=np.float32))
    for command in ("diagnose x.npy --json d.json", "repair x.npy y.npy --method center --json r.json"):
        done = _shell(f"cd {tmp_path} && PYTHONFAULTHANDLER=1 $1 -m uncone {command} {closed}")
        assert done.returncode == 0
    assert isinstance(load_record(tmp_path / "d.json"), Diagnosis)
    assert isinstance(load_record(tmp_path / "r.json"), Repaired)
    assert np.load(tmp_path / "y.npy").shape == (200, 8)


@pytest.mark.parametrize("verb", ["diagnose", "repair"])
def test_a_closed_standard_output_is_said_and_what_was_asked_for_is_written(
    tmp_path: Path, verb: str
) -> None:
    np.save(tmp_path / "x.npy", np.random.default_rng(0).standard_normal((200, 8), dtype=np.float32))
    command = {"diagnose": "diagnose x.npy", "repair": "repair x.npy y.npy --method center"}[verb]
    done = _shell(f"cd {tmp_path} && $1 -m uncone {command} --json r.json >&-")
    assert (done.returncode, done.stderr) == (0, "")
    load_record(tmp_path / "r.json")


@pytest.mark.parametrize("columns", ["0", "00", "1", "-1", "²", "٠", "abc", "", "99999999999999999999"])
def test_any_width_prints_the_record(saved: str, columns: str) -> None:
    done = _shell(f"$1 -m uncone report {saved} && $1 -m uncone report --help", COLUMNS=columns)
    assert (done.returncode, done.stderr) == (0, "")
    assert "is severely degenerate: its tail is degenerate." in " ".join(done.stdout.split())
    assert "Usage: uncone report" in done.stdout


WAITING = """
import os, signal, sys, threading, time
from uncone import atomic
from uncone.cli import program

# as from a terminal, also where the tests run in the background and ignore both
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)

def write(*arguments, **options):
    with atomic.new_directory("folder") as folder, atomic.replacing("file") as handle:
        (folder / "half").write_text("half")
        handle.write(b"half")
        handle.flush()
        print("half", flush=True)
        time.sleep(60)

program.app.command(write, name="wait")
program.main(["wait"])
"""


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)]
)
def test_a_signal_leaves_nothing_half_written(tmp_path: Path, number: signal.Signals, status: int) -> None:
    (tmp_path / "file").write_text("old")
    process = subprocess.Popen(
        [sys.executable, "-c", WAITING],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "half\n"
        process.send_signal(number)
        error = process.communicate(timeout=60)[1]
    finally:
        process.kill()
    assert process.returncode == status
    assert error == ("uncone: stopped\n" if number is signal.SIGINT else f"uncone: ended by {number.name}\n")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_text() == "old"


def test_a_signal_that_is_ignored_stays_ignored(saved: str) -> None:
    done = _shell(
        "trap '' HUP; $1 -c \"import os, signal; from uncone.cli.failures import ending_cleanly\n"
        'with ending_cleanly(): os.kill(os.getpid(), signal.SIGHUP)\nprint(signal.getsignal(signal.SIGTERM) == signal.SIG_DFL)"'
    )
    assert (done.returncode, done.stdout) == (0, "True\n")


BUSY = """
import numpy as np
from uncone.cli import program
from uncone.threads import interruptible

def work(*arguments, **options):
    x = np.random.default_rng(0).normal(size=(6000, 6000))
    print("busy", flush=True)
    interruptible(np.linalg.eigh, x)

program.app.command(work, name="busy")
program.main(["busy"])
"""


def test_a_signal_ends_a_command_whose_thread_is_in_a_long_product() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", BUSY], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "busy\n"
        process.terminate()
        error = process.communicate(timeout=60)[1]
    finally:
        process.kill()  # one that did not end would take a core from all tests after it
    assert (process.returncode, error) == (143, "uncone: ended by SIGTERM\n")
