"""Anisotropy scores against numpy's singular values, and their floor against clouds that are isotropic."""

import inspect
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from uncone import InputError
from uncone.training.cloud import anisotropy_scores

from ..matrices import gaussian

Tensor = torch.Tensor


def by_svd(x: np.ndarray, k: int) -> list[float]:
    """As the paper's code takes them."""
    squares = np.linalg.svd(x, compute_uv=False) ** 2
    return [*(squares / squares.sum()).tolist(), *[0.0] * k][:k]


@given(st.integers(2, 20), st.integers(1, 12), st.integers(1, 5), st.integers(0, 9))
def test_they_are_those_of_the_singular_values(n: int, d: int, k: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    x, labels = random.normal(size=(n, d)) + 5, random.integers(0, 3, n)
    found = anisotropy_scores(torch.from_numpy(x), torch.from_numpy(labels), k=k)
    within = x.copy()
    for c in set(labels.tolist()):
        within[labels == c] -= x[labels == c].mean(0)
    assert found.raw == pytest.approx(by_svd(x, k), abs=1e-12)
    assert found.centred == pytest.approx(by_svd(x - x.mean(0), k), abs=1e-9)
    if np.abs(within).max() > 1e-12:
        assert found.within_class == pytest.approx(by_svd(within, k), abs=1e-9)
    assert (found.n, found.d, found.classes) == (n, d, len(set(labels.tolist())))


@pytest.mark.parametrize(("n", "d"), [(64, 768), (1000, 100)])
def test_the_floor_is_what_an_isotropic_cloud_has(n: int, d: int) -> None:
    random = torch.Generator().manual_seed(0)
    labels = torch.arange(n) % 4
    runs = [anisotropy_scores(torch.randn(n, d, generator=random), labels) for _ in range(5)]
    for kind in ("raw", "centred", "within_class"):
        mean = np.mean([getattr(run, kind) for run in runs], axis=0)
        assert mean == pytest.approx(getattr(runs[0], f"{kind}_floor"), rel=0.05)


def test_64_points_of_768_features_are_not_as_isotropic_as_768_features() -> None:
    assert anisotropy_scores(torch.randn(64, 768)).raw_floor[0] == pytest.approx(0.0253, abs=1e-4)


def test_ignored_points_are_left_out() -> None:
    x, labels = torch.randn(12, 4), torch.arange(12) % 2
    labels[3] = -100
    assert anisotropy_scores(x, labels) == anisotropy_scores(x[labels != -100], labels[labels != -100])


def test_without_labels_or_variance_there_is_none() -> None:
    found = anisotropy_scores(torch.ones(6, 3))
    assert found.raw == pytest.approx((1.0, 0.0, 0.0))
    assert found.centred is None
    assert found.within_class is None
    assert found.within_class_floor is None
    assert found.classes == 0
    alone = anisotropy_scores(torch.randn(3, 2), torch.arange(3))
    assert alone.within_class is None
    assert alone.within_class_floor == (0.0, 0.0, 0.0)


def test_half_precision_is_widened_and_nothing_is_changed() -> None:
    x = torch.randn(30, 8).bfloat16().requires_grad_()
    before = x.detach().clone()
    with torch.autocast("cpu", torch.bfloat16):
        found = anisotropy_scores(x)
    assert found == anisotropy_scores(x.double())
    assert torch.equal(x, before)


@pytest.mark.parametrize(
    ("x", "k", "said"),
    [
        (torch.randn(4), 3, r"expected points of shape \(N, D\)"),
        (torch.randn(4, 2), 0, "expected k of at least 1, got 0"),
        (torch.empty(0, 2), 3, "expected finite points"),
        (torch.full((3, 2), torch.inf), 3, "expected finite points"),
        (torch.ones(3, 2, dtype=torch.int64), 3, r"expected points in floating point, got torch.int64"),
        (torch.ones(3, 0), 3, r"expected finite points .* got \(3, 0\)"),
        (torch.ones(3, 2), True, "expected k of at least 1, got True"),
        ([[1.0, 2.0]], 3, r"expected points of shape \(N, D\), got list"),
        (None, 3, r"expected points of shape \(N, D\), got NoneType"),
    ],
)
def test_what_has_no_scores_is_refused(x: Any, k: int, said: str) -> None:
    with pytest.raises(InputError, match=said):
        inspect.unwrap(anisotropy_scores)(x, k=k)  # as without the tests' own checks of types


def test_labels_that_are_no_tensor_are_refused() -> None:
    with pytest.raises(InputError, match=r"expected labels of shape \(4,\) with integers, got list"):
        inspect.unwrap(anisotropy_scores)(torch.ones(4, 2), [0, 0, 1, 1])


@pytest.mark.parametrize("scale", [1e-200, 1e-30, 1e200])
def test_the_unit_of_the_points_changes_nothing(scale: float) -> None:
    x = torch.randn(12, 4, dtype=torch.float64)
    found, wanted = (anisotropy_scores(factor * x, torch.arange(12) % 2) for factor in (scale, 1.0))
    for kind in ("raw", "centred", "within_class"):
        assert getattr(found, kind) == pytest.approx(getattr(wanted, kind), rel=1e-9)


def test_classes_that_are_small_beside_the_gap_between_them_have_scores() -> None:
    x, far = gaussian(20, 4, dtype=torch.float64), torch.ones(1, 4).double()
    alone = anisotropy_scores(x, torch.zeros(20, dtype=torch.int64)).within_class
    found = anisotropy_scores(torch.cat([x * 1e-180, far]), torch.arange(21) // 20).within_class
    assert found == pytest.approx(alone)
