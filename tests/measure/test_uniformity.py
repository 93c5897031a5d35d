"""Exact uniformity against slow sums over pairs, closed forms, cones, samples and bad input."""

import math
import re
from functools import cache

import numpy as np
import pytest
import scipy.special
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from uncone import InputError, Moments, UndefinedMeasure, measure
from uncone.measure import points, tiles

from ..matrices import F64, gaussian, rotation


@cache
def _slow(cloud: str, t: float) -> float:
    x = CLOUDS[cloud]
    unit = x.double() / x.double().norm(dim=1, keepdim=True)
    terms = [float(torch.exp(-t * (a - b).square().sum())) for i, a in enumerate(unit) for b in unit[:i]]
    return math.log(sum(terms) / len(terms))


CLOUDS = {
    "even": gaussian(60, 8),
    "drifted": gaussian(60, 8) + 2,
    "tight cone": 1e-4 * gaussian(60, 8, dtype=F64) + torch.ones(8, dtype=F64),
    "opposite cones": gaussian(60, 8) + 4 * torch.tensor([1.0, -1.0]).repeat(30)[:, None],
    "very long and very short": gaussian(60, 8, dtype=F64) * torch.logspace(-60, 60, 60, dtype=F64)[:, None],
    "norms of 1e18": 1e18 * gaussian(60, 8),
    "copies": gaussian(6, 8).repeat(10, 1),
}


@pytest.mark.parametrize("block", [16, 1024])
@pytest.mark.parametrize("t", [2.0, 0.5, 25.0])
@pytest.mark.parametrize("cloud", CLOUDS)
def test_it_is_the_sum_over_pairs(monkeypatch: pytest.MonkeyPatch, cloud: str, t: float, block: int) -> None:
    monkeypatch.setattr(tiles, "BLOCK", block)
    reading = measure.uniformity_exact(CLOUDS[cloud], t=t)
    assert float(reading) == pytest.approx(_slow(cloud, t), rel=2e-6, abs=2e-7 * t)
    assert reading.range == (-4 * t, 0.0)


def test_equal_rows_have_the_worst_value_and_opposite_ones_the_best() -> None:
    assert float(measure.uniformity_exact(torch.ones(50, 4))) == 0
    assert float(measure.uniformity_exact(torch.tensor([[1.0, 2.0], [-2.0, -4.0]]))) == pytest.approx(-8, rel=1e-6)


def test_the_moment_form_differs_on_opposite_cones() -> None:
    x = CLOUDS["opposite cones"]
    assert float(measure.uniformity(Moments.of(x, unit_second=True))) > float(measure.uniformity_exact(x)) + 0.3
    even = gaussian(2000, 64)
    by_moments = float(measure.uniformity(Moments.of(even, unit_second=True)))
    assert float(measure.uniformity_exact(even)) == pytest.approx(by_moments, abs=2e-3)
    assert measure.uniformity_exact(even).reference == pytest.approx(float(measure.uniformity_exact(even)), abs=1e-2)


def test_zero_rows_are_left_out_and_said() -> None:
    x = gaussian(60, 4)
    x[5:9] = 0
    reading = measure.uniformity_exact(x)
    assert float(reading) == pytest.approx(float(measure.uniformity_exact(torch.cat([x[:5], x[9:]]))), rel=1e-6)
    assert any("4 rows are all zero" in warning for warning in reading.warnings)


@given(seed=st.integers(0, 10**6))
@settings(deadline=None, max_examples=10)
def test_what_exact_uniformity_keeps(seed: int) -> None:
    x = gaussian(70, 5, seed=seed, dtype=F64) + 0.4
    value = float(measure.uniformity_exact(x))
    lengths = torch.rand(70, 1, dtype=F64, generator=torch.Generator().manual_seed(seed)) + 0.1
    moved = (lengths * x)[torch.randperm(70, generator=torch.Generator().manual_seed(seed))] @ rotation(5, seed=seed)
    assert float(measure.uniformity_exact(moved)) == pytest.approx(value, abs=1e-6)
    assert float(measure.uniformity_exact(x + 1)) > value


def test_rows_that_do_not_fit_are_read_in_stripes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiles, "BLOCK", 32)
    x = gaussian(300, 16) + 0.3
    whole, some = float(measure.uniformity_exact(x)), float(measure.uniformity_exact(x, sample=100))
    monkeypatch.setattr(points, "KEPT_BYTES", 0)
    monkeypatch.setattr(points, "STRIPE_BYTES", 5000)
    assert float(measure.uniformity_exact(x)) == pytest.approx(whole, rel=1e-9)
    assert float(measure.uniformity_exact(x, sample=100)) == pytest.approx(some, rel=1e-9)


def test_the_interval_closes_as_the_sample_becomes_all_rows() -> None:
    x = gaussian(300, 5)
    half, most = (measure.uniformity_exact(x, sample=n).interval for n in (150, 299))
    assert most[1] - most[0] < 0.1 * (half[1] - half[0])


def test_a_sample_is_near_the_whole_and_says_so() -> None:
    x = gaussian(1500, 12) + 0.4
    whole, readings = measure.uniformity_exact(x), [measure.uniformity_exact(x, sample=150, seed=s) for s in range(20)]
    assert whole.interval is None
    assert all("sampled: 150 rows were paired with all 1,500" in reading.warnings for reading in readings)
    assert sum(low <= float(whole) <= high for low, high in (one.interval for one in readings)) >= 16


def test_progress_rises_to_all_rows() -> None:
    told: list[int] = []
    measure.uniformity_exact(gaussian(100, 4), progress=told.append)
    assert told[-1] == 100


def test_bad_input_is_refused() -> None:
    x = gaussian(20, 3)
    with pytest.raises(InputError, match="expected t to be a finite number, got nan"):
        measure.uniformity_exact(x, t=math.nan)
    for t in (0.0, -1.0, 151.0):
        with pytest.raises(InputError, match=re.escape("expected t above 0 and at most 150")):
            measure.uniformity_exact(x, t=t)
    for few in (x[:1], torch.zeros(5, 3)):
        with pytest.raises(UndefinedMeasure, match="expected at least two rows with a direction"):
            measure.uniformity_exact(few)


@pytest.mark.parametrize(("t", "d"), [(0.1, 1), (2.0, 2), (2.0, 64), (20.0, 3), (150.0, 1), (150.0, 4096)])
def test_uniform_directions_have_the_value_of_a_bessel_function(t: float, d: int) -> None:
    x = torch.eye(d, dtype=F64).repeat(2, 1)
    known = np.log(scipy.special.hyp0f1(d / 2, t * t)) - 2 * t
    assert measure.uniformity_exact(x, t=t, sample=2).reference == pytest.approx(known, rel=1e-9, abs=1e-9)
