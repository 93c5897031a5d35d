"""Persistent entropy: closed forms, its gradient, groups, and what it refuses."""

import math

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings
from torch.autograd import gradcheck, gradgradcheck

from uncone.training.bars.bars import persistent_entropy

BARS = st.lists(st.floats(1e-4, 1e4), min_size=1, max_size=30)


def by_a_loop(lengths: list[float]) -> float:
    total = math.fsum(lengths)
    return -math.fsum(one / total * math.log(one / total) for one in lengths if one > 0)


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
def test_no_length_at_all_and_no_groups(lengths: list[float], grouped: bool) -> None:
    x = torch.tensor(lengths, requires_grad=True)
    entropy = persistent_entropy(x, torch.tensor([len(lengths)])) if grouped else persistent_entropy(x)
    entropy.sum().backward()
    assert float(entropy.sum().detach()) == 0
    assert persistent_entropy(torch.zeros(0), torch.zeros(0, dtype=torch.int64)).shape == (0,)
    assert not x.grad.any()


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


@pytest.mark.parametrize("bars", [None, torch.tensor([3, 4]), torch.tensor([3, 0, 1, 3])])
def test_the_second_derivative_and_the_first_of_groups(bars: torch.Tensor | None) -> None:
    x = torch.rand(7, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).add(0.1).requires_grad_()
    assert gradcheck(lambda lengths: persistent_entropy(lengths, bars).sum(), (x,))
    assert gradgradcheck(lambda lengths: persistent_entropy(lengths, bars), (x,))
