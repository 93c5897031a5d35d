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

from ..matrices import F64, Tensor, gaussian, rotation

Read = Callable[[Tensor, Moments], Measurement]


def _profile(x: Tensor, _: Moments) -> Measurement:
    profile = measure.NormProfile()
    profile.update(row_norms(x.numpy()), np.arange(len(x)))
    return profile.id_correlation(x.shape[1])


def _between(x: Tensor, _: Moments) -> Measurement:
    half = len(x) // 2
    parts = (Moments.of(part, second=False) for part in (x[: half + 1], x[half:]))
    return measure.cosine_between(*parts, shared=int(x[half].any()))


def _of(function: Callable[..., Measurement], **variants: dict[str, Any]) -> dict[str, Read]:
    """A measure of moments, as it is and with options."""
    return {name: lambda _, m, given=given: function(m, **given) for name, given in ({"": {}} | variants).items()}


def _of_rows(function: Callable[..., Measurement], **options: Any) -> dict[str, Read]:
    """A measure of rows, of all of them and of a sample of half."""
    return {"": function, "sample": lambda x, m: function(x, m, sample=max(1, len(x) // 2), **options)}


def _permutation(x: Tensor, _: Moments) -> Measurement:
    return measure.permutation_test(x, torch.arange(len(x) // 2 + 1), seed=0, permutations=19)


RAW, CENTERED = {"raw": {"centered": False}}, {"centered": {"centered": True}}
READ: dict[str, dict[str, Read]] = {
    "NormProfile": {"": _profile},
    "anisotropy": _of(measure.anisotropy, second={"k": 2}, **RAW),
    "condition_number": _of(measure.condition_number, **CENTERED),
    "cosine_between": {"": _between},
    "hubness": _of_rows(measure.hubness, k=2)
    | {"euclidean": lambda x, m: measure.hubness(x, m, metric="euclidean", k=2)},
    "isoscore": _of(measure.isoscore, debiased={"debiased": True}),
    "isoscore_star": _of(measure.isoscore_star, zeta={"zeta": 1.0})
    | {"target": lambda _, m: measure.isoscore_star(m, target=np.eye(m.d))},
    "levina_bickel": _of_rows(measure.levina_bickel),
    "outlier_dimensions": _of(measure.outlier_dimensions, one={"sigmas": 1.0}),
    "participation_ratio": _of(measure.participation_ratio, debiased={"debiased": True}),
    "partition_isotropy": {"": measure.partition_isotropy},
    "permutation_test": {"": _permutation},
    "stable_rank": _of(measure.stable_rank, **CENTERED),
    "two_nn": _of_rows(measure.two_nn),
    "uniformity_exact": _of_rows(measure.uniformity_exact),
}
WITHOUT_OPTIONS = (measure.gaussian_isotropy, measure.mean_cosine, measure.mean_shift, measure.rankme)
WITHOUT_OPTIONS += (measure.rogue_dimensions, measure.uniformity)
READ |= {one.__name__: _of(one) for one in WITHOUT_OPTIONS}
READ |= {one.__name__: _of(one, **RAW) for one in (measure.dominant_dimension, measure.effective_rank)}
READ["singular_entropy"] = _of(measure.singular_entropy, **RAW)
NO_MEASURES = {
    "DESCRIPTIONS",
    "GroupMoments", "Membership", "Neighbours", "OddRowFinder", "PairSums", "Reserved", "benjamini_hochberg", "by_group",
    "compare_groups", "frequency_membership",
    "local_dimensions", "marchenko_pastur", "moments_of", "nearest_neighbours", "reserved_rows", "robust_null", "under_trained_tokens",
}  # fmt: skip


def test_every_public_measure_is_read() -> None:
    assert set(READ) | NO_MEASURES == set(measure.__all__)
    functions = {name: function for name in measure.__all__ if inspect.isfunction(function := getattr(measure, name))}
    returns = {name: inspect.signature(function).return_annotation for name, function in functions.items()}
    assert {name for name, kind in returns.items() if kind is Measurement} == set(READ) - {"NormProfile"}


def _noise(n: int, d: int, seed: int) -> Tensor:
    return gaussian(n, d, seed=seed, dtype=F64)


def _signs(n: int) -> Tensor:
    return torch.ones(n, 1, dtype=F64) - 2 * (torch.arange(n)[:, None] % 2)


def _with(rows: Any, columns: Any, change: Callable[[Tensor], Any]) -> Callable[[int, int, int], Tensor]:
    """Noise, of which a part is changed."""

    def cloud(n: int, d: int, seed: int) -> Tensor:
        x = _noise(n, d, seed)
        x[rows, columns] = change(x[rows, columns])
        return x

    return cloud


ALL = slice(None)
CLOUDS: dict[str, Callable[[int, int, int], Tensor]] = {
    "noise": _noise,
    "drifted": lambda n, d, seed: _noise(n, d, seed) + 30,
    "one cone": lambda n, d, seed: 1 + 1e-3 * _noise(n, d, seed),
    "rank one": lambda n, d, seed: _noise(n, 1, seed) @ _noise(1, d, seed + 1),
    "one ray": lambda n, d, seed: _noise(n, 1, seed).abs() @ _noise(1, d, seed + 1),
    "all rows equal": lambda n, d, seed: _noise(1, d, seed).repeat(n, 1),
    "zero": lambda n, d, seed: torch.zeros(n, d, dtype=F64),
    "zero rows": _with(slice(1, None, 2), ALL, torch.zeros_like),
    "one giant": _with(0, ALL, lambda row: 1e6 * row),
    "duplicates": lambda n, d, seed: _noise(n, d, seed)[torch.arange(n) // 2],
    "two opposite cones": lambda n, d, seed: _signs(n) * (5 + 0.1 * _noise(n, d, seed)),
    "opposite rows": lambda n, d, seed: _signs(n) * _noise(n, d, seed)[torch.arange(n) // 2],
    "identity minus its mean": lambda n, d, seed: (torch.eye(n, dtype=F64) - 1 / n)[:, :d],
    "frame": lambda n, d, seed: rotation(max(n, d), seed=seed)[:n, :d],
    "frame and its opposite": lambda n, d, seed: torch.cat([rotation(d, seed=seed), -rotation(d, seed=seed)])[:n],
    "simplex": lambda n, d, seed: (
        (torch.eye(n, dtype=F64) - 1 / n) @ rotation(n, seed=seed)[:, :d] if d <= n else torch.eye(n, d, dtype=F64)
    ),
    "constant columns": _with(ALL, slice(None, None, 2), lambda x: 7.0),
    "large differences of length": lambda n, d, seed: _noise(n, d, seed) * torch.logspace(-6, 6, n, dtype=F64)[:, None],
}
SCALES = {torch.float32: (1.0, 1e-30, 1e-6, 1e4, 1e18), F64: (1.0, 1e-200, 1e-9, 1e6, 1e150)}


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
            assert (found.d, bool(found.definition)) == (m.d, True)


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


@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_many_equal_rows_whose_sums_round_alike(dtype: torch.dtype) -> None:
    for value in (0.1, 0.7, 3.3):
        m = Moments.of(torch.full((100_000, 3), value, dtype=dtype), second=False)
        for function in (measure.mean_cosine, measure.mean_shift):
            assert 1 - measure.reading.ROUNDINGS * m.epsilon <= float(function(m)) <= 1.0


def test_only_what_rounding_explains_becomes_the_end() -> None:
    m = Moments.of(gaussian(5, 2, dtype=F64))
    rounding = measure.reading.ROUNDINGS * m.epsilon
    beyond = 1 + 1.01 * rounding
    for value, read in ((1 + rounding, 1.0), (beyond, beyond), (-rounding, 0.0), (-1e-9, -1e-9)):
        assert measure.reading.reading(MEAN_SHIFT, value, m).value == read
