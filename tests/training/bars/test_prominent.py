"""The selection of prominent bars against the procedure, written out bar by bar."""

import math
import time

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, settings

from tests.studies import first_of
from tests.training.bars.hard_clouds import scipy_lengths
from uncone.errors import InputError
from uncone.training.bars import bars as bars_file
from uncone.training.bars.bars import features_per_bar, prominent_bars, prominent_counts, prominent_mask

CONVENTIONS = ("official", "exclusive")


def by_the_procedure(lengths: list[float], convention: str) -> int:
    """Steps (a) to (d): neutral lengths from entropies, the ratios C_i, and Q as the paper gives it."""
    ordered = sorted((one for one in lengths if one > 0), reverse=True)
    if len(ordered) < 4:
        return len(ordered)
    longest, shortest, between = ordered[0], ordered[-1], ordered[1:-1]
    while True:
        bars = [*between, shortest, longest]
        n = len(bars)
        sums = [math.fsum(bars)]
        stop = n - 3
        for i in range(1, n - 2):
            tail = bars[i:]
            whole = math.fsum(tail)
            entropy = -math.fsum(one / whole * math.log(one / whole) for one in tail)
            sums.append(whole + i * (whole / math.exp(entropy)))
            if sums[i - 1] / sums[i] < 1:
                stop = i
                break
        a = shortest / longest
        most = math.ceil(n * a * (a - 1 - math.log(a)) / (1 - a) ** 2)
        if stop <= most:
            return stop + 1 if convention == "official" else stop
        between = between[:stop]


def tree_lengths(points: np.ndarray) -> list[float]:
    return scipy_lengths(torch.from_numpy(points)).tolist()


def barcodes(family: str, count: int) -> list[list[float]]:
    g = np.random.default_rng(sum(map(ord, family)))
    made = []
    for _ in range(count):
        n = int(g.integers(4, 60))
        if family == "uniform":
            bars = g.uniform(0, 1, n)
        elif family == "lognormal":
            bars = g.lognormal(0, g.uniform(0.1, 3), n)
        elif family == "gamma":
            bars = g.gamma(g.uniform(0.1, 5), size=n)
        elif family == "half long, half short":
            bars = np.concatenate([g.uniform(9, 11, n // 2), g.uniform(0.1, 1, n - n // 2)])
        elif family == "near-equal":
            bars = 1 + g.uniform(0, 10.0 ** -g.integers(1, 5), n)
        elif family == "gaussian cloud":
            bars = np.array(tree_lengths(g.normal(size=(n + 1, int(g.choice([2, 8, 64]))))))
        else:
            centres = g.normal(size=(int(g.integers(2, 6)), 8)) * 5
            bars = np.array(tree_lengths(centres[g.integers(0, len(centres), n + 1)] + 0.3 * g.normal(size=(n + 1, 8))))
        made.append((bars * 10.0 ** g.integers(-3, 4)).tolist())
    return made


FAMILIES = ["uniform", "lognormal", "gamma", "half long, half short", "near-equal", "gaussian cloud", "clusters"]


@pytest.mark.parametrize("family", FAMILIES)
def test_it_is_the_procedure(family: str) -> None:
    made = barcodes(family, 60)
    both = {c: [by_the_procedure(bars, c) for bars in made] for c in CONVENTIONS}
    for convention, expected in both.items():
        each = [torch.tensor(bars, dtype=torch.float64) for bars in made]
        assert [prominent_bars(bars, convention=convention) for bars in each] == expected
        flat = torch.tensor([one for bars in made for one in bars], dtype=torch.float64)
        counts = prominent_counts(flat, torch.tensor([len(bars) for bars in made]), convention=convention)
        assert counts.tolist() == expected


@pytest.mark.parametrize("family", FAMILIES)
def test_pytorch_takes_the_steps_that_numpy_takes(family: str) -> None:
    made = [sorted(bars, reverse=True) for bars in barcodes(family, 60)]
    width = max(map(len, made))
    bars = torch.tensor([one + [0.0] * (width - len(one)) for one in made], dtype=torch.float64)
    places = torch.arange(bars.numel()).view(bars.shape)
    on_gpu = bars_file._kept(bars, places, "official", torch)  # as on any device but the CPU
    assert on_gpu.tolist() == [by_the_procedure(one, "official") for one in made]


@pytest.mark.slow
@pytest.mark.parametrize("family", first_of(FAMILIES))
def test_it_is_the_procedure_a_thousand_times(family: str) -> None:
    for bars in barcodes(family, 1000):
        lengths = torch.tensor(bars, dtype=torch.float64)
        for convention in CONVENTIONS:
            assert prominent_bars(lengths, convention=convention) == by_the_procedure(bars, convention)


@given(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=40), st.sampled_from(CONVENTIONS), st.integers(-60, 60))
@settings(deadline=None, max_examples=50)
def test_order_and_scale_change_nothing(bars: list[float], convention: str, power: int) -> None:
    lengths = torch.tensor(bars, dtype=torch.float64)
    kept = prominent_bars(lengths, convention=convention)
    assert 1 <= kept <= len(bars)
    assert prominent_bars(lengths.flip(0) * 2.0**power, convention=convention) == kept


@given(st.lists(st.lists(st.floats(0, 100, width=32), max_size=12), max_size=12), st.sampled_from(CONVENTIONS))
@settings(deadline=None, max_examples=30)
def test_groups_are_single_clouds(groups: list[list[float]], convention: str) -> None:
    groups += [[1.0]] * 9  # enough of them for the table
    flat = torch.tensor([one for bars in groups for one in sorted(bars)], dtype=torch.float32)
    bars = torch.tensor([len(bars) for bars in groups])
    expected = [prominent_bars(torch.tensor(one, dtype=torch.float32), convention=convention) for one in groups]
    assert prominent_counts(flat, bars, convention=convention).tolist() == expected
    assert prominent_counts(flat, bars, convention=convention, width=20).tolist() == expected
    mask = prominent_mask(flat, bars, convention=convention)
    for lengths, chosen, k in zip(flat.split(bars.tolist()), mask.split(bars.tolist()), expected, strict=True):
        assert chosen.sum() == k
        assert torch.equal(lengths[chosen], lengths[len(lengths) - k :])


def test_groups_too_large_for_one_table_are_taken_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = torch.rand(3, 300, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    given = (lengths + torch.tensor([[0.0], [1.0], [100.0]])).flatten(), torch.tensor([300, 300, 300])
    expected = prominent_counts(*given)
    monkeypatch.setattr(bars_file, "_AT_ONCE", 500)
    assert torch.equal(prominent_counts(*given), expected)


def test_by_hand() -> None:
    bars = torch.tensor([1.0, 1.1, 1.2, 1.3, 1.4, 9.0])
    assert (prominent_bars(bars), prominent_bars(bars, convention="exclusive")) == (2, 1)


def test_few_bars_are_all_kept_and_zeros_left_out() -> None:
    for k in range(4):
        assert prominent_bars(torch.arange(k) + 1.0) == k
        assert prominent_bars(torch.cat([torch.zeros(5), torch.arange(k) + 1.0])) == k
    bars = torch.rand(30, generator=torch.Generator().manual_seed(1)) + 0.1
    assert prominent_bars(torch.cat([torch.zeros(7), bars])) == prominent_bars(bars)


@pytest.mark.parametrize("value", [1e-30, 0.1, 1.0, 3e30])
def test_equal_bars_are_accepted_in_the_first_round(value: float) -> None:
    for m in (4, 7, 50):
        bars = torch.full((m,), value)
        assert prominent_bars(bars) == m - 2
        assert prominent_bars(bars, convention="exclusive") == m - 3
        assert prominent_counts(bars.repeat(10), torch.full((10,), m)).tolist() == [m - 2] * 10


@pytest.mark.parametrize("spread", [0.5, 1e-3, 1e-9, 1e-15])
def test_thousands_of_near_equal_bars_take_no_recursion_and_little_time(spread: float) -> None:
    bars = 1 + spread * torch.rand(20_000, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    began = time.process_time()
    assert 1 <= prominent_bars(bars) <= 20_000
    assert time.process_time() - began < 1


def test_bars_far_below_the_longest() -> None:
    assert prominent_bars(torch.tensor([1e-310, 1e-300, 1e-290, 1e-280, 1e300], dtype=torch.float64)) >= 1
    assert prominent_bars(torch.tensor([5e-324] * 9 + [1.0], dtype=torch.float64)) >= 1


def bound(alpha: float) -> float:
    return float(features_per_bar(torch.tensor(alpha, dtype=torch.float64)))


@pytest.mark.parametrize("alpha", [0.01, 0.1, 0.5, 0.9, 0.999])
def test_the_bound_is_the_entropy_s_minimum(alpha: float) -> None:
    n = 3000
    q = np.arange(1, n)
    total = q + (n - q) * alpha
    entropy = np.log(total) - (n - q) * alpha * math.log(alpha) / total
    assert abs(q[entropy.argmin()] - n * bound(alpha)) <= 1
    assert bound(1 - 1e-12) == pytest.approx(0.5)


@pytest.mark.parametrize("gap", [1e-5, 9.99e-4, 1e-3, 0.01])
def test_the_bound_is_smooth_where_its_form_changes(gap: float) -> None:
    from decimal import Decimal, getcontext

    getcontext().prec = 60
    a = 1 - Decimal(gap)
    assert bound(float(a)) == pytest.approx(float(a * (a - 1 - a.ln()) / (1 - a) ** 2), rel=1e-12)


def test_no_gradient_is_asked_of_it() -> None:
    bars = torch.rand(12, requires_grad=True)
    assert isinstance(prominent_bars(bars), int)
    assert not prominent_mask(bars, torch.tensor([12])).requires_grad


@pytest.mark.parametrize("groups", [2, 9])  # one by one, and all in one table
@pytest.mark.parametrize("wrong", [-1.0, math.nan, math.inf])
def test_lengths_of_groups_that_cannot_be_are_refused(groups: int, wrong: float) -> None:
    lengths = torch.arange(5.0).repeat(groups)
    lengths[7] = wrong
    with pytest.raises(InputError, match=f"expected finite lengths of at least 0, got {wrong:g}"):
        prominent_counts(lengths, torch.full((groups,), 5))
