"""Eigenvalues after a rank-one change, against a whole decomposition."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from uncone import Moments
from uncone.moments.eigen import add_rank_one

Tensor = torch.Tensor


def whole(values: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
    found, vectors = torch.linalg.eigh(torch.diag(values) + torch.outer(z, z))
    return found.flip(0), (z @ vectors).abs().flip(0)


def agrees(values: Tensor, z: Tensor) -> None:
    found, along = add_rank_one(values, z)
    expected, _ = whole(values, z)
    largest = max(float(expected[0]), 1e-300)
    assert torch.equal(found, found.sort(descending=True)[0])
    assert float((found - expected).abs().max()) <= 2e-14 * largest
    # z . q over one eigenspace has no unique parts, but its length has: sum (z.q)^2 = |z|^2, sum l (z.q)^2 = z' A z
    total = float(z.square().sum())
    assert float(along.square().sum()) == pytest.approx(total, rel=1e-12, abs=1e-14 * largest)
    energy = float((values * z.square()).sum()) + total**2
    assert float((found * along.square()).sum()) == pytest.approx(energy, rel=1e-12, abs=1e-14 * largest**2)


sizes = st.integers(1, 40)
exponents = st.floats(-12, 6)


@given(st.integers(0, 2**32), sizes, exponents, exponents)
@settings(deadline=None)
def test_any_scale_of_values_and_of_the_vector(seed: int, d: int, scale: float, length: float) -> None:
    torch.manual_seed(seed)
    agrees(torch.rand(d, dtype=torch.float64) * 10**scale, torch.randn(d, dtype=torch.float64) * 10**length)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=30), st.data())
@settings(deadline=None)
def test_values_that_are_equal_and_parts_that_are_zero(values: list[int], data: st.DataObject) -> None:
    parts = data.draw(
        st.lists(st.sampled_from([0.0, 1e-9, -1.0, 0.5]), min_size=len(values), max_size=len(values))
    )
    agrees(torch.tensor(values, dtype=torch.float64), torch.tensor(parts, dtype=torch.float64))


@given(st.integers(0, 2**32), st.integers(2, 40))
@settings(deadline=None)
def test_values_that_are_nearly_equal(seed: int, d: int) -> None:
    torch.manual_seed(seed)
    gaps = 10 ** (-20 + 20 * torch.rand(d, dtype=torch.float64))
    agrees(
        1 + gaps.cumsum(0),
        torch.randn(d, dtype=torch.float64) * 10 ** (-16 * torch.rand(d, dtype=torch.float64)),
    )


@pytest.mark.parametrize("d", [255, 256, 257, 600])
def test_more_values_than_one_tile_holds(d: int) -> None:
    torch.manual_seed(d)
    values, z = torch.rand(d, dtype=torch.float64), torch.randn(d, dtype=torch.float64)
    agrees(values, z)
    assert torch.allclose(add_rank_one(values, z)[1], whole(values, z)[1], atol=1e-12)


def test_closed_form() -> None:
    d, z = 5, torch.tensor([1.0, 2.0, 0.0, -2.0, 4.0], dtype=torch.float64)
    found, along = add_rank_one(torch.full((d,), 3.0, dtype=torch.float64), z)
    assert found.tolist() == pytest.approx([28, 3, 3, 3, 3], rel=1e-15)
    assert along.tolist() == pytest.approx([5, 0, 0, 0, 0], abs=5e-15)


@pytest.mark.parametrize("drift", [0.0, 0.1, 1e3])
@pytest.mark.parametrize("n", [1, 3, 500])
def test_moments_of_drifted_rows(n: int, drift: float) -> None:
    torch.manual_seed(n)
    d = 40
    x = torch.randn(n, d, dtype=torch.float64) * torch.logspace(0, -3, d).double() + drift
    m = Moments.of(x)
    expected, vectors = torch.linalg.eigh(x.T @ x / n)
    scale = float(expected[-1])
    assert torch.allclose(m.spectrum(centered=False), expected.flip(0), rtol=0, atol=1e-13 * scale)
    assert torch.allclose(m.mean_along(), (x.mean(0) @ vectors).abs().flip(0), rtol=0, atol=1e-6 * scale**0.5)
    if n > 1:
        assert torch.allclose(
            m.spectrum(centered=True), torch.linalg.eigvalsh(torch.cov(x.T)).flip(0), atol=1e-10 * scale
        )
