"""A saved calibration held against the vectors of today."""

from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import numpy as np
import pytest

import uncone
from uncone.calibration.drift import drift
from uncone.errors import InputError


def _rows(seed: int, common: float = 0.2, n: int = 600) -> np.ndarray:
    return (np.random.default_rng(seed).normal(size=(n, 24)) + common).astype(np.float32)


@cache
def _calibrated(seed: int, common: float = 0.2, n: int = 600) -> uncone.Calibration:
    return uncone.calibrate(_rows(seed, common, n))


def test_other_rows_drawn_alike_are_no_drift() -> None:
    found = uncone.calibrate(_rows(1), against=_calibrated(0)).drift
    assert found.level in ("none", "small")
    assert found.largest_difference < 0.05
    assert abs(found.mean_shift_in_deviations) < 0.1
    assert [drift(_calibrated(2 * seed), _calibrated(2 * seed + 1)).level for seed in range(4)].count("none") >= 3


def test_a_cone_that_closed_is_a_large_drift_with_its_size() -> None:
    saved, now = _calibrated(0), _calibrated(1, 0.6)
    found = drift(saved, now)
    assert found.level == "large"
    one = min(found.thresholds, key=lambda each: abs(each.before.value - 0.01))
    told = f"{100 * one.before.value:.3g}% of random pairs reached the saved threshold {one.score:.4g} before"
    assert found.summary.startswith(told)
    assert one.now.value == now.false_match_rate(one.score) > 0.05
    assert one.ratio == pytest.approx(one.now.value / one.before.value)
    assert one.low < one.ratio < one.high
    assert found.mean_shift == pytest.approx(now.mean - saved.mean)
    slow = max(abs(saved.false_match_rate(s) - now.false_match_rate(s)) for s in np.linspace(-1, 1, 3001).tolist())
    assert found.largest_difference == pytest.approx(slow, abs=2e-3)


def test_a_rate_that_fell_to_nothing_is_a_large_drift_too() -> None:
    cone, round_ = _calibrated(0, 1.5), _calibrated(1, 0.0)
    found = drift(cone, round_)
    one = min(found.thresholds, key=lambda each: abs(each.before.value - 0.01))
    assert (one.now.value, one.ratio, one.low) == (0.0, 0.0, 0.0)
    assert one.high == one.now.high / one.before.low < 0.1
    assert found.level == drift(round_, cone).level == "large"
    first = cone.thresholds[0]
    never = replace(first, false_match_rate=replace(first.false_match_rate, value=0.0, low=0.0, high=0.001))
    (one,) = drift(replace(cone, thresholds=(never,)), cone).thresholds
    assert (one.ratio, one.high) == (None, None)
    assert one.low == one.now.low / 0.001 > 30


def test_few_rows_tell_little() -> None:
    levels = [drift(_calibrated(0), _calibrated(seed, n=25)).level for seed in range(1, 7)]
    assert levels.count("unclear") >= 4
    assert "large" not in levels


def test_the_same_vectors_are_named_as_such() -> None:
    found = drift(_calibrated(0), uncone.calibrate(_rows(0)))
    assert (found.level, found.largest_difference, found.mean_shift) == ("none", 0.0, 0.0)
    assert found.notes == ("Both calibrations are of the same vectors.",)


def test_labelled_matches_are_put_back_where_the_vectors_of_today_have_no_labels(tmp_path: Path) -> None:
    documents = _rows(0, n=200)
    queries = documents[:40] + 0.3 * _rows(1, n=40)
    table = tmp_path / "pairs.tsv"
    table.write_text("".join(f"{query}\t{query}\n" for query in range(40)))
    calibrate = partial(uncone.calibrate, documents, queries=queries, rates=(0.05, 0.01, 0.005))
    saved = calibrate(pairs=table)
    plain = calibrate(against=saved)
    found = plain.drift
    assert found.level == "none"
    units = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in (documents, queries)]
    cosines = units[0] @ units[1].T
    for one in found.thresholds:  # of the same pairs, counted by hand
        assert one.before.value == pytest.approx((cosines >= one.score).mean(), abs=1e-9)
        assert one.ratio == pytest.approx(1, abs=1e-9)
    assert found.notes[0].startswith("The saved calibration leaves out 40 matches (--pairs)")
    again = calibrate(pairs=table, against=saved).drift
    assert (again.level, again.notes) == ("none", ("Both calibrations are of the same vectors.",))
    assert uncone.calibrate(_rows(2, common=0.9), queries=_rows(3, common=0.9), against=saved).drift.level == "large"
    with pytest.raises(InputError, match=r"expected no labelled pairs, because the saved .*: leave --pairs out"):
        calibrate(pairs=table, against=plain)


def test_what_cannot_be_compared_is_refused_or_said() -> None:
    saved, products = _calibrated(0), uncone.calibrate(_rows(0), metric="inner_product")
    with pytest.raises(InputError, match="expected a calibration by inner_product, got one by cosine"):
        drift(saved, products)
    with pytest.raises(InputError, match="expected a calibration with thresholds, got array without"):
        drift(replace(saved, thresholds=()), saved)
    rows, queries = (np.concatenate([_rows(seed) for seed in seeds], axis=1) for seeds in ((0, 3), (4, 5)))
    notes = drift(saved, uncone.calibrate(rows, queries=queries)).notes
    assert any("24 features, and these vectors have 48" in note for note in notes)
    assert any("Only one of the two calibrations has queries" in note for note in notes)


@pytest.mark.parametrize(
    ("field", "value"),
    [("mean", 1e308), ("mean", -1e308), ("variance", 5e-324), ("variance", 0.0), ("variance", 1e308)],
)
def test_drift_against_numbers_of_any_size_can_be_saved(field: str, value: float) -> None:
    x = np.random.default_rng(0).normal(size=(60, 8)).astype(np.float32)
    found = uncone.calibrate(x, against=replace(uncone.calibrate(x), **{field: value}))
    assert uncone.Calibration.from_json(found.to_json()) == found
