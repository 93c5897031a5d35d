"""A reading among known readings: counted by hand over the table, and over a planted one; the words."""

import csv
import dataclasses
import json
import math
from decimal import Decimal
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import uncone
from tests.matrices import gaussian
from uncone.diagnosis.known import known
from uncone.diagnosis.known.known import (
    EFFECTIVE_RANK_SHARE,
    LARGEST_OVER_MEAN,
    ONE_SIGN,
    SMALLEST_OVER_MEAN,
    KnownReading,
    kind_of,
    place,
    place_value,
)
from uncone.diagnosis.known.record import Placed
from uncone.errors import InputError, UndefinedMeasure
from uncone.records.blocks import Document
from uncone.records.parts import Measurement
from uncone.records.rebuild import build_record
from uncone.report.markdown import markdown_of

from ..planted import healthy, write_model

SHAPE = (1000, 64)
UNTIED = "of 16 to 221 M parameters"


def _table() -> list[dict[str, str]]:
    text = resources.files("uncone.diagnosis.known").joinpath("known_readings.csv").read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


def _reading(value: float, kind: str = "untied head", **changed: object) -> KnownReading:
    fields = {"centered": False, "measure": "mean_shift", "diverged": False, "source": "a", "parameters": 10**6}
    fields |= {"model": "m", "low": value - 0.05, "high": value + 0.05}
    return KnownReading(kind=kind, **(fields | changed))


class TestCounts:
    @given(
        st.sampled_from(["mean_shift", ONE_SIGN, LARGEST_OVER_MEAN, SMALLEST_OVER_MEAN]),
        st.sampled_from(["untied head", "untied input table", "tied table"]),
        st.integers(0, 12_000),
    )
    def test_are_those_of_the_table(self, measure: str, kind: str, places: int) -> None:
        value, below, equal, above, diverged = Decimal(places) / 10_000, 0, 0, 0, 0
        value = value + 1 if measure == LARGEST_OVER_MEAN else min(value, Decimal(1))
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
        # two that are ours have six digits; eight of Bis et al. have no lengths
        tied = 32 + 2 + 8 * (measure in ("mean_shift", ONE_SIGN))
        assert (found.total, diverged) == ((tied, 3) if kind == "tied table" else (30, 5))

    @pytest.mark.parametrize(("value", "equal"), [(0.0, 15), (0.0005, 15), (0.00051, 0)])
    def test_0_000_is_anything_below_half_a_thousandth(self, value: float, equal: int) -> None:
        zero = ("0.000", "untied head", "no")
        assert sum((line["value"], line["kind"], line["diverged"]) == zero for line in _table()) == 15
        found = place_value(ONE_SIGN, value, "untied head", shape=SHAPE)
        assert (found.equal, found.below) == (equal, 15 - equal)

    def test_another_kind_another_measure_and_centred_rows_are_not_mixed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        kinds = [_reading(0.1, kind) for kind in ("untied input table", "tied table")]
        changes = ({"measure": "isoscore"}, {"centered": True}, {"diverged": True})
        others = [_reading(0.1, **changed) for changed in changes]
        readings = (*kinds, *others, _reading(0.3), _reading(0.9, source="b"))
        monkeypatch.setattr(known, "known_readings", lambda: readings)
        found = place_value("mean_shift", 0.5, "untied head", shape=SHAPE)
        assert (found.below, found.equal, found.above, found.left_out, found.sources) == (1, 0, 1, 1, ("a", "b"))
        centred = place_value("mean_shift", 0.5, "untied head", shape=SHAPE, centered=True)
        assert (centred.below, centred.total, centred.how) == (1, 1, "with the mean row removed")

    def test_a_headless_table_is_compared_with_tied_ones_and_not_back(self, monkeypatch: pytest.MonkeyPatch) -> None:
        readings = (_reading(0.1, "table without a head"), _reading(0.1, "tied table"), _reading(0.1))
        monkeypatch.setattr(known, "known_readings", lambda: readings)
        for kind, below in (("table without a head", 2), ("tied table", 1)):
            assert place_value("mean_shift", 0.5, kind, shape=SHAPE).below == below

    def test_between_two_numbers_what_lies_outside_both_is_told_apart(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(known, "known_readings", lambda: tuple(map(_reading, (0.1, 0.3, 0.5, 0.7, 0.9))))
        found = place_value("mean_shift", (0.34, 0.6), "untied head", shape=SHAPE)
        assert (found.below, found.equal, found.above) == (1, 2, 2)

    def test_collections_stand_among_those_of_encoders_and_words_and_the_nearest_are_named(self) -> None:
        found = place_value("mean_shift", 0.5, "collection", shape=SHAPE)
        values = sorted(
            float(line["value"]) for line in _table() if (line["measure"], line["kind"]) == ("mean_shift", "collection")
        )
        assert (found.total, found.below) == (5, sum(value < 0.5 for value in values))
        below, above = max(v for v in values if v < 0.5), min(v for v in values if v > 0.5)
        named = (
            f"all-MiniLM-L6-v2, SciFact queries: {below:.3f} and multilingual-e5-small, SciFact abstracts: {above:.3f}"
        )
        assert found.sentence == f"higher than 3 of 5 known row collections (the nearest are {named})"

    def test_the_share_of_untrained_tokens_stands_among_language_models(self) -> None:
        """Whatever matrix it was read from; not of an encoder's table."""
        of = [float(line["value"]) for line in _table() if line["kind"] == "language model"]
        found = place_value("under_trained_share", 0.002, "language model", shape=SHAPE)
        assert (found.below, found.total) == (sum(value < 0.002 for value in of), len(of)) == (found.below, 86)
        assert (
            "known language models whose tokens were verified by prompts (known shares are lower bounds"
            in found.sentence
        )
        assert place_value("under_trained_share", 0.5, "tied table", shape=SHAPE).total == 0

    def test_a_matrix_of_a_language_model_has_its_share_placed(self, tmp_path: Path) -> None:
        from ..planted_tokens import plant

        planted = plant(n=2000)
        model = write_model(tmp_path / "m", planted.table, tokens=planted.labels)
        placed = {s.name: {one.measure: one for one in s.placed} for s in uncone.diagnose(model).subjects}
        assert placed["head"]["under_trained_share"].ends == (40 / 1990, 40 / 1990)
        assert "under_trained_share" not in placed["input"], "the head is asked"

    def test_a_head_has_its_spectrum_and_its_order_along_the_mean_placed(self, tmp_path: Path) -> None:
        """By numpy and scipy, of the rows as stored. Of input tables neither is known."""
        from scipy.stats import spearmanr

        counts = np.random.default_rng(0).permutation(np.arange(1, 1001))
        head = gaussian(1000, 16) + 1.5 - torch.from_numpy(np.log(counts)).float()[:, None] / 8
        np.save(tmp_path / "counts.npy", counts)
        tokens = [f"token{i}" for i in range(1000)]
        model = write_model(tmp_path / "m", healthy(1, v=1000, d=16), head.float(), tokens=tokens)
        subjects = uncone.diagnose(model, counts=tmp_path / "counts.npy").subjects
        table, read = ({one.measure: one for one in subject.placed} for subject in subjects)
        singular = np.linalg.svd(head.double().numpy(), compute_uv=False)
        ends = read["smallest_over_largest_singular_value"].ends
        assert ends == pytest.approx([singular[-1] / singular[0]] * 2, rel=1e-6)
        along = spearmanr(counts, (head @ head.mean(0)).double().numpy()).statistic
        assert along < -0.3
        assert read["rank_correlation_along_mean"].ends == pytest.approx([along] * 2, abs=1e-5)
        assert read["rank_correlation_along_mean"].total == 30
        assert not {"smallest_over_largest_singular_value", "rank_correlation_along_mean"} & table.keys()

    def test_an_ordinary_tied_table_is_called_ordinary(self) -> None:
        """SmolLM2 has a mean shift of 0.680: between the tied runs of GPT-like models and the tables of BERT."""
        found = place_value("mean_shift", 0.68, "tied table", shape=SHAPE, itself="SmolLM2-135M-Instruct")
        assert 0.1 < found.below / found.total < 0.9


class TestRefusals:
    @pytest.mark.parametrize(
        ("measure", "kind", "told"),
        [
            ("mean_shft", "untied head", "a measure of the known readings, got 'mean_shft': did you mean 'mean_shift'"),
            ("hubness", "untied head", f"got 'hubness': give one of .*'{EFFECTIVE_RANK_SHARE}'"),
            ("mean_shift", "untied heads", "a kind of the known readings, .* did you mean 'untied head'"),
            ("mean_shift", "foo", "got 'foo': give one of .*'table without a head'"),
        ],
    )
    def test_of_names(self, measure: str, kind: str, told: str) -> None:
        with pytest.raises(InputError, match=told):
            known._checked(measure, 0.5, kind)  # beartype would refuse the kind first

    @pytest.mark.parametrize(
        ("measure", "value", "span"),
        [
            ("mean_shift", 2.0, "from 0 to 1"),
            ("mean_shift", -0.01, "from 0 to 1"),
            ("mean_shift", math.nan, "from 0 to 1"),
            ("mean_shift", (0.2, math.nan), "from 0 to 1"),
            ("mean_shift", (0.4, 0.2), "lowest, highest"),
            ("mean_cosine", -1.01, "from -1 to 1"),
            (LARGEST_OVER_MEAN, 0.99, "from 1 up"),
            (LARGEST_OVER_MEAN, math.inf, "from 1 up"),
        ],
    )
    def test_of_values(self, measure: str, value: float | tuple[float, float], span: str) -> None:
        with pytest.raises(InputError, match=rf"expected {measure} .*{span}.*, got .*give the value"):
            place_value(measure, value, "untied head", shape=SHAPE)

    def test_the_ends_are_taken_and_every_measure_of_the_table_has_some(self) -> None:
        assert place_value("mean_cosine", (-1.0, 1.0), "untied head", shape=SHAPE).total == 0
        for measure in {line["measure"] for line in _table()}:
            assert place_value(measure, 1.0, "untied head", shape=SHAPE).measure == measure

    def test_both_signs_are_sent_to_the_published_readings(self) -> None:
        kinds = ("untied head", "tied table")
        found, tied = (place_value("partition_isotropy", 0.5, kind, shape=SHAPE) for kind in kinds)
        assert found.sentence.endswith(f" heads (published readings use one sign: place {ONE_SIGN})")
        assert tied.note == ""


class TestItself:
    """A matrix is not compared with its own readings in the table."""

    def _placed(self, monkeypatch: pytest.MonkeyPatch, moved: dict[str, float], source: str = "uncone") -> Placed:
        subject = uncone.diagnose(torch.randn(60, 4, generator=torch.Generator().manual_seed(1)) + 0.5).subjects[0]
        names = ("mean_cosine", "mean_shift", "partition_isotropy")
        values = {name: float(subject.measurement(name)) for name in names}
        values[EFFECTIVE_RANK_SHARE] = float(subject.measurement("effective_rank")) / 4
        readings = [_reading(0.9, "collection", source="b", model="other")]
        for name, value in (values | moved).items():
            changed = {"measure": name, "low": value - 5e-7, "high": value + 5e-7, "source": source}
            readings.append(_reading(0, "collection", centered=name == EFFECTIVE_RANK_SHARE, **changed))
        monkeypatch.setattr(known, "known_readings", lambda: tuple(readings))
        (shift,) = [one for one in known.placed_among_known((subject,))[0].placed if one.measure == "mean_shift"]
        return shift

    def test_a_partition_of_too_short_rows_is_not_placed(self) -> None:
        for norm, is_placed in ((1.0, True), (0.01, False)):
            x = norm * torch.nn.functional.normalize(gaussian(500, 16), dim=1)
            placed = known.placed_among_known(uncone.diagnose(x).subjects)[0].placed
            assert any(one.measure == known.ONE_SIGN for one in placed) == is_placed

    def test_is_left_out_and_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        found = self._placed(monkeypatch, {})
        assert (found.total, found.itself) == (1, True)

    @pytest.mark.parametrize("moved", [{"partition_isotropy": 0.5}, {"mean_shift": 0.999}])
    def test_stays_where_one_reading_differs(self, monkeypatch: pytest.MonkeyPatch, moved: dict[str, float]) -> None:
        found = self._placed(monkeypatch, moved)
        assert (found.total, found.itself) == (2, False)

    def test_published_digits_are_too_few(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert not self._placed(monkeypatch, {}, source="a").itself


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
        assert place(measurement, "tied table").total == 2  # ours

    def test_effective_rank_is_compared_by_its_share(self) -> None:
        found = place(Measurement("effective_rank", 16.0, n=1000, d=64, centered=True), "tied table")
        assert found == place_value(EFFECTIVE_RANK_SHARE, 0.25, "tied table", shape=SHAPE, centered=True)
        assert (found.above, found.how) == (2, "")  # its definition removes the mean: nothing to say

    def test_the_rows_with_their_mean_removed_are_others(self) -> None:
        details = {"one_sign": 0.9, "low": 0.89, "high": 0.91}
        raw = Measurement("partition_isotropy", 0.9, n=1000, d=64, centered=False, details=details)
        removed = dataclasses.replace(raw, centered=True)
        assert place(raw, "tied table").sentence == "higher than all 42 known tied tables (3 diverged runs left out)"
        without = place(removed, "tied table")
        assert (without.above, without.total, without.equal, without.how) == (5, 10, 1, "with the mean row removed")
        none = f"no reference values of {ONE_SIGN} for untied heads with the mean row removed"
        assert place(removed, "untied head").sentence == none

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
            assert subject.placed
            assert all(one.itself and "(this matrix " in one.sentence for one in subject.placed if one.total)


class TestWords:
    @pytest.mark.parametrize(
        ("counts", "sentence"),
        [
            ((3, 0, 27), f"lower than 27 of 30 known untied heads {UNTIED}"),
            ((27, 1, 2), f"higher than 27 of 30 known untied heads {UNTIED}, tied with 1"),
            ((0, 0, 30), f"lower than all 30 known untied heads {UNTIED}"),
            ((15, 15, 0), f"higher than 15 of 30 known untied heads {UNTIED}, tied with 15"),
            ((15, 0, 15), f"lower than 15 of 30 known untied heads {UNTIED}"),
            ((0, 30, 0), f"the same as all 30 known untied heads {UNTIED} at the digits published"),
            ((0, 1, 0), f"the same as the one known untied head {UNTIED} at the digits published"),
            ((1, 0, 0), f"higher than the one known untied head {UNTIED}"),
            ((0, 0, 0), "no reference values of mean_shift for untied heads"),
        ],
    )
    def test_of_counts(self, counts: tuple[int, int, int], sentence: str) -> None:
        found = Placed("mean_shift", "untied head", "", *counts, smallest=16 * 10**6, largest=221 * 10**6)
        assert found.sentence == str(found) == sentence

    def test_of_one_and_of_several_matrices_of_two_kinds(self) -> None:
        whom = place_value("mean_shift", 0.5, "table without a head", shape=SHAPE).whom
        assert Placed("m", whom, below=1).sentence == "higher than the one known tied table or table without a head"
        assert Placed("m", whom, below=2).sentence == "higher than all 2 known tied tables and tables without a head"
        older = Placed("m", "tied or headless table", below=2)
        assert older.sentence == "higher than all 2 known tied or headless tables"

    def test_of_what_is_left_out(self) -> None:
        found = Placed("m", "untied head", below=2, itself=True, left_out=3)
        assert found.sentence.endswith(" heads (this matrix and 3 diverged runs left out)")

    def test_what_all_leave_out_stands_once_below_them(self) -> None:
        one, other = (
            Placed(name, "untied head", below=6, itself=True, left_out=3, ends=(0.5, 0.5)) for name in ("m", "n")
        )
        alone = Placed("o", "untied head", below=6, ends=(0.5, 0.5))
        (subject,) = uncone.diagnose(torch.randn(50, 4)).subjects
        text = markdown_of(Document("", "", dataclasses.replace(subject, placed=(one, other, alone)).blocks()))
        assert (
            text.count("diverged runs")
            == text.count("Not compared with, where known: this matrix and 3 diverged runs.")
            == 1
        )
        apart = dataclasses.replace(other, left_out=2)
        text = markdown_of(Document("", "", dataclasses.replace(subject, placed=(one, apart)).blocks()))
        assert text.count(" left out)") == 2

    def test_what_one_sign_is_stands_once_where_it_is_placed(self) -> None:
        assert "one sign of each eigenvector" in Placed(ONE_SIGN, "tied table").about
        assert Placed("mean_shift", "tied table").about == ""

    def test_of_doubts(self) -> None:
        found = Placed("m", "untied head", "", 1, 0, 2, left_out=1, note="this model is larger than any of them")
        assert found.sentence.endswith(" heads (1 diverged run left out; this model is larger than any of them)")

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
    def test_a_model_of_another_size_is_said(self, parameters: int | None, shape: tuple[int, int], note: str) -> None:
        assert place_value("mean_shift", 0.5, "untied head", shape=shape, parameters=parameters).note == note


def test_a_record_can_keep_it() -> None:
    found = place_value("mean_shift", 0.5, "untied head", shape=SHAPE)
    assert build_record(Placed, json.loads(json.dumps(dataclasses.asdict(found))), "place") == found


def test_the_table_is_small_and_whole() -> None:
    lines = _table()
    assert resources.files("uncone.diagnosis.known").joinpath("known_readings.csv").stat().st_size <= 100_000
    assert len(known.known_readings()) == len(lines)
    assert all(line["value"] or line["diverged"] == "yes" for line in lines)
    assert len({tuple(line[name] for name in ("model", "kind", "rows", "measure")) for line in lines}) == len(lines)
    assert len({line["model"] for line in lines}) == 35 + 35 + 8 + 86 + 3 + 5
