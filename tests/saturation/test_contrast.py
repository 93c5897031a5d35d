"""The contrast and its jitter against slow loops; the tails and the isotonic fit against scipy and scikit-learn."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from uncone.saturation.curves.contrast import (
    CORRELATIONS,
    change_points,
    contrasts,
    design,
    p_of,
    posteriors,
    shortcoming,
)
from uncone.saturation.curves.peak import Noise, p_of_peak
from uncone.statistics.isotonic import isotonic
from uncone.statistics.tails import NORMAL, log_tail, point_of

STEPS = np.array([1000, 3000, *range(13000, 144000, 10000)], float)
UNEVEN = np.array([1, 2, 5, 9, 10, 14, 20, 22, 27, 30, 33, 37, 41, 48, 50, 55], float)


@pytest.mark.parametrize("degrees", [1, 2, 5, 11, 100, NORMAL])
def test_tails_are_those_of_scipy(degrees: int) -> None:
    stats = pytest.importorskip("scipy.stats")
    law = stats.norm if degrees == NORMAL else stats.t(degrees)
    t = np.linspace(-6, 25, 300)
    expected = law.logsf(t)
    assert log_tail(t, degrees) == pytest.approx(expected, rel=1e-4, abs=1e-5)
    assert point_of(expected, degrees) == pytest.approx(t, abs=1e-3)


@pytest.mark.parametrize("steps", [STEPS, UNEVEN])
def test_contrast_and_jitter_are_those_of_a_loop(steps: np.ndarray) -> None:
    y = np.random.default_rng(0).standard_normal((3, len(steps)))
    found = contrasts(y, np.full_like(y, 0.01), design(steps))
    for row in range(3):
        late = [y[row, i] for i in range(len(steps)) if steps[i] >= 0.77 * steps[-1]]
        middle = [y[row, i] for i in range(len(steps)) if 0.22 * steps[-1] <= steps[i] <= 0.52 * steps[-1]]
        squares = []
        body = [i for i in range(len(steps)) if steps[i] >= 0.2 * steps[-1]]
        for left, i, right in zip(body, body[1:], body[2:], strict=False):
            share = (steps[right] - steps[i]) / (steps[right] - steps[left])
            between = share * y[row, left] + (1 - share) * y[row, right]
            squares.append((y[row, i] - between) ** 2 / (1 + share**2 + (1 - share) ** 2))
        sigma = math.sqrt(sum(squares) / len(squares))
        assert found.value[row] == pytest.approx(sum(late) / len(late) - sum(middle) / len(middle))
        assert found.jitter[row] == pytest.approx(sigma)
        assert found.error[row] == pytest.approx(sigma * math.sqrt(1 / len(late) + 1 / len(middle)))


def test_the_standard_error_counts_where_it_is_the_larger() -> None:
    y = 1e-6 * np.random.default_rng(0).standard_normal((1, len(STEPS)))
    of = design(STEPS)
    found = contrasts(y, np.full_like(y, 0.5), of)
    assert found.error[0] == pytest.approx(0.5 * math.sqrt(1 / of.late.sum() + 1 / of.middle.sum()))


def test_the_restricted_likelihood_is_that_of_residuals() -> None:
    """It is the likelihood of contrasts that no quadratic trend can move, up to a constant."""
    stats = pytest.importorskip("scipy.stats")
    of, y = design(STEPS), np.random.default_rng(4).standard_normal((1, len(STEPS)))
    found, body = contrasts(y, None, of), STEPS[of.body]
    x = np.vander((body - body.mean()) / np.ptp(body), 3)
    free = np.linalg.qr(x, mode="complete")[0][:, 3:].T
    expected = []
    for k in range(len(CORRELATIONS)):
        covariance = free @ of.correlation[k][: len(body), : len(body)] @ free.T * found.variances[0, k]
        expected.append(stats.multivariate_normal(cov=covariance).logpdf(free @ y[0, of.body]))
    difference = found.likelihood[0] - np.array(expected)
    assert difference == pytest.approx(np.full(20, difference[0]), abs=1e-6)


def test_a_curve_without_jitter_has_no_correlation_of_its_rounding() -> None:
    body = STEPS / STEPS[-1]
    found = contrasts(np.stack([np.zeros(len(STEPS)), body, 1 - body**2]), None, design(STEPS))
    assert np.all(found.variances == found.variances[0, 0])
    assert np.all(found.likelihood == found.likelihood[0])


def test_the_correlation_is_found_from_a_family() -> None:
    random = np.random.default_rng(1)
    for planted in (0.0, 0.5, 0.8):
        steps = np.arange(1.0, 41.0)
        root = np.linalg.cholesky(planted ** np.abs(np.subtract.outer(np.arange(40), np.arange(40))))
        found = contrasts(random.standard_normal((30, 40)) @ root.T, None, design(steps))
        assert (posteriors(found.likelihood) @ CORRELATIONS).mean() == pytest.approx(planted, abs=0.08)


def test_one_curve_has_its_own_correlation() -> None:
    found = contrasts(np.random.default_rng(1).standard_normal((1, 16)), None, design(STEPS))
    own = np.exp(found.likelihood - found.likelihood.max())
    assert posteriors(found.likelihood) == pytest.approx(own / own.sum())


def test_a_quiet_majority_does_not_speak_for_curves_of_another_jitter() -> None:
    n, random = 100, np.random.default_rng(2)
    root = np.linalg.cholesky(0.8 ** np.abs(np.subtract.outer(np.arange(n), np.arange(n))))
    y = random.standard_normal((16, n))
    y[:4] = 3 * y[:4] @ root.T
    found = posteriors(contrasts(y, None, design(np.arange(1.0, n + 1))).likelihood) @ CORRELATIONS
    assert found[:4].min() > 0.5
    assert found[4:].mean() < 0.2


def test_the_chance_of_a_contrast_is_uniform_under_white_jitter_about_a_quadratic() -> None:
    random, of = np.random.default_rng(2), design(np.arange(1.0, 31.0))
    y = random.standard_normal((2000, 30))
    p = p_of(contrasts(y, None, of), None, of, np.tile(np.eye(20)[0], (2000, 1)))
    assert np.mean(p <= 0.025) == pytest.approx(0.025, abs=0.012)
    assert np.mean(p <= 0.5) == pytest.approx(0.5, abs=0.04)


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=30))
def test_the_isotonic_fit_is_that_of_pooled_violators(values: list[float]) -> None:
    fitted = isotonic(np.array([values]))[0]
    blocks = list[list[float]]()
    for value in values:
        blocks.append([value])
        while len(blocks) > 1 and np.mean(blocks[-2]) > np.mean(blocks[-1]):
            last = blocks.pop()
            blocks[-1] += last
    expected = [float(np.mean(block)) for block in blocks for _ in block]
    assert fitted == pytest.approx(expected, abs=1e-9)
    assert (np.diff(fitted) >= -1e-12).all()


def test_the_isotonic_fit_is_that_of_scikit_learn() -> None:
    isotonic_regression = pytest.importorskip("sklearn.isotonic").isotonic_regression
    y = np.random.default_rng(0).standard_normal((20, 50)).cumsum(1)
    for fitted, values in zip(isotonic(y), y, strict=True):
        assert fitted == pytest.approx(isotonic_regression(values))


@pytest.mark.parametrize("degrees", [NORMAL, 9])
@pytest.mark.parametrize("k", [0, 12])
def test_the_chance_of_a_peak_is_that_of_a_counted_bootstrap(degrees: int, k: int) -> None:
    random, of = np.random.default_rng(5), design(STEPS)
    errors = 0.02 * np.exp(0.3 * random.standard_normal((4, len(STEPS))))
    y = 0.02 * random.standard_normal((4, len(STEPS))) + np.linspace(0, 0.05, len(STEPS))
    y[:, -1] -= 0.03 * np.arange(4)
    weights = np.tile(np.eye(20)[k], (4, 1))
    p = p_of_peak(y, Noise(errors, np.full((4, 20), 1.2), degrees), of, weights, seed=0, tick=lambda _: None)
    for row in range(4):
        drawn = random.standard_normal((100_000, len(STEPS))) @ of.root[k].T * errors[row] * 1.2
        if degrees < NORMAL:
            drawn /= np.sqrt(random.chisquare(degrees, (100_000, 1)) / degrees)
        drawn += isotonic(y[[row]])[0]
        counted = np.mean(drawn.max(1) - drawn[:, -1] >= y[row].max() - y[row, -1])
        assert p[row] == pytest.approx(counted, rel=0.15, abs=5e-5)


def test_a_chance_far_out_lies_between_its_bounds() -> None:
    """At 20 deviations no count reaches it; it is at least the chance of one value, at most the sum over all."""
    stats = pytest.importorskip("scipy.stats")
    of, y = design(STEPS), np.zeros((1, len(STEPS)))
    y[0, 5], y[0, -1] = 10, -10
    white = np.eye(20)[[0]]
    p = p_of_peak(y, Noise(np.ones_like(y), np.ones((1, 20)), NORMAL), of, white, seed=0, tick=lambda _: None)
    mean = isotonic(y)[0]
    each = stats.norm.sf((20 - mean[:-1] + mean[-1]) / math.sqrt(2))
    assert max(each) <= p[0] <= 1.002 * sum(each)
    assert p[0] < 1e-40


def test_a_curve_that_ends_at_its_peak_has_the_chance_one() -> None:
    y, white = np.arange(16.0)[None], np.eye(20)[[0]]
    noise = Noise(np.ones_like(y), np.ones((1, 20)), NORMAL)
    assert p_of_peak(y, noise, design(STEPS), white, seed=0, tick=lambda _: None) == [1.0]


def test_the_bend_is_found_by_trying_every_one() -> None:
    random = np.random.default_rng(6)
    x = np.log(STEPS)
    y = np.where(x < x[8], x - x[8], -3 * (x - x[8])) + 0.05 * random.standard_normal((4, len(STEPS)))
    found = change_points(y, STEPS, np.eye(len(STEPS)))
    for row in range(4):
        left = []
        for knot in range(2, len(STEPS) - 2):
            basis = np.stack([np.ones(len(x)), x, np.maximum(x - x[knot], 0)], axis=1)
            left.append(float(np.linalg.lstsq(basis, y[row], rcond=None)[1][0]))
        assert found[row, 0] == 2 + int(np.argmin(left))
        assert found[row, 1] <= 8 <= found[row, 2]
        assert found[row, 2] - found[row, 1] <= 3


def test_what_lacks_checkpoints_says_which() -> None:
    assert shortcoming(STEPS) == ""
    assert "3 checkpoints in the last 80%" in shortcoming(np.array([1.0, 2, 3]))
    assert "middle window" in shortcoming(np.concatenate([[1], np.arange(60.0, 101)]))
    assert "late window" in shortcoming(np.concatenate([np.arange(20.0, 70), [100]]))
    assert shortcoming(np.array([])) == "no checkpoint"
