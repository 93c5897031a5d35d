"""Where a series turns: fits against slow loops, planted turns, and none where there is none."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.studies import first_of
from uncone.rows import Array
from uncone.saturation.checkpoints import turns
from uncone.saturation.checkpoints.turns import find_turn, probability_before
from uncone.statistics.isotonic import rising

X = np.linspace(0.0, 29.0, 30)


def _wander(n: int, correlation: float, generator: np.random.Generator) -> Array:
    """AR(1) noise of variance 1."""
    out = generator.standard_normal(n)
    for i in range(1, n):
        out[i] = correlation * out[i - 1] + np.sqrt(1 - correlation**2) * out[i]
    return out


def _find(x: Array, y: Array, *, draws: int = 300, seed: int = 0, peak: bool = False) -> turns.Turn:
    generator = np.random.default_rng(seed)
    found = find_turn(x, y, generator.standard_normal((draws, len(x))), generator, peak=peak)
    assert found is not None
    return found


def _slowly_rising(y: list[float]) -> list[float]:
    """The isotonic fit by its min-max formula (Barlow et al. 1972)."""
    n = len(y)
    return [max(min(np.mean(y[a : b + 1]) for b in range(i, n)) for a in range(i + 1)) for i in range(n)]


def _square(part: list[float], sign: int) -> float:
    """What a rising fit leaves, of sign times the part."""
    fit = [sign * value for value in _slowly_rising([sign * value for value in part])] if part else []
    return float(np.square(np.array(part) - fit).sum())


@settings(max_examples=20)
@given(st.lists(st.integers(-5, 5).map(float), min_size=3, max_size=10))
def test_the_parts_are_the_best_of_all_cuts(y: list[float]) -> None:
    values, n = np.array(y), len(y)
    parts = turns._Parts(np.array([y, [3 * value + 1 for value in y]]))
    ends = {n, *(n * part // 8 for part in range(3, 8))}
    tried = [(k, end) for end in ends if end > 2 for k in range(1, end + 1)]
    least = min(_square(y[:k], -1) + _square(y[k:end], 1) + _square(y[end:], -1) for k, end in tried)
    assert parts.left == pytest.approx([least, 9 * least], abs=1e-6)
    assert [parts.left[0], float(np.square(values - parts.fit(values)).sum())] == pytest.approx([least] * 2, abs=1e-9)
    np.testing.assert_allclose(rising(values), _slowly_rising(y), atol=1e-9)


def test_a_turn_stays_where_it_was_when_the_series_recovers() -> None:
    """Of 30 checkpoints the six that rise are too few to be sure."""
    for n in (30, 90):
        x = np.linspace(0, 29, n)
        y = np.interp(x, [0, 10, 16, 29], [10.0, 0.0, 6.0, 2.0]) + 0.3 * np.random.default_rng(0).standard_normal(n)
        found = _find(x, y)
        assert found.low <= 10 <= found.high
    assert found.p < turns.LEVEL


def test_the_noise_has_the_restricted_likelihood_of_its_contrasts() -> None:
    y = np.where(X < 12, 12 - X, 0.5 * (X - 12)) + 2 * _wander(30, 0.5, np.random.default_rng(0))
    fit = turns._Parts(y[None]).fit(y)
    noise = turns._noise_of(y, fit)
    block = np.concatenate([[0], np.cumsum(np.diff(fit) != 0)])
    levels = np.equal.outer(block, np.unique(block)).astype(float)
    contrasts = np.linalg.qr(levels, mode="complete")[0][:, levels.shape[1] :].T
    lag, densities = np.abs(np.subtract.outer(np.arange(30), np.arange(30))), []
    for place, phi in enumerate(noise.correlations):
        covariance = contrasts @ phi**lag @ contrasts.T
        square = contrasts @ y @ np.linalg.solve(covariance, contrasts @ y)
        assert noise.squares[place] == pytest.approx(square, rel=1e-9)
        densities.append(-np.linalg.slogdet(covariance)[1] / 2 - len(contrasts) / 2 * np.log(square))
    expected = np.exp(np.array(densities) - max(densities))
    np.testing.assert_allclose(noise.weights, expected / expected.sum(), rtol=1e-8)


@pytest.mark.parametrize("correlation", [0.0, 0.5])
def test_a_planted_turn_is_found_in_its_interval(correlation: float) -> None:
    y = np.where(X < 12, 1.5 * (12 - X), 0.5 * (X - 12)) + 0.4 * _wander(30, correlation, np.random.default_rng(3))
    found = _find(X, y)
    assert found.p < turns.LEVEL
    assert found.low <= 12 <= found.high
    assert found.high - found.low < 8
    turned_over = _find(X, -y, peak=True)
    assert (turned_over.at, turned_over.p) == pytest.approx((found.at, found.p), rel=1e-6)
    scaled = _find(1000 * X, 5 * y + 7)
    assert scaled.at == pytest.approx(1000 * found.at)
    assert scaled.p == pytest.approx(found.p, rel=1e-6)


@pytest.mark.parametrize("series", ["falls", "rises", "constant", "plateau", "smooth", "peak"])
def test_what_never_turns_did_not_turn(series: str) -> None:
    noise = 0.02 * _wander(30, 0.5, np.random.default_rng(5))
    shapes = {"falls": 3 + 2 / np.sqrt(1 + X), "rises": np.log(1 + X), "plateau": 3 + 3 * np.exp(-X)}
    shapes |= {"peak": 3 - 0.1 * np.abs(X - 12)}
    still = {"constant": np.full(30, 2.0), "smooth": shapes["falls"]}
    assert _find(X, still[series] if series in still else shapes[series] + noise).p > turns.LEVEL


def test_a_turn_without_noise_is_as_fine_as_its_checkpoints() -> None:
    found = _find(X, np.abs(X - 12.0) + 1)
    assert found.p < turns.LEVEL
    assert found.at == 12
    assert 11.5 <= found.low < 12 < found.high <= 12.5


def test_a_start_that_goes_the_other_way_is_left_out() -> None:
    y = np.abs(X - 14) + 0.3 * np.random.default_rng(0).standard_normal(30)
    y[:2] = (-3.0, 4.0)  # lower than all, as a head at initialisation
    found = _find(X, y)
    assert found.start in (1, 2)
    assert found.low <= 14 <= found.high


def test_few_checkpoints_have_no_turn() -> None:
    generator = np.random.default_rng(0)
    x = X[: turns.FEWEST - 1]
    assert find_turn(x, np.abs(x - 3), generator.standard_normal((10, len(x))), generator) is None


def test_the_order_of_two_turns() -> None:
    generator = np.random.default_rng(1)
    early, late, again = (
        _find(X, np.abs(X - at) + 0.5 * generator.standard_normal(30), seed=seed)
        for seed, at in ((1, 8), (2, 20), (3, 20))
    )
    assert probability_before(early, late) == 1 - probability_before(late, early) == 1
    assert 0.05 < probability_before(late, again) < 0.95
    assert probability_before(late, late) == 0.5


SHAPES = {"power": 3.5 + 2 / np.sqrt(1 + X), "plateau": np.zeros(30)}


@pytest.mark.slow
@pytest.mark.parametrize("correlation", first_of([0.8, 0.5, 0.0]))
@pytest.mark.parametrize("shape", first_of(SHAPES))
def test_false_alarms_are_at_most_six_in_a_hundred(shape: str, correlation: float) -> None:
    generator = np.random.default_rng(7)
    drawn = ((seed, 0.015 * _wander(30, correlation, generator)) for seed in range(150))
    # p has nothing of the draws, which are for the interval
    alarms = [_find(X, SHAPES[shape] + noise, draws=24, seed=seed).p <= turns.LEVEL for seed, noise in drawn]
    assert np.mean(alarms) <= 0.06


def test_parts_that_are_fitted_together_are_those_fitted_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    y = np.random.default_rng(3).normal(size=(7, 19)).cumsum(axis=1)
    together = vars(turns._Parts(y))
    monkeypatch.setattr(turns, "_AT_ONCE", 1)
    alone = vars(turns._Parts(y))
    assert together.keys() == alone.keys()
    assert all(np.array_equal(together[name], alone[name]) for name in together)


def test_a_smooth_turn_that_few_checkpoints_show_is_found() -> None:
    """As the head of a run of our own: its parts go through every point, and a fall over four points comes first."""
    y = np.concatenate([np.linspace(0.56, 0.43, 5), 0.43 + 0.065 * np.arange(1, 26) ** 0.97])
    assert _find(X, y).p < turns.LEVEL
