"""Many fits at once: they end where scipy's optimiser and the full descent of every start end."""

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from uncone.rows import Array
from uncone.saturation.law.descent import descend
from uncone.saturation.law.fit import GRID, Law, fitted, problem_of

TRUE = Law(482.01, 0.3478, 2085.43, 0.3658, 1.8172)


def fit(*runs: Any, **options: Any) -> Law:
    return fitted(problem_of(*runs, **options))


def simulated(runs: int, noise: float, seed: int) -> tuple[Array, Array, Array]:
    generator = np.random.default_rng(seed)
    n, t = 10 ** generator.uniform(7.6, 10.2, runs), 10 ** generator.uniform(9.3, 12, runs)
    return n, t, TRUE.predict(n, t) * np.exp(noise * generator.standard_normal(runs))


def huber_sum(theta: Array, n: Array, t: Array, losses: Array, delta: float = 1e-3) -> tuple[float, Array]:
    """The sum and its gradient, as Hoffmann et al. 2022 write them in approach 3."""
    terms = np.stack([theta[0] - theta[1] * np.log(n), theta[2] - theta[3] * np.log(t), np.full(len(n), theta[4])])
    predicted = np.logaddexp.reduce(terms)
    residuals, shares = predicted - np.log(losses), np.exp(terms - predicted)
    size = np.abs(residuals)
    total = np.where(size <= delta, 0.5 * size**2, delta * (size - 0.5 * delta)).sum()
    along = np.stack([shares[0], -shares[0] * np.log(n), shares[1], -shares[1] * np.log(t), shares[2]])
    return float(total), along @ np.clip(residuals, -delta, delta)


@pytest.mark.parametrize("noise", [0.003, 0.03])
def test_no_start_of_scipy_ends_lower(noise: float) -> None:
    minimize = pytest.importorskip("scipy.optimize").minimize
    n, t, losses = simulated(12, noise, seed=1)
    law = fit(n, t, losses)
    assert law.objective == pytest.approx(huber_sum(law.theta, n, t, losses)[0], rel=1e-9)
    starts = [law.theta, TRUE.theta, np.array([5.0, 0.5, 5.0, 0.5, 0.0])]
    scaled = lambda theta: tuple(1e4 * part for part in huber_sum(theta, n, t, losses))  # noqa: E731
    options = {"maxiter": 200, "ftol": 1e-15, "gtol": 1e-12}
    ends = [minimize(scaled, start, jac=True, method="L-BFGS-B", options=options).fun / 1e4 for start in starts]
    assert law.objective <= min(ends) * (1 + 1e-9)


def test_the_sieve_loses_no_optimum_of_all_starts() -> None:
    n, t, losses = simulated(24, 0.01, seed=2)
    problem = problem_of(n, t, losses)
    every = np.array(list(itertools.product(*GRID)))
    assert len(every) == 4500
    _, sums = problem.descend(every)
    assert fitted(problem).objective <= sums.min() * (1 + 1e-10)


def test_descents_do_not_depend_on_each_other_nor_on_their_number() -> None:
    n, t, losses = simulated(30, 0.01, seed=3)
    problem = problem_of(n, t, losses)
    starts = np.random.default_rng(0).uniform((0, 0, 0, 0, -1), (20, 1, 20, 1, 1), (3000, 5))
    _, sums = problem.descend(starts, steps=20)
    _, few_sums = problem.descend(starts[1990:2010], steps=20)
    np.testing.assert_allclose(few_sums, sums[1990:2010], rtol=1e-6)
    assert (sums <= problem.descend(starts, steps=0)[1] * (1 + 1e-12)).all(), "no step raises the sum"
    held, _ = problem.descend(starts[:50], held=1)
    assert (held[:, 1] == starts[:50, 1]).all()


def test_squares_alone_are_least_squares() -> None:
    """With delta beyond all residuals, and A and alpha alone in L, the law is a line in logarithms."""
    generator = np.random.default_rng(4)
    x = generator.normal(size=40)
    y = 1.5 - 0.3 * x + 0.1 * generator.normal(size=40)
    slope, level = np.polyfit(x, y, 1)
    start = np.array([[0.0, 0.0, -800.0, 0.0, -800.0]])
    free = np.array([True, True, False, False, False])
    ends, sums = descend(
        start, free, np.stack([x, x]), y, box=np.array([[-np.inf] * 5, [np.inf] * 5]), delta=1e6, steps=200
    )
    assert ends[0, :2] == pytest.approx([level, -slope], rel=1e-9)
    assert sums[0] == pytest.approx(0.5 * ((y - level - slope * x) ** 2).sum())


@settings(max_examples=15, deadline=None)
@given(st.floats(0.01, 1000), st.floats(0.01, 1000), st.integers(0, 100))
def test_units_of_parameters_and_tokens_move_a_and_b_alone(millions: float, billions: float, seed: int) -> None:
    n, t, losses = simulated(10, 0.01, seed)
    fixed = {"alpha": 0.35, "beta": 0.37}
    law, moved = fit(n, t, losses, fixed=fixed), fit(n / millions, t / billions, losses, fixed=fixed)
    assert moved.objective == pytest.approx(law.objective, rel=1e-7)
    assert pytest.approx(law.A / millions**law.alpha, rel=1e-4) == moved.A
    assert pytest.approx(law.B / billions**law.beta, rel=1e-4) == moved.B
    assert pytest.approx(law.E, rel=1e-4) == moved.E
