"""The terminal: verdict first, 80 columns, no colour needed, and nothing from a record is markup."""

import numpy as np
import pytest

import uncone
from tests.every_part import KINDS
from tests.report.every_record import Maker
from tests.report.printed import printed
from tests.report.records_example import HOSTILE, make_diagnosis, make_hostile, make_measurements
from uncone import report
from uncone.records.blocks import Cell, Table
from uncone.records.parts import Measurement
from uncone.records.readings import readings_blocks
from uncone.records.text import number, visible
from uncone.report.spark import sparkline


def test_verdict_comes_first_and_lines_fit_80_columns() -> None:
    lines = printed(make_diagnosis()).splitlines()
    assert lines[0].startswith("SEVERE  The input token table is severely degenerate")
    assert max(map(len, lines)) <= 80
    assert "\x1b" not in "".join(lines)


def test_findings_worst_first_with_their_level_in_words() -> None:
    text = printed(make_diagnosis())
    levels = ("SEVERE  Degenerate tail", "WARNING  Rogue", "NOTE  Zero rows", "NO DEFECT", "STRUCTURE  ", "NO EFFECT  ")
    places = [text.index(level) for level in levels]
    assert places == sorted(places)
    assert places[0] < text.index("Mean cosine, raw")
    assert "What to do: Re-initialise them." in text
    assert "uncone repair-tokens example-model repaired-model\n" in text, "a line to paste"


def test_in_brief_there_is_the_verdict_what_is_wrong_and_what_to_do() -> None:
    whole, brief = printed(make_diagnosis()), printed(make_diagnosis().document().brief())
    assert brief.splitlines()[0] == whole.splitlines()[0]
    for level in ("SEVERE  Degenerate tail", "WARNING  Rogue", "NOTE  Zero rows", "NO DEFECT", "What to do: Re-init"):
        assert level in brief
    for left_out in ("STRUCTURE  ", "NO EFFECT  ", "Mean cosine, raw", "Measurements", "Notes", "TwoNN"):
        assert left_out in whole
        assert left_out not in brief
    assert len(brief.splitlines()) < min(60, len(whole.splitlines()) / 2)


def test_in_brief_a_calibration_keeps_its_thresholds() -> None:
    found = uncone.calibrate(np.random.default_rng(0).standard_normal((50, 8)), rates=[0.3, 0.1])
    text = printed(found.document().brief())
    assert "false matches  threshold  95% interval" in text
    for one in found.thresholds:
        assert f"{one.score:.4f}" in text.partition("threshold")[2]
    assert "What a score means" not in text
    assert (
        "With 50 rows, a share of 2% of random pairs is one false match for each query. For that threshold, run again with --rates 0.02."
        in printed(found, width=200)
    )


def test_every_record_has_a_verdict_in_brief() -> None:
    for kind in KINDS:
        document = Maker((0.25, 0.5, 0.75)).make(kind).document()
        first = document.brief().blocks[0]
        assert first == document.blocks[0]


def test_every_measurement_has_its_row_and_a_head_its_gauge_apart() -> None:
    text = printed(make_diagnosis())
    for measurement in make_measurements():
        if measurement.value is not None:
            assert number(measurement.value, limits=measurement.range) in text
    assert "TwoNN dimension is undefined: more than half of the rows have a duplicate" in text
    assert "Rogue dimensions: few rows" in text
    assert "6,000" in text
    head = text[text.index("Output head") :]
    assert head.index("No effect on probabilities") < head.index("0.613")
    assert "Mean cosine, centred" in head[: head.index("No effect on probabilities")]
    assert "3 rows that are not finite were left out" in head


def test_bins_are_one_line_each() -> None:
    text = printed(make_diagnosis())
    assert "By row id, 0 to 5,999, bins of 1,000:" in text
    assert "cosine to reserved  ▁▁▂ ▅█  -0.0500 to 0.450" in text


@pytest.mark.parametrize("hostile", HOSTILE, ids=ascii)
@pytest.mark.parametrize("colour", [False, True])
def test_hostile_strings_are_plain_text(hostile: str, colour: bool) -> None:
    text = printed(make_hostile(hostile), width=400, colour=colour)
    assert text.count(visible(hostile)) >= 10
    assert not {"\u202e", "\x07"} & set(text)
    assert colour or "\x1b" not in text


def test_a_narrow_encoding_gets_escapes_instead_of_an_error() -> None:
    text = printed(make_hostile("Ġthe\u2212"), width=400, encoding="ascii")
    assert "\\u0120the\\u2212" in text
    assert "cosine to reserved  __. +#" in text


def test_default_console_is_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    report.print_record(make_diagnosis())
    assert "The input token table is severely" in capsys.readouterr().out


def test_sparkline() -> None:
    lines = {(0.0, 0.5, 1.0): "▁▅█", (1.0, None, 1.0): "▁ ▁", (): "", (None,): " "}
    assert {values: sparkline(values) for values in lines} == lines
    assert len(sparkline([float(k) for k in range(200)])) == 40


def test_ends_of_an_interval_have_so_many_digits_that_they_differ() -> None:
    for ends, shown in (((323.96, 324.04), "323.96 to 324.04"), ((1.0, 2.0), "1 to 2"), ((5.0, 5.0), "5 to 5")):
        m = Measurement("stable_rank", sum(ends) / 2, interval=ends, n=100, d=400)
        (table,) = (b for b in readings_blocks("Measurements", "", (m,), fixed=False) if isinstance(b, Table))
        assert [cell.note for row in table.rows for cell in row if isinstance(cell, Cell)] == [shown]
