"""Comparison of diagnoses: differences and intervals by hand, laws that hold for any numbers, and planted faults."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import uncone
from tests.report.records_example import make_diagnosis, make_subject
from uncone.comparison.changes import MEANINGFUL, REFERENCE_SHARE, ROUNDING, SCALE_APART
from uncone.errors import InputError
from uncone.records import (
    ComparedMeasure,
    Comparison,
    Diagnosis,
    Estimate,
    Finding,
    FrequencyGroup,
    FrequencyGroups,
    Measurement,
    Norms,
    Subject,
    UnderTrained,
)

from ..planted import FAULTS, drifted, healthy, low_rank, rogue, write_model

Interval = tuple[float, float] | None


def _subject(
    *measurements: Measurement, name: str = "rows", norm: float = 1.0, n: int = 100, d: int = 8
) -> Subject:
    norms = Norms(norm, norm, norm, (norm, norm + 1), (n,))
    return Subject(name, f"file#{name}", n, d, "float32", measurements, (), None, None, norms, None)


def _reading(value: float | None, name: str = "mean_cosine", **given: object) -> Measurement:
    standing = {
        "range": (-1.0, 1.0),
        "better": "lower",
        "reference": 0.0,
        "n": 100,
        "d": 8,
        "centered": False,
    }
    return Measurement(name, value, **(standing | given))  # type: ignore[arg-type]


def _diagnosis(*subjects: Subject, name: str = "model", **given: object) -> Diagnosis:
    return Diagnosis(name, "A verdict.", subjects, **given)  # type: ignore[arg-type]


def _compared(*readings: Measurement) -> ComparedMeasure:
    found = uncone.compare([_diagnosis(_subject(reading, n=reading.n, d=reading.d)) for reading in readings])
    return found.subjects[0].measures[0]


def test_differences_by_hand() -> None:
    compared = _compared(_reading(0.1), _reading(0.4), _reading(0.05))
    assert compared.values == (0.1, 0.4, 0.05)
    assert compared.distances == (0.1, 0.4, 0.05)
    assert compared.changes[0] is None
    worse, better = compared.changes[1:]
    assert worse is not None
    assert better is not None
    assert (worse.difference, worse.direction, worse.interval) == (pytest.approx(0.3), "worse", None)
    assert (better.difference, better.direction) == (pytest.approx(-0.05), "better")


@pytest.mark.parametrize(
    ("better", "after", "direction"),
    [("higher", 0.5, "better"), ("higher", 0.1, "worse"), ("lower", 0.5, "worse"), ("lower", 0.1, "better"),
     ("neither", 0.5, "neither"), ("neither", 0.2, "equal"), ("higher", 0.2, "equal"), ("lower", 0.2 + 1e-9, "equal")],
)  # fmt: skip
def test_directions(better: str, after: float, direction: str) -> None:
    change = _compared(_reading(0.2, better=better), _reading(after, better=better)).changes[1]
    assert change is not None
    assert change.direction == direction


def test_even_intervals_add_as_squares() -> None:
    """Half widths 0.03 and 0.04 give 0.05."""
    change = _compared(_reading(0.1, interval=(0.07, 0.13)), _reading(0.4, interval=(0.36, 0.44))).changes[1]
    assert change is not None
    assert change.interval == (pytest.approx(0.25), pytest.approx(0.35))


def test_uneven_intervals_take_the_half_width_of_their_side() -> None:
    """Zou & Donner 2008: below, b's lower and a's upper half width; above, b's upper and a's lower."""
    change = _compared(_reading(0.2, interval=(0.12, 0.23)), _reading(0.5, interval=(0.46, 0.65))).changes[1]
    assert change is not None
    assert change.interval is not None
    assert change.interval == (
        pytest.approx(0.3 - math.sqrt(0.04**2 + 0.03**2)),
        pytest.approx(0.3 + math.sqrt(0.15**2 + 0.08**2)),
    )


def test_an_interval_that_holds_zero_is_unclear() -> None:
    change = _compared(_reading(0.20, interval=(0.1, 0.3)), _reading(0.25, interval=(0.15, 0.35))).changes[1]
    assert change is not None
    assert change.direction == "unclear"


@pytest.mark.parametrize(("first", "second"), [(None, (0.3, 0.5)), ((0.05, 0.15), None), (None, None)])
def test_no_interval_is_made_up(first: Interval, second: Interval) -> None:
    change = _compared(_reading(0.1, interval=first), _reading(0.4, interval=second)).changes[1]
    assert change is not None
    assert change.interval is None
    assert change.direction == "worse"


def test_a_reading_outside_its_own_interval_gives_none_and_a_caution() -> None:
    compared = _compared(_reading(0.1, interval=(0.2, 0.3)), _reading(0.4, interval=(0.3, 0.5)))
    change = compared.changes[1]
    assert change is not None
    assert change.interval is None
    assert "the reading of A is outside its own interval" in compared.cautions[1][0]


def test_the_interval_of_independent_normal_readings_covers_their_difference() -> None:
    """Of 4,000 pairs with 95% intervals, the interval of the difference holds the true one in about 95%."""
    draw = np.random.default_rng(0)
    a, b = 1.0 + 0.3 * draw.normal(size=4000), 2.0 + 0.7 * draw.normal(size=4000)
    covered = 0
    for x, y in zip(a.tolist(), b.tolist(), strict=True):
        from uncone.comparison.changes import _interval

        found, _ = _interval(
            _reading(x, interval=(x - 1.96 * 0.3, x + 1.96 * 0.3)),
            _reading(y, interval=(y - 1.96 * 0.7, y + 1.96 * 0.7)),
            ("A", "B"),
        )
        assert found is not None
        covered += found[0] <= 1.0 <= found[1]
    assert 0.935 <= covered / 4000 <= 0.965


finite = st.floats(-1e6, 1e6, allow_nan=False)


@given(finite, finite, st.sampled_from(("higher", "lower", "neither")), st.floats(0, 10), st.floats(0, 10))
def test_swapping_the_sides_turns_every_sign(
    a: float, b: float, better: str, wide: float, narrow: float
) -> None:
    one = _reading(a, better=better, range=(None, None), interval=(a - wide, a + narrow))
    other = _reading(b, better=better, range=(None, None), interval=(b - narrow, b + wide))
    there, back = _compared(one, other).changes[1], _compared(other, one).changes[1]
    assert there is not None
    assert back is not None
    assert there.difference == -back.difference
    assert {there.direction, back.direction} in ({"better", "worse"}, {"equal"}, {"unclear"}, {"neither"})
    if there.interval is not None:
        assert back.interval == (pytest.approx(-there.interval[1]), pytest.approx(-there.interval[0]))


extreme = st.floats(allow_nan=False, allow_infinity=False)


@given(
    st.lists(st.none() | extreme, min_size=2, max_size=6), st.none() | extreme, st.tuples(extreme, extreme)
)
def test_any_finite_numbers_give_a_record_that_can_be_saved(
    values: list[float | None], reference: float | None, interval: tuple[float, float]
) -> None:
    readings = [
        _reading(value, reference=reference, interval=interval, reason="none", range=(None, 1.0))
        for value in values
    ]
    found = uncone.compare([_diagnosis(_subject(reading)) for reading in readings])
    assert Comparison.from_json(found.to_json()) == found


def test_a_diagnosis_against_itself_has_no_difference() -> None:
    found = uncone.compare([make_diagnosis()] * 6)
    for subject in found.subjects:
        for measure in (*subject.measures, *subject.without_effect):
            assert {None if change is None else change.difference for change in measure.changes} <= {
                None,
                0.0,
            }
            assert {None if change is None else change.direction for change in measure.changes} <= {
                None,
                "equal",
            }
            assert not any(measure.cautions)
    assert "differs little" in found.verdict
    assert [d.name for d in found.diagnoses] == [
        "example-model",
        *(f"example-model ({k})" for k in range(2, 7)),
    ]
    assert found.notes == ()


def test_what_is_undefined_or_not_taken_is_not_subtracted() -> None:
    undefined = _reading(None, reason="rows that are all equal")
    assert _compared(_reading(0.1), undefined).changes == (None, None)
    assert _compared(undefined, _reading(0.1)).changes == (None, None)
    assert _compared(undefined, undefined).distances == (None, None)
    bare = Measurement("mean_cosine", None, "rows that are all equal")
    assert _compared(bare, _reading(0.1)).better == "lower"
    found = uncone.compare(
        [_diagnosis(_subject(_reading(0.1))), _diagnosis(_subject(_reading(0.1), _reading(0.5, "isoscore")))]
    )
    isoscore = found.subjects[0].measures[1]
    assert isoscore.values == (None, 0.5)
    assert isoscore.changes == (None, None)


def test_subjects_are_matched_by_name_and_the_others_said() -> None:
    head = replace(make_subject("head"), without_effect=())
    found = uncone.compare([_diagnosis(make_subject("input")), _diagnosis(head, make_subject("input"))])
    assert [subject.name for subject in found.subjects] == ["input", "head"]
    assert found.subjects[1].sides[0] is None
    assert found.subjects[1].notes == ("only in B; A has none",)
    assert all(measure.changes == (None, None) for measure in found.subjects[1].measures)


def test_single_subjects_of_other_names_are_compared_and_said() -> None:
    found = uncone.compare(
        [_diagnosis(_subject(_reading(0.1), name="input")), _diagnosis(_subject(_reading(0.3)))]
    )
    (subject,) = found.subjects
    assert subject.notes == (
        "named 'input' in A, 'rows' in B: compared, since each diagnosis has one subject",
    )
    assert subject.measures[0].changes[1] is not None


def test_a_head_is_compared_with_heads_only() -> None:
    found = uncone.compare(
        [_diagnosis(_subject(_reading(0.1), name="head")), _diagnosis(_subject(_reading(0.3)))]
    )
    assert [subject.name for subject in found.subjects] == ["head", "rows"]
    assert found.verdict == "model and model (2) have no subject in common, so nothing could be compared."
    assert "no subject is in all diagnoses" in found.notes[0]


def test_readings_of_other_rows_are_not_subtracted() -> None:
    compared = _compared(_reading(0.1), _reading(0.2, centered=True))
    assert compared.changes == (None, None)
    assert compared.cautions[1] == (
        "read from other rows: rows as stored in A, the mean row subtracted in B",
    )


def test_another_definition_is_a_caution() -> None:
    compared = _compared(_reading(0.1, definition="z = 0.2"), _reading(0.2, definition="z = 0.3"))
    assert compared.cautions[1] == ("defined otherwise in A and B: compare the definitions",)
    scale = "I(W); not scale-free: read at mean norm {}"
    assert not _compared(
        _reading(0.1, definition=scale.format(1)), _reading(0.2, definition=scale.format(2))
    ).cautions[1]


def test_the_finite_sample_bias_of_isoscore_is_a_caution_where_it_explains_the_difference() -> None:
    """The same isotropic rows, 100,000 and 100 of them: the reference falls as the value does."""
    many = _reading(0.999, "isoscore", better="higher", range=(0.0, 1.0), reference=0.9999, n=100_000)
    few = _reading(0.92, "isoscore", better="higher", range=(0.0, 1.0), reference=0.917)
    compared = _compared(many, few)
    assert compared.cautions[1] == (
        "its finite-sample bias depends on the number of rows and columns (100,000 x 8 in A, 100 x 8 in B): compare the distances",
    )
    found = uncone.compare([_diagnosis(_subject(many, n=100_000)), _diagnosis(_subject(few))])
    assert "differs little" in found.verdict
    assert found.subjects[0].notes[0].startswith("different sizes (A 100,000 x 8, B 100 x 8)")
    share = (0.9999 - 0.917) / (1 - 0.1)
    assert share < REFERENCE_SHARE
    assert not _compared(many, replace(few, value=0.1)).cautions[1]


def test_the_scale_of_rows_is_a_caution_for_the_partition_function() -> None:
    readings = [
        _reading(value, "partition_isotropy", better="higher", range=(0.0, 1.0)) for value in (0.9, 0.3)
    ]
    found = uncone.compare(
        [_diagnosis(_subject(r, norm=norm)) for r, norm in zip(readings, (1.0, 2.5), strict=True)]
    )
    assert found.subjects[0].measures[0].cautions[1] == (
        "it depends on the scale of the rows (mean norm 1 in A, 2.50 in B)",
    )
    near = 1 + 0.9 * SCALE_APART
    same = uncone.compare(
        [_diagnosis(_subject(r, norm=norm)) for r, norm in zip(readings, (1.0, near), strict=True)]
    )
    assert not same.subjects[0].measures[0].cautions[1]
    assert "worse than model in partition isotropy (0.300 instead of 0.900)" in same.verdict


def test_verdict_names_the_largest_changes_both_ways() -> None:
    def side(cosine: float, isoscore: float, rank: float) -> Diagnosis:
        return _diagnosis(_subject(
            _reading(cosine), _reading(isoscore, "isoscore", better="higher", range=(0.0, 1.0)),
            _reading(isoscore - 0.01, "isoscore_star", better="higher", range=(0.0, 1.0)),
            _reading(rank, "effective_rank", better="higher", range=(1.0, 8.0)),
        ))  # fmt: skip

    found = uncone.compare([side(0.1, 0.9, 7.0), side(0.7, 0.5, 7.5)], names=["before", "after"])
    assert found.verdict == (
        "after is worse than before in isoscore (0.500 instead of 0.900) and mean cosine (0.700 instead of 0.100), "
        "but better in effective rank (7.50 instead of 7)."
    ).replace("isoscore (", "IsoScore (", 1)
    little = uncone.compare([side(0.1, 0.9, 7.0), side(0.1 + MEANINGFUL, 0.9, 7.0)])
    assert little.verdict == "model (2) differs little from model."
    three = uncone.compare(
        [side(0.1, 0.9, 7.0), side(0.1, 0.9, 7.0), side(0.6, 0.9, 7.0)], names=["a", "b", "c"]
    )
    assert three.verdict == "Against a: b differs little; c is worse in mean cosine (0.600 instead of 0.100)."


def test_verdict_tells_findings_that_came_and_went() -> None:
    found = uncone.compare([
        _diagnosis(replace(_subject(_reading(0.1)), findings=(Finding("rogue_dimensions", "warning", "s"),))),
        _diagnosis(replace(_subject(_reading(0.1)), findings=(Finding("degenerate_tail", "severe", "s"),))),
    ])  # fmt: skip
    assert found.verdict == (
        "model (2) differs little from model, with rogue dimensions gone and degenerate tail new (severe)."
    )
    worse = [
        replace(_subject(_reading(0.1)), findings=(Finding("drift", level, "s"),))
        for level in ("warning", "severe")
    ]
    assert uncone.compare([_diagnosis(side) for side in worse]).verdict.endswith(
        "differs little from model, with drift now severe."
    )
    assert [finding.levels for finding in found.subjects[0].findings] == [("warning", None), (None, "severe")]


def test_versions_that_differ_are_said() -> None:
    one = _diagnosis(_subject(_reading(0.1)), versions={"uncone": "0.1.0", "torch": "2.13.0"})
    other = _diagnosis(_subject(_reading(0.1)), versions={"uncone": "0.2.0", "torch": "2.13.0"})
    assert uncone.compare([one, other]).notes == (
        "made with different versions of uncone: 0.1.0 (A), 0.2.0 (B)",
    )
    assert uncone.compare([one, replace(one, schema="uncone.diagnosis/2")]).notes == (
        "written with different schemas: uncone.diagnosis/1 (A), uncone.diagnosis/2 (B)",
    )


@pytest.mark.parametrize("count", [0, 1, 7])
def test_two_to_six(count: int) -> None:
    with pytest.raises(
        InputError, match=f"expected 2 to 6 diagnoses to compare, got {count}: give the baseline first"
    ):
        uncone.compare([make_diagnosis()] * count)


@pytest.mark.parametrize("names", [["a"], ["a", "a"], ["a", " "], ["a", "b", "c"]])
def test_names_must_fit(names: list[str]) -> None:
    with pytest.raises(InputError, match="expected 2 different names, one for each diagnosis, got 'a'"):
        uncone.compare([make_diagnosis()] * 2, names=names)


def test_what_is_there_twice_is_refused() -> None:
    twice = _diagnosis(_subject(_reading(0.1), _reading(0.2)))
    with pytest.raises(
        InputError, match="expected measures of 'rows' in 'model' of different names, got 'mean_cosine' twice"
    ):
        uncone.compare([twice, twice])
    with pytest.raises(InputError, match="expected subjects of 'model' of different names, got 'rows' twice"):
        uncone.compare([_diagnosis(_subject(), _subject())] * 2)


def test_the_record_round_trips_without_pictures(tmp_path: object) -> None:
    found = uncone.compare([make_diagnosis(), make_diagnosis()])
    assert all(side is None or side.picture is None for subject in found.subjects for side in subject.sides)
    again = Comparison.from_json(found.to_json())
    assert again.to_json() == found.to_json()
    assert again.verdict == found.verdict
    with pytest.raises(
        InputError, match=r"expected a comparison of schema 'uncone.comparison/1', got 'uncone.diagnosis/1'"
    ):
        Comparison.from_json(make_diagnosis().to_json())


def test_records_whose_parts_do_not_fit_are_refused() -> None:
    found = uncone.compare([make_diagnosis(), make_diagnosis()])
    with pytest.raises(InputError, match="expected 2 to 6 diagnoses to compare, got 1"):
        replace(found, diagnoses=found.diagnoses[:1])
    with pytest.raises(InputError, match="expected 3 sides of each subject"):
        replace(found, diagnoses=(*found.diagnoses, found.diagnoses[0]))
    subject = found.subjects[0]
    with pytest.raises(InputError, match="expected 1 values of each measure of 'input'"):
        replace(subject, sides=subject.sides[:1])
    with pytest.raises(InputError, match="expected a side of 'input' in one diagnosis at least, got none"):
        replace(subject, sides=(None, None))
    with pytest.raises(InputError, match="expected as many changes and cautions as values of 'mean_cosine'"):
        replace(subject.measures[0], changes=(None,))


@pytest.fixture(scope="module")
def twin() -> Diagnosis:
    return uncone.diagnose(healthy())


def _with_tokens(cosine: Estimate, found: int | None) -> Diagnosis:
    nothing = Estimate(None)
    group = FrequencyGroup("rare", 10, None, cosine, Estimate(1.0, (0.9, 1.1)), nothing, nothing)
    groups = FrequencyGroups("id", "the last 20%", 0.95, (group,), ())
    looks = UnderTrained(found, "" if found is not None else "no head", rate=0.01, tested=40)
    return _diagnosis(replace(_subject(_reading(0.1)), frequency_groups=groups, under_trained=looks))


def test_readings_of_tokens_by_hand() -> None:
    """The group's intervals go into that of the difference; the share is of the rows tested."""
    one, other = _with_tokens(Estimate(0.2, (0.12, 0.23)), 4), _with_tokens(Estimate(0.5, (0.46, 0.65)), 30)
    found = uncone.compare([one, other], names=["before", "after"])
    by_name = {measure.name: measure for measure in found.subjects[0].tokens}
    cosine, share = by_name["rare.mean_cosine"].changes[1], by_name["under_trained_share"].changes[1]
    assert cosine is not None
    assert share is not None
    assert cosine.interval == (pytest.approx(0.25), pytest.approx(0.3 + math.hypot(0.15, 0.08)))
    assert (cosine.direction, cosine.size, cosine.meaningful) == ("worse", pytest.approx(0.15), True)
    assert (share.difference, share.direction, share.interval) == (pytest.approx(0.65), "worse", None)
    assert by_name["rare.cosine_to_reserved"].values == (None, None)
    assert found.verdict == (
        "after is worse than before in share that looks untrained (0.750 instead of 0.100) "
        "and mean cosine of rare rows (0.500 instead of 0.200)."
    )
    assert uncone.compare([one, _with_tokens(Estimate(0.2), None)]).subjects[0].tokens[-1].changes == (
        None,
        None,
    )
    assert (
        uncone.check(other, maxima={"rare.mean_cosine": 0.5, "rows.under_trained_share": 0.5}).bars[1].value
        == 0.75
    )


@pytest.mark.slow
def test_readings_of_groups_are_compared_with_their_intervals(tmp_path: Path) -> None:
    """The intervals of a diagnosis' own groups: those of the difference are wider than either, and hold the difference."""
    tables = {"healthy": healthy(0, 3000, 32), "faulty": healthy(0, 3000, 32), "twin": healthy(3, 3000, 32)}
    tables["faulty"][-600:] += 0.6 * tables["faulty"][0]
    diagnoses = {
        name: uncone.diagnose(str(write_model(tmp_path / name, table))) for name, table in tables.items()
    }
    found = uncone.compare([diagnoses["healthy"], diagnoses["faulty"]]).subjects[0]
    rare = next(measure for measure in found.tokens if measure.name == "rare.mean_cosine")
    change, readings = rare.changes[1], found.readings("rare.mean_cosine", part="tokens")
    assert change is not None
    assert change.interval is not None
    assert change.direction == "worse"
    assert change.interval[0] < change.difference < change.interval[1]
    widths = [r.interval[1] - r.interval[0] for r in readings if r is not None and r.interval is not None]
    assert change.interval[1] - change.interval[0] >= max(widths)
    assert (
        uncone.check(diagnoses["faulty"], maxima={"input.rare.mean_cosine": 0.9}).bars[0].value
        == rare.values[1]
    )
    same = uncone.compare([diagnoses["healthy"], diagnoses["twin"]]).subjects[0]
    ways = [m.changes[1].direction for m in same.tokens if m.better == "lower" and m.changes[1] is not None]
    assert ways.count("unclear") >= len(ways) - 1, "healthy twins differ within their intervals"


# Planted faults: what must be worse against the healthy twin, and what no fault of that kind can touch.
WORSE = {
    "common_direction_drift": ("mean_cosine", "mean_shift", "stable_rank", "anisotropy_1_raw", "uniformity"),
    "rogue_dimensions": (
        "isoscore",
        "participation_ratio",
        "dominant_dimension",
        "anisotropy_1",
        "effective_rank",
    ),
    "low_effective_rank": ("isoscore", "effective_rank", "singular_entropy", "condition_number"),
    "degenerate_tail": ("mean_cosine",),
}
UNTOUCHED = {
    "common_direction_drift": ("isoscore", "effective_rank", "stable_rank_centered", "dominant_dimension"),
    "norm_id_coupling": ("mean_cosine",),
}


@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_a_planted_fault_is_worse_on_the_right_measures(twin: Diagnosis, fault: str) -> None:
    found = uncone.compare([twin, uncone.diagnose(FAULTS[fault]())], names=["healthy", "faulty"])
    measures = {measure.name: measure.changes[1] for measure in found.subjects[0].measures}
    for name in WORSE.get(fault, ()):
        change = measures[name]
        assert change is not None, name
        assert change.direction == "worse", name
    for name in UNTOUCHED.get(fault, ()):
        change = measures[name]
        assert change is not None, name
        assert change.direction == "equal" or abs(change.difference) < 1e-3, name
    assert f"{fault.replace('_', ' ')} new (" in found.verdict


def test_healthy_tables_drawn_anew_differ_little(twin: Diagnosis) -> None:
    others = [uncone.diagnose(healthy(seed)) for seed in (1, 2)]
    found = uncone.compare([twin, *others], names=["a", "b", "c"])
    assert found.verdict == "Against a: b differs little; c differs little."


def test_the_worst_of_several_is_named_against_the_first(twin: Diagnosis) -> None:
    found = uncone.compare(
        [twin, *(uncone.diagnose(fault()) for fault in (drifted, rogue, low_rank))], names=list("abcd")
    )
    b, c, d = found.verdict.removeprefix("Against a: ").split("; ")
    assert "mean cosine (0.5" in b
    assert b.endswith(", with common direction drift new (severe)")
    assert c.startswith("c is worse in IsoScore")
    assert d.startswith("d is worse in")
    assert ROUNDING < 1e-5


def test_comparing_saved_records_loads_no_tensors() -> None:
    import subprocess
    import sys

    code = "import sys, uncone; uncone.compare, uncone.check; assert not {'torch', 'numpy', 'rich'} & set(sys.modules), 1"
    subprocess.run([sys.executable, "-c", code], check=True)
