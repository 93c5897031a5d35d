"""Intrinsic dimensions against known cubes, hand-counted lines, scikit-dimension's formulas and slow loops."""

import math
import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from uncone import InputError, UndefinedMeasure, measure
from uncone.measure.intrinsic_dimension import gamma_quantile

from ..matrices import F64, Tensor, gaussian, rotation

BOTH = pytest.mark.parametrize("function", [measure.two_nn, measure.levina_bickel])


def _cube(n: int, d: int, *, within: int = 12, seed: int = 0) -> Tensor:
    """n points spread evenly over a d-dimensional torus cut open, rotated into more dimensions."""
    x = torch.rand(n, d, generator=torch.Generator().manual_seed(seed), dtype=F64)
    return torch.nn.functional.pad(x, (0, within - d)) @ rotation(within, seed=seed)


def _distances(x: Tensor) -> Tensor:
    return torch.cdist(x.double(), x.double(), compute_mode="donot_use_mm_for_euclid_dist").sort(1).values[:, 1:]


def test_the_gamma_quantile_is_that_of_scipy() -> None:
    gamma = pytest.importorskip("scipy.stats").gamma
    for shape in (1, 2, 17, 8192, 50257, 10**6):
        for probability in (0.025, 0.5, 0.975):
            assert gamma_quantile(probability, shape) == pytest.approx(gamma.ppf(probability, shape), rel=1e-9)


@pytest.mark.parametrize("d", [1, 2, 5])
def test_two_nn_finds_the_dimension_of_a_cube(d: int) -> None:
    reading = measure.two_nn(_cube(4000, d))
    low, high = reading.interval
    assert low - 0.04 * d < d < high + 0.04 * d  # the edges of the cube bias it by little
    assert low < float(reading) < high
    assert reading.details["linear_fit"] == pytest.approx(d, rel=0.08)
    assert reading.details["censored"] == pytest.approx(d, rel=0.08)


@pytest.mark.slow  # scikit-dimension takes seconds to import
@pytest.mark.filterwarnings("ignore:divide by zero")  # its line is drawn even where only the likelihood is asked
def test_the_values_are_those_of_scikit_dimension() -> None:
    id_ = pytest.importorskip("skdim", reason="pip install scikit-dimension").id
    x, reading = gaussian(600, 30), measure.two_nn(gaussian(600, 30))
    for found, theirs in (
        (float(reading), id_.TwoNN(method="mle", discard_fraction=0.0)),
        (reading.details["linear_fit"], id_.TwoNN()),
        (reading.details["censored"], id_.TwoNN(method="mle")),
    ):
        assert found == pytest.approx(theirs.fit(x.numpy()).dimension_, rel=1e-5)
    x = gaussian(400, 8, dtype=F64)
    expected = id_.MLE().fit(x.numpy(), n_neighbors=30).dimension_
    assert float(measure.levina_bickel(x, k=30)) == pytest.approx(expected, rel=1e-9)


def test_two_nn_is_the_formula_written_out() -> None:
    x = gaussian(300, 6, dtype=F64)
    ratios = sorted(math.log(b / a) for a, b in _distances(x)[:, :2].tolist())
    kept = ratios[:270]
    reading = measure.two_nn(x)
    assert float(reading) == pytest.approx(299 / sum(ratios), rel=1e-12)
    assert reading.details["censored"] == pytest.approx(269 / (sum(kept) + 30 * kept[-1]), rel=1e-12)
    line = sum(-math.log(1 - (i + 1) / 300) * value for i, value in enumerate(kept)) / sum(value**2 for value in kept)
    assert reading.details["linear_fit"] == pytest.approx(line, rel=1e-12)
    assert (reading.range, reading.reference) == ((0.0, None), None)
    by_hand = measure.two_nn([[0.0], [1.0], [3.0], [7.0]])
    assert float(by_hand) == pytest.approx(3 / (math.log(3) + math.log(2) + 2 * math.log(1.5)), rel=1e-12)
    assert any("4 rows are few" in warning for warning in by_hand.warnings)


def test_levina_bickel_is_the_formula_written_out() -> None:
    x = gaussian(150, 5, dtype=F64)
    local = [1 / (sum(math.log(row[-1] / t) for t in row[:-1]) / 19) for row in _distances(x)[:, :20].tolist()]
    reading = measure.levina_bickel(x, k=20)
    assert float(reading) == pytest.approx(1 / (sum(1 / m for m in local) / 150), rel=1e-12)
    found = measure.local_dimensions(measure.nearest_neighbours(x, 20, distinct=True))
    assert found.tolist() == pytest.approx(local, rel=1e-12)
    assert reading.details["local_median"] == pytest.approx(sorted(local)[75], rel=0.05)
    assert reading.interval is None


@pytest.mark.parametrize("d", [1, 2, 4])
def test_levina_bickel_finds_the_dimension_of_a_cube(d: int) -> None:
    assert float(measure.levina_bickel(_cube(2000, d), k=20)) == pytest.approx(d, rel=0.1)


@BOTH
def test_one_search_serves_both_and_copies_are_left_out_and_counted(function) -> None:
    x = gaussian(300, 6)
    shared, reading = measure.nearest_neighbours(x, 100, distinct=True), function(torch.cat([x, x[:40], x[:1]]))
    assert float(function(x, neighbours=shared)) == float(function(x)) == float(reading)
    assert (reading.details["duplicates"], reading.n) == (41, 341)
    assert "41 rows equal another row and are left out" in reading.warnings


@BOTH
@given(seed=st.integers(0, 10**6))
@settings(deadline=None, max_examples=6)
def test_what_intrinsic_dimensions_keep(function, seed: int) -> None:
    x = gaussian(120, 4, seed=seed, dtype=F64) * torch.tensor([3.0, 1.0, 1.0, 0.2], dtype=F64)
    value = float(function(x))
    moved = 2.5 * x[torch.randperm(120, generator=torch.Generator().manual_seed(seed))] @ rotation(4, seed=seed) + 7
    assert float(function(moved)) == pytest.approx(value, rel=1e-8)
    assert float(function(torch.nn.functional.pad(x, (0, 3)))) == pytest.approx(value, rel=1e-8)
    assert float(function(x * torch.tensor([1.0, 9.0, 1.0, 1.0], dtype=F64))) != pytest.approx(value, rel=1e-8)


@BOTH
def test_a_sample_is_near_the_whole_and_says_so(function) -> None:
    x = _cube(1500, 3)
    whole, readings = float(function(x)), [function(x, sample=150, seed=seed) for seed in range(10)]
    for reading in readings:
        assert (reading.details["queries"], reading.details["searched"]) == (150, 1500)
        assert any(
            warning.startswith("sampled: the neighbours of 150 rows were searched") for warning in reading.warnings
        )
    assert sum(low <= whole <= high for low, high in (one.interval for one in readings)) >= 8  # of 10 at 95%
    assert float(function(x, sample=150, seed=1)) == float(readings[1])


def test_two_nn_says_where_it_reads_too_low() -> None:
    reading = measure.two_nn(gaussian(1000, 60))
    assert 20 < float(reading) < 60
    assert any("too low" in warning for warning in reading.warnings)
    assert not measure.two_nn(_cube(500, 3)).warnings


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (torch.ones(1, 3), "expected at least two rows, got 1"),
        (gaussian(2, 3), "expected at least three different rows, got 2"),
        (torch.ones(9, 3), "expected at least two different rows, got 1"),
        (torch.eye(4).repeat(2, 1), "is no scale"),
    ],
)
@BOTH
def test_without_distances_to_compare_there_is_no_dimension(function, x: Tensor, message: str) -> None:
    with pytest.raises(UndefinedMeasure, match=re.escape(message)):
        function(x)


def test_rows_of_which_some_are_equally_far_have_no_local_dimension() -> None:
    x = torch.cat([torch.eye(3, dtype=F64), torch.tensor([[9.0, 0, 0]], dtype=F64)])
    local = measure.local_dimensions(measure.nearest_neighbours(x, 2, distinct=True))
    assert local[:3].tolist()[1] == math.inf
    assert math.isfinite(float(measure.levina_bickel(x, k=2)))


def test_wrong_searches_are_refused() -> None:
    x = gaussian(30, 3)
    copies, fewer = measure.nearest_neighbours(x, 5), measure.nearest_neighbours(x[:29], 5, distinct=True)
    for message, refused in (
        ("expected k of 2 or more, got 1", lambda: measure.levina_bickel(x, k=1)),
        ("with distinct=True, got a search of 30 rows, euclidean", lambda: measure.two_nn(x, neighbours=copies)),
        ("got a search of 29 rows", lambda: measure.two_nn(x, neighbours=fewer)),
        ("expected neighbours without copies", lambda: measure.local_dimensions(copies)),
    ):
        with pytest.raises(InputError, match=message):
            refused()
