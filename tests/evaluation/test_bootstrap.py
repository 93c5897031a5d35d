"""Paired bootstrap intervals against a hand case, scipy, and ranks taken by sorting every resample."""

import itertools
from functools import partial

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from uncone.errors import InputError, UndefinedMeasure
from uncone.evaluation import bootstrap
from uncone.evaluation.bootstrap import (
    correlation,
    correlation_bootstrap,
    correlation_bootstraps,
    paired_bootstrap,
    paired_bootstraps,
    pearson,
    spearman,
)

scores = hnp.arrays(np.float64, st.integers(3, 12), elements=st.integers(-5, 5).map(float))


def test_two_items_by_hand() -> None:
    # Differences 0 and 1: a resample's mean is 0, 1/2 or 1 with probability 1/4, 1/2, 1/4.
    interval = paired_bootstrap([1.0, 1.0], [1.0, 2.0], resamples=20_000)
    assert (interval.difference, interval.low, interval.high) == (0.5, 0.0, 1.0)
    middle = paired_bootstrap([1.0, 1.0], [1.0, 2.0], resamples=20_000, level=0.4)
    assert (middle.low, middle.high) == (0.5, 0.5)


def test_three_items_by_all_resamples() -> None:
    a, b = np.array([0.1, 0.5, 0.2]), np.array([0.4, 0.3, 0.9])
    every = [np.mean((b - a)[list(items)]) for items in itertools.product(range(3), repeat=3)]
    expected = np.quantile(every, [0.025, 0.975], method="inverted_cdf")
    interval = paired_bootstrap(a, b, resamples=100_000)
    assert (interval.low, interval.high) == pytest.approx(tuple(expected), abs=1e-12)


scipy_s = partial(scipy.stats.bootstrap, paired=True, method="percentile")


def test_as_scipy_bootstraps_a_mean() -> None:
    generator = np.random.default_rng(0)
    a = generator.random(60)
    b = a + generator.normal(0.05, 0.2, 60)
    how = {"vectorized": True, "n_resamples": 20_000, "rng": np.random.default_rng(1)}
    theirs = scipy_s((a, b), lambda x, y, axis: np.mean(y - x, axis=axis), **how).confidence_interval
    ours = paired_bootstrap(a, b, resamples=20_000)
    assert ours.difference == pytest.approx(np.mean(b - a))
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=0.002)


@pytest.mark.parametrize("kind", ["spearman", "pearson"])
def test_as_scipy_bootstraps_a_difference_of_correlations(kind: str) -> None:
    generator = np.random.default_rng(2)
    gold = np.round(generator.random(50) * 5, 1)
    a, b = gold + generator.normal(0, 2, 50), gold + generator.normal(0, 1, 50)
    function = scipy.stats.spearmanr if kind == "spearman" else scipy.stats.pearsonr
    how = {"vectorized": False, "n_resamples": 500, "rng": np.random.default_rng(3)}
    changes = scipy_s((a, b, gold), lambda x, y, z: function(y, z)[0] - function(x, z)[0], **how)
    theirs = changes.confidence_interval
    ours = correlation_bootstrap(a, b, gold, kind=kind, resamples=4000)
    assert ours.difference == pytest.approx(function(b, gold)[0] - function(a, gold)[0], abs=1e-12)
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=0.035)


def test_a_mean_over_two_subsets_by_all_resamples() -> None:
    """Four items each: all 256 x 256 resamples, with correlations of ranks taken item by item."""
    a, b, gold = np.random.default_rng(9).random((3, 8))
    subsets = ["x", "y"] * 4  # not in blocks

    def every(system: np.ndarray, items: np.ndarray) -> np.ndarray:
        drawn = (items[list(four)] for four in itertools.product(range(4), repeat=4))
        return np.array([_by_ranks(system[one], gold[one]) for one in drawn])

    places = (np.arange(0, 8, 2), np.arange(1, 8, 2))
    x, y = (every(b, items) - every(a, items) for items in places)
    found = (x[:, None] + y[None, :]).ravel() / 2
    expected = tuple(np.nanquantile(found, [0.025, 0.975]))
    (interval,) = correlation_bootstraps(a, b[None], gold, subsets=subsets, resamples=60_000)
    whole = [_by_ranks(b[items], gold[items]) - _by_ranks(a[items], gold[items]) for items in places]
    assert interval.difference == pytest.approx(sum(whole) / 2, abs=1e-12)
    assert (interval.low, interval.high) == pytest.approx(expected, abs=0.02)
    assert interval.resamples == pytest.approx(60_000 * np.isfinite(found).mean(), rel=0.005)


def _by_ranks(x: np.ndarray, y: np.ndarray) -> float:
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        return np.nan
    return float(np.corrcoef(scipy.stats.rankdata(x), scipy.stats.rankdata(y))[0, 1])


def test_a_mean_over_subsets_keeps_their_sizes_and_draws_them_apart() -> None:
    """Of two systems that differ in one subset alone, the interval is that of this subset, halved."""
    a, b, gold = np.random.default_rng(10).random((3, 80))
    b[40:] = a[40:]
    (both,) = correlation_bootstraps(a, b[None], gold, subsets=[0] * 40 + [1] * 40, resamples=8000)
    alone = correlation_bootstrap(a[:40], b[:40], gold[:40], resamples=8000)
    expected = (alone.difference / 2, alone.low / 2, alone.high / 2)
    assert (both.difference, both.low, both.high) == pytest.approx(expected, abs=0.012)
    # The same items twice: independent draws make the mean's interval narrower by the square root of 2.
    twice = [np.tile(one[:40], 2) for one in (a, b, gold)]
    (narrow,) = correlation_bootstraps(twice[0], twice[1][None], twice[2], subsets=[0] * 40 + [1] * 40, resamples=8000)
    assert (alone.high - alone.low) / (narrow.high - narrow.low) == pytest.approx(2**0.5, rel=0.06)


def test_means_over_subsets_refuse_what_they_cannot_draw() -> None:
    a, b, gold = np.random.default_rng(11).random((3, 6))
    for subsets, error, message in (
        ("xy", InputError, "expected a subset for each of the 6 items, got 'xy'"),
        ("xxxxxy", InputError, "at least two items in every subset, got one in 'y'"),
        ("xxxxyy", UndefinedMeasure, "resamples, where all scores are equal"),
    ):
        with pytest.raises(error, match=message):
            correlation_bootstraps(a, b[None], gold, subsets=subsets)


@settings(max_examples=15)
@given(scores, st.randoms(use_true_random=False))
def test_ranks_of_a_resample_are_those_of_sorting_it(x: np.ndarray, random: object) -> None:
    n = len(x)
    generator = np.random.default_rng(random.getrandbits(32))  # type: ignore[attr-defined]
    gold = generator.integers(0, 4, n).astype(float)
    items = generator.integers(0, n, (20, n))
    counts = np.stack([np.bincount(row, minlength=n) for row in items], axis=1).astype(float)
    for resampled, function in ((spearman, scipy.stats.spearmanr), (pearson, scipy.stats.pearsonr)):
        for row, value in zip(items, resampled(x[None], gold)(counts)[0], strict=True):
            if np.ptp(x[row]) == 0 or np.ptp(gold[row]) == 0:
                assert np.isnan(value)
            else:
                assert value == pytest.approx(function(x[row], gold[row])[0], abs=1e-9)


@given(scores)
def test_identical_systems_differ_by_nothing(x: np.ndarray) -> None:
    one, gold = np.random.default_rng(4).random((2, 40))
    correlated = (correlation_bootstrap(one, one, gold, kind=kind, resamples=100) for kind in ("spearman", "pearson"))
    for interval in (paired_bootstrap(x, x, resamples=100), *correlated):
        assert (interval.difference, interval.low, interval.high) == (0, 0, 0)


@settings(max_examples=25)
@given(hnp.arrays(np.float64, (2, 30), elements=st.floats(0, 1, width=32)))
def test_the_interval_holds_the_difference(x: np.ndarray) -> None:
    interval = paired_bootstrap(x[0], x[1], resamples=1000)
    assert interval.low - 1e-12 <= interval.difference <= interval.high + 1e-12
    assert paired_bootstrap(x[1], x[0], resamples=1000).low == pytest.approx(-interval.high, abs=1e-9)


def test_more_items_make_it_narrower_and_it_covers() -> None:
    """The true difference 0.1 lies in about 95 of 100 intervals."""
    generator = np.random.default_rng(5)
    inside = 0
    for seed in range(200):
        a = generator.normal(0, 1, 100)
        interval = paired_bootstrap(a, a + generator.normal(0.1, 0.5, 100), seed=seed, resamples=500)
        inside += interval.low <= 0.1 <= interval.high
    assert 180 <= inside <= 198


def test_a_seed_is_a_result_and_blocks_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b, gold = np.random.default_rng(6).random((3, 50))
    mean, spearman = paired_bootstrap(a, b, resamples=1000), correlation_bootstrap(a, b, gold, resamples=1000)
    monkeypatch.setattr(bootstrap, "_BLOCK", 170)
    assert correlation_bootstrap(a, b, gold, resamples=1000).low == pytest.approx(spearman.low, abs=1e-12)
    assert paired_bootstrap(a, b, resamples=1000).low == pytest.approx(mean.low, abs=1e-12)
    assert abs(paired_bootstrap(a, b, resamples=1000, seed=1).low - mean.low) > 1e-9


def test_many_systems_at_once_are_each_alone() -> None:
    a, b, c, gold = np.random.default_rng(7).random((4, 30))
    _, second = paired_bootstraps(a, np.stack([b, c]), resamples=300)
    assert second.low == pytest.approx(paired_bootstrap(a, c, resamples=300).low, abs=1e-12)
    together = correlation_bootstraps(a, np.stack([b, c]), gold, resamples=300)
    assert together[1] == correlation_bootstrap(a, c, gold, resamples=300)


def test_large_common_offsets_lose_no_digits() -> None:
    x, gold = np.random.default_rng(8).random((2, 40))
    assert correlation(x + 1e6, gold - 1e6, kind="pearson") == pytest.approx(scipy.stats.pearsonr(x, gold)[0], abs=1e-8)


def test_refusals_say_what_came() -> None:
    good, three = np.arange(5.0), [0.0, 1.0, 2.0]
    paired, correlated = partial(paired_bootstrap, good, good), correlation_bootstrap
    for call, message in (
        (lambda: paired_bootstrap([1.0], [2.0]), r"per_item_a of shape \(N,\) with N >= 2, got shape \(1,\)"),
        (lambda: paired_bootstrap(good, good[:4]), "same 5 items of every system"),
        (lambda: paired_bootstrap([0.0, np.nan, 1.0], three), "1 that are not"),
        (lambda: paired_bootstrap(["a", "b"], [0.0, 1.0]), "hold numbers"),
        (lambda: correlated(good, good, good[:3]), "gold score for each of the 5"),
        (lambda: paired(resamples=10), "at least 100 resamples"),
        (lambda: paired(seed=-1), "expected a seed from 0 to 2,000,000,000, got"),
        (lambda: paired(seed=3_000_000_000), "expected a seed from 0 to 2,000,000,000, got"),
        (lambda: paired(resamples=150, level=0.99), r"200 resamples for an interval at level 0\.99, got 150"),
        (lambda: paired(level=95), "level between 0 and 1"),
    ):
        with pytest.raises(InputError, match=message):
            call()
    with pytest.raises(UndefinedMeasure, match="all 5 scores of one side are equal"):
        correlated(good, np.full(5, 0.1), good)
    with pytest.raises(UndefinedMeasure, match=r"undefined in \d+ of 1000 resamples"):
        correlated([0.0, 1.0, 0.0], three, three, resamples=1000)
