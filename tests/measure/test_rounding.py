"""Float32 rows against the same rows in float64, where rounding has much to lose: cones, drifts, steps, outliers, heavy tails."""

import math
from functools import cache, partial

import numpy as np
import pytest
import torch

from uncone import Measurement, Moments, UndefinedMeasure, measure
from uncone.measure.everything import MEASURES
from uncone.measure.reading import ROUNDED, rounding_warnings

from ..matrices import F64, Tensor, gaussian, promised, rotation

DRIFTS = ("offset 100", "offset 1e4", "drift 50", "drift 500", "drift of one feature", "step")
CLOUDS = (*DRIFTS, "outlier first", "outlier in the middle", "outlier last", "heavy tails")


def _cloud(kind: str, n: int, d: int) -> Tensor:
    x = gaussian(n, d, dtype=F64) * torch.linspace(2, 0.5, d, dtype=F64)
    ramp = torch.linspace(0, 1, n, dtype=F64)[:, None]
    word, _, number = kind.partition(" ")
    if word == "offset":
        x += float(number)
    elif kind == "drift of one feature":
        x[:, :1] += 50 * ramp
    elif word == "drift":
        x += float(number) * ramp
    elif word == "step":
        x += 1000 * (ramp > 0.4)
    elif word == "outlier":
        x[{"first": 0, "last": n - 1}.get(number, n // 2)] += 1e6
    else:
        x *= torch.exp(2 * gaussian(n, 1, seed=1, dtype=F64))
    return x.float()


@cache
def _summed(kind: str, n: int, d: int) -> tuple[Moments, Moments]:
    x = _cloud(kind, n, d)
    return Moments.of(x, unit_second=True), Moments.of(x.double(), unit_second=True)


@pytest.mark.parametrize(("n", "d"), [(600, 4), (9000, 8), (9000, 48), (3000, 500)])
@pytest.mark.parametrize("kind", CLOUDS)
def test_five_digits_of_every_measure_are_right_or_it_says_how_many(kind: str, n: int, d: int) -> None:
    m, exact = _summed(kind, n, d)
    for name, function in MEASURES:
        found = _read(function, m)
        if found is not None:
            off = abs(float(found) - (expected := float(function(exact))))
            assert off <= max(promised(found) * abs(expected), 1e-9), name


@pytest.mark.parametrize("d", [8, 48, 500])
@pytest.mark.parametrize("kind", ["offset 100", "offset 1e4", "outlier first", "drift 500"])
def test_nothing_of_a_spectrum_is_lost_to_a_far_row_or_mean(kind: str, d: int) -> None:
    m, exact = _summed(kind, 9000, d)
    for name in ("effective_rank", "singular_entropy", "rankme", "stable_rank", "condition_number"):
        function = getattr(measure, name)
        found = function(m)
        assert not any("count as 0" in text for text in found.warnings)
        assert float(found) == pytest.approx(float(function(exact)), rel=1e-5)


@pytest.mark.parametrize("last", [-3, -4, -6])
@pytest.mark.parametrize("d", [16, 300])
def test_a_spectrum_below_the_rounding_says_how_many_digits_are_left(d: int, last: int) -> None:
    x = gaussian(4000, d) * torch.logspace(0, last, d)
    for rows, is_turned in ((x, False), ((x.double() @ rotation(d)).float(), True)):
        m, exact = Moments.of(rows), Moments.of(rows.double())
        for function in (measure.effective_rank, measure.rankme):
            found, expected = function(m), float(function(exact))
            assert float(found) == pytest.approx(expected, rel=promised(found))
            assert (promised(found) > ROUNDED) >= (last == -6 and is_turned)  # small features keep their digits


SPECTRA = (
    "flat", "falling to 1e-3", "falling to 1e-2, turned", "falling to 1e-3, turned", "falling to 1e-4, turned",
    "four directions and 1e-2", "four directions and 1e-3", "two features alike", "few values", "float64 rows",
)  # fmt: skip


def _spectrum(kind: str, n: int, d: int) -> np.ndarray:
    rng = np.random.default_rng(d)
    x = rng.normal(size=(n, d))
    word, _, rest = kind.partition(" ")
    if word == "falling":
        x *= np.geomspace(1, float(rest.split()[1].strip(",")), d)
        if rest.endswith("turned"):
            x @= np.linalg.qr(rng.normal(size=(d, d)))[0]
    elif word == "four":
        x = rng.normal(size=(n, 4)) @ rng.normal(size=(4, d)) + float(rest.split()[-1]) * x
    elif word == "two":
        x[:, 1] = x[:, 0] + 1e-3 * x[:, 1]
    elif word == "few":
        x = rng.choice([0.1, 0.7, -0.3], size=(n, d))
    elif word == "float64":
        return (x * np.geomspace(1, 1e-7, d)) @ np.linalg.qr(rng.normal(size=(d, d)))[0]
    return x.astype(np.float32)


@pytest.mark.parametrize(("n", "d"), [(3000, 16), (8500, 48), (5000, 128)])
@pytest.mark.parametrize("kind", SPECTRA)
def test_the_digits_that_are_left_are_those_of_singular_values_in_float64(kind: str, n: int, d: int) -> None:
    """Never more digits than are right, and at most one too few where every eigenvalue is above its rounding."""
    x, rng = _spectrum(kind, n, d), np.random.default_rng(0)
    orders = [(rng.permutation(n), rng.permutation(d), rng.choice([-1, 1], d)) for _ in range(12)]
    clouds = [Moments.of((x[rows] * signs.astype(x.dtype))[:, features]) for rows, features, signs in orders]
    double = x.astype(np.float64)
    values = np.linalg.svd(np.linalg.qr(double - double.mean(0), mode="r"), compute_uv=False)
    p = values / values.sum()
    truth = {measure.effective_rank: math.exp(-(p * np.log(p)).sum()), measure.condition_number: values[0] / values[-1]}
    for function, expected in truth.items():
        read = partial(function, centered=True)
        found = [one for m in clouds if (one := _read(read, m)) is not None]
        off = max((abs(float(one) / expected - 1) for one in found), default=0.0)
        limits = [promised(one) for one in found]
        assert off <= min(limits, default=math.inf)
        if not any("count as 0" in text for one in found for text in one.warnings):
            assert all(min(limit, 1) <= max(100 * off, ROUNDED) for limit in limits)  # one digit, and one cut off


def _read(function: object, m: Moments) -> Measurement | None:
    try:
        return function(m)  # type: ignore[no-any-return, operator]
    except UndefinedMeasure:
        return None


@pytest.mark.parametrize("kind", CLOUDS)
@pytest.mark.parametrize("weighted", [False, True])
def test_the_covariance_of_float32_rows_is_that_of_float64(kind: str, weighted: bool) -> None:
    x = _cloud(kind, 9000, 8)
    w = 0.5 + np.random.default_rng(0).random(len(x)) if weighted else np.ones(len(x))
    m = Moments.of(x, w)
    y = x.double().numpy() - (w[:, None] * x.double().numpy()).sum(0) / w.sum()
    expected = (y * w[:, None]).T @ y / w.sum()
    found = m.covariance() * (1 - 1 / m.effective_n)
    scale = np.sqrt(expected.diagonal())
    assert float(np.abs((found - expected) / np.outer(scale, scale)).max()) < 1e-5


@pytest.mark.parametrize("offset", [0.0, 1.0, 10.0, 1e3, 1e5])
@pytest.mark.parametrize("t", [0.5, 2.0, 30.0])
def test_uniformity_over_pairs_keeps_its_digits_in_a_narrow_cone(offset: float, t: float) -> None:
    x = gaussian(500, 6) + offset
    u = torch.nn.functional.normalize(x.double(), dim=1)
    u = u - u.mean(0)
    i, j = torch.triu_indices(500, 500, 1)
    exponents = -t * (u[i] - u[j]).square().sum(1)
    expected = math.log1p(float(torch.expm1(exponents).mean())) if offset else math.log(float(exponents.exp().mean()))
    assert float(measure.uniformity_exact(x, t=t)) == pytest.approx(expected, rel=1e-6)
    sampled = measure.uniformity_exact(x, t=t, sample=400)
    assert sampled.interval is not None
    assert sampled.interval[0] < sampled.interval[1] < 0
    assert float(sampled) == pytest.approx(expected, rel=0.1)


@pytest.mark.parametrize("offset", [0.3, 1.0, 3.0, 10.0, 100.0, 1e3, 1e4])
def test_uniformity_from_moments_says_how_many_digits_are_left(offset: float) -> None:
    x = gaussian(3000, 16) + offset
    found = measure.uniformity(Moments.of(x, unit_second=True))
    off = abs(float(found) / float(measure.uniformity(Moments.of(x.double(), unit_second=True))) - 1)
    said = [text for text in found.warnings if "left after rounding: pass float64 rows for more" in text]
    assert len(said) == (offset >= 10)
    if not said:
        assert off <= ROUNDED
    elif (digits := said[0].split()[0]) != "no":
        assert off <= 10.0 ** -int(said[0].split()[1]), digits


def test_how_many_digits_are_left() -> None:
    m, exact = Moments.of(gaussian(10, 2)), Moments.of(gaussian(10, 2, dtype=F64))
    assert m.epsilon == 2.0**-23
    for value, of, left in (
        (1.0, m, ""),
        (-0.01, m, "about 4 digits are left after rounding: pass float64 rows for more"),
        (2e-5, m, "about 1 digit is left after rounding: pass float64 rows for more"),
        (1e-9, m, "no digit is left after rounding: pass float64 rows for more"),
        (0.0, m, "no digit is left after rounding: pass float64 rows for more"),
        (1e-5, exact, ""),
        (1e-13, exact, "about 1 digit is left after rounding"),
    ):
        assert rounding_warnings(value, of, 8 * of.epsilon) == ((left,) if left else ())
