"""The pass over a tensor on its own device, here on the CPU, against the one over arrays."""

import numpy as np
import pytest
import torch

from uncone import InputError, Moments
from uncone.moments.on_device import add
from uncone.rows import GRID

from .matrices import F64, Tensor, close, gaussian

CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
SUMS = ("first", "second", "unit_first", "unit_square", "unit_second")


def _by_torch(x: Tensor, weights: Tensor | None = None, **kinds: bool) -> Moments:
    m = Moments(x.shape[1], **kinds)
    add(m, x, weights, None)
    return m


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=CUDA)])
@pytest.mark.parametrize("dtype", [torch.float32, F64, torch.bfloat16])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("drift", [0.0, 50.0])
def test_the_sums_are_those_of_arrays(device: str, dtype: torch.dtype, weighted: bool, drift: float) -> None:
    x = (gaussian(2 * GRID + 100, 12) * 2 + drift).to(dtype)
    x[5] = 0
    w = torch.rand(len(x), dtype=F64) if weighted else None
    here, there = Moments.of(x, w, unit_second=True), _by_torch(x.to(device), w, unit_second=True)
    tolerance = 1e-12 if dtype == F64 else 2e-6
    assert (there.n, there.zero_rows) == (here.n, 1)
    for name in ("weight", "weight_square", "unit_weight", "norm_sum", "norm_square_sum", "norm_min", "norm_max"):
        assert getattr(there, name) == pytest.approx(getattr(here, name), rel=tolerance), name
    pairs = [(there.mean(), here.mean()), (there.second_moment(), here.second_moment())]
    for mine, other in pairs + [(getattr(there, name), getattr(here, name)) for name in SUMS[2:]]:
        assert close(mine, other, rtol=tolerance, atol=tolerance * max(1.0, float(np.abs(other).max())))
    assert close(there.covariance(), here.covariance(), atol=1e-5 * float(np.abs(here.covariance()).max()))


@pytest.mark.parametrize("kinds", [{"second": False}, {"unit_first": False}])
def test_sums_that_are_left_out_are_none(kinds: dict[str, bool]) -> None:
    x = gaussian(500, 6)
    here, there = Moments.of(x, **kinds), _by_torch(x, **kinds)
    for name in SUMS:
        assert (getattr(there, name) is None) == (getattr(here, name) is None)
    assert close(there.mean(), here.mean(), atol=1e-7)


@pytest.mark.parametrize("scale", [1e-30, 1e25])
def test_rows_that_float32_cannot_square(scale: float) -> None:
    x = (gaussian(50, 4, dtype=F64) + 1) * scale
    assert close(_by_torch(x.float()).unit_first, Moments.of(x.float()).unit_first, rtol=1e-6)


def test_a_row_that_is_not_finite_is_refused() -> None:
    x = gaussian(50, 4)
    x[7, 1] = torch.nan
    with pytest.raises(InputError, match="expected finite rows"):
        _by_torch(x)


@CUDA
def test_a_tensor_on_a_gpu_is_summed_there() -> None:
    x = gaussian(20_000, 64)
    here, there = Moments.of(x), Moments.of(x.cuda())
    assert close(there.covariance(), here.covariance(), atol=1e-6)
    x[3, 1] = torch.nan
    with pytest.raises(InputError, match=r"got 1 row of 20000 .* \(row 3\)"):
        Moments.of(x.cuda())


def test_the_drawn_rows_are_those_of_arrays() -> None:
    x = gaussian(2 * GRID + 100, 64)
    here, there = Moments.of(x).drawn, _by_torch(x, drawn=True).drawn
    assert here is not None
    assert there is not None
    assert np.array_equal(here.rows, there.rows)
    assert close(here.weights, there.weights, rtol=1e-5)
