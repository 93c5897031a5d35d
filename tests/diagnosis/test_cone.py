"""A direction that all points avoid: against a linear programme, planted margins, hulls that hold 0."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from uncone.diagnosis.why.direction.cone import Separation, layer_norm_direction, separate, separation_chance
from uncone.errors import InputError
from uncone.rows import Array


def _planted(n: int, d: int, margin: float, seed: int = 0) -> tuple[Array, Array]:
    """Points whose heights along a unit vector are at least `margin` times their mean norm, and the vector."""
    random = np.random.default_rng(seed)
    points, v = random.standard_normal((n, d)), random.standard_normal(d)
    v /= np.linalg.norm(v)
    heights = points @ v
    least = margin * float(np.linalg.norm(points, axis=1).mean())
    return points + np.outer(np.abs(heights) - heights + least, v), v


def _proven(found: Separation, points: Array) -> None:
    """What is claimed follows from the numbers in it, by other sums than the search makes."""
    heights = np.array([np.dot(point.astype(np.float64), found.direction) for point in points])
    if found.margin > -np.inf:
        assert heights.max() <= -found.margin
    weighed = sum(w * points[i].astype(np.float64) for w, i in zip(found.weights, found.support, strict=True))
    assert found.weights.min() >= 0
    assert found.weights.sum() == pytest.approx(1, abs=1e-12)
    assert np.linalg.norm(weighed) <= found.bound
    assert found.margin <= found.bound
    assert not (found.is_inside and found.margin > 0)


@pytest.mark.parametrize("ratio", [1.9, 2.0, 2.1])
def test_random_clouds_are_decided_as_a_linear_programme_decides_them(ratio: float) -> None:
    linprog = pytest.importorskip("scipy.optimize").linprog
    undecided = 0
    for seed in range(60):
        random = np.random.default_rng([seed, int(10 * ratio)])
        d = int(random.integers(2, 30))
        points = random.standard_normal((round(ratio * d), d))
        n, found = len(points), separate(points)
        rows = np.column_stack([points, np.ones(n)])
        best = linprog(np.append(np.zeros(d), -1.0), A_ub=rows, b_ub=np.zeros(n), bounds=[(-1, 1)] * d + [(None, 1)])
        _proven(found, points)
        undecided += found.exists is None
        assert found.exists in (-best.fun > 1e-9, None)
    assert undecided <= 3


def test_a_kept_inverse_gives_the_weights_of_a_solver(monkeypatch: pytest.MonkeyPatch) -> None:
    points = np.random.default_rng(0).standard_normal((190, 100))
    solved = list[int]()
    solve = np.linalg.solve
    monkeypatch.setattr(np.linalg, "solve", lambda a, b: solved.append(len(a)) or solve(a, b))
    found = separate(points)
    assert found.steps > 100
    assert sum(size > 10 for size in solved) < found.steps / 10, "whole systems are rare"
    gram = points[found.support] @ points[found.support].T
    weights = solve(gram + 1.0, np.ones(len(gram)))
    assert found.weights == pytest.approx(weights / weights.sum(), abs=1e-9)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("margin", [1e-3, 0.1])
def test_a_planted_margin_is_proven(dtype: type, margin: float) -> None:
    points, v = _planted(2000, 32, margin)
    found = separate(points.astype(dtype))
    _proven(found, points.astype(dtype))
    assert found.exists is True
    assert found.bound >= float((points @ v).min()) * (1 - 1e-5)
    assert found.margin >= 0.98 * found.bound


@settings(max_examples=40)
@given(st.integers(1, 12), st.integers(1, 8), st.integers(0, 10**6))
def test_hulls_that_hold_zero_are_never_separated(n: int, d: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    points = random.standard_normal((n, d))
    closed = np.vstack([points, -random.dirichlet(np.ones(n)) @ points])  # a weighed sum is 0
    found = separate(closed)
    _proven(found, closed)
    assert found.exists is False


@pytest.mark.parametrize("power", [-664, -100, 100, 664])
@pytest.mark.parametrize("shift", [0.0, 0.05, 1.0])
def test_states_of_any_scale_have_the_same_answer(power: int, shift: float) -> None:
    points = np.random.default_rng(5).standard_normal((300, 6)) + shift
    before, found = separate(points), separate(np.ldexp(points, power))
    assert (found.exists, found.is_inside, found.steps) == (before.exists, before.is_inside, before.steps)
    assert (found.direction == before.direction).all()
    for name in ("margin", "bound", "mean_norm"):
        assert getattr(found, name) == np.ldexp(getattr(before, name), power)


def test_the_point_nearest_to_zero_is_known() -> None:
    found = separate(np.array([[1.0, 2.0], [1.0, -2.0], [3.0, 2.0], [3.0, -2.0]]))
    assert found.exists is True
    np.testing.assert_allclose(found.direction, [-1, 0], atol=1e-12)
    assert found.margin == pytest.approx(1.0)
    assert found.margin < 1.0 < found.bound


def test_zero_inside_and_zero_on_the_edge_are_told_apart() -> None:
    triangle = np.array([[0.0, 2.0], [1.0, -1.0], [-1.0, -1.0]])
    assert separate(triangle).is_inside
    edge = separate(triangle + np.array([0.0, 1.0]))  # on an edge no direction has a margin, but 0 is not inside
    assert (edge.exists, edge.is_inside) == (False, False)


def test_too_few_steps_leave_it_undecided() -> None:
    points, _ = _planted(500, 20, 1e-3)
    found = separate(points, most=3)
    _proven(found, points)
    assert found.exists is None


def test_one_point_equal_points_and_none() -> None:
    assert separate(np.array([[3.0, 4.0]])).margin == pytest.approx(5)
    equal = separate(np.ones((50, 3)))
    assert (equal.exists, equal.margin) == (True, pytest.approx(3**0.5))
    assert separate(np.zeros((5, 3))).exists is False
    for points, message in ((np.zeros((0, 3)), "at least one state"), (np.array([[1.0, np.nan]]), "finite states")):
        with pytest.raises(InputError, match=message):
            separate(points)


@pytest.mark.parametrize("tiny", [1.0, 1e-12])
def test_every_output_of_a_layer_norm_avoids_the_direction(tiny: float) -> None:
    random = np.random.default_rng(0)
    gain, bias = random.uniform(0.5, 2, 64), random.normal(0, 0.3, 64)
    gain[3] *= tiny
    direction, margin = layer_norm_direction(gain, bias)
    z = random.standard_normal((4000, 64)) * random.lognormal(0, 1, 64)
    z -= z.mean(1, keepdims=True)
    states = gain * z / z.std(1, keepdims=True) + bias
    np.testing.assert_allclose(states @ direction, -margin, atol=1e-9)
    assert np.linalg.norm(direction) == pytest.approx(1)
    assert separate(states).bound >= margin * (1 - 1e-9)


def test_gains_of_zero_and_norms_without_bias() -> None:
    direction, margin = layer_norm_direction(np.array([1.0, 0, 0]), np.array([5.0, -2, 1]))
    assert (direction.tolist(), margin) == ([0, 1, 0], 2)
    assert layer_norm_direction(np.ones(3), np.zeros(3))[1] == 0
    assert layer_norm_direction(np.array([1.0, 0.0]), np.array([1.0, 0.0]))[1] == 0
    with pytest.raises(InputError, match="shapes"):
        layer_norm_direction(np.ones(3), np.ones(2))


@settings(max_examples=60)
@given(st.integers(1, 60), st.integers(1, 30))
def test_the_chance_of_cover_by_whole_numbers(n: int, d: int) -> None:
    exact = sum(math.comb(n - 1, k) for k in range(d)) / 2 ** (n - 1)
    assert separation_chance(n, d) == pytest.approx(exact, rel=1e-9, abs=1e-12)


def test_random_clouds_are_separated_as_often_as_cover_says() -> None:
    n, d = 22, 10
    found = [separate(np.random.default_rng(i).standard_normal((n, d))).exists for i in range(400)]
    assert np.mean(found) == pytest.approx(separation_chance(n, d), abs=0.075)
