"""Rows of one short length: planted decay is found whole, and nothing in tables without it."""

import math

import numpy as np
import pytest

from uncone.measure.norms import FEWEST, PEAK, length_floor

Array = np.ndarray


def _norms(n: int, seed: int = 0, spread: float = 0.2) -> Array:
    """Norms of trained rows: log-normal about 1."""
    return np.exp(spread * np.random.default_rng(seed).standard_normal(n))


def _decayed(n: int, d: int, seed: int = 1, length: float = 0.2) -> Array:
    """Norms of Gaussian rows that were only shrunk."""
    return length * np.linalg.norm(np.random.default_rng(seed).standard_normal((n, d)), axis=1) / math.sqrt(d)


@pytest.mark.parametrize(("n", "d"), [(400, 16), (15, 64), (400, 64), (15, 768), (400, 768)])
def test_planted_rows_are_found(n: int, d: int) -> None:
    found = length_floor(np.concatenate([_norms(5000), _decayed(n, d)]), d)
    assert found is not None
    planted = found.rows >= 5000
    assert planted.sum() >= 0.8 * n
    assert (~planted).sum() <= 2
    assert found.norm == pytest.approx(0.2, rel=4 / math.sqrt(2 * d))
    assert found.median == pytest.approx(1.0, rel=0.05)


@pytest.mark.parametrize("spread", [0.0, 0.1, 0.3, 0.6, 1.0])
def test_none_in_a_healthy_table(spread: float) -> None:
    for seed in range(20):
        assert length_floor(_norms(5000, seed, spread), 64) is None


def test_each_threshold_from_both_sides() -> None:
    few = np.concatenate([_norms(5000, spread=0.1), np.full(FEWEST - 1, 0.2)])
    assert length_floor(few, 64) is None
    assert length_floor(np.append(few, 0.2), 64) is not None
    assert length_floor(np.concatenate([np.full(5000, 1.0), np.full(30, 0.51)]), 64) is None
    assert length_floor(np.concatenate([np.full(5000, 1.0), np.full(30, 0.49)]), 64) is not None
    beside = math.ceil(30 / PEAK)
    for n, is_peak in ((beside, True), (beside + 1, False)):
        norms = np.concatenate([np.full(5000, 1.0), np.full(30, 0.2), np.full(n, 0.45)])
        assert (length_floor(norms, 16) is not None) == is_peak  # a window is as wide as a factor of 2.03


def test_zero_rows_and_no_rows() -> None:
    for norms in (np.zeros(100), np.zeros(0), np.concatenate([np.ones(900), np.zeros(100)])):
        assert length_floor(norms, 8) is None
