"""A reading among known readings: counted by hand over the table, and over a planted one; kinds of matrices; the words."""

import csv
import dataclasses
import json
from decimal import Decimal
from importlib import resources
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import uncone
from uncone.errors import UndefinedMeasure
from uncone.explain import kind_of, known, place, place_value
from uncone.explain.known import EFFECTIVE_RANK_SHARE, LARGEST_OVER_MEAN, ONE_SIGN, KnownReading
from uncone.records import Measurement, Placed, build_record

from ..planted import healthy, write_model

SHAPE = (1000, 64)
UNTIED = "of 16 to 221 M parameters"


def _table() -> list[dict[str, str]]:
    text = resources.files("uncone.explain").joinpath("known_readings.csv").read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


def _reading(value: float, kind: str = "untied head", **changed: object) -> KnownReading:
    fields = {
        "centered": False,
        "measure": "mean_shift",
        "diverged": False,
        "source": "a",
        "parameters": 10**6,
    }
    return KnownReading(
        model="m", kind=kind, **(fields | {"low": value - 0.05, "high": value + 0.05} | changed)
    )  # type: ignore[arg-type]


class TestCounts:
    @given(
        st.sampled_from(["mean_shift", ONE_SIGN, LARGEST_OVER_MEAN]),
        st.sampled_from(["untied head", "untied input table"]),
        st.integers(0, 12_000),
    )
    def test_are_those_of_the_table(self, measure: str, kind: str, places: int) -> None:
        value, below, equal, above, diverged = Decimal(places) / 10_000, 0, 0, 0, 0
        for line in _table():
            if (line["measure"], line["kind"], line["rows"]) != (measure, kind, "as stored"):
                continue
            if line["diverged"] == "yes":
                diverged += 1
                continue
            half = Decimal(5).scaleb(-1 - len(line["value"].partition(".")[2]))
            below += Decimal(line["value"]) + half < value
            above += Decimal(line["value"]) - half > value
            equal += abs(Decimal(line["value"]) - value) <= half
        found = place_value(measure, float(value), kind, shape=SHAPE)  # type: ignore[arg-type]
        assert (found.below, found.equal, found.above, found.left_out) == (below, equal, above, diverged)
        assert (found.total, diverged) == (30, 5)

    @pytest.mark.parametrize(("value", "equal"), [(0.0, 15), (0.0005, 15), (0.00051, 0)])
    def test_0_000_is_anything_below_half_a_thousandth(self, value: float, equal: int) -> None:
        zeros = [
            line for line in _table()
            if line["value"] == "0.000" and line["kind"] == "untied head" and line["diverged"] == "no"
        ]  # fmt: skip
        found = place_value(ONE_SIGN, value, "untied head", shape=SHAPE)
        assert len(zeros) == 15
        assert (found.equal, found.below) == (equal, 15 - equal)

    def test_another_kind_another_measure_and_centred_rows_are_not_mixed(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        others = (
            _reading(0.1, "untied input table"), _reading(0.1, "tied table"), _reading(0.1, measure="isoscore"),
            _reading(0.1, centered=True), _reading(0.1, diverged=True),
        )  # fmt: skip
        monkeypatch.setattr(
            known, "known_readings", lambda: (*others, _reading(0.3), _reading(0.9, source="b"))
        )
        found = place_value("mean_shift", 0.5, "untied head", shape=SHAPE)
        assert (found.below, found.equal, found.above, found.left_out, found.sources) == (
            1,
            0,
            1,
            1,
            ("a", "b"),
        )
        centred = place_value("mean_shift", 0.5, "untied head", shape=SHAPE, centered=True)
        assert (centred.below, centred.total, centred.how) == (1, 1, "with the mean row removed")

    def test_a_headless_table_is_compared_with_tied_ones_too_and_not_the_other_way(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        readings = (_reading(0.1, "table without a head"), _reading(0.1, "tied table"), _reading(0.1))
        monkeypatch.setattr(known, "known_readings", lambda: readings)
        assert place_value("mean_shift", 0.5, "table without a head", shape=SHAPE).below == 2
        assert place_value("mean_shift", 0.5, "tied table", shape=SHAPE).below == 1

    def test_between_two_numbers_only_what_lies_outside_both_is_told_apart(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(known, "known_readings", lambda: tuple(map(_reading, (0.1, 0.3, 0.5, 0.7, 0.9))))
        found = place_value("mean_shift", (0.34, 0.6), "untied head", shape=SHAPE)
        assert (found.below, found.equal, found.above) == (1, 2, 2)

    def test_collections_have_no_known_readings(self) -> None:
        found = place_value("mean_shift", 0.5, "collection", shape=SHAPE)
        assert (found.total, found.sentence) == (0, "no reading of row collections is known")


class TestMeasurements:
    def test_partition_isotropy_is_compared_with_one_sign(self) -> None:
        details = {"one_sign": 0.3, "low": 0.2, "high": 0.4}
        measurement = Measurement("partition_isotropy", 0.05, n=1000, d=64, centered=False, details=details)
        found = place(measurement, "untied head")
        assert found == place_value(ONE_SIGN, (0.2, 0.4), "untied head", shape=SHAPE)
        assert (found.measure, found.total) == (ONE_SIGN, 30)

    def test_partition_isotropy_of_an_old_record_is_not_compared_with_one_sign(self) -> None:
        measurement = Measurement("partition_isotropy", 0.05, n=1000, d=64, centered=False)
        assert place(measurement, "untied head").total == 0
        assert place(measurement, "tied table").total == 1  # ours

    def test_effective_rank_is_compared_by_its_share(self) -> None:
        measurement = Measurement("effective_rank", 16.0, n=1000, d=64, centered=True)
        found = place(measurement, "tied table")
        assert found == place_value(EFFECTIVE_RANK_SHARE, 0.25, "tied table", shape=SHAPE, centered=True)
        assert (found.above, found.how) == (1, "")  # its definition removes the mean: nothing to say

    def test_the_rows_with_their_mean_removed_are_others(self) -> None:
        details = {"one_sign": 0.9, "low": 0.89, "high": 0.91}
        raw = Measurement("partition_isotropy", 0.9, n=1000, d=64, centered=False, details=details)
        removed = dataclasses.replace(raw, centered=True)
        assert place(raw, "tied table").sentence == "higher than all 9 known tied tables"
        assert (
            place(removed, "tied table").sentence
            == "lower than 5 of 9 known tied tables with the mean row removed, as low as 1"
        )
        assert place(removed, "untied head").sentence == (
            "no reading of untied heads with the mean row removed is known"
        )

    def test_an_undefined_measurement_is_refused(self) -> None:
        with pytest.raises(UndefinedMeasure, match="mean_shift is undefined: no rows"):
            place(Measurement("mean_shift", None, "no rows"), "untied head")


class TestKinds:
    def test_of_models(self, tmp_path: Path) -> None:
        table = healthy(v=300)
        tied = uncone.diagnose(write_model(tmp_path / "tied", table)).subjects
        untied = uncone.diagnose(write_model(tmp_path / "untied", table, healthy(1, v=300))).subjects
        assert [kind_of(one, tied) for one in tied] == ["tied table", "tied table"]
        assert [kind_of(one, untied) for one in untied] == ["untied input table", "untied head"]
        assert kind_of(tied[0], tied[:1]) == "table without a head"

    def test_of_rows(self) -> None:
        subjects = uncone.diagnose(torch.randn(50, 4)).subjects
        assert [kind_of(one, subjects) for one in subjects] == ["collection"]

    @pytest.mark.slow
    def test_a_real_model_stands_where_the_table_has_it(self, stories: Path) -> None:
        subjects = uncone.diagnose(stories).subjects
        for subject in subjects:
            for measurement in (*subject.measurements, *subject.without_effect):
                if measurement.name in ("isoscore", "mean_shift") and measurement.value is not None:
                    assert place(measurement, kind_of(subject, subjects)).equal >= 1  # its own line


class TestWords:
    @pytest.mark.parametrize(
        ("counts", "sentence"),
        [
            ((3, 0, 27), f"lower than 27 of 30 known untied heads {UNTIED}"),
            ((27, 1, 2), f"higher than 27 of 30 known untied heads {UNTIED}, as high as 1"),
            ((0, 0, 30), f"lower than all 30 known untied heads {UNTIED}"),
            ((15, 15, 0), f"higher than 15 of 30 known untied heads {UNTIED}, as high as 15"),
            ((15, 0, 15), f"lower than 15 of 30 known untied heads {UNTIED}"),
            (
                (0, 30, 0),
                f"not to be told apart from all 30 known untied heads {UNTIED} at the digits published",
            ),
            (
                (0, 1, 0),
                f"not to be told apart from the one known untied head {UNTIED} at the digits published",
            ),
            ((1, 0, 0), f"higher than the one known untied head {UNTIED}"),
            ((0, 0, 0), "no reading of untied heads is known"),
        ],
    )
    def test_of_counts(self, counts: tuple[int, int, int], sentence: str) -> None:
        found = Placed("mean_shift", "untied head", "", *counts, smallest=16 * 10**6, largest=221 * 10**6)
        assert found.sentence == sentence

    def test_of_doubts(self) -> None:
        found = Placed(
            "m", "untied head", "", 1, 0, 2, left_out=1, note="this model is larger than any of them"
        )
        assert found.sentence == (
            "lower than 2 of 3 known untied heads (1 diverged run left out; this model is larger than any of them)"
        )

    @pytest.mark.parametrize(
        ("smallest", "largest", "said"),
        [
            (260_032, 260_032, "260 K"),
            (260_032, 22_713_728, "0.26 to 23 M"),
            (10**9, 7 * 10**9, "1 to 7 B"),
            (5, 9, "5 to 9"),
        ],
    )
    def test_of_sizes(self, smallest: int, largest: int, said: str) -> None:
        found = Placed("m", "tied table", above=2, smallest=smallest, largest=largest)
        assert found.sentence == f"lower than all 2 known tied tables of {said} parameters"

    @pytest.mark.parametrize(
        ("parameters", "shape", "note"),
        [
            (16 * 10**6, SHAPE, ""),
            (221 * 10**6, SHAPE, ""),
            (16 * 10**6 - 1, SHAPE, "this model is smaller than any of them"),
            (221 * 10**6 + 1, SHAPE, "this model is larger than any of them"),
            (None, (221_000, 1000), ""),
            (None, (221_001, 1000), "this matrix alone is larger than any of their models"),
        ],
    )
    def test_a_model_of_another_size_is_said(
        self, parameters: int | None, shape: tuple[int, int], note: str
    ) -> None:
        assert place_value("mean_shift", 0.5, "untied head", shape=shape, parameters=parameters).note == note


def test_a_record_can_keep_it() -> None:
    found = place_value("mean_shift", 0.5, "untied head", shape=SHAPE)
    assert build_record(Placed, json.loads(json.dumps(dataclasses.asdict(found))), "place") == found


def test_the_table_is_small_and_whole() -> None:
    lines = _table()
    assert resources.files("uncone.explain").joinpath("known_readings.csv").stat().st_size <= 60_000  # type: ignore[attr-defined]
    assert len(known.known_readings()) == len(lines)
    assert all(line["value"] or line["diverged"] == "yes" for line in lines)
    assert len({tuple(line[name] for name in ("model", "kind", "rows", "measure")) for line in lines}) == len(
        lines
    )
    assert len({line["model"] for line in lines}) == 45
