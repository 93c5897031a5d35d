"""Intervals hold the truth as often as they say, where pairs share rows; the pieces they are made of."""

import math

import numpy as np
import pytest
from scipy import stats

from tests.studies import first_of
from uncone.calibration.scores.counting import Grid, clustered, count_pairs, curve_of, hoeffding, student, wilson

GRID = Grid(-1.0, 2e-3, 1000)


def _unit(x: np.ndarray) -> np.ndarray:
    return (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32)


def _cone(n: int, rng: np.random.Generator) -> np.ndarray:
    """Unit rows of eight topics in a common direction: some rows are near many others, as real texts are."""
    topics = np.random.default_rng(7).normal(size=(8, 16))
    return _unit(0.8 * rng.normal(size=(n, 16)) + topics[rng.integers(0, 8, n)] + 0.3)


def _truth(rng: np.random.Generator) -> tuple[np.ndarray, list[int]]:
    total = count_pairs(_cone(6000, rng), None, GRID).total()
    share = total[::-1].cumsum()[::-1] / total.sum()
    return share, [int(np.argmax(share <= rate)) for rate in (0.5, 0.1, 0.01, 0.001)]


@pytest.mark.slow
@pytest.mark.parametrize(("queries", "rows"), first_of([(100, 200), (None, 300), (30, 600)]))
def test_intervals_cover_and_those_of_independent_pairs_do_not(queries: int | None, rows: int) -> None:
    rng, repeats = np.random.default_rng(3), 200
    share, edges = _truth(rng)
    covered, spans, naive = np.zeros(len(edges)), np.zeros(len(edges)), np.zeros(len(edges))
    for _ in range(repeats):
        counts = count_pairs(_cone(rows, rng), None if queries is None else _cone(queries, rng), GRID)
        curve, pairs = curve_of(counts), counts.total().sum()
        for place, edge in enumerate(edges):
            score = GRID.low + GRID.width * edge
            one, (low, high) = curve.at(score), curve.span(share[edge])
            covered[place] += one.low <= share[edge] <= one.high
            spans[place] += low - 1e-9 <= score <= high + 1e-9
            naive[place] += abs(one.value - share[edge]) <= 1.96 * math.sqrt(one.value * (1 - one.value) / pairs)
    assert 0.86 < (covered / repeats).min() <= (covered / repeats).max() < 0.995, covered / repeats
    assert (spans / repeats > 0.86).all(), spans / repeats
    assert (naive[:3] / repeats < 0.8).all(), naive / repeats


@pytest.mark.slow
def test_a_few_copies_of_one_text_are_covered_less_often() -> None:
    """The documented limit: what reaches the score is one group of about 3.6 rows of 300."""
    rng, probability, repeats, covered = np.random.default_rng(1), 0.012, 100, 0
    for _ in range(repeats):
        x = rng.normal(size=(300, 16))
        copies = rng.random(300) < probability
        x[copies] = np.eye(16)[0] + 1e-3 * rng.normal(size=(int(copies.sum()), 16))
        share = curve_of(count_pairs(_unit(x), None, GRID)).at(0.99)
        covered += share.low <= probability**2 <= share.high
    assert 0.6 < covered / repeats < 0.86, covered / repeats


def test_intervals_hold_their_share_and_narrow_with_rows() -> None:
    rng, widths = np.random.default_rng(0), []
    for n in (100, 1600):
        curve = curve_of(count_pairs(_cone(n, rng), None, GRID))
        assert (np.diff([0 * curve.low, curve.low, curve.share, curve.high, 0 * curve.low + 1], axis=0) >= 0).all()
        at = int(np.argmax(curve.share <= 0.1))
        widths.append(curve.high[at] - curve.low[at])
    assert 2.5 < widths[0] / widths[1] < 6.5  # 4, but for the spread of the estimate itself


def test_rows_that_are_all_alike_still_have_an_interval() -> None:
    curve = curve_of(count_pairs(np.full((50, 4), 0.5, np.float32), None, GRID))
    assert curve.share[-2] == 1
    assert 0 < curve.low[-2] < 1
    assert curve.high[-1] > 0


def test_student_is_near_the_tables() -> None:
    for freedom in (1, 2, 3, 4, 7, 12, 25, 63, 90, 1000):
        assert float(student(float(freedom))) == pytest.approx(stats.t.ppf(0.975, freedom), rel=0.01)


def test_wilson_is_that_of_scipy() -> None:
    exact = stats.binomtest(7, 50).proportion_ci(method="wilson")
    low, high = wilson(np.array([0.14]), np.array([50.0]), math.inf)
    assert (low[0], high[0]) == pytest.approx((exact.low, exact.high), abs=1e-6)


def test_one_group_a_value_is_wilson_and_equal_groups_count_once() -> None:
    values = np.array([1.0, 0, 0, 1, 1, 0, 1, 1, 1, 1])
    single = clustered(values, np.arange(10))
    repeated = clustered(np.repeat(values, 5), np.repeat(np.arange(10), 5))
    assert repeated.value == single.value == pytest.approx(0.7)
    assert (repeated.low, repeated.high) == pytest.approx((single.low, single.high))
    low, high = wilson(np.array([0.7]), np.array([9.0]), 9.0)
    assert (single.low, single.high) == pytest.approx((low[0], high[0]))
    full = clustered(np.ones(20), np.arange(20))
    assert full.high == 1
    assert 0.7 < full.low < 1


def test_the_distribution_free_half_width() -> None:
    assert hoeffding(1000) == pytest.approx(math.sqrt(math.log(40) / 2000))
    assert hoeffding(1) == 1
