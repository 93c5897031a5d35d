"""Persistent entropy: closed forms, its gradient, groups, and what it refuses."""

import math

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings
from torch.autograd import gradcheck, gradgradcheck

from uncone.errors import InputError
from uncone.training.bars.barcode import barcode
from uncone.training.bars.bars import persistent_entropy

BARS = st.lists(st.floats(1e-4, 1e4), min_size=1, max_size=30)


def double(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def by_a_loop(lengths: list[float]) -> float:
    total = math.fsum(lengths)
    return -math.fsum(one / total * math.log(one / total) for one in lengths if one > 0)


def test_by_hand() -> None:
    assert float(persistent_entropy(double(1, 1, 2))) == pytest.approx(1.5 * math.log(2), rel=1e-15)


@given(BARS, st.integers(-30, 30))
@settings(deadline=None, max_examples=50)
def test_range_scale_and_order(lengths: list[float], power: int) -> None:
    x = torch.tensor(lengths, dtype=torch.float64)
    entropy = float(persistent_entropy(x))
    assert entropy == pytest.approx(by_a_loop(lengths), abs=1e-12)
    assert -1e-12 <= entropy <= math.log(len(lengths)) + 1e-12
    assert float(persistent_entropy(x * 10.0**power)) == pytest.approx(entropy, abs=1e-12)
    assert float(persistent_entropy(x.flip(0))) == pytest.approx(entropy, abs=1e-12)


@pytest.mark.parametrize("m", [1, 2, 31, 1000])
@pytest.mark.parametrize("value", [1e-30, 1.0, 1e30])
def test_the_maximum_is_at_equal_bars_and_flat(m: int, value: float) -> None:
    x = torch.full((m,), value, requires_grad=True)
    entropy = persistent_entropy(x)
    entropy.backward()
    assert float(entropy.detach()) == pytest.approx(math.log(m), rel=1e-6, abs=1e-12)
    assert float(x.grad.abs().max()) * value * m < 1e-6


@given(st.lists(st.floats(0.01, 10), min_size=1, max_size=8))
@settings(deadline=None, max_examples=20)
def test_the_gradient_is_right_and_its_own(lengths: list[float]) -> None:
    x = torch.tensor(lengths, dtype=torch.float64, requires_grad=True)
    assert gradcheck(persistent_entropy, (x,))
    (slope,) = torch.autograd.grad(persistent_entropy(x), x)
    assert float((slope * x).sum().detach()) == pytest.approx(0, abs=1e-9)  # scale changes nothing
    neutral = (x.sum() * torch.exp(-persistent_entropy(x))).detach()
    assert bool((slope * (neutral - x) >= -1e-9).all())  # up shrinks what is longer than the neutral length


def test_the_gradient_of_groups() -> None:
    bars = torch.tensor([3, 0, 1, 4])
    x = torch.rand(8, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).add(0.1).requires_grad_()
    assert gradcheck(lambda lengths: persistent_entropy(lengths, bars), (x,))


@given(st.lists(st.lists(st.floats(0, 10), max_size=6), max_size=6))
@settings(deadline=None, max_examples=30)
def test_groups_are_single_clouds(groups: list[list[float]]) -> None:
    flat = torch.tensor([one for bars in groups for one in bars], dtype=torch.float64, requires_grad=True)
    bars = torch.tensor([len(bars) for bars in groups], dtype=torch.int64)
    together = persistent_entropy(flat, bars)
    assert together.shape == (len(groups),)
    alone = [persistent_entropy(one) for one in flat.split(bars.tolist())] if groups else []
    for a, b in zip(together, alone, strict=True):
        torch.testing.assert_close(a, b)
    if len(flat):
        weights = torch.arange(len(groups), dtype=torch.float64) + 1
        (slope,) = torch.autograd.grad((together * weights).sum(), flat)
        (expected,) = torch.autograd.grad(sum(w * one for w, one in zip(weights, alone, strict=True)), flat)
        torch.testing.assert_close(slope, expected)


@pytest.mark.parametrize("lengths", [[], [0.0], [0.0, 0.0, 0.0]])
@pytest.mark.parametrize("grouped", [False, True])
def test_no_length_at_all(lengths: list[float], grouped: bool) -> None:
    x = torch.tensor(lengths, requires_grad=True)
    entropy = persistent_entropy(x, torch.tensor([len(lengths)])) if grouped else persistent_entropy(x)
    entropy.sum().backward()
    assert float(entropy.sum().detach()) == 0
    assert not x.grad.any()


def test_no_groups() -> None:
    assert persistent_entropy(torch.zeros(0), torch.zeros(0, dtype=torch.int64)).shape == (0,)


def test_zero_bars_count_for_nothing() -> None:
    x = torch.tensor([0.0, 1, 0, 3, 2], requires_grad=True)
    y = torch.tensor([1.0, 3, 2], requires_grad=True)
    for lengths in (x, y):
        persistent_entropy(lengths).backward()
    assert torch.equal(persistent_entropy(x), persistent_entropy(y))
    assert x.grad[[0, 2]].tolist() == [0, 0]
    assert torch.equal(x.grad[[1, 3, 4]], y.grad)


def test_lengths_too_small_beside_the_rest_are_zero() -> None:
    x = torch.tensor([5e-324, 1e300, 1e300], dtype=torch.float64, requires_grad=True)
    persistent_entropy(x).backward()
    assert bool(torch.isfinite(x.grad).all())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_dtypes_and_autocast(dtype: torch.dtype) -> None:
    x = torch.linspace(1, 2, 40).to(dtype).requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        entropy = persistent_entropy(x)
    entropy.backward()
    assert entropy.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert float(entropy.detach()) == pytest.approx(by_a_loop(x.tolist()), rel=1e-6)
    assert x.grad.dtype == dtype


def test_it_is_finite_where_all_points_are_one() -> None:
    points = torch.ones(9, 4, requires_grad=True)
    persistent_entropy(barcode(points).lengths).backward()
    assert not points.grad.any()


def test_the_second_derivative() -> None:
    x = torch.rand(7, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).add(0.1).requires_grad_()
    assert gradgradcheck(persistent_entropy, (x,))
    assert gradgradcheck(lambda lengths: persistent_entropy(lengths, torch.tensor([3, 4])), (x,))


def test_what_is_refused() -> None:
    with pytest.raises(InputError, match=r"expected lengths \(M,\) of floats, got \(2, 2\)"):
        persistent_entropy(torch.ones(2, 2))
    with pytest.raises(InputError, match=r"got \(3,\) of torch\.int64: pass Barcode\.lengths"):
        persistent_entropy(torch.arange(3))
    for wrong, told in ((-1.0, "-1"), (math.nan, "nan"), (math.inf, "inf")):
        said = f"expected finite lengths of at least 0, got {told}: pass the lengths of a barcode"
        with pytest.raises(InputError, match=said):
            persistent_entropy(torch.tensor([1.0, wrong]))
    with pytest.raises(InputError, match="sum to 3, the number of lengths, got 2"):
        persistent_entropy(torch.ones(3), torch.tensor([2]))
    with pytest.raises(InputError, match="at least 0 that sum"):
        persistent_entropy(torch.ones(3), torch.tensor([4, -1]))
    with pytest.raises(InputError, match=r"expected bars \(G,\) of integers, got \(1, 1\)"):
        persistent_entropy(torch.ones(3), torch.tensor([[3]]))


def test_lengths_too_large_to_add_are_refused() -> None:
    with pytest.raises(InputError, match="got an infinite one: scale them all down"):
        persistent_entropy(torch.tensor([1e308, 1e308], dtype=torch.float64))
