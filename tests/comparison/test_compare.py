"""Comparison of diagnoses: differences and intervals by hand, laws that hold for any numbers, and planted faults."""

import math
import re
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import uncone
from tests.report.records_example import make_diagnosis, make_subject
from uncone.comparison.changes import MEANINGFUL, REFERENCE_SHARE, ROUNDING, SCALE_APART, _interval
from uncone.comparison.record import ComparedMeasure, Comparison
from uncone.diagnosis.record import Diagnosis, Subject
from uncone.errors import InputError
from uncone.records.blocks import Heading
from uncone.records.parts import Finding, Group, Groups, Measurement, Norms
from uncone.records.tokens import Estimate, FrequencyGroup, FrequencyGroups, UnderTrained

from ..planted import FAULTS, drifted, healthy, low_rank, rogue, write_model

refused = partial(pytest.raises, InputError)


def _subject(*measurements: Measurement, name: str = "rows", norm: float = 1.0, n: int = 100, **more: Any) -> Subject:
    d, findings = more.get("d", 8), more.get("findings", ())
    norms = Norms(norm, norm, norm, (norm, norm + 1), (n,))
    return Subject(name, f"file#{name}", n, d, "float32", measurements, findings, None, None, norms, None)


def _finding(level: str = "warning", extent: float | None = 0.3, cause: str = "drift") -> Finding:
    """A finding that rests on the mean cosine."""
    return Finding(cause, level, "s", measures=("mean_cosine",), extent=extent)  # type: ignore[arg-type]


NONE = _finding("healthy", None, "no_defect")


def _reading(value: float | None, name: str = "mean_cosine", **given: object) -> Measurement:
    standing = {"range": (-1.0, 1.0), "better": "lower", "reference": 0.0, "n": 100, "d": 8, "centered": False}
    return Measurement(name, value, **(standing | given))  # type: ignore[arg-type]


def _diagnosis(*subjects: Subject, name: str = "model", **given: object) -> Diagnosis:
    return Diagnosis(name, "A verdict.", subjects, **given)  # type: ignore[arg-type]


def _compared(*readings: Measurement) -> ComparedMeasure:
    found = uncone.compare([_diagnosis(_subject(reading, n=reading.n, d=reading.d)) for reading in readings])
    return found.subjects[0].measures[0]


def _both(*sides: Subject, **options: object) -> Comparison:
    return uncone.compare([_diagnosis(side) for side in sides], **options)


def test_differences_by_hand() -> None:
    compared = _compared(_reading(0.1), _reading(0.4), _reading(0.05))
    assert compared.values == compared.distances == (0.1, 0.4, 0.05)
    none, up, down = compared.changes
    assert none is None
    assert (up.difference, up.direction, up.interval) == (pytest.approx(0.3), "changed", None)
    assert (down.difference, down.direction) == (pytest.approx(-0.05), "changed")


@pytest.mark.parametrize("better", ["higher", "lower", "neither"])
@pytest.mark.parametrize(
    ("after", "direction"), [(0.5, "changed"), (0.1, "changed"), (0.2, "equal"), (0.2 + 1e-9, "equal")]
)
def test_a_reading_alone_is_neither_worse_nor_better(better: str, after: float, direction: str) -> None:
    assert _compared(_reading(0.2, better=better), _reading(after, better=better)).changes[1].direction == direction


BEFORE, AFTER = (_finding(extent=0.3), NONE), (NONE, _finding(extent=0.3))
"""The defect went, and came: the first of each pair is the baseline's."""


TURNED_WORSE = [(AFTER, "lower", 0.5), (AFTER, "higher", 0.1)]
TURNED_BETTER = [(BEFORE, "lower", 0.1), (BEFORE, "higher", 0.5)]
MOVED = [(AFTER, "lower", 0.1), (AFTER, "higher", 0.5), (AFTER, "neither", 0.5)]
MOVED += [(BEFORE, "lower", 0.5), (BEFORE, "higher", 0.1), (BEFORE, "neither", 0.1)]
STAYED = ((NONE, NONE), (_finding(), _finding()), (NONE, _finding("structure", None)), (NONE, _finding("note")))
MOVED += [(both, "lower", 0.5) for both in STAYED]
DIRECTIONS = {"worse": TURNED_WORSE, "better": TURNED_BETTER, "changed": MOVED, "equal": [(AFTER, "lower", 0.2)]}


@pytest.mark.parametrize(("direction", "case"), [(way, case) for way, cases in DIRECTIONS.items() for case in cases])
def test_the_evidence_of_a_defect_is_worse_where_it_came_and_better_where_it_went(
    direction: str, case: tuple[tuple[Finding, Finding], str, float]
) -> None:
    """And only where it moved with the defect."""
    found, better, after = case
    pairs = ((_reading(value, better=better), _reading(value, "isoscore", better=better)) for value in (0.2, after))
    compared = _both(*(_subject(*both, findings=(one,)) for both, one in zip(pairs, found, strict=True)))
    cosine, other = (measure.changes[1] for measure in compared.subjects[0].measures)
    assert cosine.direction == direction
    assert other.direction in ("changed", "equal"), "no defect rests on it"


def _badge(found: Comparison) -> str:
    (heading, *_) = found.blocks()
    assert isinstance(heading, Heading)
    return heading.label


def _extent(*both: float | None) -> tuple[Finding, ...]:
    return tuple(_finding(extent=extent) for extent in both)


BECAME = {"new": [(NONE, _finding()), (_finding("note", 0.2), _finding()), (_finding("note", None), _finding())]}
BECAME |= {"gone": [(_finding(), NONE), (_finding(), _finding("note", 0.2)), (_finding(), _finding("note", None))]}
BECAME |= {"grew": [(_finding(), _finding("severe")), _extent(0.3, 0.3 + 0.021), _extent(0.0, 0.02)]}
BECAME |= {"shrank": [(_finding("severe"), _finding()), _extent(0.3, 0.3 - 0.021), _extent(0.02, 0.0)]}
BECAME["shrank"].append((_finding("severe", 0.9), _finding("warning", 0.95)))  # the level decides
BECAME[""] = [
    _extent(None, 0.9),
    _extent(0.9, None),
    (_finding("structure"), _finding("structure", 0.9)),
]  # older files
BECAME[""] += [_extent(0.3, 0.3 + 0.019), _extent(0.3, 0.3 - 0.019)]
BECAME[""] += [
    (_finding("note"), _finding()),
    (_finding(), _finding("note")),
]  # the same rows, named by another finding
BECAME[""] += [(NONE, _finding("note")), (_finding("no_effect"), NONE)]
NOT_MEASURED = Finding("not_measured", "note", "s")
BECAME[""] += [(NOT_MEASURED, _finding()), (_finding(), NOT_MEASURED)]


@pytest.mark.parametrize(("change", "both"), [(change, both) for change, cases in BECAME.items() for both in cases])
def test_what_became_of_a_defect(change: str, both: tuple[Finding, Finding]) -> None:
    found = _both(*(_subject(_reading(0.2), findings=(one,)) for one in both))
    assert all(one.changes == ("", change) for one in found.subjects[0].findings if one.cause == "drift")
    assert found.worse == (change in ("new", "grew"))
    words = {"new": "worse", "grew": "worse", "gone": "better", "shrank": "better", "": "differs little"}
    assert words[change] in found.verdict
    assert change in found.verdict


def test_a_side_without_findings_concludes_nothing() -> None:
    """Of older files, or of a subject that one diagnosis alone has."""
    bare, faulty = _subject(_reading(0.1)), _subject(_reading(0.5), findings=(_finding(),))
    for sides in ((bare, faulty), (faulty, bare)):
        found = _both(*sides)
        assert not found.worse
        assert found.verdict.startswith("model (2) is neither worse nor better than model. Changed: mean cosine ")
    found = uncone.compare([_diagnosis(bare), _diagnosis(bare, replace(faulty, name="head"))])
    assert (found.worse, found.verdict) == (False, "model (2) differs little from model.")


def test_of_several_ways_of_one_reading_the_worse_is_told() -> None:
    before = _subject(_reading(0.3), findings=(_finding(), _finding(extent=0.2, cause="tail")))
    found = _both(before, _subject(_reading(0.5), findings=(_finding("severe"),)))
    assert found.subjects[0].measures[0].changes[1].direction == "worse"
    assert found.verdict == (
        "model (2) is mixed compared with model: drift grew (severe, mean cosine 0.500 instead of 0.300), but "
        "tail gone (mean cosine 0.500 instead of 0.300)."
    )


def test_an_untrained_baseline_is_said() -> None:
    random = Finding("untrained", "structure", "s")
    sides = [
        _diagnosis(_subject(_reading(0.0), name="input", findings=(random,)), name="new"),
        _diagnosis(_subject(_reading(0.6), name="input", findings=(_finding("severe", 0.6),)), name="trained"),
    ]
    assert uncone.compare(sides).verdict == (
        "new looks untrained, so the changes are what training did. trained is worse than new: drift new "
        "(severe, mean cosine 0.600 instead of 0)."
    )
    assert uncone.compare(sides[::-1]).verdict.startswith("new looks untrained. new is better than trained: ")
    table = [_subject(_reading(0.0), name="input", findings=(random,)), _subject(_reading(0.0), name="input")]
    heads = [_subject(_reading(0.0), name="head", findings=(NONE,))] * 2
    both = uncone.compare([_diagnosis(*pair) for pair in zip(table, heads, strict=True)])
    assert both.verdict.startswith(
        "The input token table of model looks untrained, so the changes are what training did."
    )


def test_a_defect_that_a_side_cannot_show_is_not_gone() -> None:
    """Of rows whose reserved tokens have no names no tail can be said to be gone, nor to be new."""
    tail = Finding("degenerate_tail", "warning", "s", extent=0.1)
    untrained = Finding("under_trained_tokens", "warning", "s", extent=0.1)
    named, unnamed = (Groups(10, "reserved", None, (), by_name) for by_name in (True, False))
    model = replace(_subject(_reading(0.0), findings=(tail, untrained)), groups=named, under_trained=UnderTrained(5))
    vectors = replace(_subject(_reading(0.0), findings=(NONE,)), groups=unnamed)
    for second, change in (
        (vectors, "not_measured"),
        (replace(vectors, groups=named, under_trained=UnderTrained(0)), "gone"),
    ):
        found = _both(model, second).subjects[0].findings
        expected = {"degenerate_tail": change, "under_trained_tokens": change, "no_defect": ""}
        assert {f.cause: f.changes[1] for f in found} == expected
    assert not _both(vectors, model).worse


@pytest.mark.parametrize(
    ("a", "first", "b", "second", "below", "above", "direction"),
    [
        (0.1, (0.07, 0.13), 0.4, (0.36, 0.44), 0.05, 0.05, "changed"),  # half widths 0.03 and 0.04
        # Zou & Donner 2008: below, b's lower and a's upper half width; above, b's upper and a's lower
        (0.2, (0.12, 0.23), 0.5, (0.46, 0.65), math.hypot(0.04, 0.03), math.hypot(0.15, 0.08), "changed"),
        (0.20, (0.1, 0.3), 0.25, (0.15, 0.35), math.sqrt(0.02), math.sqrt(0.02), "unclear"),
        (0.1, None, 0.4, (0.3, 0.5), None, None, "changed"),
        (0.1, (0.05, 0.15), 0.4, None, None, None, "changed"),
        (0.1, None, 0.4, None, None, None, "changed"),
        (0.1, (0.2, 0.3), 0.4, (0.3, 0.5), None, None, "changed"),
    ],
)
def test_intervals_of_differences(
    a: float, first: object, b: float, second: object, below: float | None, above: float, direction: str
) -> None:
    compared = _compared(_reading(a, interval=first), _reading(b, interval=second))
    change, told = compared.changes[1], [one for one in compared.cautions[1] if "outside its own interval" in one]
    expected = None if below is None else (pytest.approx(b - a - below), pytest.approx(b - a + above))
    assert (change.interval, change.direction) == (expected, direction)
    assert [one.partition(" is")[0] for one in told] == (["the reading of A"] if first == (0.2, 0.3) else [])


def test_the_interval_of_independent_normal_readings_covers_their_difference() -> None:
    """Of 4,000 pairs with 95% intervals, the interval of the difference holds the true one in about 95%."""
    draw, covered = np.random.default_rng(0), 0
    a, b = 1.0 + 0.3 * draw.normal(size=4000), 2.0 + 0.7 * draw.normal(size=4000)
    for x, y in zip(a.tolist(), b.tolist(), strict=True):
        one, other = ((x - 1.96 * 0.3, x + 1.96 * 0.3), (y - 1.96 * 0.7, y + 1.96 * 0.7))
        found, _ = _interval(_reading(x, interval=one), _reading(y, interval=other), ("A", "B"))
        covered += found[0] <= 1.0 <= found[1]
    assert 0.935 <= covered / 4000 <= 0.965


finite = st.floats(-1e6, 1e6, allow_nan=False)


@given(finite, finite, st.sampled_from(("higher", "lower", "neither")), st.floats(0, 10), st.floats(0, 10))
def test_swapping_the_sides_turns_every_sign(a: float, b: float, better: str, wide: float, narrow: float) -> None:
    one = _reading(a, better=better, range=(None, None), interval=(a - wide, a + narrow))
    other = _reading(b, better=better, range=(None, None), interval=(b - narrow, b + wide))
    there, back = _compared(one, other).changes[1], _compared(other, one).changes[1]
    assert there.difference == -back.difference
    assert {there.direction, back.direction} in ({"changed"}, {"equal"}, {"unclear"})
    if there.interval is not None:
        assert back.interval == (pytest.approx(-there.interval[1]), pytest.approx(-there.interval[0]))


extreme = st.floats(allow_nan=False, allow_infinity=False)


@given(st.lists(st.none() | extreme, min_size=2, max_size=6), st.none() | extreme, st.tuples(extreme, extreme))
def test_any_finite_numbers_give_a_record_that_can_be_saved(
    values: list[float | None], reference: float | None, interval: tuple[float, float]
) -> None:
    given = {"reference": reference, "interval": interval, "reason": "none", "range": (None, 1.0)}
    found = _both(*(_subject(_reading(value, **given)) for value in values))
    assert Comparison.from_json(found.to_json()) == found


def test_a_diagnosis_against_itself_has_no_difference() -> None:
    found = uncone.compare([make_diagnosis()] * 6)
    for subject in found.subjects:
        for measure in (*subject.measures, *subject.without_effect):
            changes = {change and (change.difference, change.direction) for change in measure.changes}
            assert changes <= {None, (0, "equal")}
            assert not any(measure.cautions)
    assert "differs little" in found.verdict
    assert [d.name for d in found.diagnoses] == ["example-model", *(f"example-model ({k})" for k in range(2, 7))]
    assert found.notes == ()


def test_what_is_undefined_or_not_taken_is_not_subtracted() -> None:
    undefined = _reading(None, reason="rows that are all equal")
    assert _compared(_reading(0.1), undefined).changes == (None, None)
    assert _compared(undefined, _reading(0.1)).changes == (None, None)
    assert _compared(undefined, undefined).distances == (None, None)
    assert _compared(Measurement("mean_cosine", None, "rows that are all equal"), _reading(0.1)).better == "lower"
    found = _both(_subject(_reading(0.1)), _subject(_reading(0.1), _reading(0.5, "isoscore")))
    isoscore = found.subjects[0].measures[1]
    assert (isoscore.values, isoscore.changes) == ((None, 0.5), (None, None))


def test_subjects_are_matched_by_name_and_the_others_said() -> None:
    head = replace(make_subject("head"), without_effect=())
    found = uncone.compare([_diagnosis(make_subject("input")), _diagnosis(head, make_subject("input"))])
    assert [subject.name for subject in found.subjects] == ["input", "head"]
    assert found.subjects[1].sides[0] is None
    assert found.subjects[1].notes == ("only in B, missing in A",)
    assert all(measure.changes == (None, None) for measure in found.subjects[1].measures)


def test_single_subjects_of_other_names_are_compared_and_said_unless_one_is_a_head() -> None:
    (subject,) = _both(_subject(_reading(0.1), name="input"), _subject(_reading(0.3))).subjects
    assert subject.notes == ("named 'input' in A, 'rows' in B: compared because each diagnosis has one subject",)
    assert subject.measures[0].changes[1] is not None
    # but a head with heads only
    found = _both(_subject(_reading(0.1), name="head"), _subject(_reading(0.3)))
    assert [subject.name for subject in found.subjects] == ["head", "rows"]
    assert found.verdict == "model and model (2) have no subject in common, so nothing could be compared."
    assert "no subject is in all diagnoses" in found.notes[0]


def test_readings_of_other_rows_are_not_subtracted_and_another_definition_is_a_caution() -> None:
    compared = _compared(_reading(0.1), _reading(0.2, centered=True))
    assert compared.changes == (None, None)
    assert compared.cautions[1] == ("read from different rows: rows as stored in A, the mean row subtracted in B",)
    compared = _compared(_reading(0.1, definition="z = 0.2"), _reading(0.2, definition="z = 0.3"))
    assert compared.cautions[1] == ("defined differently in A and B: compare the definitions",)
    scaled = (_reading(0.1 * k, definition=f"I(W); not scale-free: read at mean norm {k}") for k in (1, 2))
    assert not _compared(*scaled).cautions[1]


def test_the_finite_sample_bias_of_isoscore_is_a_caution_where_it_explains_the_difference() -> None:
    """The same isotropic rows, 100,000 and 100 of them: the reference falls as the value does."""
    many = _reading(0.999, "isoscore", better="higher", range=(0.0, 1.0), reference=0.9999, n=100_000)
    few = _reading(0.92, "isoscore", better="higher", range=(0.0, 1.0), reference=0.917)
    assert _compared(many, few).cautions[1] == (
        "its finite-sample bias depends on the number of rows and columns (100,000 x 8 in A, 100 x 8 in B): "
        "compare the distances",
    )
    found = _both(_subject(many, n=100_000), _subject(few))
    assert "differs little" in found.verdict
    assert found.subjects[0].notes[0].startswith("different sizes (A 100,000 x 8, B 100 x 8)")
    assert REFERENCE_SHARE > (0.9999 - 0.917) / (1 - 0.1)
    assert not _compared(many, replace(few, value=0.1)).cautions[1]


def test_the_scale_of_rows_is_a_caution_for_the_partition_function() -> None:
    readings = [_reading(value, "partition_isotropy", better="higher", range=(0.0, 1.0)) for value in (0.9, 0.3)]
    ends = (1.0, 2.5), (1.0, 1 + 0.9 * SCALE_APART)
    found, same = (_both(*(_subject(r, norm=n) for r, n in zip(readings, norms, strict=True))) for norms in ends)
    told = "it depends on the scale of the rows (mean norm 1 in A, 2.50 in B)"
    assert found.subjects[0].measures[0].cautions[1] == (told,)
    assert not same.subjects[0].measures[0].cautions[1]
    assert "Changed: partition isotropy down from 0.900 to 0.300" in same.verdict


def test_verdict_names_the_largest_changes_both_ways() -> None:
    def side(cosine: float, isoscore: float, rank: float) -> Subject:
        even: dict[str, object] = {"better": "higher", "range": (0.0, 1.0)}
        scores = (_reading(isoscore, "isoscore", **even), _reading(isoscore - 0.01, "isoscore_star", **even))
        ranks = _reading(rank, "effective_rank", better="higher", range=(1.0, 8.0))
        return _subject(_reading(cosine), *scores, ranks)

    assert _both(side(0.1, 0.9, 7.0), side(0.7, 0.5, 7.5), names=["before", "after"]).verdict == (
        "after is neither worse nor better than before. Changed: IsoScore down from 0.900 to 0.500, mean cosine up "
        "from 0.100 to 0.700 and effective rank up from 7 to 7.50."
    )
    little = _both(side(0.1, 0.9, 7.0), side(0.1 + MEANINGFUL, 0.9, 7.0))
    assert little.verdict == "model (2) differs little from model."
    assert _both(side(0.1, 0.9, 7.0), side(0.1, 0.9, 7.0), side(0.6, 0.9, 7.0), names=["a", "b", "c"]).verdict == (
        "Compared with a, b differs little. c is neither worse nor better. Changed: mean cosine up from 0.100 to 0.600."
    )


def test_verdict_tells_findings_that_came_and_went() -> None:
    def with_finding(cause: str, level: str) -> Subject:
        return _subject(_reading(0.1), findings=(Finding(cause, level, "s"),))

    found = _both(with_finding("rogue_dimensions", "warning"), with_finding("degenerate_tail", "severe"))
    told = "model (2) is mixed compared with model: degenerate tail new (severe), but rogue dimensions gone."
    assert (found.verdict, found.worse, found.mixed, _badge(found)) == (told, True, True, "MIXED")
    worse = _both(*(with_finding("drift", level) for level in ("warning", "severe")))
    assert worse.verdict == "model (2) is worse than model: drift grew (severe)."
    assert (worse.mixed, _badge(worse)) == (False, "WORSE")
    three = _both(*(with_finding(*of) for of in (("drift", "warning"), ("tail", "severe"), ("drift", "severe"))))
    assert (
        three.verdict
        == "Compared with model, model (2) is mixed: tail new (severe), but drift gone. model (3) is worse: drift grew (severe)."
    )
    assert (three.worse, three.mixed, _badge(three)) == (True, False, "WORSE")
    assert [finding.levels for finding in found.subjects[0].findings] == [("warning", None), (None, "severe")]


def test_versions_that_differ_are_said() -> None:
    one = _diagnosis(_subject(_reading(0.1)), versions={"uncone": "0.1.0", "torch": "2.13.0"})
    other = _diagnosis(_subject(_reading(0.1)), versions={"uncone": "0.2.0", "torch": "2.13.0"})
    assert uncone.compare([one, other]).notes == ("made with different versions of uncone: 0.1.0 (A), 0.2.0 (B)",)


@pytest.mark.parametrize("count", [0, 1, 7])
def test_two_to_six(count: int) -> None:
    with refused(match=f"expected 2 to 6 diagnoses to compare, got {count}: give the baseline first"):
        uncone.compare([make_diagnosis()] * count)


@pytest.mark.parametrize("names", [["a"], ["a", "a"], ["a", " "], ["a", "b", "c"]])
def test_names_must_fit(names: list[str]) -> None:
    with refused(match="expected 2 different names, one for each diagnosis, got 'a'"):
        uncone.compare([make_diagnosis()] * 2, names=names)


def test_what_is_there_twice_is_refused() -> None:
    with refused(match="expected measures of 'rows' in 'model' of different names, got 'mean_cosine' twice"):
        _both(*[_subject(_reading(0.1), _reading(0.2))] * 2)
    with refused(match="expected subjects of 'model' of different names, got 'rows' twice"):
        uncone.compare([_diagnosis(_subject(), _subject())] * 2)


def test_the_record_round_trips_without_pictures(tmp_path: object) -> None:
    found = uncone.compare([make_diagnosis(), make_diagnosis()])
    assert all(side is None or side.picture is None for subject in found.subjects for side in subject.sides)
    assert Comparison.from_json(found.to_json()).to_json() == found.to_json()
    with refused(match=r"expected a comparison of schema 'uncone.comparison/1', got 'uncone.diagnosis/1'"):
        Comparison.from_json(make_diagnosis().to_json())


def test_records_whose_parts_do_not_fit_are_refused() -> None:
    found = uncone.compare([make_diagnosis(), make_diagnosis()])
    subject = found.subjects[0]
    for part, changed, message in (
        (found, {"diagnoses": found.diagnoses[:1]}, "expected 2 to 6 diagnoses to compare, got 1"),
        (found, {"diagnoses": (*found.diagnoses, found.diagnoses[0])}, "expected 3 sides of each subject"),
        (subject, {"sides": subject.sides[:1]}, "expected 1 values of each measure of 'input'"),
        (subject, {"sides": (None, None)}, "expected a side of 'input' in one diagnosis at least, got none"),
        (subject.measures[0], {"changes": (None,)}, "expected as many changes and cautions as values of 'mean_cosine'"),
    ):
        with refused(match=message):
            replace(part, **changed)


@pytest.fixture(scope="module")
def twin() -> Diagnosis:
    return uncone.diagnose(healthy())


def _with_tokens(cosine: Estimate, found: int | None) -> Diagnosis:
    group = FrequencyGroup("rare", 10, None, cosine, Estimate(1.0, (0.9, 1.1)), Estimate(None), Estimate(None))
    groups = FrequencyGroups("id", "the last 20%", 0.95, (group,), ())
    looks = UnderTrained(found, "" if found is not None else "no head", rate=0.01, tested=40)
    return _diagnosis(replace(_subject(_reading(0.1)), frequency_groups=groups, under_trained=looks))


def test_readings_of_tokens_by_hand() -> None:
    """The group's intervals go into that of the difference; the share is of the rows tested."""
    one, other = _with_tokens(Estimate(0.2, (0.12, 0.23)), 4), _with_tokens(Estimate(0.5, (0.46, 0.65)), 30)
    found = uncone.compare([one, other], names=["before", "after"])
    by_name = {measure.name: measure for measure in found.subjects[0].tokens}
    cosine, share = by_name["rare.mean_cosine"].changes[1], by_name["under_trained_share"].changes[1]
    assert cosine.interval == (pytest.approx(0.25), pytest.approx(0.3 + math.hypot(0.15, 0.08)))
    assert (cosine.direction, cosine.size, cosine.meaningful) == ("changed", pytest.approx(0.15), True)
    assert (share.difference, share.direction, share.interval) == (pytest.approx(0.65), "changed", None)
    assert by_name["rare.cosine_to_reserved"].values == (None, None)
    assert found.verdict == (
        "after is neither worse nor better than before. Changed: share that looks untrained up from 0.100 to 0.750 "
        "and mean cosine of rare rows up from 0.200 to 0.500."
    )
    assert uncone.compare([one, _with_tokens(Estimate(0.2), None)]).subjects[0].tokens[-1].changes == (None, None)
    assert uncone.check(other, max={"rare.mean_cosine": 0.5, "rows.under_trained_share": 0.5}).bars[1].value == 0.75


@pytest.mark.slow
def test_readings_of_groups_are_compared_with_their_intervals(tmp_path: Path) -> None:
    """The intervals of a diagnosis' own groups: those of a difference are wider than either, and hold it."""
    tables = {"healthy": healthy(0, 3000, 32), "faulty": healthy(0, 3000, 32), "twin": healthy(3, 3000, 32)}
    tables["faulty"][-600:] += 0.6 * tables["faulty"][0]
    diagnoses = {name: uncone.diagnose(str(write_model(tmp_path / name, table))) for name, table in tables.items()}
    found = uncone.compare([diagnoses["healthy"], diagnoses["faulty"]]).subjects[0]
    rare = next(measure for measure in found.tokens if measure.name == "rare.mean_cosine")
    change, readings = rare.changes[1], found.readings("rare.mean_cosine", part="tokens")
    assert change.direction in ("worse", "changed")
    assert change.interval[0] < change.difference < change.interval[1]
    widths = [r.interval[1] - r.interval[0] for r in readings if r is not None and r.interval is not None]
    assert change.interval[1] - change.interval[0] >= max(widths)
    assert uncone.check(diagnoses["faulty"], max={"input.rare.mean_cosine": 0.9}).bars[0].value == rare.values[1]
    same = uncone.compare([diagnoses["healthy"], diagnoses["twin"]]).subjects[0]
    ways = [m.changes[1].direction for m in same.tokens if m.better == "lower" and m.changes[1] is not None]
    assert ways.count("unclear") >= len(ways) - 1, "healthy twins differ within their intervals"


# Planted faults: the evidence that must be worse against the healthy twin, what else changes, and what stays.
WORSE = {
    "common_direction_drift": ("mean_cosine", "mean_shift"),
    "rogue_dimensions": ("dominant_dimension",),
    "low_effective_rank": ("isoscore", "effective_rank"),
}
CHANGED = {
    "common_direction_drift": ("stable_rank", "anisotropy_1_raw", "uniformity"),
    "rogue_dimensions": ("isoscore", "participation_ratio", "anisotropy_1", "effective_rank"),
    "low_effective_rank": ("singular_entropy", "condition_number"),
    "degenerate_tail": ("mean_cosine",),
    "norm_id_coupling": ("norm_id_correlation",),
}
UNTOUCHED = {
    "common_direction_drift": ("isoscore", "effective_rank", "stable_rank_centered", "dominant_dimension"),
    "norm_id_coupling": ("mean_cosine",),
}


@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_a_planted_fault_is_worse_on_the_right_measures(twin: Diagnosis, fault: str) -> None:
    faulty = uncone.diagnose(FAULTS[fault]())
    found = uncone.compare([twin, faulty], names=["healthy", "faulty"])
    measures = {measure.name: measure.changes[1] for measure in found.subjects[0].measures}
    directions = {name: change.direction for name, change in measures.items() if change is not None}
    assert {name for name, way in directions.items() if way == "worse"} == set(WORSE.get(fault, ()))
    assert "better" not in directions.values()
    for name in CHANGED[fault]:
        assert directions[name] == "changed", name
    for name in UNTOUCHED.get(fault, ()):
        assert directions[name] == "equal" or abs(measures[name].difference) < 1e-3, name
    is_defect = fault not in ("norm_id_coupling", "degenerate_tail")  # a tail of vectors is a note
    assert found.worse == is_defect
    assert (f"faulty is worse than healthy: {fault.replace('_', ' ')} new (" in found.verdict) == is_defect
    back = uncone.compare([faulty, twin], names=["faulty", "healthy"])
    assert not back.worse
    assert (f"better than faulty: {fault.replace('_', ' ')} gone" in back.verdict) == is_defect


def test_what_one_side_alone_can_show_is_named() -> None:
    """A tail toward reserved tokens, of which the other side knows no names."""
    reserved = Group("reserved", 0, 100, 100, 0, 1.0, 0.1, 0.9, None)
    tail, sides = _finding(cause="degenerate_tail"), list[Subject]()
    for by_name, found in ((False, NONE), (True, tail)):
        groups = Groups(100, "words", reserved, (), reserved_by_name=by_name)
        sides.append(replace(_subject(_reading(0.2), findings=(found,)), groups=groups))
    for pair in (sides, sides[::-1]):
        found = _both(*pair)
        assert not found.worse
        assert "not comparable: the degenerate tail, which only one of the two can show" in found.verdict


RANK, LOGITS = _reading(3.0, "effective_rank"), _reading(2.0, "logit_effective_rank")


def _head(*findings: Finding, text: bool, **more: Any) -> Subject:
    return replace(_subject(RANK, *[LOGITS] * text, name="head", findings=findings), without_effect=(RANK,), **more)


def _rank_found(cause: str, name: str) -> Finding:
    return Finding(cause, "severe", "s", measures=(name,), extent=0.5)


LOW_RANK = _rank_found("low_effective_rank", "effective_rank")
LOW_LOGITS = _rank_found("low_logit_rank", "logit_effective_rank")


@pytest.mark.parametrize("of_rows", [(LOW_RANK,), (NONE,)])
@pytest.mark.parametrize("of_logits", [(LOW_LOGITS,), (NONE,)])
def test_a_text_on_one_side_makes_nothing_worse_or_better(
    of_rows: tuple[Finding, ...], of_logits: tuple[Finding, ...]
) -> None:
    """A head is judged by its logits with a text, and by its rows without one."""
    without, given = _head(*of_rows, text=False), _head(*of_logits, text=True)
    for pair in ((without, given), (given, without)):
        found = _both(*pair)
        assert not found.worse
        assert not any(word in found.verdict for word in (" gone", " new", "is better", "shrank"))
        told = [
            w
            for w, here in (("low effective rank", LOW_RANK in of_rows), ("low logit rank", LOW_LOGITS in of_logits))
            if here
        ]
        assert all(word in found.verdict.partition("not comparable: the ")[2] for word in told)
        assert "logits were read only in " in found.subjects[0].notes[0]
    both = _both(_head(NONE, text=True), _head(LOW_LOGITS, text=True))
    assert (both.worse, both.subjects[0].notes) == (True, ())


def test_counts_on_one_side_make_no_tokens_new() -> None:
    """Rows of count 0 are known to be unused on one side alone: another test of the same rows."""
    many = Finding("under_trained_tokens", "warning", "s", measures=("under_trained_share",), extent=0.3)
    tests = {"": "", "counted": "30 rows of count 0, because few are reserved", "named": "12 rows reserved by name"}
    for a, b, change in (
        ("", "counted", "not_measured"),
        ("named", "counted", "not_measured"),
        ("named", "named", "new"),
    ):
        sides = [
            replace(
                _subject(findings=(found,)),
                under_trained=UnderTrained(n, tested=40, indicator="norm", reference=tests[of]),
            )
            for of, found, n in ((a, NONE, 0), (b, many, 12))
        ]
        found = _both(*sides)
        assert {f.cause: f.changes[1] for f in found.subjects[0].findings}["under_trained_tokens"] == change
        assert found.worse == (change == "new")


def test_a_defect_that_another_stands_in_for_is_not_gone() -> None:
    """One direction is looked for where nothing else explains it, and near-copies beside a tail and equal rows."""
    copies, direction = (_finding(cause=cause) for cause in ("near_copies", "dominant_direction"))
    for other, hidden in (("degenerate_tail", copies), ("equal_rows", copies), ("low_effective_rank", direction)):
        found = _both(
            _subject(_reading(0.2), findings=(hidden,)), _subject(_reading(0.2), findings=(_finding(cause=other),))
        )
        assert (found.worse, found.mixed) == (True, False), found.verdict
        assert (
            f"not comparable: the {hidden.cause.replace('_', ' ')}, which only one of the two can show" in found.verdict
        )
        (cell,) = [f.changes[1] for f in found.subjects[0].findings if f.cause == hidden.cause]
        assert cell == "not_measured"


def test_a_reading_that_one_side_did_not_take_is_no_change() -> None:
    """Neighbours were searched on one side: what rests on them is neither new nor gone."""
    hubs = Finding("hubs", "warning", "s", measures=("hubness",), extent=0.4)
    with_, without = (
        _subject(_reading(0.1), _reading(0.4, "hubness"), findings=(hubs,)),
        _subject(_reading(0.1), findings=(NONE,)),
    )
    for pair in ((with_, without), (without, with_)):
        found = _both(*pair)
        assert not found.worse
        assert found.verdict.endswith("not comparable: the hubs, which only one of the two can show.")


def test_readings_without_effect_are_counted_where_nothing_else_changed() -> None:
    head = _subject(_reading(0.2), name="head", findings=(NONE,))
    verdict = _both(*(replace(head, without_effect=(_reading(x),)) for x in (0.4, 0.0))).verdict
    assert verdict == "model (2) differs little from model; 1 reading changed, but no probability depends on that."


def test_healthy_tables_drawn_anew_differ_little(twin: Diagnosis) -> None:
    others = [uncone.diagnose(healthy(seed)) for seed in (1, 2)]
    found = uncone.compare([twin, *others], names=["a", "b", "c"])
    assert found.verdict == "Compared with a, b differs little. c differs little."


@pytest.mark.parametrize(
    ("n", "moved", "is_told"), [(101, 0.56, False), (101, 0.57, True), (10_001, 0.056, False), (10_001, 0.057, True)]
)
def test_a_rank_correlation_changes_beyond_its_scatter(n: int, moved: float, is_told: bool) -> None:
    """Four times sqrt(1 / 100 + 1 / 100), 0.566 of 101 rows each."""
    order = [_reading(value, "norm_id_correlation", better="neither", n=n) for value in (0.0, moved)]
    change = _compared(*order).changes[1]
    assert (change.direction, change.meaningful) == ("changed", is_told)


def test_each_of_several_is_told_against_the_first(twin: Diagnosis) -> None:
    faulty = (uncone.diagnose(fault()) for fault in (drifted, rogue, low_rank))
    found = uncone.compare([twin, *faulty], names=list("abcd"))
    b, c, d = re.split(r"\. (?=[cd] is)", found.verdict.removeprefix("Compared with a, "))
    assert b.startswith("b is worse: common direction drift new (warning, mean cosine 0.5")
    assert c.startswith("c is worse: rogue dimensions new (warning, dominant dimension 0.6")
    assert d.startswith("d is worse: low effective rank new (severe, effective rank 8.")
    assert ROUNDING < 1e-5


def test_comparing_saved_records_loads_no_tensors() -> None:
    code = "import sys, uncone; uncone.compare, uncone.check; assert not {'torch', 'numpy', 'rich'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
