"""The measures in words: every public one is described, found by the names of its readings, and shown in every view."""

import inspect

import pytest
import torch

import uncone
from uncone import InputError, Measurement, Moments, measure
from uncone.diagnosis.examination import OF_THE_GAUGE
from uncone.measure.everything import MEASURES
from uncone.records.measures import MeasureDescription
from uncone.report import to_html, to_markdown

from ..command import run_command
from ..matrices import gaussian

ALL = [one for _, group in uncone.measures().by_question for one in group]


def test_every_public_measure_is_described_once() -> None:
    public = {
        name
        for name in measure.__all__
        if inspect.isfunction(getattr(measure, name))
        and inspect.signature(getattr(measure, name)).return_annotation is Measurement
    }
    assert sorted(one.name for one in ALL) == sorted(public | {"norm_id_correlation"})


@pytest.mark.parametrize("one", ALL, ids=lambda one: one.name)
def test_a_description_is_complete(one: MeasureDescription) -> None:
    assert all((one.says, one.definition, one.formula, one.isotropic, one.reads_badly, one.source))
    assert (one.says[-1], one.reads_badly[-1]) == (".", ".")
    assert not one.formula.endswith("\n")


def test_a_reading_is_found_by_its_name() -> None:
    m = Moments.of(gaussian(50, 6) + 1, unit_second=True)
    for name, function in (*MEASURES, *OF_THE_GAUGE):
        reading = function(m)
        assert reading.name == name
        ((_, (one,)),) = uncone.measures(name).by_question
        assert reading.better == one.better
        for end, told in zip(reading.range, one.range, strict=True):
            assert end == told or isinstance(told, str), name


@pytest.mark.parametrize(
    ("printed", "name"),
    [
        ("Partition isotropy, centred", "partition_isotropy"),
        ("I(W)", "partition_isotropy"),
        ("effective rank", "effective_rank"),
        ("Share of the first direction, raw", "anisotropy"),
        ("IsoScore*", "isoscore_star"),
    ],
)
def test_a_measure_is_found_as_a_diagnosis_prints_it(printed: str, name: str) -> None:
    ((_, (one,)),) = uncone.measures(printed).by_question
    assert one.name == name


def test_a_range_that_depends_on_the_rows_is_that_of_the_rows() -> None:
    reading = measure.effective_rank(Moments.of(torch.eye(3)), centered=False)
    assert (measure.effective_rank.__name__, reading.range) == ("effective_rank", (1.0, 3.0))
    assert reading.definition.endswith("(Roy & Vetterli 2007), uncentred")


def test_all_are_listed_and_one_is_shown(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    whole = ("anisotropy", "s_k^2 / sum s^2", "0 to 1/k", "lower is better", "Razzhigaev", "Reads badly when")
    listed = ("1 to min(N, D)", *(one.name for one in ALL))
    for columns, name, told in (("100", (), listed), ("200", ("anisotropy_1_raw",), whole)):
        monkeypatch.setenv("COLUMNS", columns)
        status, printed, _ = run_command("measures", capsys, *name)
        assert status == 0
        assert [words for words in told if words not in printed] == []


def test_printed_it_says_formula_and_source() -> None:
    (one,) = (one for one in ALL if one.name == "mean_shift")
    assert str(uncone.measures("mean_shift")) == f"mean_shift: {one.says}\n\n    {one.formula}\n\nSource: {one.source}"
    assert str(uncone.measures()).splitlines() == [f"{one.name}: {one.says}" for one in ALL]

    record = uncone.measures("stable_rank")
    assert "|X|_F^2 / s_1^2" in to_markdown(record)
    assert "s_1^2" in to_html(record)
    assert type(record).from_json(record.to_json()) == record


def test_an_unknown_name_is_refused_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InputError, match=r"expected the name of a measure, got 'isoscor': did you mean 'isoscore'"):
        uncone.measures("isoscor")
    status, _, error = run_command("measures", capsys, "xyzzy")
    assert status == 1
    assert "`uncone measures` lists them" in error
