"""Whatever the bytes of a run's file are, it is read, shown and saved, or refused with a reason."""

import gzip
import io
import json
import lzma
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.console import Console

import uncone
from tests.watching.files import HEADER, lines_of, warning, write
from uncone.errors import InputError
from uncone.records.load import load_record
from uncone.report import print_record
from uncone.watching.reading import MOST_NAMES, MOST_POINTS, MOST_WARNINGS
from uncone.watching.record import Watch
from uncone.watching.watch import watch

NAMES = st.one_of(
    st.sampled_from(["head.mean_cosine", "states.rare.effective_rank", "loss.cross_entropy", "", ".", "a..b", "step"]),
    st.sampled_from(
        ["<script>alert(1)</script>", "\x1b[31mred", "\u202eabc", "[red]x[/red]", "a\nb", "x" * 300, "\ud800"]
    ),
    st.text(max_size=12),
)
NUMBERS = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True),
    st.sampled_from([1e308, -1e308, 5e-324, 10**400, -0.0, True, None, "1", [], {}]),
    st.integers(),
)
STEPS = st.one_of(st.integers(-5, 60), st.sampled_from([2**53, 2**70, 1.0, None, "1", True]))
RECORDS = st.builds(
    lambda step, time, of: {"step": step, "time": time, **of}, STEPS, NUMBERS, st.dictionaries(NAMES, NUMBERS)
)
WARNED = st.builds(
    lambda step, name, text, rule: warning(step, rule, name, text) if isinstance(step, int) else {"warning": {}},
    STEPS,
    NAMES,
    NAMES,
    NAMES,
)
HEADERS = st.builds(lambda model, every: HEADER | {"model": model, "every": every}, NAMES, NUMBERS)
LINES = st.one_of(RECORDS.map(json.dumps), WARNED.map(json.dumps), HEADERS.map(json.dumps), NAMES)


def shown(found: Watch) -> str:
    console = Console(file=io.StringIO(), width=60, color_system=None)
    print_record(found, console)
    for line in console.file.getvalue().splitlines():  # type: ignore[attr-defined]
        assert "\x1b" not in line
    return console.file.getvalue()  # type: ignore[attr-defined,no-any-return]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lines=st.lists(LINES, max_size=25), tail=st.binary(max_size=30), packed=st.sampled_from(["", ".gz", ".xz"]))
def test_any_lines_are_read_shown_and_saved(tmp_path: Path, lines: list[str], tail: bytes, packed: str) -> None:
    text = "\n".join([json.dumps(HEADER), *lines])
    content = text.encode("utf-8", "replace") + b"\n" + tail
    path = tmp_path / f"a.jsonl{packed}"
    path.write_bytes({"": bytes, ".gz": gzip.compress, ".xz": lzma.compress}[packed](content))
    found = watch(path)
    (run,) = found.runs
    assert run.name == "a"
    for one in run.readings:
        assert list(one.steps) == sorted(set(one.steps))
        assert all(map(math.isfinite, one.values))
    found.save(tmp_path / "w.json")
    assert load_record(tmp_path / "w.json") == found
    assert shown(found)
    page = uncone.report.to_html(found)
    assert "<script>alert" not in page
    assert "\x1b" not in page
    assert uncone.report.to_markdown(found)
    both = watch([path, path])
    assert shown(both)
    assert uncone.report.to_html(both)
    assert found.live(0.0).blocks


def every_line(n: int) -> Any:
    for i in range(n):
        yield {"schema": HEADER["schema"], "model": f"m{i}"}
        yield {"step": i % 7, "head.mean_cosine": 0.5, "x" * 1000 + str(i): 1.0, f"n{i}": 2.0}
        yield warning(i % 7)
        yield {"step": None}


def test_what_is_kept_of_a_long_file_is_bounded(tmp_path: Path) -> None:
    (run,) = watch(write(tmp_path / "a.jsonl", every_line(3 * MOST_WARNINGS))).runs
    assert len(run.readings) <= MOST_NAMES
    assert max(len(one.steps) for one in run.readings) <= MOST_POINTS + 1
    assert len(run.warnings) <= MOST_WARNINGS
    assert len(run.notes) < 10
    assert max(len(one.name) for one in run.readings) < 300
    assert any("longer than 200" in note for note in run.notes)


def test_a_number_that_a_monitor_could_not_write_is_counted(tmp_path: Path) -> None:
    (run,) = watch(write(tmp_path / "a.jsonl", lines_of(range(3), head__mean_cosine=None, a=1.0))).runs
    assert run.notes == ("3 numbers were not finite and left out",)


@pytest.mark.parametrize("ending", [".gz", ".xz"])
def test_a_packed_file_that_was_cut_is_refused(tmp_path: Path, ending: str) -> None:
    whole = write(tmp_path / "a.jsonl", lines_of(range(2000), head__mean_cosine=lambda s: math.sin(s))).read_bytes()
    packed = {".gz": gzip.compress, ".xz": lzma.compress}[ending](whole)
    path = tmp_path / f"a.jsonl{ending}"
    path.write_bytes(packed[: len(packed) // 2])
    with pytest.raises(InputError, match="cannot read"):
        watch(path)
    path.write_bytes(whole)  # its name alone says that it is packed
    with pytest.raises(InputError, match="cannot read"):
        watch(path)
    path.write_bytes(packed)
    assert watch(tmp_path).runs[0].records == watch(path).runs[0].records == 2000
