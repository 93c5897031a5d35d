"""The record: shares that fall with the score, histograms that add up, files that come back, the function to paste."""

import json
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import uncone
from tests.rows.reading import refuses
from uncone.calibration.record import Calibration
from uncone.calibration.scores.record import ScoreHistogram, Share
from uncone.errors import InputError
from uncone.records.load import load_record

GRIDS = st.tuples(st.integers(-50, 50), st.lists(st.integers(0, 9), min_size=1, max_size=30).filter(any))


def _bins(grid: tuple[int, list[int]]) -> ScoreHistogram:
    return ScoreHistogram(grid[0] / 10, 0.1, tuple(grid[1]))


@pytest.fixture(scope="module")
def found() -> Calibration:
    return uncone.calibrate(np.random.default_rng(0).normal(size=(800, 24)).astype(np.float32) + 0.2)


@settings(deadline=None, max_examples=60)
@given(GRIDS, st.lists(st.floats(-10, 10), min_size=2, max_size=8))
def test_shares_fall_from_one_to_zero(grid: tuple[int, list[int]], scores: list[float]) -> None:
    bins = _bins(grid)
    shares = [bins.reached(score) for score in sorted(scores)]
    assert all(0 <= share <= 1 for share in shares)
    assert shares == sorted(shares, reverse=True)
    assert bins.reached(bins.low) == 1
    assert bins.reached(bins.edge(len(bins.counts)) + 0.001) == 0


@settings(deadline=None, max_examples=60)
@given(GRIDS, st.floats(0.001, 0.999))
def test_at_most_the_share_reaches_a_threshold_and_more_one_below(grid: tuple[int, list[int]], rate: float) -> None:
    bins = _bins(grid)
    number = round((bins.score_at(rate) - bins.low) / bins.width)
    assert sum(bins.counts[number:]) / bins.pairs <= rate
    assert number == 0 or sum(bins.counts[number - 1 :]) / bins.pairs > rate


@settings(deadline=None, max_examples=60)
@given(GRIDS, GRIDS)
def test_merged_histograms_count_both(one: tuple[int, list[int]], other: tuple[int, list[int]]) -> None:
    a, b = _bins(one), _bins(other)
    both = a.merge(b)
    assert both.pairs == a.pairs + b.pairs
    assert both == b.merge(a)
    for number in range(-60, 60):
        score = number / 10
        if score < min(x.edge(len(x.counts) - 1) for x in (a, b)) or score > max(x.edge(len(x.counts)) for x in (a, b)):
            expected = (a.reached(score) * a.pairs + b.reached(score) * b.pairs) / both.pairs
            assert both.reached(score) == pytest.approx(expected, abs=1e-9)


def test_other_grids_odd_widths_and_shares_outside_their_interval() -> None:
    with pytest.raises(InputError, match=r"expected bins on one grid, got widths 0\.1 and 0\.2"):
        ScoreHistogram(0.0, 0.1, (1,)).merge(ScoreHistogram(0.0, 0.2, (1,)))
    bins = ScoreHistogram(0.0, 5e-324, (1,))  # a width that no division holds
    assert (bins.reached(-1), bins.reached(1)) == (1, 0)
    refuses("inside its interval", Share, 0.5, 0.6, 0.7)


def test_the_record_comes_back_whole(found: Calibration, tmp_path) -> None:  # type: ignore[no-untyped-def]
    found.save(tmp_path / "c.json")
    assert Calibration.load(tmp_path / "c.json") == load_record(tmp_path / "c.json") == found
    data = json.loads(found.to_json())
    data["histogram"]["counts"] = []
    refuses("at least one pair", Calibration.from_json, json.dumps(data))
    refuses("expected a calibration of schema", Calibration.from_json, '{"schema": "uncone.diagnosis/1"}')


def test_answers_need_the_standard_library_alone(found: Calibration, tmp_path) -> None:  # type: ignore[no-untyped-def]
    found.save(tmp_path / "c.json")
    code = (
        "import sys; from uncone.calibration.record import Calibration; c = Calibration.load(sys.argv[1]);"
        "print(c.percentile(0.3), c.false_match_rate(0.3), c.threshold(0.01), c.false_match_interval(0.3));"
        "assert not {'torch', 'numpy'} & set(sys.modules)"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "c.json")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split()[1] == str(found.false_match_rate(0.3))


def test_intervals_between_knots_are_near_those_at_knots(found: Calibration) -> None:
    for knot in found.knots[1:-1]:
        share = knot.false_match_rate
        assert found.false_match_interval(knot.score) == pytest.approx((share.low, share.high), rel=1e-6)
    for score in np.linspace(-1, 1, 41):
        low, high = found.false_match_interval(float(score))
        assert 0 <= low <= found.false_match_rate(float(score)) <= high <= 1


def test_a_rate_that_the_pairs_are_too_few_for_is_refused(found: Calibration) -> None:
    for ask, value, message in (
        (found.threshold, 1e-6, "expected a rate of at least 1 in 319600 counted pairs, got 1e-06"),
        (found.threshold, 0, "above 0 and below 1, got 0"),
        (found.false_match_rate, float("nan"), "expected a finite score, got nan"),
    ):
        refuses(message, ask, value)


def test_the_pasted_function_is_as_near_as_it_says(found: Calibration) -> None:
    space: dict[str, Any] = {}
    exec(found.function, space)
    function = space["false_match_rate"]
    told = float(found.function.partition("within ")[2].partition("%")[0]) / 100
    deepest = float(found.function.partition("down to ")[2].partition('."""')[0])
    bins, seen, previous = found.histogram, 0, 1.0
    for number in range(len(bins.counts)):
        rate, given_rate = bins.reached(bins.edge(number)), function(bins.edge(number))
        assert given_rate <= previous + 1e-12
        previous = given_rate
        if rate >= deepest:
            assert given_rate == pytest.approx(rate, rel=told)
            seen += 1
    assert seen > 1000
    assert told < 0.2
    assert function(-5) == 1
    assert function(5) == function(1)
    assert len(found.function.partition("def ")[2].splitlines()) == 6  # the line of def, a sentence and four lines
