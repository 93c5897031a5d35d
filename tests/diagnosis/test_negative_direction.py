"""Whether all states avoid a direction: planted clouds, outliers, held-out states, the closed form of a norm."""

from types import SimpleNamespace

import numpy as np
import pytest

from tests.rows.reading import refuses
from uncone.diagnosis.why.direction.cone import separate
from uncone.diagnosis.why.direction.negative_direction import _programmed, uniformly_negative_direction
from uncone.diagnosis.why.direction.record import NegativeDirection
from uncone.rows import Array


def _cloud(n: int, d: int, shift: float, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal((n, d)) + shift


def _of(found: NegativeDirection, name: str) -> object:
    return next(one for one in found.clouds if one.name == name).exists


def _norm_states(n: int, seed: int = 0) -> tuple[Array, Array, Array]:
    random = np.random.default_rng(seed)
    gain, bias = random.uniform(0.5, 2, 24), random.normal(0, 0.3, 24)
    z = random.standard_normal((n, 24))
    z -= z.mean(1, keepdims=True)
    return gain * z / z.std(1, keepdims=True) + bias, gain, bias


def test_a_shifted_cloud_has_a_direction_that_holds_on_new_states() -> None:
    states = _cloud(3000, 16, 3)
    found = uniformly_negative_direction(states)
    assert (found.exists, found.violations, found.held_out) == (True, 0, 1500)
    direction = np.array(found.direction)
    assert np.linalg.norm(direction) == pytest.approx(1)
    assert (states @ direction).max() < 0
    assert 0 < found.margin <= found.bound
    assert found.cosine_to_mean > 0.98
    exist = {name: _of(found, name) for name in ("random signs", "without their mean", "unit length")}
    assert exist == {"random signs": False, "without their mean": False, "unit length": True}
    assert found.chance == 0
    assert "avoid one direction" in found.verdict


def test_a_centred_cloud_has_none_exactly() -> None:
    found = uniformly_negative_direction(_cloud(3000, 16, 0.1))
    assert (found.exists, found.exact, found.direction, found.margin) == (False, True, (), None)
    assert "There is no direction" in found.verdict


def test_one_long_state_decides_and_is_said() -> None:
    states = np.vstack([_cloud(1000, 16, 3), np.full((1, 16), -60.0)])
    found = uniformly_negative_direction(states, held_out=_cloud(200, 16, 3, seed=1))
    assert (found.exists, _of(found, "without outliers")) == (False, True)
    assert "1 state longer" in next(one.remark for one in found.clouds if one.name == "without outliers")


def test_few_points_prove_little() -> None:
    few = uniformly_negative_direction(_cloud(30, 20, 0))
    assert (few.exists, few.violations > 0) == (None, True)
    assert "held-out" in few.verdict
    likely = uniformly_negative_direction(_cloud(60, 40, 0.8), held_out=_cloud(5, 40, 3))
    assert (likely.exists, likely.chance > 0.01) == (True, True)
    assert "so this shows little about the model" in likely.verdict


def test_held_out_states_that_leave_no_direction_make_it_false() -> None:
    found = uniformly_negative_direction(_cloud(400, 8, 3), held_out=_cloud(400, 8, -3))
    assert (found.exists, found.violations) == (False, 400)
    assert "none is left with these included" in found.verdict


def test_windows_are_held_out_as_a_whole() -> None:
    states = _cloud(600, 4, 5)
    windows = np.repeat(np.arange(6), 100)
    found = uniformly_negative_direction(states, windows=windows)
    assert (found.n, found.held_out) == (300, 300)
    assert uniformly_negative_direction(states, windows=windows, most=150).n == 100
    refuses("a window for each", uniformly_negative_direction, states, windows=windows[1:])


def test_the_norm_alone_and_beside_its_states() -> None:
    states, gain, bias = _norm_states(2000)
    alone = uniformly_negative_direction((gain, bias))
    module = SimpleNamespace(weight=gain, bias=bias)
    assert uniformly_negative_direction(module) == alone
    beside = uniformly_negative_direction(states, norm=module)
    assert alone.exists is True
    assert (beside.exists, beside.norm.violations) == (True, 0)
    assert beside.norm.deviation < 1e-12
    assert beside.norm.share == pytest.approx(alone.margin, rel=0.02)
    np.testing.assert_allclose(states @ np.array(alone.direction), -beside.norm.margin, atol=1e-9)
    wrong = uniformly_negative_direction(_cloud(2000, 24, 0), norm=module)
    assert (wrong.exists, wrong.norm.violations > 0) == (False, True)


def test_a_norm_holds_where_too_few_states_do_not() -> None:
    states, gain, bias = _norm_states(60)
    without = uniformly_negative_direction(states)
    found = uniformly_negative_direction(states, norm=(gain, bias))
    assert without.violations > 0
    assert (found.exists, found.violations) == (True, 0)


def test_norms_without_bias_say_nothing() -> None:
    found = uniformly_negative_direction(SimpleNamespace(weight=np.ones(8), bias=None))
    assert (found.exists, found.norm) == (None, None)
    states = _cloud(500, 8, 3)
    assert uniformly_negative_direction(states, norm=SimpleNamespace(weight=np.ones(8))).norm is None
    refuses("a norm of 8 gains", uniformly_negative_direction, states, norm=(np.ones(4), np.ones(4)))


@pytest.mark.parametrize("shift", [0.0, 1.0])
def test_a_programme_decides_what_the_search_left(shift: float) -> None:
    pytest.importorskip("scipy")
    points = _cloud(200, 10, shift)
    left = separate(points, most=2)
    assert left.exists is None
    found = _programmed(points, left, 1e-4)
    assert found.exists is (shift > 0)
    if found.exists:
        assert (points @ found.direction).max() <= -found.margin
    else:
        weighed = sum(w * points[i] for w, i in zip(found.weights, found.support, strict=True))
        assert np.linalg.norm(weighed) <= found.bound < 1e-4 * found.mean_norm


def test_bad_states_are_refused_and_progress_is_told() -> None:
    refuses("expected states", uniformly_negative_direction, np.ones(3))
    refuses("held-out states", uniformly_negative_direction, _cloud(30, 4, 1), held_out=np.ones((3, 5)))
    said: list[str] = []
    found = uniformly_negative_direction(_cloud(100, 4, 3), progress=lambda step, *_: said.append(step))
    assert "seeking a direction" in said
    assert "states per dimension" in str([*map(vars, found.blocks())])


def test_lengths_of_states_change_the_margin_and_not_the_answer() -> None:
    states = _cloud(1000, 8, 4)
    scaled = states * np.random.default_rng(1).lognormal(0, 0.3, (1000, 1))
    before, after = uniformly_negative_direction(states), uniformly_negative_direction(scaled)
    assert before.exists is after.exists is True
    cosine = [next(one.margin for one in found.clouds if one.name == "unit length") for found in (before, after)]
    assert cosine[0] == pytest.approx(cosine[1], rel=0.02)


def test_held_out_states_are_asked_of_the_norms_direction_too() -> None:
    states, gain, bias = _norm_states(400)
    found = uniformly_negative_direction(states, norm=(gain, bias), held_out=-states[:30])
    assert (found.exists, found.violations) != (True, 0)
    honest = uniformly_negative_direction(states[:350], norm=(gain, bias), held_out=states[350:])
    assert honest.exists is True
    assert honest.held_out_margin > 0


def test_numbers_that_are_not_finite_are_refused_wherever_they_stand() -> None:
    states = _cloud(400, 8, 3)
    for place in (0, 399):
        damaged = states.copy()
        damaged[place, 2] = np.nan
        for seed in range(4):
            refuses("expected finite states", uniformly_negative_direction, damaged, seed=seed)
    refuses("expected finite states", uniformly_negative_direction, states, held_out=np.full((5, 8), np.inf))


@pytest.mark.parametrize("bias", [[0.1, 0.2, -0.3], [0.1, 0.7, -0.8]])
def test_a_sum_that_is_rounding_is_no_direction(bias: list[float]) -> None:
    assert uniformly_negative_direction((np.ones(3), np.array(bias))).exists is None
    random = np.random.default_rng(0).standard_normal(768)
    assert uniformly_negative_direction((np.ones(768), random - random.mean())).exists is None
    assert uniformly_negative_direction((np.ones(768), random)).exists is True


def test_without_held_out_states_nothing_is_claimed() -> None:
    random = np.random.default_rng(0)
    few = uniformly_negative_direction(random.standard_normal((10, 16)) + 3)
    assert (few.exists, "too few to hold some out" in few.verdict) == (None, True)
    one_window = uniformly_negative_direction(random.standard_normal((150, 200)), windows=np.zeros(150, int))
    assert one_window.held_out > 0
    assert one_window.exists is not True


def test_a_refusal_by_held_out_states_carries_its_own_proof() -> None:
    states = np.vstack([_cloud(300, 4, 3), _cloud(300, 4, -3)])
    found = uniformly_negative_direction(states[:300], held_out=states[300:])
    assert found.exists is found.clouds[1].exists is False
    assert found.bound < found.epsilon


def test_a_settled_search_ends() -> None:
    """Columns of falling size, as states have: steps into the rounding of float32 decide nothing."""
    points = (np.random.default_rng(0).standard_normal((2600, 128)) / np.arange(1, 129)).astype(np.float32)
    found = separate(points)
    assert (found.exists, found.steps < 3000) == (False, True)


def test_states_of_zeros_are_read_with_a_norm() -> None:
    assert uniformly_negative_direction(np.zeros((40, 4)), norm=(np.ones(4), np.ones(4))).exists is not True
