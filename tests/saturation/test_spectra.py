"""Spectra of heads and of their logits: closed forms, slow loops, and the numbers of a real model."""

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from uncone.errors import UndefinedMeasure
from uncone.measure.spectrum import fit_alpha, logit_spectrum
from uncone.moments import Moments
from uncone.rows import Array
from uncone.saturation.checkpoints.spectra import entropy_to_uniform, of_head, of_rows


def _normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape)


def _entropy(w: Array) -> float:
    return entropy_to_uniform(np.square(np.linalg.svd(w, compute_uv=False)))


def test_closed_forms_of_the_singular_entropy() -> None:
    orthogonal = np.linalg.qr(_normal(64, 16))[0]
    assert _entropy(orthogonal) == pytest.approx(0, abs=1e-12)
    assert of_head(Moments.of(orthogonal))[0]["head_entropy"] == pytest.approx(0, abs=1e-9)
    rank_one = np.outer(1 + np.arange(50.0), np.ones(16))
    assert _entropy(rank_one) == pytest.approx(math.log(16))
    assert of_head(Moments.of(rank_one))[0]["head_entropy"] == pytest.approx(math.log(16), abs=1e-6)
    expected = math.log(2) + 0.75 * math.log(0.75) + 0.25 * math.log(0.25)
    assert entropy_to_uniform(np.array([0.75, 0.25])) == pytest.approx(expected)
    with pytest.raises(UndefinedMeasure, match="a matrix of zeros"):
        entropy_to_uniform(np.zeros(4))


def test_a_gaussian_head_is_all_but_flat() -> None:
    """For few columns to rows, KL is about d / (2 V) to first order: half the variance of Marchenko-Pastur."""
    v, d = 12_600, 128
    found, *_ = of_head(Moments.of(_normal(v, d).astype(np.float32)))
    assert found["head_entropy"] == pytest.approx(d / (2 * v), rel=0.05)


@given(st.integers(0, 100))
def test_the_logits_do_not_see_how_head_and_states_share_a_matrix(seed: int) -> None:
    w, h, r = (_normal(40, 5, seed=seed), _normal(30, 5, seed=seed + 1), _normal(5, 5, seed=seed + 2) + 3 * np.eye(5))

    def spectrum(w: Array, h: Array) -> Array:
        centered = w - w.mean(axis=0)
        return logit_spectrum(centered.T @ centered, h.T @ h / len(h))

    own = spectrum(w, h)
    logits = h @ w.T
    logits -= logits.mean(axis=1, keepdims=True)
    np.testing.assert_allclose(own, np.linalg.svd(logits, compute_uv=False)[:5] / np.sqrt(30), rtol=1e-7)
    np.testing.assert_allclose(spectrum(w @ r, h @ np.linalg.inv(r).T), own, rtol=1e-6)
    np.testing.assert_allclose(spectrum(w + _normal(1, 5, seed=9), h), own, rtol=1e-7)


def test_anisotropy_is_the_mean_of_all_cosines() -> None:
    h = _normal(60, 8) + 0.7
    u = h / np.linalg.norm(h, axis=1, keepdims=True)
    pairs = [float(u[i] @ u[j]) for i in range(60) for j in range(60) if i != j]
    assert of_rows(Moments.of(h), "states")["states_cosine"] == pytest.approx(np.mean(pairs), abs=1e-12)
    assert (np.square(u.sum(axis=0)).sum() - 60) / (60 * 59) == pytest.approx(np.mean(pairs), abs=1e-12)


def test_singular_values_are_those_of_the_matrix() -> None:
    w = _normal(500, 120) + 0.5
    _, raw, centered = of_head(Moments.of(w))
    assert len(raw) == len(centered) == 100
    np.testing.assert_allclose(raw, np.linalg.svd(w, compute_uv=False)[:100], rtol=1e-9)
    np.testing.assert_allclose(centered, np.linalg.svd(w - w.mean(axis=0), compute_uv=False)[:100], rtol=1e-9)


@pytest.mark.parametrize("alpha", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("d", [8, 200])
def test_the_decay_of_a_power_law_is_its_exponent(alpha: float, d: int) -> None:
    assert fit_alpha(7 * np.arange(1, d + 1) ** -alpha)[0] == pytest.approx(alpha)


def test_the_decay_ignores_outliers_and_rounding() -> None:
    values = np.arange(1, 65.0) ** -1.0
    values[0] *= 100
    assert fit_alpha(values)[0] == pytest.approx(1.0)
    with pytest.raises(UndefinedMeasure, match="at least 3 eigenvalues"):
        fit_alpha(np.array([1.0, 1e-12, 0.0, 0.0]))


def test_the_numbers_of_a_real_model(stories: Path) -> None:
    """Measured on stories260K by another program: raw 2.268, centred 1.600, first values 45.7, 10.9, 8.1."""
    from uncone.saturation.checkpoints.trace import Place, read_checkpoint

    one = read_checkpoint(Place(stories, 1))
    assert one.shape == (512, 64)
    assert one.values["head_entropy"] == pytest.approx(2.268, abs=5e-4)
    assert one.values["head_entropy_centered"] == pytest.approx(1.600, abs=5e-4)
    assert one.singular_values[:3] == pytest.approx((45.7, 10.9, 8.1), abs=0.06)
    assert one.singular_values[-1] == pytest.approx(1.29, abs=0.005)
    assert "table_cosine" not in one.values, "the table is the head"
