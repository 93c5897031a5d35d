"""`uncone calibrate` as a user meets it, and its page."""

import html
import json
import re
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from tests.command import run_command
from uncone.calibration.calibrate import calibrate
from uncone.calibration.record import Calibration, ScoreThreshold
from uncone.report import print_record, to_html

_run = partial(run_command, "calibrate")


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    rng = np.random.default_rng(0)
    x, q = (rng.normal(size=(n, 16)).astype(np.float32) + 0.3 for n in (300, 90))
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "q.npy", q)
    return tmp_path / "x.npy", tmp_path / "q.npy"


def test_from_vectors_to_an_answer_and_files(
    files: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    x, q = files
    (tmp_path / "p.tsv").write_text("query-id\tcorpus-id\tscore\n0\t0\t1\n1\t1\t1\n2\t2\t0\n")
    arguments = (x, "--queries", q, "--pairs", tmp_path / "p.tsv", "--scores", "0.5", "--scores", "0.9")
    arguments = (*arguments, "--rates", "0.05", "--rates", "0.01")
    status, out, err = _run(capsys, *arguments, "--json", tmp_path / "c.json", "--html", tmp_path / "c.html")
    assert (status, err) == (0, "")
    found = Calibration.load(tmp_path / "c.json")
    assert " ".join(out.split()).startswith(found.verdict)
    assert found.verdict.startswith("For these vectors a cosine of 0.5 is ")
    assert [one.score for one in found.meanings] == [0.5, 0.9]
    assert [one.wanted for one in found.thresholds] == [0.05, 0.01]
    assert found.pairs == 300 * 90 - 2
    assert re.search("interval +matches +non-matches +precision", out)
    assert "1 pair is labelled as no match" in " ".join(out.split())
    assert found.function.strip() in out
    shares = dict[str, object]()
    exec(found.function, shares)
    (last, rate) = re.findall(r"From ([\d.]+) on the function gives (\S+), since few", " ".join(out.split()))[0]
    of = shares["false_match_rate"]
    assert callable(of)
    assert f"{of(float(last) + 0.1):.1e}" == rate
    assert out.endswith(f"wrote {tmp_path / 'c.json'}\nwrote {tmp_path / 'c.html'}\n")
    assert html.escape(found.verdict) in (tmp_path / "c.html").read_text()
    status, again, _ = _run(capsys, x, "--queries", q, "--against", tmp_path / "c.json")
    assert status == 0
    assert "NO DRIFT SEEN" in again
    assert "Both are of the same vectors." in again


def test_drift_is_status_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x = np.random.default_rng(0).normal(size=(600, 16))
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "moved.npy", x + 0.4)
    assert _run(capsys, tmp_path / "x.npy", "--json", tmp_path / "c.json")[0] == 0
    moved = (tmp_path / "moved.npy", "--against", tmp_path / "c.json", "--json", tmp_path / "d.json")
    status, out, err = _run(capsys, *moved)
    assert (status, err) == (2, "")
    assert out.startswith("The scores drifted far from the saved calibration of ")
    assert out.index("LARGE DRIFT") < out.index("600 rows of 16 features")
    assert "0.8" not in out.partition("LARGE DRIFT")[0]
    assert "What a score means" not in out
    both = _run(capsys, *moved[:3], "--scores", 0.7)[1]
    assert both.startswith("The scores drifted far from ")
    assert "a cosine of 0.7 is " in " ".join(both.split())
    assert Calibration.load(tmp_path / "d.json").drift is not None


@pytest.mark.parametrize(("level", "found"), [("none", False), ("unclear", False), ("small", True), ("large", True)])
def test_which_levels_of_drift_are_a_drift(level: str, found: bool) -> None:
    x = np.random.default_rng(0).normal(size=(200, 8))
    drift = calibrate(x, against=calibrate(x)).drift
    assert replace(drift, level=level).found is found


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("no.npy",), "no.npy"),
        (("{x}", "--metric", "euclidean"), "euclidean"),
        (("{x}", "--ids", "ids.txt"), "got none: give --pairs FILE"),
        (("{x}", "--prior", "0.2"), "got none: give --pairs FILE"),
        (("{x}", "--against", "{x}"), "expected JSON in UTF-8"),
        (("{x}", "--json", "{x}"), "expected another file to write than what is read"),
        (("{x}", "--json", "nowhere/c.json"), "there is no folder"),
        (("{x}", "--rates", "2"), "expected a false-match rate above 0 and below 1, got 2.0"),
    ],
)
def test_errors_are_one_clear_line(
    arguments: tuple[str, ...], message: str, files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = _run(capsys, *(argument.format(x=files[0]) for argument in arguments))
    assert (status, out) == (1, "")
    assert err.startswith("uncone: ")
    assert message in err
    assert err.count("\n") == 1
    assert files[0].exists()


@pytest.fixture(scope="module")
def found() -> Calibration:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(200, 16)).astype(np.float32) + 0.3
    return calibrate(x, scores=[0.8], against=calibrate(x + 0.4))


def _printed(calibration: Calibration, width: int = 80, encoding: str = "utf-8") -> str:
    import io

    from rich.console import Console

    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    print_record(calibration, Console(file=stream, width=width, color_system=None, highlight=False))
    stream.flush()
    return stream.buffer.getvalue().decode(encoding)  # type: ignore[attr-defined]


def test_the_terminal_says_what_the_record_holds(found: Calibration) -> None:
    out = _printed(found)
    assert found.drift.summary in " ".join(out.split())
    assert "LARGE DRIFT" in out
    assert "No threshold for 0.001%: needs at least 1,000,000 pairs, 19,900 were counted" in " ".join(out.split())
    assert all(len(line) <= 80 for line in out.splitlines() if not line.startswith("    "))
    assert _printed(found, encoding="ascii")


def test_hostile_names_stay_text(found: Calibration) -> None:
    name = "<script>alert(1)</script>\x1b[31m[red]\u202e"
    rows = replace(found.rows, name=name)
    hostile = replace(found, name=name, rows=rows, notes=(name,), verdict=name, function=f"# {name}\nx = 1\n")
    page, out = to_html(hostile), _printed(hostile)
    assert "<script>alert" not in page
    assert "\x1b" not in page + out
    assert "\u202e" not in page + out
    assert "[red]" in out


def test_the_page_stands_alone_and_is_whole(found: Calibration) -> None:
    page = to_html(found)
    assert not re.search(r'(?:src|href)="(?!#|data:)', page)
    assert page.count("<table") == page.count("</table>") == 3
    assert page.count('<svg class="chart"') == 2
    assert len(set(re.findall(r'id="([^"]+)"', page))) == len(re.findall(r'id="([^"]+)"', page))
    bare = replace(
        found, drift=None, meanings=(), function="", thresholds=(ScoreThreshold(0.01, None, reason="too few"),)
    )
    assert "No threshold for 1%: too few." in to_html(bare)


def test_no_share_is_rounded_onto_a_limit(found: Calibration) -> None:
    data = json.loads(found.to_json())
    data["meanings"] = [
        {"score": 0.9, "percentile": 99.9999999, "false_match_rate": {"value": 1e-9, "low": 0.0, "high": 2e-9}}
    ]
    out = _printed(Calibration.from_json(json.dumps(data)))
    assert "<100" in out
    assert "1 in 1,000,000,000" in out
