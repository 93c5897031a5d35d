import fcntl
import json
import math
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time
from contextlib import suppress
from pathlib import Path

import pytest

import uncone
from tests.watching.files import HEADER, lines_of, warning, write, write_state
from uncone.cli import main
from uncone.errors import InputError
from uncone.records.blocks import Figure
from uncone.records.load import load_record
from uncone.report.spark import spark_lines
from uncone.watching.record import Watch
from uncone.watching.watch import watch

GOOD = lines_of(range(0, 210, 10), head__mean_cosine=lambda s: s / 1000, loss__cross_entropy=lambda s: 5 - s / 100)


def test_a_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    found = watch(write(tmp_path / "a.jsonl", GOOD))
    (run,) = found.runs
    assert (run.name, run.model, run.every, run.records) == ("a", "GPT2LMHeadModel", 10, 21)
    assert (run.first_step, run.last_step, run.steps_per_second) == (0, 200, 4.0)
    by_name = {one.name: one for one in run.readings}
    assert set(by_name) == {"head.mean_cosine", "loss.cross_entropy"}
    assert by_name["head.mean_cosine"].steps == tuple(range(0, 210, 10))
    assert by_name["head.mean_cosine"].values == tuple(s / 1000 for s in range(0, 210, 10))
    assert found.verdict == "No rule warned in 21 records of a, up to step 200. The loss fell from 5 to 3."
    assert run.notes == ()


def test_a_warning_leads_and_the_loss_is_dated_by_it(tmp_path: Path) -> None:
    lines = [*GOOD, warning(190), *lines_of([210], head__mean_cosine=0.5)]
    assert (
        watch(write(tmp_path / "a.jsonl", lines)).verdict
        == (
            "A rule warned about a at step 190. The effective rank of the head fell from 60.0 to 20.0 between steps 80 and 100."
        )
        + " No rule has warned about the loss."
    )
    lines.append(warning(260, "loss", "loss.cross_entropy"))
    assert watch(write(tmp_path / "a.jsonl", lines)).verdict.endswith(" The loss rose 70 steps later.")


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([], "a has no record yet."),
        (GOOD[:5], "a has 5 records up to step 40: rules judge from the 12th on, after 200 steps."),
        (lines_of(range(30), loss__cross_entropy=2.0), "a holds no geometry, so no rule judged it."),
    ],
)
def test_a_verdict_says_what_could_not_be_judged(lines: list[dict[str, float]], said: str, tmp_path: Path) -> None:
    assert watch(write(tmp_path / "a.jsonl", lines)).verdict.startswith(said)


def test_a_torn_last_line_is_left_out_and_said(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", GOOD)
    for cut in range(1, 60, 7):
        path.write_text(
            path.read_text().rstrip("\n") + '\n{"step": 210, "time": 1.0, "head.mean_cosine": 0.25, "x"'[:cut]
        )
        (run,) = watch(path).runs
        assert run.last_step == 200
        assert run.notes == () if cut == 1 else len(run.notes) == 1
        write(path, GOOD)


def test_a_torn_line_within_is_counted(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", GOOD)
    content = path.read_text().splitlines()
    content[5] = content[5][:20]
    path.write_text("\n".join(content) + "\n")
    (run,) = watch(path).runs
    assert run.records == 20
    assert run.notes == ("1 line could not be read (line 6): a stop or a full disk cut them short",)


def test_hostile_numbers_are_left_out(tmp_path: Path) -> None:
    odd = (
        '{"step": 200, "time": NaN, "head.mean_cosine": NaN, "a": 1e999, "b": ' + "9" * 400 + ', "c": "x", "d": [1]}\n'
    )
    odd += '{"step": -1, "a": 1}\n{"step": true}\n{"step": 1e3}\n[1]\n' + "[" * 100_000 + "\n\xff\xfe\n"
    path = write(tmp_path / "a.jsonl", GOOD)
    path.write_bytes(path.read_bytes() + odd.encode("latin-1"))
    (run,) = watch(path).runs
    assert {one.name for one in run.readings} == {"head.mean_cosine", "loss.cross_entropy"}
    assert any("3 numbers were not finite" in note for note in run.notes)
    assert all(math.isfinite(value) for one in run.readings for value in one.values)
    json.loads(watch(path).to_json())


def test_a_long_line_takes_no_memory_and_the_next_is_read(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", GOOD)
    with path.open("a") as file:
        file.write('{"step": 200, "a": "' + "x" * 10_000_000 + '"}\n')
        file.write('{"step": 210, "head.mean_cosine": 0.4}\n')
    (run,) = watch(path).runs
    assert run.last_step == 210
    assert len(run.notes) == 1


def test_a_resumed_run_is_one_course(tmp_path: Path) -> None:
    lines = [*GOOD, warning(190), *lines_of(range(100, 250, 10), head__mean_cosine=0.9)]
    (run,) = watch(write(tmp_path / "a.jsonl", lines)).runs
    cosine = next(one for one in run.readings if one.name == "head.mean_cosine")
    assert cosine.steps == tuple(range(0, 250, 10))
    assert cosine.at(90) == 0.09
    assert cosine.at(100) == 0.9
    assert run.warnings == ()
    assert "went back to step 100" in run.notes[0]


def test_another_models_header_is_said(tmp_path: Path) -> None:
    lines = [*GOOD, HEADER | {"model": "Bert"}, *lines_of([210], head__mean_cosine=0.1)]
    (run,) = watch(write(tmp_path / "a.jsonl", lines)).runs
    assert "line 23 begins another model (Bert): two runs wrote to one file" in run.notes


def test_a_long_run_keeps_its_shape_and_its_last_record(tmp_path: Path) -> None:
    lines = lines_of(range(5000), head__mean_cosine=lambda s: s / 5000)
    (run,) = watch(write(tmp_path / "a.jsonl", lines)).runs
    (cosine,) = run.readings
    assert len(cosine.steps) <= 602
    assert (cosine.steps[0], cosine.steps[-1]) == (0, 4999)
    assert list(cosine.steps) == sorted(set(cosine.steps))
    assert all(value == step / 5000 for step, value in zip(cosine.steps, cosine.values, strict=True))


@pytest.mark.parametrize("content", ["", "\n", "a,b\n1,2\n", '{"schema": "uncone.diagnosis/1"}\n', "\x00\x01", "[1]\n"])
def test_another_programs_file_is_refused(content: str, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(content)
    with pytest.raises(InputError, match=r"expected .* got"):
        watch(path)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        watch(tmp_path / "b.jsonl")
    with pytest.raises(InputError, match="neither"):
        watch(tmp_path)
    os.mkfifo(tmp_path / "pipe.jsonl")
    with pytest.raises(InputError, match="a pipe"):
        watch(tmp_path / "pipe.jsonl")
    path = write_state(tmp_path / "x", [])
    path.write_text('{"a": 1}')
    with pytest.raises(InputError, match="log_history"):
        watch(path)


def test_a_trainers_history_is_read_and_joined_to_the_monitors_file(tmp_path: Path) -> None:
    history = [
        {"step": 50, "loss": 4.0, "epoch": 0.1, "learning_rate": 1e-3},
        {"step": 100, "loss": 3.0},
        {"step": 100, "eval_loss": 3.2, "eval_runtime": 5.0, "eval_samples_per_second": 7.0},
        {"step": 100, "train_runtime": 9.0, "total_flos": 1.0},
        "odd",
    ]
    write_state(tmp_path / "run", history)  # type: ignore[arg-type]
    alone = watch(tmp_path / "run")
    assert alone.verdict == "run holds no geometry, so no rule judged it. The loss fell from 4 to 3."
    assert [one.name for one in alone.runs[0].readings] == ["loss", "learning_rate", "eval_loss"]
    write(tmp_path / "run" / "monitor.jsonl", GOOD)
    (run,) = watch(tmp_path / "run").runs
    assert [one.name for one in run.readings][:2] == ["head.mean_cosine", "loss.cross_entropy"]
    assert {"loss", "eval_loss", "learning_rate"} <= {one.name for one in run.readings}
    assert run.name == "run"


def test_the_last_checkpoints_history_is_read(tmp_path: Path) -> None:
    for at, step in enumerate((50, 100)):
        path = write_state(tmp_path / f"checkpoint-{step}", [{"step": s, "loss": 1.0} for s in range(10, step + 1, 10)])
        os.utime(path, (at, at))
    assert watch(tmp_path).runs[0].last_step == 100


def test_several_runs_are_laid_over_each_other_at_a_common_step(tmp_path: Path) -> None:
    a = write(tmp_path / "a.jsonl", GOOD)
    b = write(tmp_path / "b.jsonl", lines_of(range(0, 105, 5), head__mean_cosine=0.7, loss__cross_entropy=6.0))
    found = watch([a, b])
    assert found.common_step == 100
    assert "At step 100 the loss is lowest in a (4) and highest in b (6)." in found.verdict
    rows = {(row["run"], row["reading"], row["step"]): row["value"] for row in found.to_rows()}
    assert rows["b", "head.mean_cosine", 100] == 0.7
    with pytest.raises(InputError, match="different names"):
        watch([a, b], names=["x", "x"])
    assert [run.name for run in watch([a, a], names=None).runs] == ["a", "a (2)"]
    with pytest.raises(InputError, match="one to 6"):
        watch([a] * 7)


def test_a_record_is_saved_and_drawn_again(tmp_path: Path) -> None:
    lines = [*GOOD, warning(190, text="<script>alert(1)</script> \x1b[31m rose. Look.")]
    found = watch([write(tmp_path / "a.jsonl", lines), write(tmp_path / "b.jsonl", GOOD)])
    found.save(tmp_path / "w.json")
    again = load_record(tmp_path / "w.json")
    assert isinstance(again, Watch)
    assert again == found
    page, text = uncone.report.to_html(again), uncone.report.to_markdown(again)
    assert "<script>alert" not in page
    assert "\x1b" not in page + text
    assert page.count("<svg") >= 2


def test_the_live_view_fits_a_small_terminal(tmp_path: Path) -> None:
    found = watch(write(tmp_path / "a.jsonl", [*GOOD, warning(190)]))
    live = found.live(1e9 + 62)
    assert any("last record 12 s ago" in getattr(block, "text", "") for block in live.blocks)
    assert [type(block).__name__ for block in live.blocks] == ["Heading", "Text", "Bullets", "Figure", "Figure"]


def test_compare_takes_runs(tmp_path: Path) -> None:
    a, b = write(tmp_path / "a.jsonl", GOOD), write(tmp_path / "b.jsonl", [*GOOD, warning(190)])
    found = uncone.compare([a, b])
    assert found == watch([a, b])
    assert isinstance(found, Watch)
    assert found.worse
    assert not watch([b, a]).worse
    assert main_of("compare", str(a), str(b), "--json", str(tmp_path / "w.json")) == 0
    assert main_of("compare", str(a), str(b), "--fail-on", "worse") == 2
    assert main_of("compare", str(b), str(a), "--fail-on", "worse") == 0
    assert load_record(tmp_path / "w.json") == found
    assert main_of("compare", str(a), str(a), "--fail-on", "worse") == 0
    with pytest.raises(InputError, match="one kind at a time"):
        uncone.compare([a, [[1.0, 2.0]]])


def test_the_verdict_of_two_runs_fits_what_they_are(tmp_path: Path) -> None:
    a, same = write(tmp_path / "a.jsonl", GOOD), write(tmp_path / "same.jsonl", GOOD)
    assert watch([a, same]).verdict == "No rule warned in 2 runs. The readings of the runs are the same up to step 200."
    geometry = [one | {"head.mean_cosine": 0.5} for one in GOOD]
    other = write(tmp_path / "other.jsonl", geometry, HEADER | {"model": "Bert"})
    said = "No rule warned in 2 runs. The runs train different models (GPT2LMHeadModel and Bert). At step 200 the loss is 3"
    assert watch([a, other]).verdict == f"{said} in both."
    long = write(tmp_path / "long.jsonl", lines_of(range(0, 400, 10), loss__cross_entropy=2.0))
    found = watch([long, a])
    assert found.common_step == 200
    assert found.verdict.endswith("At step 200 the loss is lowest in long (2) and highest in a (3).")
    later = write(tmp_path / "later.jsonl", lines_of(range(500, 600, 10), loss__cross_entropy=2.0))
    assert watch([a, later]).verdict == "No rule warned in 2 runs."
    short = [write(tmp_path / f"short{i}.jsonl", lines_of(range(0, 199, 3 + i), head__mean_cosine=0.1)) for i in (0, 1)]
    found = watch(short)
    assert found.verdict == "No run has what the rules need: geometry in 12 records over 200 steps."
    assert found.blocks()[0].label == "NOT JUDGED"  # type: ignore[union-attr]


def test_a_reading_that_comes_seldom_shares_the_time_of_the_others(tmp_path: Path) -> None:
    lines = lines_of(range(0, 400, 10), head__mean_cosine=lambda s: float(s >= 200))
    lines = [
        one | ({"head.effective_rank": 60.0 - one["step"] // 200} if one["step"] % 100 == 0 else {}) for one in lines
    ]
    found = watch(write(tmp_path / "a.jsonl", lines))
    sparks = {line[:14].strip(): line for figure in found.live(0.0).blocks[2:] for line in spark_lines(figure)}  # type: ignore[arg-type]
    often, seldom = sparks["head mean cosi"], sparks["head eff. rank"]
    assert often.index("█") == seldom.index("▁")  # both turn at step 200
    short = write(tmp_path / "b.jsonl", lines[:20])
    half, whole = spark_lines(watch([short, tmp_path / "a.jsonl"]).live(0.0).blocks[3])[:2]  # type: ignore[arg-type]
    assert half.count("▁") == 20
    assert whole.index("█") == half.index("▁") + 20


def test_a_line_at_0_is_in_the_table_alone(tmp_path: Path) -> None:
    found = watch(write(tmp_path / "a.jsonl", lines_of(range(0, 200, 10), head__dead=0, head__mean_cosine=0.1)))
    assert "head dead" in uncone.report.to_markdown(found)
    assert [chart.title for one in found.blocks() if isinstance(one, Figure) for chart in one.charts] == [
        "head mean cosine"
    ]


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(-5, "0 s ago"), (119, "119 s ago"), (120, "2 minutes ago"), (7199, "119 minutes ago"), (172_800, "2 days ago")],
)
def test_the_time_since_the_last_record(tmp_path: Path, seconds: int, said: str) -> None:
    found = watch(write(tmp_path / "a.jsonl", GOOD))
    shown = found.live(found.runs[0].last_time + seconds).blocks  # type: ignore[operator]
    assert any(said in getattr(block, "text", "") for block in shown)


def test_report_opens_a_runs_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "a.jsonl", [*GOOD, warning(190)])
    assert main_of("report", str(path)) == 0
    assert "A rule warned about a at step 190." in " ".join(capsys.readouterr().out.split())
    page, text = tmp_path / "a.html", tmp_path / "a.md"
    assert main_of("report", str(path), "--html", str(page), "--markdown", str(text)) == 0
    assert page.read_text() == uncone.report.to_html(watch(path))
    assert text.read_text() == uncone.report.to_markdown(watch(path))
    state = write_state(tmp_path / "x", [{"step": 50, "loss": 4.0}])
    assert main_of("report", str(state)) == 0
    assert main_of("report", str(write(tmp_path / "b.jsonl", [], {"schema": "uncone.run/9"}))) == 1


class Terminal:
    """A command on a terminal of its own."""

    def __init__(self, columns: int, *arguments: str) -> None:
        self.id, self.file = pty.fork()
        if self.id == 0:
            source = str(Path(uncone.__file__).parents[1])
            kept = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
            given = kept | {"TERM": "xterm-256color", "PYTHONPATH": source}
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # which a suite in the background ignores
            os.execve(sys.executable, [sys.executable, "-m", "uncone", *arguments], given)
        fcntl.ioctl(self.file, termios.TIOCSWINSZ, struct.pack("HHHH", 30, columns, 0, 0))
        self.seen = ""

    def wait_for(self, text: str, seconds: float = 60.0) -> None:
        """Until it is drawn, after all that was waited for before; breaks of lines are spaces."""
        end = time.monotonic() + seconds
        while text not in " ".join(re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.seen).split()):
            assert time.monotonic() < end, self.seen[-2000:]
            if select.select([self.file], [], [], 0.2)[0]:
                self.seen += os.read(self.file, 65536).decode("utf-8", "replace")
        self.seen = ""

    def end(self) -> tuple[int, str]:
        os.write(self.file, b"\x03")
        with suppress(OSError):
            while part := os.read(self.file, 65536):
                self.seen += part.decode("utf-8", "replace")
        return os.waitstatus_to_exitcode(os.waitpid(self.id, 0)[1]), self.seen


@pytest.mark.slow
@pytest.mark.parametrize("columns", [60, 120])
def test_a_run_is_followed_through_whatever_becomes_of_its_file(tmp_path: Path, columns: int) -> None:
    path = write(tmp_path / "a.jsonl", GOOD[:15])
    terminal = Terminal(columns, "watch", str(path), "--follow")
    terminal.wait_for("a has 15 records")
    write(path, GOOD)
    terminal.wait_for("21 records of a")
    write(path, [*GOOD, warning(190)])
    terminal.wait_for("A rule warned about a at step 190.")
    write(path, GOOD[:12])
    terminal.wait_for("a has 12 records")
    path.write_text("")
    terminal.wait_for("Waiting: expected a run")
    path.unlink()
    terminal.wait_for("Waiting: cannot read")
    os.replace(write(tmp_path / "new", GOOD[:13]), path)
    terminal.wait_for("a has 13 records")
    status, last = terminal.end()
    assert status == 0
    assert "Traceback" not in last
    assert "a has 13 records" in " ".join(last.split())


def test_a_file_or_a_pipe_is_not_redrawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main_of("watch", str(write(tmp_path / "a.jsonl", GOOD)), "--follow") == 1
    assert "a terminal" in capsys.readouterr().err


def main_of(*arguments: str) -> int:
    try:
        main(list(arguments))
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0
