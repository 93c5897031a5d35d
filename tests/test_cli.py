"""The command line as a user meets it: answers, files, one clear line for each error, and how soon help comes."""

import json
import os
import pty
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from uncone import Diagnosis, __version__, cli, diagnose
from uncone.cli import program

from .command import run_command
from .matrices import gaussian
from .planted import rare_tail, write_model


def _fails(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    with pytest.raises(SystemExit) as stopped:
        cli.main([str(a) for a in arguments])
    assert stopped.value.code == 1
    error = capsys.readouterr().err
    assert error.startswith("uncone: ")
    assert error.count("\n") == 1
    return error


def test_a_model_from_start_to_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = [sys.executable, "-m", "uncone", "diagnose", write_model(tmp_path / "m", rare_tail())]
    command += ["--json", tmp_path / "d.json", "--html", tmp_path / "d.html"]
    environment = os.environ | {"COLUMNS": "100", "NO_COLOR": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert " ".join(done.stdout.split()).startswith("WARNING The input token table shows no defect as a whole")
    assert f"wrote {tmp_path / 'd.json'}" in done.stdout
    assert Diagnosis.load(tmp_path / "d.json").verdict.replace("&", "&amp;") in (tmp_path / "d.html").read_text()
    assert run_command("report", capsys, tmp_path / "d.json", "--html", tmp_path / "again.html")[0] == 0
    assert (tmp_path / "again.html").read_text() == (tmp_path / "d.html").read_text()
    assert run_command("report", capsys, tmp_path / "d.json")[1].split()[:3] == ["WARNING", "The", "input"]


def test_rows_that_are_not_finite(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x = gaussian(50, 4).numpy()
    x[3, 0] = np.nan
    np.save(tmp_path / "x.npy", x)
    told = r"uncone: expected finite rows, got 1 row of 50 .* \(row 3\): .*--skip-nonfinite.*\n"
    assert re.fullmatch(told, _fails(capsys, "diagnose", tmp_path / "x.npy"))
    status, printed, _ = run_command("diagnose", capsys, tmp_path / "x.npy", "--skip-nonfinite")
    assert status == 0
    assert "1 row" in printed


def test_errors_are_one_clear_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "no file or folder" in _fails(capsys, "diagnose", tmp_path / "nothing")
    assert "got 'vocab.json': convert it" in _fails(
        capsys, "diagnose", write_model(tmp_path / "m", gaussian(20, 4)) / "vocab.json"
    )
    assert "folder that exists" in _fails(capsys, "diagnose", tmp_path / "m", "--html", tmp_path / "no" / "d.html")
    assert "twice" in _fails(capsys, "diagnose", tmp_path / "m", "--html", tmp_path / "d", "--json", tmp_path / "d")
    assert "expected --text with --device" in _fails(capsys, "diagnose", tmp_path / "m", "--device", "cuda")
    (tmp_path / "d.json").write_text("{}")
    assert "schema" in _fails(capsys, "report", tmp_path / "d.json")


def test_wrong_usage_is_one_line_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert 'Unknown command "diagnos". Did you mean "diagnose"?' in _fails(capsys, "diagnos", "x")
    assert "Unknown option: --unheard. See `uncone --help`." in _fails(capsys, "diagnose", "x", "--unheard")
    several = _fails(capsys, "saturation", "head", "m", "--text", "t", "--ranks", "8,16")
    assert "Put spaces between values. See" in several
    assert "spaces" not in _fails(capsys, "saturation", "head", "m", "--text", "t", "--ranks", "8x")
    assert "SPEC requires an argument" in _fails(capsys, "diagnose")


def test_a_hostile_file_name_is_shown_as_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    error = _fails(capsys, "diagnose", tmp_path / "a\x1b[31mred\u202e\nx.npy")
    assert "\x1b" not in error
    assert "\u202e" not in error


def test_debug_gives_the_traceback(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, _, error = run_command("diagnose", capsys, tmp_path / "nothing", "--debug")
    assert status == 1
    assert "Traceback" in error
    assert "InputError" in error


def test_a_defect_is_one_line_too(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def broken(*_: object, **__: object) -> None:
        raise KeyError("oh")

    monkeypatch.setattr(type(program.app), "parse_args", broken)
    assert "unexpected KeyError: 'oh': a defect in uncone; --debug shows where" in _fails(capsys, "diagnose", "x")


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command("--version", capsys)[1].strip() == __version__


def test_help_loads_no_torch() -> None:
    code = "import sys; from uncone.cli import main\ntry: main(['diagnose', '--help'])\nexcept SystemExit: pass\n"
    code += "assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_long_work_shows_progress(tmp_path: Path) -> None:
    """On a terminal, work beyond the waiting time draws a bar; the waiting time is set to nothing here."""
    np.save(tmp_path / "x.npy", gaussian(40_000, 32).numpy())
    code = "from uncone.cli import answer, main; answer.PROGRESS_AFTER_S = 0.0; "
    code += f"main(['diagnose', {str(tmp_path / 'x.npy')!r}])"
    main, side = pty.openpty()
    streams = {"stderr": side, "stdout": subprocess.DEVNULL}
    process = subprocess.Popen([sys.executable, "-c", code], **streams, env=os.environ | {"TERM": "xterm"})
    os.close(side)
    seen = b""
    with suppress(OSError):  # the other side is closed
        while part := os.read(main, 4096):
            seen += part
    os.close(main)
    assert process.wait() == 0
    assert b"rows: summing" in seen
    assert b"%" in seen


def test_json_is_the_gold_one(tmp_path: Path) -> None:
    """Every field name and every reading of a fixed matrix, rounded to the digits that any BLAS keeps."""
    rounded = json.loads(diagnose(_fixed()).to_json(), parse_float=lambda text: float(f"{float(text):.4g}"))
    rounded["versions"] = {}
    gold = Path(__file__).parent / "gold" / "diagnosis.json"
    if os.environ.get("UNCONE_WRITE_GOLD"):
        gold.parent.mkdir(exist_ok=True)
        gold.write_text(json.dumps(rounded, indent=1) + "\n")
    assert _comparable(rounded) == _comparable(json.loads(gold.read_text()))


def _fixed() -> np.ndarray:
    steps = np.arange(40 * 5, dtype=np.float64).reshape(40, 5)
    return (np.sin(steps**1.5) + np.array([1.0, 0.5, 0, 0, 0])).astype(np.float64)


def _comparable(data: object) -> object:
    if isinstance(data, dict):
        drawn = {k for k, v in data.items() if k in ("raw", "centered") and isinstance(v, str)}
        return {k: "coordinates" if k in drawn else _comparable(v) for k, v in data.items()}
    if isinstance(data, list):
        return [_comparable(v) for v in data]
    return pytest.approx(data, rel=2e-3, abs=1e-6) if isinstance(data, float) else data
