"""The late fall against slow loops and scipy, what is known of correlations, and the bend against every one tried."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from uncone.saturation.curves.bends import bends
from uncone.saturation.curves.late_fall import POWER, design, jitter_of, posteriors, shortcoming
from uncone.statistics.correlations import CORRELATIONS
from uncone.statistics.tails import NORMAL, log_tail, point_of

STEPS = np.array([1000, 3000, *range(13000, 144000, 10000)], float)
UNEVEN = np.array([1, 2, 5, 9, 10, 14, 20, 22, 27, 30, 33, 37, 41, 48, 50, 55], float)


def _noise(m: int, n: int, correlation: float, seed: int) -> np.ndarray:
    lag = np.abs(np.subtract.outer(np.arange(n), np.arange(n)))
    return np.random.default_rng(seed).standard_normal((m, n)) @ np.linalg.cholesky(correlation**lag).T


@pytest.mark.parametrize("degrees", [1, 2, 5, 11, 100, NORMAL])
def test_tails_are_those_of_scipy(degrees: int) -> None:
    stats = pytest.importorskip("scipy.stats")
    law = stats.norm if degrees == NORMAL else stats.t(degrees)
    t = np.linspace(-6, 25, 300)
    expected = law.logsf(t)
    assert log_tail(t, degrees) == pytest.approx(expected, rel=1e-4, abs=1e-5)
    assert point_of(expected, degrees) == pytest.approx(t, abs=1e-3)


@pytest.mark.parametrize("steps", [STEPS, UNEVEN])
@pytest.mark.parametrize("k", [0, 10, 16])
def test_the_chance_is_that_of_a_regression_on_a_ramp(steps: np.ndarray, k: int) -> None:
    """Generalised least squares on a level and a fall over the second half, against noise about a quadratic trend."""
    stats = pytest.importorskip("scipy.stats")
    y = _noise(1, len(steps), 0.3, 0)
    of = design(steps)
    for at, window in enumerate(of.windows):
        x, values = steps[window.start :], y[0, window.start :]
        whiten = np.linalg.inv(
            np.linalg.cholesky(CORRELATIONS[k] ** np.abs(np.subtract.outer(*[np.arange(len(x))] * 2)))
        )
        ramp = np.array([max(0.0, step - (x[0] + x[-1]) / 2) for step in x])
        columns = whiten @ np.stack([np.ones(len(x)), ramp], axis=1)
        slope = np.linalg.lstsq(columns, whiten @ values, rcond=None)[0][1]
        deviation = np.sqrt(np.linalg.inv(columns.T @ columns)[1, 1])
        trend = whiten @ np.vander((x - x.mean()) / np.ptp(x), 3)
        left = float(np.linalg.lstsq(trend, whiten @ values, rcond=None)[1][0])
        expected = stats.t(len(x) - 3).cdf(slope / deviation / np.sqrt(left / (len(x) - 3)))
        assert of.read(y).chances[at, 0, k] == pytest.approx(expected, rel=1e-3)


@given(st.lists(st.floats(0, 10), min_size=16, max_size=16))
def test_no_curve_that_never_falls_has_a_fall(rises: list[float]) -> None:
    y = np.cumsum(rises)
    for window in design(STEPS).windows:
        assert (window.weights @ y[window.start :] <= 1e-9 * (1 + y[-1])).all()


def test_the_restricted_likelihood_is_that_of_residuals() -> None:
    """It is the likelihood of contrasts that no quadratic trend can move, up to a constant."""
    stats = pytest.importorskip("scipy.stats")
    of, y = design(STEPS), _noise(1, len(STEPS), 0, 4)
    read, body = of.read(y), of.windows[-1]
    x, place = STEPS[body.start :], np.arange(len(STEPS) - body.start)
    free = np.linalg.qr(np.vander((x - x.mean()) / np.ptp(x), 3), mode="complete")[0][:, 3:].T
    expected = []
    for k, correlation in enumerate(CORRELATIONS):
        covariance = free @ correlation ** np.abs(np.subtract.outer(place, place)) @ free.T * read.variances[-1, 0, k]
        expected.append(stats.multivariate_normal(cov=covariance).logpdf(free @ y[0, body.start :]))
    difference = read.likelihood[0] - np.array(expected)
    assert difference == pytest.approx(np.full(20, difference[0]), abs=1e-6)


def test_a_curve_without_jitter_has_no_correlation_of_its_rounding() -> None:
    part = STEPS / STEPS[-1]
    read = design(STEPS).read(np.stack([np.zeros(len(STEPS)), part, 1 - part**2]))
    assert np.all(read.variances[-1] == read.variances[-1, 0, 0])
    assert np.all(read.likelihood - read.likelihood[0] == 0)


def test_jitter_is_that_of_a_loop() -> None:
    y = _noise(2, len(UNEVEN), 0, 0)
    for row, found in enumerate(jitter_of(y, UNEVEN)):
        squares = []
        for i in range(1, len(UNEVEN) - 1):
            share = (UNEVEN[i + 1] - UNEVEN[i]) / (UNEVEN[i + 1] - UNEVEN[i - 1])
            between = share * y[row, i - 1] + (1 - share) * y[row, i + 1]
            squares.append((y[row, i] - between) ** 2 / (1 + share**2 + (1 - share) ** 2))
        assert found == pytest.approx(np.sqrt(np.mean(squares)))


def _correlation(likelihood: np.ndarray) -> np.ndarray:
    weights, share = posteriors(likelihood)
    assert weights.sum(-1) == pytest.approx(1)
    own = np.exp(likelihood - likelihood.max(1, keepdims=True))
    return (share[:, None] * weights + (1 - share)[:, None] * own / own.sum(1, keepdims=True)) @ CORRELATIONS


@pytest.mark.parametrize("planted", [0.0, 0.5, 0.8])
def test_the_correlation_is_found_from_a_family(planted: float) -> None:
    found = design(np.arange(1.0, 41.0)).read(_noise(30, 40, planted, 1)).likelihood
    assert _correlation(found).mean() == pytest.approx(planted, abs=0.1)


def test_what_others_tell_of_a_curve_is_that_of_a_loop() -> None:
    likelihood = design(STEPS).read(_noise(3, len(STEPS), 0.4, 2)).likelihood
    weights, share = posteriors(likelihood)
    prior = np.exp(-4 * CORRELATIONS)
    for i in range(3):
        others = prior * np.exp(sum(likelihood[j] for j in range(3) if j != i))
        own = np.exp(likelihood[i])
        by_others, by_itself = (others * own).sum() / others.sum(), (prior * own).sum() / prior.sum()
        assert share[i] == pytest.approx(0.75 * by_others / (0.75 * by_others + 0.25 * by_itself))
        assert weights[i] == pytest.approx(others * own / (others * own).sum())


def test_one_curve_is_no_family() -> None:
    assert posteriors(design(STEPS).read(_noise(1, 16, 0, 1)).likelihood)[1] == 0


def test_a_quiet_majority_does_not_speak_for_curves_of_another_jitter() -> None:
    y = _noise(16, 100, 0, 2)
    y[:4] = 3 * _noise(4, 100, 0.8, 3)
    found = _correlation(design(np.arange(1.0, 101)).read(y).likelihood)
    assert found[:4].min() > 0.5
    assert found[4:].mean() < 0.2


@pytest.mark.parametrize("steps", [STEPS, np.arange(1.0, 31.0)])
def test_the_visible_fall_is_found_in_eight_of_ten_new_curves(steps: np.ndarray) -> None:
    of = design(steps)
    fall = of.visible * np.maximum(3 * steps / steps[-1] - 2, 0)
    found = of.alone(of.read(_noise(1500, len(steps), 0, 11) - fall)) <= 0.05
    assert found.mean() == pytest.approx(POWER, abs=0.06)


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.8])
def test_a_rise_at_the_beginning_of_what_never_rises_is_rare(correlation: float) -> None:
    of, noise = design(np.arange(1.0, 31.0)), _noise(2000, 30, correlation, 5)
    assert (of.rising_first(noise, of.read(noise)) <= 0.05).mean() <= 0.06
    risen = noise + 12 * np.minimum(np.arange(30) / 8, 1)
    assert (of.rising_first(risen, of.read(risen)) <= 0.05).mean() >= 0.95


def test_the_bend_is_found_by_trying_every_one() -> None:
    x, u = np.log(STEPS), STEPS / STEPS[-1]
    y = np.where(x < x[8], x - x[8], -3 * (x - x[8])) + 0.05 * _noise(4, len(STEPS), 0, 6)
    found, first = bends(y, STEPS, 0.0), int((u < 0.2).sum())
    for row in range(4):
        left = []
        for knot in range(first + 1, len(STEPS) - 2):
            tried = []
            for fall in (u, x):
                basis = np.stack([np.ones(len(x)), x, np.maximum(fall - fall[knot], 0)], axis=1)[first:]
                tried.append(float(np.linalg.lstsq(basis, y[row, first:], rcond=None)[1][0]))
            left.append(min(tried))
        assert found[row, 0] == first + 1 + int(np.argmin(left))
        assert found[row, 1] <= 8 <= found[row, 2]
        assert found[row, 2] - found[row, 1] <= 3


@pytest.mark.parametrize("before", ["level", "saturates", "rises to .1", "rises to .2"])
@pytest.mark.parametrize("fall", ["straight", "over ln(step)"])
def test_the_interval_holds_the_bend_of_curves_that_rise_first(before: str, fall: str) -> None:
    steps = np.arange(1.0, 41.0)
    u = steps / steps[-1]
    shapes = {"level": 0 * u, "saturates": 1 - np.exp(-u / 0.05), "rises to .1": np.minimum(u / 0.1, 1)}
    shapes["rises to .2"] = np.minimum(u / 0.2, 1)
    falls = {"straight": np.maximum(2 * u - 1, 0), "over ln(step)": np.maximum(np.log(2 * u), 0) / np.log(2)}
    y = 20 * shapes[before] - 8 * falls[fall] + _noise(300, 40, 0.5, 7)
    found = bends(y, steps, 0.5)
    assert np.mean((found[:, 1] <= 19) & (found[:, 2] >= 19)) >= 0.93


def test_what_lacks_checkpoints_says_which() -> None:
    assert shortcoming(STEPS) == ""
    assert "3 checkpoints in the last 80%" in shortcoming(np.array([1.0, 2, 3]))
    assert "second half of the last 41" in shortcoming(np.concatenate([np.arange(30.0, 70), [130]]))
    assert shortcoming(np.array([])) == "no checkpoint"
