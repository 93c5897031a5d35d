"""`uncone calibrate` as a user meets it, and its page."""

import html
import io
import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from tests.command import run_command
from uncone.calibration.calibrate import calibrate
from uncone.calibration.record import Calibration, ScoreMeaning, ScoreThreshold
from uncone.calibration.scores.record import Share
from uncone.report import print_record, to_html

_run = partial(run_command, "calibrate")


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    rng = np.random.default_rng(0)
    x, q = (rng.normal(size=(n, 16)).astype(np.float32) + 0.3 for n in (300, 90))
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "q.npy", q)
    return tmp_path / "x.npy", tmp_path / "q.npy"


def test_from_vectors_to_files(files: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x, q = files
    (tmp_path / "p.tsv").write_text("query-id\tcorpus-id\tscore\n0\t0\t1\n1\t1\t1\n2\t2\t0\n")
    kept, page = tmp_path / "c.json", tmp_path / "c.html"
    asked = ["--scores", "0.5", "--scores", "0.9", "--rates", "0.05", "--rates", "0.01"]
    arguments = (x, "--queries", q, "--pairs", tmp_path / "p.tsv", *asked, "--json", kept, "--html", page)
    status, out, err = _run(capsys, *arguments)
    assert (status, err) == (0, "")
    found, told = Calibration.load(kept), " ".join(out.split())
    assert told.startswith(found.verdict)
    assert found.verdict.startswith("For these vectors a cosine of 0.5 is ")
    assert [one.score for one in found.meanings] == [0.5, 0.9]
    assert [one.wanted for one in found.thresholds] == [0.05, 0.01]
    assert found.pairs == 300 * 90 - 2
    assert re.search("interval +matches +non-matches +precision", out)
    assert "1 pair is labelled as no match" in told
    assert found.function.strip() in out
    shares = dict[str, Any]()
    exec(found.function, shares)
    (last, rate) = re.findall(r"From ([\d.]+) on, the function gives (\S+), because few", told)[0]
    assert f"{shares['false_match_rate'](float(last) + 0.1):.1e}" == rate
    assert out.endswith(f"wrote {kept}\nwrote {page}\n")
    assert html.escape(found.verdict) in page.read_text()
    status, again, _ = _run(capsys, x, "--queries", q, "--against", kept)
    assert (status, "NO DRIFT DETECTED" in again, "Both calibrations are of the same vectors." in again) == (
        0,
        True,
        True,
    )


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
    assert replace(calibrate(x, against=calibrate(x)).drift, level=level).found is found


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("no.npy",), "no.npy"),
        (("{x}", "--metric", "euclidean"), "euclidean"),
        (("{x}", "--ids", "ids.txt"), "got none: give --pairs FILE"),
        (("{x}", "--prior", "0.2"), "got none: give --pairs FILE"),
        (("{x}", "--against", "{x}"), "expected JSON in UTF-8"),
        (("{x}", "--json", "{x}"), "expected an output file other than the input"),
        (("{x}", "--json", "nowhere/c.json"), "there is no folder"),
        (("{x}", "--rates", "2"), "expected a false-match rate above 0 and below 1, got 2.0"),
    ],
)
def test_errors_are_one_clear_line(
    arguments: tuple[str, ...], message: str, files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = _run(capsys, *(argument.format(x=files[0]) for argument in arguments))
    assert (status, out, err[:8], err.count("\n")) == (1, "", "uncone: ", 1)
    assert message in err
    assert files[0].exists()


@pytest.fixture(scope="module")
def found() -> Calibration:
    x = np.random.default_rng(1).normal(size=(200, 16)).astype(np.float32) + 0.3
    return calibrate(x, scores=[0.8], against=calibrate(x + 0.4))


def _printed(calibration: Calibration, width: int = 80, encoding: str = "utf-8") -> str:
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    print_record(calibration, Console(file=stream, width=width, color_system=None, highlight=False))
    stream.flush()
    return stream.buffer.getvalue().decode(encoding)  # type: ignore[attr-defined]


def test_the_terminal_says_what_the_record_holds(found: Calibration) -> None:
    out = _printed(found)
    told = " ".join(out.split())
    assert found.drift.summary in told
    assert "LARGE DRIFT" in out
    assert "No threshold for 0.001%: this rate needs at least 1,000,000 pairs, and 19,900 were counted" in told
    assert all(len(line) <= 80 for line in out.splitlines() if not line.startswith("    "))
    assert _printed(found, encoding="ascii")


def test_the_page_stands_alone_and_is_whole(found: Calibration) -> None:
    page = to_html(found)
    assert not re.search(r'(?:src|href)="(?!#|data:)', page)
    assert page.count("<table") == page.count("</table>") == 3
    assert page.count('<svg class="chart"') == 2
    assert len(set(re.findall(r'id="([^"]+)"', page))) == len(re.findall(r'id="([^"]+)"', page))
    few = (ScoreThreshold(0.01, None, reason="too few"),)
    bare = replace(found, drift=None, meanings=(), function="", thresholds=few)
    assert "No threshold for 1%: too few." in to_html(bare)


def test_no_share_is_rounded_onto_a_limit(found: Calibration) -> None:
    out = _printed(replace(found, meanings=(ScoreMeaning(0.9, 99.9999999, Share(1e-9, 0.0, 2e-9)),)))
    assert "<100" in out
    assert "1 in 1,000,000,000" in out
