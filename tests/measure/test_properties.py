"""What each measure keeps and what it does not under rotation, scale, permutation and translation."""

from collections.abc import Callable
from functools import lru_cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from uncone import InputError, Measurement, Moments, measure

from ..matrices import F64, Tensor, gaussian, rotation

Measure = Callable[[Moments], Measurement]
TURNS = {"rotation", "scale", "permutation"}
MOVES = TURNS | {"translation"}
KEPT: dict[str, tuple[Measure, set[str]]] = {
    "isoscore debiased": (lambda m: measure.isoscore(m, debiased=True), MOVES),
    "isoscore_star published": (lambda m: measure.isoscore_star(m, target=torch.eye(m.d)), MOVES - {"scale"}),
    "anisotropy raw": (lambda m: measure.anisotropy(m, centered=False), TURNS),
    "dominant_dimension": (measure.dominant_dimension, MOVES - {"rotation"}),
    "rogue_dimensions": (measure.rogue_dimensions, TURNS - {"rotation"}),
    "gaussian_isotropy": (measure.gaussian_isotropy, TURNS - {"scale"}),
}
KEPT |= {one: (getattr(measure, one), TURNS) for one in ("mean_cosine", "mean_shift", "rankme", "stable_rank")}
KEPT |= {one: (getattr(measure, one), TURNS) for one in ("condition_number", "uniformity")}
KEPT |= {one: (getattr(measure, one), MOVES) for one in ("participation_ratio", "isoscore", "isoscore_star")}
KEPT |= {one: (getattr(measure, one), MOVES) for one in ("effective_rank", "anisotropy", "singular_entropy")}
CHANGES: dict[str, Callable[[Tensor], Tensor]] = {
    "rotation": lambda x: x @ rotation(x.shape[1], seed=5),
    "scale": lambda x: 2.5 * x,
    "permutation": lambda x: x[torch.randperm(len(x), generator=torch.Generator().manual_seed(1))],
    "translation": lambda x: x + torch.linspace(1, 2, x.shape[1], dtype=x.dtype),
}


def _cloud(seed: int) -> Tensor:
    scale, mean = torch.tensor([[3.0, 1.5, 1.0, 0.7, 0.5], [3.0, 1.5, 0, 0, 0.4]], dtype=F64)
    return gaussian(60, 5, seed=seed, dtype=F64) * scale + mean


@lru_cache(maxsize=512)  # all measures are asked about the same clouds
def _moments(change: str | None, seed: int) -> Moments:
    x = _cloud(seed)
    return Moments.of(x if change is None else CHANGES[change](x), unit_second=True)


@lru_cache(maxsize=512)
def _isotropy(change: str | None, seed: int) -> float:
    x = _cloud(seed)
    return float(measure.partition_isotropy(x if change is None else CHANGES[change](x)))


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", KEPT)
@settings(max_examples=10)  # of one kind of cloud: each measure and change is what differs
@given(seed=st.integers(0, 10**6))
def test_invariances(name: str, change: str, seed: int) -> None:
    function, kept = KEPT[name]
    before, after = (float(function(_moments(which, seed))) for which in (None, change))
    assert (after == pytest.approx(before, rel=1e-8)) == (change in kept)


SCALE_FREE = {name: function for name, (function, kept) in KEPT.items() if "scale" in kept}


@given(k=st.integers(-450, 450), seed=st.integers(0, 10**6))
def test_scale_free_measures_are_so_over_the_range_of_float64(k: int, seed: int) -> None:
    x = _cloud(seed)
    _assert_alike(x, x * 2.0**k, 1e-12)


@given(k=st.integers(-100, 120), seed=st.integers(0, 10**6))
def test_scale_free_measures_are_so_over_the_range_of_float32(k: int, seed: int) -> None:
    x = _cloud(seed).float()
    _assert_alike(x, x * 2.0**k, 1e-5)


def _assert_alike(x: Tensor, y: Tensor, tolerance: float) -> None:
    m, scaled = Moments.of(x, unit_second=True), Moments.of(y, unit_second=True)
    for name, function in SCALE_FREE.items():
        assert float(function(scaled)) == pytest.approx(float(function(m)), rel=tolerance, abs=tolerance), name


@pytest.mark.parametrize("k", [-1000, -560, -500])
def test_rows_too_short_for_float64_squares_are_refused_by_name(k: int) -> None:
    x = _cloud(0)
    m, whole = Moments.of(x * 2.0**k, unit_second=True), Moments.of(x, unit_second=True)
    refused = r"expected a row longer than 1e-140, got \S+e-\d+ at most: scale the rows"
    for name in ("isoscore", "effective_rank", "stable_rank", "rankme", "dominant_dimension", "condition_number"):
        with pytest.raises(InputError, match=refused):
            SCALE_FREE[name](m)
    for name in (
        "mean_cosine",
        "mean_shift",
        "rogue_dimensions",
        "uniformity",
    ):  # of first-order sums, and of unit rows
        assert float(SCALE_FREE[name](m)) == pytest.approx(float(SCALE_FREE[name](whole)), rel=1e-12), name


@pytest.mark.parametrize("change", ["rotation", "permutation", "scale", "translation"])
@given(seed=st.integers(0, 10**6))
def test_partition_isotropy_depends_on_scale_and_place(change: str, seed: int) -> None:
    before, after = _isotropy(None, seed), _isotropy(change, seed)
    assert (after == pytest.approx(before, rel=1e-6)) == (change in ("rotation", "permutation"))
