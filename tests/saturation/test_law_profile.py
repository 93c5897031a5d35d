"""Profile intervals of noisy runs: each end is where a fit from every start says, or it is open."""

import json
import math

import numpy as np
import pytest

import uncone
from tests.saturation.odd_tables import odd_table
from tests.saturation.test_descent import TRUE, fit, simulated
from uncone import report
from uncone.errors import InputError
from uncone.rows import Array
from uncone.saturation.law.descent import descend
from uncone.saturation.law.fit import CONSTANTS, Law, fitted, problem_of
from uncone.saturation.law.intervals import CHI_SQUARE, Uncertainty, deviance, uncertainty

WITHOUT_E = 2
"""A seed of 12 runs at 10% noise whose best fit has E = 0."""


def noisy(seed: int, runs: int = 16, noise: float = 0.05) -> tuple[Array, Array, Array]:
    return simulated(runs, noise, seed=seed)


def known(n: Array, t: Array, losses: Array) -> Uncertainty:
    problem = problem_of(n, t, losses)
    return uncertainty(problem, fitted(problem), resamples=100)


def above(runs: tuple[Array, Array, Array], of: Uncertainty, name: str, value: float) -> float:
    """The deviance of all 900 starts with a constant at a value, over the threshold."""
    rise = np.array(fit(*runs, fixed={name: value}).objective - of.law.objective)
    return float(deviance(rise, np.array(of.noise), 1e-3)) / of.thresholds[CONSTANTS.index(name)]


@pytest.mark.parametrize("seed", [0, 2])
def test_e_is_bounded_where_every_start_says(seed: int) -> None:
    runs = noisy(seed)
    of = known(*runs)
    low, high = of.profiles()[4]
    assert above(runs, of, "E", high) == pytest.approx(1, rel=0.03)
    assert high > 1.001 * of.law.E
    assert (low is None) == (above(runs, of, "E", 1e-9) < 1)
    assert low is None or above(runs, of, "E", low) == pytest.approx(1, rel=0.03)


def spiked(of: Uncertainty, place: int, power: float) -> float:
    """The deviance over the threshold where a power is so far out that one run has the term: each run is tried."""
    problem, theta = of.problem, np.repeat(of.drawn[:20], len(of.problem.y), 0)
    runs = np.tile(np.arange(len(problem.y)), 20)
    theta[:, place] = power
    theta[:, place - 1] = problem.y[runs] - 2 + power * problem.x[place // 2, runs]
    rise = np.array(problem.descend(theta, held=place)[1].min() - of.law.objective)
    return float(deviance(rise, np.array(of.noise), problem.delta)) / of.thresholds[place]


def test_an_end_is_open_where_the_farthest_value_fits() -> None:
    runs = noisy(3, runs=12, noise=0.1)
    of = known(*runs)
    (low, high), beta = of.profiles()[1], of.profiles()[3]
    assert above(runs, of, "alpha", low) == pytest.approx(1, rel=0.03)
    assert high is None
    assert beta == (None, None)
    for place, ends in ((1, of.problem.limits[1:, 1]), (3, of.problem.limits[:, 3])):
        assert all(spiked(of, place, float(end)) < 1.01 for end in ends)


def test_no_threshold_is_below_that_of_many_runs() -> None:
    """A law that has lost E gives simulated runs whose sum hardly rises: their quantile alone was a width of 0."""
    assert min(known(*noisy(WITHOUT_E, runs=12, noise=0.1)).thresholds.values()) >= CHI_SQUARE


def without_e() -> dict[str, Array]:
    """Runs of a law of N and T alone."""
    n, t, _ = simulated(20, 0.0, seed=8)
    law = Law(TRUE.A, TRUE.alpha, TRUE.B, TRUE.beta, 1e-9)
    return {"n": n, "t": t, "loss": law.predict(n, t) * np.exp(0.01 * np.random.default_rng(8).standard_normal(20))}


def test_a_fit_without_e_says_so_and_has_no_bootstrap() -> None:
    record = uncone.fit_scaling_law(without_e(), resamples=100)
    e = record.constants[4]
    assert (e.value, e.profile[0], e.profile[1] is None) == (0, None, False)
    assert all(constant.bootstrap is None for constant in record.constants)
    assert "The best fit has E = 0: these runs show no loss that more N and T would not remove." in record.notes
    assert any("no bootstrap interval" in note for note in record.notes)
    assert "at most" in report.to_markdown(record)


@pytest.mark.parametrize(("runs", "has_one"), [(14, False), (16, True)])
def test_few_runs_have_no_bootstrap_and_a_note_gives_the_reason(runs: int, has_one: bool) -> None:
    n, t, losses = noisy(0, runs=runs, noise=0.01)
    record = uncone.fit_scaling_law({"n": n, "t": t, "loss": losses}, resamples=100)
    assert all((constant.bootstrap is not None) is has_one for constant in record.constants)
    assert any("too few for a bootstrap interval" in note for note in record.notes) is not has_one
    assert all(constant.profile is not None for constant in record.constants)


def test_an_open_end_is_in_the_verdict() -> None:
    n, t, losses = noisy(3, runs=12, noise=0.1)
    record = uncone.fit_scaling_law({"n": n, "t": t, "loss": losses}, resamples=100)
    power = next(c for c in record.constants[1::2] if c.profile and None in c.profile)
    assert any(f"{power.name} {word}" in record.verdict.replace(f"{power.value:.3g} (", "") for word in ("at", "not"))
    assert any(note.startswith("The runs do not bound ") for note in record.notes)


@pytest.mark.parametrize(
    "seed", [1, 3, 7, *(pytest.param(seed, marks=[pytest.mark.slow, pytest.mark.long]) for seed in range(8, 60))]
)
def test_no_table_of_positive_numbers_ends_in_a_crash(seed: int) -> None:
    """Every number is finite or open, and every view can be drawn."""
    table = odd_table(seed)
    smallest = float(np.quantile(table["n"], 0.3)) if seed % 4 == 0 else None
    try:
        record = uncone.fit_scaling_law(table, resamples=100, smallest=smallest)
    except InputError as error:
        assert "expected" in str(error)  # noqa: PT017
        return
    json.loads(record.to_json(), parse_constant=lambda word: pytest.fail(f"{word} in the record"))
    assert all(draw(record) for draw in (report.to_html, report.to_markdown, str))
    for constant in record.constants:
        low, high = constant.profile or (None, None)
        slack = 1e-6 * abs(constant.value) + 1e-12
        assert low is None or low <= constant.value + slack
        assert high is None or constant.value <= high + slack
        exact = record.noise is not None and record.noise < 1e-6
        assert low is None or high is None or low < high or exact


@pytest.mark.parametrize("column", ["n", "t", "loss"])
def test_another_unit_is_asked_for_where_floats_end(column: str) -> None:
    n, t, losses = noisy(0)
    table = {"n": n, "t": t, "loss": losses}
    with pytest.raises(InputError, match="give them in another unit"):
        uncone.fit_scaling_law(table | {column: table[column] * 1e60})


def test_a_limit_of_a_descent_is_not_crossed_and_what_is_left_is_least() -> None:
    """A line through points with slope 2, when no slope above 1 may be tried: the best level for slope 1."""
    x = np.linspace(-1, 1, 9)
    start, free = np.array([[0.0, 0.0, -800.0, 0.0, -800.0]]), np.array([True, True, False, False, False])
    box = np.array([[-10.0, -1.0, 0, 0, 0], [10.0, 1.0, 0, 0, 0]])
    ends, _ = descend(start, free, np.stack([x, x]), 0.5 - 2 * x, delta=1e6, steps=100, box=box)
    assert ends[0, :2] == pytest.approx([0.5, 1.0])


def test_one_constant_of_each_descent_may_be_held() -> None:
    problem = problem_of(*noisy(0))
    theta = np.repeat(TRUE.theta[None], 5, 0)
    together, sums = problem.descend(theta, held=np.arange(5))
    for place in range(5):
        alone, lone = problem.descend(theta[:1], held=place)
        assert together[place, place] == theta[0, place]
        assert sums[place] == pytest.approx(lone[0], rel=1e-6)
        assert math.isfinite(alone.sum())


def test_the_unit_of_a_column_changes_no_power() -> None:
    n, t, losses = simulated(24, 0.01, seed=2)
    law = fit(n, t, losses)
    other = fit(n / 1e9, t / 1e20, losses * 1e12)
    assert other.objective == pytest.approx(law.objective, rel=1e-9)
    assert [other.alpha, other.beta, other.E / 1e12] == pytest.approx([law.alpha, law.beta, law.E], rel=1e-4)
