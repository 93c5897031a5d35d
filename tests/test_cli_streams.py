"""Exit statuses where standard output takes nothing: a closed pipe, a full disk. A verdict that is known stands."""

import math
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import uncone
from tests.command import run_command
from tests.report.records_example import make_diagnosis, make_subject
from uncone import Diagnosis, InputError
from uncone import report as reports
from uncone.cli import answer, main
from uncone.cli.answer import hand_over
from uncone.records.load import load_record
from uncone.records.parts import Finding
from uncone.repairs.record import Repaired

FULL = Path("/dev/full")


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("streams") / "d.json"
    make_diagnosis().save(path)
    return str(path)


def _save_rows(path: Path) -> None:
    np.save(path, np.random.default_rng(0).standard_normal((200, 8), dtype=np.float32))


def _ends(*arguments: str, out: str) -> tuple[int, str]:
    """The status and standard error, with `out` a closed pipe ("pipe"), a full disk ("full") or both streams full."""
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
def test_results_beyond_their_bars_are_status_2_though_none_is_printed(saved: str, tmp_path: Path, out: str) -> None:
    status, error = _ends("check", saved, "--max", "input.mean_cosine=0.01", out=out)
    assert status == 2
    assert out == "both" or (error.startswith("uncone: standard output: ") and error.count("\n") == 1)
    subject = make_subject("input")
    worse = replace(subject, findings=(*subject.findings, Finding("giant_rows", "warning", "long rows")))
    replace(make_diagnosis(), subjects=(worse,)).save(tmp_path / "b.json")
    assert _ends("compare", saved, str(tmp_path / "b.json"), "--fail-on", "worse", out=out)[0] == 2
    others = 0 if out == "pipe" else 1
    assert _ends("compare", saved, str(tmp_path / "b.json"), out=out)[0] == others
    x = np.random.default_rng(0).normal(size=(600, 16))
    uncone.calibrate(x).save(tmp_path / "c.json")
    for name, rows, status in (("moved", x + 0.4, 2), ("same", x, others)):
        np.save(tmp_path / f"{name}.npy", rows)
        against = ("--against", str(tmp_path / "c.json"))
        assert _ends("calibrate", str(tmp_path / f"{name}.npy"), *against, out=out)[0] == status


@pytest.mark.parametrize(
    "command", ["check {} --max input.mean_cosine=0.5", "report {}", "measures", "--help", "report --help", "--version"]
)
def test_a_reader_that_left_is_no_failure(saved: str, command: str) -> None:
    """As of `uncone ... | head`."""
    arguments = command.format(saved).split()
    assert _ends(*arguments, out="pipe") == (0, "")
    assert _ends(*arguments, "--debug", out="pipe") == (0, "")


def test_a_refused_command_is_status_1_though_nobody_reads(saved: str) -> None:
    status, error = _ends("report", f"{saved}.none", out="pipe")
    assert (status, error.count("\n")) == (1, 1)
    within = _ends("check", saved, "--max", "input.mean_cosine=0.5", out="full")
    assert within[0] == 1, "that the numbers are within their bars cannot be printed"


def test_a_reader_that_left_takes_no_work_with_it(tmp_path: Path) -> None:
    _save_rows(tmp_path / "x.npy")
    files = [str(tmp_path / name) for name in ("r.json", "r.html", "y.npy")]
    command = ("repair", str(tmp_path / "x.npy"), files[2], "--method", "center", "--json", files[0])
    assert _ends(*command, "--html", files[1], out="pipe") == (0, "")
    assert all(Path(file).stat().st_size for file in files)


@pytest.mark.skipif(sys.platform == "win32", reason="a pipe of the shell")
@pytest.mark.parametrize("command", ["report {}", "--help", "measures"])
def test_head_takes_its_lines_and_the_command_ends_well(saved: str, command: str) -> None:
    done = _shell(f"($1 -m uncone {command.format(saved)}; echo status $? >&2) | head -n 1")
    assert done.stderr == "status 0\n"
    assert done.stdout.count("\n") == 1


def test_what_is_printed_last_is_flushed_before_the_status_which_debug_keeps(saved: str, tmp_path: Path) -> None:
    status, error = _ends("report", saved, "--html", str(tmp_path / "d.html"), out="full")
    assert (status, error) == (1, "uncone: standard output: No space left on device\n")
    assert (tmp_path / "d.html").exists()
    status, error = _ends("check", saved, "--max", "input.mean_cosine=0.01", "--debug", out="full")
    assert status == 2
    assert "No space left on device" in error
    assert "Traceback" in error


def test_a_stop_is_said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], saved: str) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("uncone.report.print_record", stop)
    with pytest.raises(SystemExit) as ended:
        main(["report", saved])
    assert ended.value.code == 130
    assert capsys.readouterr().err == "uncone: stopped\n"


def test_long_work_reports_in_lines_where_there_is_no_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with answer.progress_bar() as progress:
        assert progress is not None
        progress("reading", 1, 2)
        assert capsys.readouterr().err == ""
        monkeypatch.setattr(answer, "LINE_EVERY_S", 0.0)
        progress("a \x1b[31m name", 1_000, 2_000)
        progress("downloading", 5, 0)
        monkeypatch.setattr(answer, "LINE_EVERY_S", 30.0)
        progress("downloading", 6, 0)
        lines = capsys.readouterr().err.splitlines()
    assert [line.rpartition(", after ")[0] for line in lines] == [
        "uncone: a \\x1b[31m name, 1,000 of 2,000",
        "uncone: downloading",
    ]


def test_a_warning_has_no_line_of_code() -> None:
    code = "import sys, warnings; from uncone.cli.program import main; sys.argv = ['uncone', 'doctor']; main(); warnings.warn('a [red]')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stderr == "uncone: a [red]\n"


def _shell(command: str) -> subprocess.CompletedProcess[str]:
    run = ["sh", "-c", command, "sh", sys.executable]
    return subprocess.run(run, capture_output=True, text=True, timeout=120, check=False)


def _ended(code: str, folder: Path, said: str, number: signal.Signals) -> tuple[int, str]:
    """The status and standard error of a program that gets a signal once it has said something."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen([sys.executable, "-c", code], cwd=folder, text=True, **pipes)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == said
        process.send_signal(number)
        error = process.communicate(timeout=60)[1]
    finally:
        process.kill()  # one that did not end would take a core from all tests after it
    return process.returncode, error


def _fail(*_: object, **__: object) -> None:
    raise ValueError("math domain error")


@pytest.mark.parametrize("closed", ["2>&-", "2>&- >/dev/null", "<&- 2>&-", "<&- >/dev/null 2>&-"])
def test_closed_standard_streams_stop_no_command(tmp_path: Path, closed: str) -> None:
    """As a job scheduler runs it. A file that took a closed stream's number would hold what libraries print."""
    _save_rows(tmp_path / "x.npy")
    for command in ("diagnose x.npy --json d.json", "repair x.npy y.npy --method center --json r.json"):
        assert _shell(f"cd {tmp_path} && PYTHONFAULTHANDLER=1 $1 -m uncone {command} {closed}").returncode == 0
    assert isinstance(load_record(tmp_path / "d.json"), Diagnosis)
    assert isinstance(load_record(tmp_path / "r.json"), Repaired)
    assert np.load(tmp_path / "y.npy").shape == (200, 8)


@pytest.mark.parametrize("command", ["diagnose x.npy", "repair x.npy y.npy --method center"])
def test_a_closed_standard_output_is_said_and_what_was_asked_for_is_written(tmp_path: Path, command: str) -> None:
    _save_rows(tmp_path / "x.npy")
    done = _shell(f"cd {tmp_path} && $1 -m uncone {command} --json r.json >&-")
    assert (done.returncode, done.stderr) == (0, "")
    load_record(tmp_path / "r.json")


@pytest.mark.parametrize("columns", ["0", "00", "1", "-1", "²", "٠", "abc", "", "99999999999999999999"])
def test_any_width_prints_the_record(
    saved: str, columns: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = {saved: "is severely degenerate: its tail is degenerate.", "--help": "Usage: uncone report"}
    for argument, shown in words.items():
        monkeypatch.setenv("COLUMNS", columns)
        status, printed, error = run_command("report", capsys, argument)
        assert (status, error) == (0, "")
        assert shown in " ".join(printed.split())


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


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)])
def test_a_signal_leaves_nothing_half_written(tmp_path: Path, number: signal.Signals, status: int) -> None:
    (tmp_path / "file").write_text("old")
    told = "uncone: stopped\n" if number is signal.SIGINT else f"uncone: ended by {number.name}\n"
    assert _ended(WAITING, tmp_path, "half\n", number) == (status, told)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_text() == "old"


def test_a_signal_that_is_ignored_stays_ignored(saved: str) -> None:
    done = _shell(
        "trap '' HUP; $1 -c \"import os, signal; from uncone.cli.failures import ending_cleanly\n"
        "with ending_cleanly(): os.kill(os.getpid(), signal.SIGHUP)\n"
        'print(signal.getsignal(signal.SIGTERM) == signal.SIG_DFL)"'
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


def test_a_signal_ends_a_command_whose_thread_is_in_a_long_product(tmp_path: Path) -> None:
    assert _ended(BUSY, tmp_path, "busy\n", signal.SIGTERM) == (143, "uncone: ended by SIGTERM\n")


def test_json_comes_first_then_the_terminal_then_the_page(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    order = list[str]()
    for place, name in ((Diagnosis, "save"), (reports, "print_record"), (reports, "write_html")):
        monkeypatch.setattr(place, name, lambda *_, name=name, **__: order.append(name))
    hand_over(make_diagnosis(), tmp_path / "d.json", tmp_path / "d.html")
    assert order == ["save", "print_record", "write_html"]
    assert [line.rpartition("/")[2] for line in capsys.readouterr().out.splitlines()] == ["d.json", "d.html"]


@pytest.mark.parametrize("failing", ["save", "print_record", "write_html"])
def test_what_fails_takes_nothing_with_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, failing: str
) -> None:
    monkeypatch.setattr(Diagnosis if failing == "save" else reports, failing, _fail)
    files = {"save": tmp_path / "d.json", "write_html": tmp_path / "d.html"}
    with pytest.raises(ValueError, match="math domain error"):
        hand_over(make_diagnosis(), *files.values())
    printed = capsys.readouterr().out
    assert ("severely degenerate" in printed) == (failing != "print_record")
    for step, file in files.items():
        assert file.exists() == (failing != step)
        assert (f"wrote {file}" in printed) == (failing != step)


def test_a_page_that_cannot_be_drawn_leaves_the_other_file_of_a_report(
    monkeypatch: pytest.MonkeyPatch, saved: str, tmp_path: Path
) -> None:
    monkeypatch.setattr(reports, "write_html", _fail)
    with pytest.raises(SystemExit) as ended:
        main(["report", saved, "--html", str(tmp_path / "d.html"), "--markdown", str(tmp_path / "d.md")])
    assert ended.value.code == 1
    assert (tmp_path / "d.md").exists()


def test_a_number_that_json_lacks_is_named_beside_the_rest(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    measured = replace(make_subject("input").measurements[0], value=float("nan"), details={"n": [1.0, -math.inf]})
    subject = replace(make_subject("input"), measurements=(measured,))
    record = replace(make_diagnosis(), subjects=(subject,))
    with pytest.raises(InputError) as told:
        hand_over(record, tmp_path / "d.json", tmp_path / "d.html")
    where = "diagnosis.subjects[0].measurements[0].value"
    assert str(told.value).startswith(
        f"expected finite numbers in a diagnosis, got nan at {where}, which JSON cannot hold: "
    )
    assert "severely degenerate" in capsys.readouterr().out
    assert [file.name for file in tmp_path.iterdir()] == ["d.html"]
    finite = replace(record, subjects=(replace(subject, measurements=(replace(measured, value=0.5),)),))
    with pytest.raises(InputError, match=r"got -inf at diagnosis\.subjects\[0\]\.measurements\[0\]\.details\.n\[1\]"):
        finite.to_json()
