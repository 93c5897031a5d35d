"""Rank correlations under ties, and relations that rise and fall: against scipy, perturbed weights and simulated samples."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.studies import first_of
from uncone.diagnosis.bins import shape
from uncone.diagnosis.bins.frequency import bin_edges
from uncone.diagnosis.bins.shape import find_turn, spearman
from uncone.statistics.ranks import rank_correlation

Array = np.ndarray
Draw = Callable[[np.random.Generator, int], Array]
Read = Callable[[np.random.Generator, Array], Array]

COUNTS: dict[str, Draw] = {
    "geometric": lambda random, n: random.geometric(0.5, n),  # half of them 1
    "Zipf": lambda random, n: random.zipf(1.8, n),
    "log-normal": lambda random, n: np.ceil(np.exp(random.normal(3, 2, n))).astype(np.int64),
}


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(-9, 9)), min_size=5, max_size=60))
def test_spearman_is_that_of_scipy(pairs: list[tuple[int, int]]) -> None:
    stats = pytest.importorskip("scipy.stats")
    x, y = (np.array(side, dtype=float) for side in zip(*pairs, strict=True))
    found = spearman(x, y)
    if len(set(x)) < 2 or len(set(y)) < 2:
        assert found.value is None
        return
    assert found.value == pytest.approx(stats.spearmanr(x, y).statistic, abs=1e-12)
    if found.interval is not None:
        assert found.interval[0] <= (found.value or 0.0) <= found.interval[1]


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.8])
def test_intervals_of_rank_correlations_hold_the_truth(rho: float) -> None:
    """95% of 400 samples of a normal pair, within chance; Spearman's correlation is 6/pi asin(rho / 2) there."""
    random, truth, held = np.random.default_rng(0), 6 / np.pi * np.arcsin(rho / 2), 0
    for _ in range(400):
        a, b = random.standard_normal((2, 200))
        interval = spearman(a, rho * a + np.sqrt(1 - rho**2) * b).interval
        held += interval[0] <= truth <= interval[1]
    assert 365 <= held <= 395


def _weighted_rho(x: Array, y: Array, weights: Array) -> float:
    """Spearman's correlation of a weighted sample: of mid-distribution functions, by all pairs."""
    w = weights / weights.sum()
    f, g = (((one[None] < one[:, None]) + 0.5 * (one[None] == one[:, None])) @ w - 0.5 for one in (x, y))
    return float((w @ (f * g)) / math.sqrt((w @ f**2) * (w @ g**2)))


@pytest.mark.parametrize("seed", range(4))
def test_the_variance_is_that_of_the_weights_of_pairs(seed: int) -> None:
    """The derivative by each pair's weight (the infinitesimal jackknife), with ties in both."""
    random, n, step = np.random.default_rng(seed), 40, 1e-6
    x = random.geometric(0.5, n).astype(float)
    y = np.round(x * random.normal(1, 1, n))
    influence = []
    for i in range(n):
        rho = []
        for way in (1, -1):
            weights = np.full(n, (1 - way * step) / n)
            weights[i] += way * step
            rho.append(_weighted_rho(x, y, weights))
        influence.append((rho[0] - rho[1]) / (2 * step))
    value, variance = rank_correlation(x, y) or (0.0, 0.0)
    assert value == pytest.approx(_weighted_rho(x, y, np.ones(n)))
    assert variance == pytest.approx(sum(one**2 for one in influence) / (n * (n - 1)), rel=1e-6)


def test_few_rows_and_few_that_differ_have_no_interval() -> None:
    y = np.random.default_rng(0).standard_normal(400)
    once = np.r_[np.ones(391), np.arange(2, 11)]  # nine counts other than 1
    assert spearman(once, y).interval is None
    assert spearman(np.r_[once[1:], 11], y).interval is not None
    assert spearman(np.arange(49), y[:49]).interval is None
    assert spearman(np.arange(50), y[:50]).interval is not None
    assert spearman(np.arange(400), np.arange(400.0)) == shape.Estimate(1.0, (1.0, 1.0))


def _turning(random: np.random.Generator, counts: Array) -> Array:
    logs = np.log(counts)
    return -((logs - math.log(10)) ** 2) + random.standard_t(2, len(counts))


READINGS: dict[str, Read] = {
    "independent": lambda random, counts: random.exponential(size=len(counts)),
    "monotone": lambda random, counts: np.log(counts) + random.normal(size=len(counts)),
    "widening": lambda random, counts: random.normal(size=len(counts)) * (1 + np.log(counts)),
    "turning": _turning,
    "few kinds": lambda random, counts: np.minimum(random.poisson(np.log(counts) + 0.5), 3).astype(float),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", first_of(COUNTS))
@pytest.mark.parametrize("reading", first_of(READINGS))
def test_intervals_hold_the_truth_under_heavy_ties(name: str, reading: str) -> None:
    """95% of 600 samples, within chance. Fisher's interval with the variance of Bonett & Wright, which takes the pair as
    normal, holds it in 75% where spread and mean both change with the count."""
    truth_of = np.random.default_rng(9)
    counts = COUNTS[name](truth_of, 600_000)
    truth = spearman(counts, READINGS[reading](truth_of, counts)).value
    for n in (100, 400):
        random, held = np.random.default_rng(n), 0
        for _ in range(600):
            counts = COUNTS[name](random, n)
            ends = spearman(counts, READINGS[reading](random, counts)).interval
            held += ends is not None and ends[0] <= truth <= ends[1]
        assert (0.89 if n == 100 else 0.925) <= held / 600 <= 0.975, (n, held / 600)


@pytest.mark.parametrize(("sign", "ways"), [(1, (1, -1)), (-1, (-1, 1))])
def test_a_relation_that_rises_and_falls_is_found_where_it_turns(sign: int, ways: tuple[int, int]) -> None:
    random = np.random.default_rng(2)
    counts = COUNTS["log-normal"](random, 4000)
    values = -sign * np.abs(np.log(counts) - math.log(100)) + random.normal(size=4000)
    turn = find_turn(counts, values, bin_edges(counts))
    assert turn.at == 100
    assert tuple(math.copysign(1, side.value) for side in (turn.below, turn.above)) == ways
    assert sum(turn.rows) == pytest.approx(2000, abs=150)
    assert find_turn(counts, sign * np.log(counts) + random.normal(size=4000), bin_edges(counts)) is None


def test_a_turn_that_no_reader_would_see_is_none() -> None:
    """Of 200,000 rows the interval of a correlation of 0.03 does not hold 0."""
    random = np.random.default_rng(3)
    counts = COUNTS["log-normal"](random, 200_000)
    bent = np.log(counts) - 0.06 * np.maximum(np.log(counts) - 3, 0) * random.normal(18, 1, 200_000)
    values = 0.5 * bent + 10 * random.normal(size=200_000)
    assert find_turn(counts, values, bin_edges(counts)) is None


MONOTONE: dict[str, Read] = {
    "none": READINGS["independent"],
    "line": READINGS["monotone"],
    "plateau": lambda random, counts: 2 * np.minimum(np.log(counts), math.log(4)) + random.normal(size=len(counts)),
    "late": lambda random, counts: 2 * np.maximum(np.log(counts / 8), 0) + random.normal(size=len(counts)),
    "skewed": lambda random, counts: np.minimum(counts, 3) + 0.3 * random.exponential(size=len(counts)),
}


@pytest.mark.slow
@pytest.mark.parametrize("reading", first_of(MONOTONE))
@pytest.mark.parametrize("name", first_of(COUNTS))
def test_what_never_turns_is_seldom_said_to(name: str, reading: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At most 2.5% of 500 samples, within chance, whatever its size: 0.1 is asked of no correlation here. Plateaus are the
    worst case, as one side is as flat as can be."""
    monkeypatch.setattr(shape, "LITTLE", 0.0)
    random, turned = np.random.default_rng(4), 0
    for seed in range(500):
        monkeypatch.setattr(shape, "_SEED", seed)
        counts = COUNTS[name](random, 1500)
        turned += find_turn(counts, MONOTONE[reading](random, counts), bin_edges(counts)) is not None
    assert turned / 500 <= 0.025 + 3 * math.sqrt(0.025 * 0.975 / 500)
