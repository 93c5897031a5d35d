"""The interval of a mean cosine over stretches of a text: the jackknife by a slow loop, and joined blocks."""

import numpy as np
import pytest

from uncone.moments.unit_blocks import STRETCH, UnitBlocks, _student


def _rows(n: int, d: int = 5, seed: int = 0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal((n, d)) + 0.7).astype(np.float32)


def _filled(x: np.ndarray, *, cut: int, run: int = 16) -> UnitBlocks:
    blocks = UnitBlocks([x.shape[1]])
    for start in range(0, len(x), cut):
        part = x[start : start + cut]
        blocks.update([part], [1 / np.linalg.norm(part, axis=1)], np.arange(len(part)) // run)
    return blocks


def _mean_cosine(u: np.ndarray, size: int = STRETCH) -> float:
    """Of rows of different blocks."""
    block = np.arange(len(u)) // size
    return float((u @ u.T)[block[:, None] != block].mean())


def test_the_interval_is_the_jackknife_over_blocks() -> None:
    x = _rows(12 * STRETCH)
    u = (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float64)
    low, high = _filled(x, cut=4 * STRETCH).mean_cosine_interval(0) or (0.0, 0.0)
    whole, b = _mean_cosine(u), 12
    left = np.array([_mean_cosine(np.delete(u, slice(i * STRETCH, (i + 1) * STRETCH), 0)) for i in range(b)])
    error = np.sqrt((b - 1) / b * ((left - left.mean()) ** 2).sum())
    assert low + high == pytest.approx(2 * whole, rel=1e-5)
    assert high - low == pytest.approx(2 * 2.201 * error, rel=2e-3)


def test_what_a_passage_has_in_common_is_no_common_direction() -> None:
    random = np.random.default_rng(3)
    x = np.repeat(random.standard_normal((12, 40)), STRETCH, axis=0) + random.standard_normal((12 * STRETCH, 40))
    low, high = _filled(x.astype(np.float32), cut=STRETCH, run=STRETCH).mean_cosine_interval(0) or (1.0, 1.0)
    u = x / np.linalg.norm(x, axis=1, keepdims=True)
    assert (u @ u.T).mean() > 0.03  # of all pairs
    assert low < 0 < high


def test_blocks_are_joined_when_there_are_many() -> None:
    x = _rows(300 * STRETCH, d=3)
    blocks = _filled(x, cut=8 * STRETCH)
    assert 64 <= len(blocks.counts) == len(blocks.sums[0]) <= 128
    assert (blocks.size, blocks.counts.sum()) == (4 * STRETCH, len(x))
    u = x / np.linalg.norm(x, axis=1, keepdims=True)
    np.testing.assert_allclose(blocks.sums[0].sum(0), u.sum(0), rtol=1e-4)


def test_few_blocks_have_no_interval() -> None:
    assert _filled(_rows(9 * STRETCH), cut=STRETCH).mean_cosine_interval(0) is None


def test_the_interval_covers_the_truth() -> None:
    """Of clouds with known mean direction some 95% of the intervals hold the expected cosine."""
    x, held = _rows(400_000, seed=99), 0
    truth = float(np.square((x / np.linalg.norm(x, axis=1, keepdims=True)).mean(0)).sum())
    for seed in range(60):
        low, high = _filled(_rows(20 * STRETCH, seed=seed + 1), cut=STRETCH).mean_cosine_interval(0) or (0.0, 0.0)
        held += low <= truth <= high
    assert 51 <= held <= 60


@pytest.mark.parametrize(("degrees", "quantile"), [(9, 2.2622), (20, 2.0860), (127, 1.9788)])
def test_students_quantile(degrees: int, quantile: float) -> None:
    assert _student(degrees) == pytest.approx(quantile, rel=2e-3)
