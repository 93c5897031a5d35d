"""The schedules against the paper's table and the kept runs."""

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from uncone.errors import InputError

pytest.importorskip("transformers")
Load = Callable[[str], Any]
ROOT = Path(__file__).parents[2]
KEPT = ROOT / "experiments/shrink_the_longest/results/all-MiniLM-L6-v2"
PAPER = (ROOT / "../shared/papers/texts/001_89fbd1ed9faa0154.txt").resolve()
ITEMS = {"mrpc": 3668, "cola": 8551}
"""Training items of the real files."""


def _cells(shrink: Load) -> list[Any]:
    return list(shrink("plan").cells())


def test_kept_runs_have_the_packaged_schedule(shrink: Load) -> None:
    """A setting that changed would make every kept run another run."""
    schedule, checked = shrink("schedules").schedule("packaged"), 0
    for cell in _cells(shrink):
        file = KEPT / f"{cell.name}.json"
        if file.is_file():
            kept = json.loads(file.read_text())["asked"]["settings"]
            assert schedule.settings(cell, ITEMS[cell.task]).as_json() == kept
            checked += 1
    assert checked >= 102


def test_the_papers_schedule_is_ten_epochs_of_whole_batches(shrink: Load) -> None:
    schedule = shrink("schedules").schedule("paper")
    found = {(cell.task, cell.size): schedule.settings(cell, ITEMS[cell.task]) for cell in _cells(shrink)}
    assert {key: one.steps for key, one in found.items()} == {
        **{(task, size): 10 * math.floor(int(size) / 64) for task in ITEMS for size in ("300", "1000")},
        ("mrpc", "all"): 570,
        ("cola", "all"): 1330,
    }
    assert {(one.batch, one.warm_up, one.longest, one.precision, one.last) for one in found.values()} == {
        (64, 0.1, 512, "fp32", 0.3)
    }


@pytest.mark.skipif(not PAPER.is_file(), reason="the text of the paper is not here")
def test_the_papers_schedule_is_that_of_its_table_1(shrink: Load) -> None:
    text, schedule = PAPER.read_text(encoding="utf-8"), shrink("schedules").schedule("paper")
    rows = re.findall(r"^\| (BERT|RoBERT[aA])-(MRPC|COLA) \| (\S+) \| (\S+) \| (\d+) \|$", text, re.MULTILINE)
    assert len(rows) == 4
    for _, task, rate, decay, epochs in rows:
        cell = shrink("plan").Cell(task.lower(), "none", 0)
        how = schedule.settings(cell, ITEMS[cell.task])
        assert (how.rate, how.decay, schedule.shared["epochs"]) == (float(rate), float(decay), int(epochs))
    assert f"batch size set to {schedule.shared['batch']}" in text
    assert f"last {schedule.shared['last']:.0%}" in text


def test_a_schedule_of_ones_own(shrink: Load, tmp_path: Path) -> None:
    written = (ROOT / "experiments/shrink_the_longest/schedules/packaged.toml").read_text()
    (tmp_path / "mine.toml").write_text(written.replace("all = 114", "all = 7"))
    plan, own = shrink("plan"), shrink("schedules").schedule(str(tmp_path / "mine.toml"))
    assert own.settings(plan.Cell("mrpc", "none", 0), 3668).steps == 7
    assert own.settings(plan.Cell("mrpc", "none", 0), 3668, steps=3, precision="fp32").precision == "fp32"
    assert own.settings(plan.Cell("mrpc", "none", 0, 200), 3668).steps == 30
    for wrong, message in (
        (written.replace("epochs = 10", ""), r"expected batch, epochs, .* in mine\.toml, got batch, warm_up"),
        (
            written.replace("rate = 3e-4", 'rate = "high"'),
            r"expected rate in \[mrpc\] of mine\.toml to be a number, got 'high'",
        ),
        (written.replace("rate = 3e-4", "rate = nan"), "expected rate in .* got nan"),
        (written.replace("all = 114", "all = 0"), r"expected all in the steps of \[mrpc\]"),
        (written.replace('"bf16"', '"fp8"'), "a precision of bf16, fp32"),
        (written.replace("last = 0.3", "last = 0"), "0 < last <= 1"),
        ("batch =", r"expected TOML in mine\.toml"),
    ):
        (tmp_path / "mine.toml").write_text(wrong)
        with pytest.raises(InputError, match=message):
            shrink("schedules").schedule(str(tmp_path / "mine.toml"))
    (tmp_path / "mine.toml").write_text(written.partition("[cola]")[0])
    with pytest.raises(InputError, match=r"a table \[cola\]"):
        shrink("schedules").schedule(str(tmp_path / "mine.toml")).settings(plan.Cell("cola", "none", 0), 8551)
    with pytest.raises(InputError, match="schedule of packaged, paper, or a TOML file"):
        shrink("schedules").schedule("papers")
