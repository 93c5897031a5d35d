"""No measure leaves its stated range by more than its stated rounding, on matrices made to push it out."""

import inspect
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from uncone import InputError, Measurement, Moments, UndefinedMeasure, measure
from uncone.measure.cosine import MEAN_SHIFT
from uncone.moments import row_norms

from ..matrices import gaussian, rotation

Tensor = torch.Tensor
F64 = torch.float64


def _profile(x: Tensor, _: Moments) -> Measurement:
    profile = measure.NormProfile()
    profile.update(row_norms(x.numpy()), np.arange(len(x)))
    return profile.id_correlation(x.shape[1])


def _between(x: Tensor, _: Moments) -> Measurement:
    half = len(x) // 2
    return measure.cosine_between(
        *(Moments.of(part, second=False) for part in (x[: half + 1], x[half:])), shared=int(x[half].any())
    )


def _of(function: Callable[..., Measurement], **options: Any) -> Callable[[Tensor, Moments], Measurement]:
    return lambda _, m: function(m, **options)


def _half(function: Callable[..., Measurement], **options: Any) -> Callable[[Tensor, Moments], Measurement]:
    return lambda x, m: function(x, m, sample=max(1, len(x) // 2), **options)


READ: dict[str, dict[str, Callable[[Tensor, Moments], Measurement]]] = {
    "NormProfile": {"": _profile},
    "anisotropy": {
        "": _of(measure.anisotropy),
        "raw": _of(measure.anisotropy, centered=False),
        "2": _of(measure.anisotropy, k=2),
    },
    "condition_number": {"": _of(measure.condition_number), "centered": _of(measure.condition_number, centered=True)},
    "cosine_between": {"": _between},
    "dominant_dimension": {"": _of(measure.dominant_dimension), "raw": _of(measure.dominant_dimension, centered=False)},
    "effective_rank": {"": _of(measure.effective_rank), "raw": _of(measure.effective_rank, centered=False)},
    "gaussian_isotropy": {"": _of(measure.gaussian_isotropy)},
    "hubness": {
        "": measure.hubness,
        "euclidean": lambda x, m: measure.hubness(x, m, metric="euclidean", k=2),
        "sample": _half(measure.hubness, k=2),
    },
    "isoscore": {"": _of(measure.isoscore), "debiased": _of(measure.isoscore, debiased=True)},
    "isoscore_star": {"": _of(measure.isoscore_star), "zeta": _of(measure.isoscore_star, zeta=1.0)},
    "levina_bickel": {"": measure.levina_bickel, "sample": _half(measure.levina_bickel)},
    "mean_cosine": {"": _of(measure.mean_cosine)},
    "mean_shift": {"": _of(measure.mean_shift)},
    "outlier_dimensions": {"": _of(measure.outlier_dimensions), "1": _of(measure.outlier_dimensions, sigmas=1.0)},
    "participation_ratio": {
        "": _of(measure.participation_ratio),
        "debiased": _of(measure.participation_ratio, debiased=True),
    },
    "partition_isotropy": {"": measure.partition_isotropy},
    "permutation_test": {
        "": lambda x, _: measure.permutation_test(x, torch.arange(len(x) // 2 + 1), seed=0, permutations=19)
    },
    "rankme": {"": _of(measure.rankme)},
    "rogue_dimensions": {"": _of(measure.rogue_dimensions)},
    "singular_entropy": {"": _of(measure.singular_entropy), "raw": _of(measure.singular_entropy, centered=False)},
    "stable_rank": {"": _of(measure.stable_rank), "centered": _of(measure.stable_rank, centered=True)},
    "two_nn": {"": measure.two_nn, "sample": _half(measure.two_nn)},
    "uniformity": {"": _of(measure.uniformity)},
    "uniformity_exact": {"": measure.uniformity_exact, "sample": _half(measure.uniformity_exact)},
}
NO_MEASURES = {
    "DESCRIPTIONS",
    "GroupMoments", "Membership", "Neighbours", "OddRowFinder", "PairSums", "Reserved", "benjamini_hochberg", "by_group",
    "compare_groups", "frequency_membership",
    "local_dimensions", "marchenko_pastur", "moments_of", "nearest_neighbours", "reserved_rows", "robust_null", "under_trained_tokens",
}  # fmt: skip


def test_every_public_measure_is_read() -> None:
    assert set(READ) | NO_MEASURES == set(measure.__all__)
    returning = {
        name
        for name in measure.__all__
        if inspect.isfunction(getattr(measure, name))
        and inspect.signature(getattr(measure, name)).return_annotation is Measurement
    }
    assert returning == set(READ) - {"NormProfile"}


def _noise(n: int, d: int, seed: int) -> Tensor:
    return gaussian(n, d, seed=seed, dtype=F64)


def _signs(n: int) -> Tensor:
    return torch.ones(n, 1, dtype=F64) - 2 * (torch.arange(n)[:, None] % 2)


def _outlier(n: int, d: int, seed: int) -> Tensor:
    x = _noise(n, d, seed)
    x[0] *= 1e6
    return x


def _constant_columns(n: int, d: int, seed: int) -> Tensor:
    x = _noise(n, d, seed)
    x[:, ::2] = 7.0
    return x


def _zero_rows(n: int, d: int, seed: int) -> Tensor:
    x = _noise(n, d, seed)
    x[1::2] = 0.0
    return x


CLOUDS: dict[str, Callable[[int, int, int], Tensor]] = {
    "noise": _noise,
    "drifted": lambda n, d, seed: _noise(n, d, seed) + 30,
    "one cone": lambda n, d, seed: 1 + 1e-3 * _noise(n, d, seed),
    "rank one": lambda n, d, seed: _noise(n, 1, seed) @ _noise(1, d, seed + 1),
    "one ray": lambda n, d, seed: _noise(n, 1, seed).abs() @ _noise(1, d, seed + 1),
    "all rows equal": lambda n, d, seed: _noise(1, d, seed).repeat(n, 1),
    "zero": lambda n, d, seed: torch.zeros(n, d, dtype=F64),
    "zero rows": _zero_rows,
    "one giant": _outlier,
    "duplicates": lambda n, d, seed: _noise(n, d, seed)[torch.arange(n) // 2],
    "two opposite cones": lambda n, d, seed: _signs(n) * (5 + 0.1 * _noise(n, d, seed)),
    "opposite rows": lambda n, d, seed: _signs(n) * _noise(n, d, seed)[torch.arange(n) // 2],
    "identity minus its mean": lambda n, d, seed: (torch.eye(n, dtype=F64) - 1 / n)[:, :d],
    "frame": lambda n, d, seed: rotation(max(n, d), seed=seed)[:n, :d],
    "frame and its opposite": lambda n, d, seed: torch.cat([rotation(d, seed=seed), -rotation(d, seed=seed)])[:n],
    "simplex": lambda n, d, seed: (
        (torch.eye(n, dtype=F64) - 1 / n) @ rotation(n, seed=seed)[:, :d] if d <= n else torch.eye(n, d, dtype=F64)
    ),
    "constant columns": _constant_columns,
    "large differences of length": lambda n, d, seed: _noise(n, d, seed) * torch.logspace(-6, 6, n, dtype=F64)[:, None],
}
SCALES = {torch.float32: (1.0, 1e-30, 1e-6, 1e4, 1e18), torch.float64: (1.0, 1e-200, 1e-9, 1e6, 1e150)}


@pytest.mark.parametrize("cloud", CLOUDS)
@settings(max_examples=10)
@given(
    n=st.sampled_from((2, 3, 5, 8, 40)),
    d=st.sampled_from((1, 2, 3, 7, 12, 40)),
    seed=st.integers(0, 10**6),
    scaled=st.sampled_from([(dtype, scale) for dtype, scales in SCALES.items() for scale in scales]),
)
def test_no_measure_leaves_its_range(cloud: str, n: int, d: int, seed: int, scaled: tuple[torch.dtype, float]) -> None:
    dtype, scale = scaled
    x = (CLOUDS[cloud](n, d, seed) * scale).to(dtype)
    try:
        m = Moments.of(x, unit_second=True)
    except InputError:  # numbers too large
        return
    for name, variants in READ.items():
        for variant, read in variants.items():
            try:
                found = read(x, m)
            except (InputError, UndefinedMeasure):
                continue
            _check(found, name, variant)


def _check(found: Measurement, name: str, variant: str) -> None:
    low, high = found.range
    assert found.value is not None
    ends = found.interval or (found.value, found.value)
    assert ends[0] <= found.value <= ends[1], (name, variant)
    for what, values in (("value", (found.value, *ends)), ("reference", (found.reference,))):
        for value in values:
            if value is not None:
                assert math.isfinite(value), (name, variant, what)
                assert low is None or value >= low, (name, variant, what)
                assert high is None or value <= high, (name, variant, what)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_many_equal_rows_whose_sums_round_alike(dtype: torch.dtype) -> None:
    for value in (0.1, 0.7, 3.3):
        m = Moments.of(torch.full((100_000, 3), value, dtype=dtype), second=False)
        for function in (measure.mean_cosine, measure.mean_shift):
            assert 1 - measure.reading.ROUNDINGS * m.epsilon <= float(function(m)) <= 1.0


def test_only_what_rounding_explains_becomes_the_end() -> None:
    m = Moments.of(gaussian(5, 2, dtype=F64))
    rounding = measure.reading.ROUNDINGS * m.epsilon
    for value, read in (
        (1 + rounding, 1.0),
        (1 + 1.01 * rounding, 1 + 1.01 * rounding),
        (-rounding, 0.0),
        (-1e-9, -1e-9),
    ):
        assert measure.reading.reading(MEAN_SHIFT, value, m).value == read
