"""Hubness against hand-made hubs, symmetric figures, SciPy's skewness over scikit-learn's neighbours, and its own samples."""

import math
import re
from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from uncone import InputError, UndefinedMeasure, measure
from uncone.measure.hubness import _sampled_skewness, _thinned_skewness
from uncone.rows import as_rows

from ..matrices import F64, Tensor, gaussian, rotation, simplex


def _star(n: int) -> Tensor:
    """A centre, and n points around it that are nearer to it than to each other: nearly the corners of a simplex."""
    return torch.cat([torch.zeros(1, n - 1, dtype=F64), simplex(n - 1)])


def _slow_counts(x: Tensor, k: int) -> np.ndarray:
    squares = torch.stack([(x.double() - row).square().sum(1) for row in x.double()]).fill_diagonal_(torch.inf)
    return np.bincount(squares.sort(dim=1, stable=True).indices[:, :k].flatten().numpy(), minlength=len(x))


def test_the_centre_of_a_star_is_everybodys_neighbour() -> None:
    reading = measure.hubness(_star(12), k=1, metric="euclidean")
    details, deviation = reading.details, np.array([11.0] + [0] + [-1] * 11)  # the centre's neighbour is a corner
    assert float(reading) == pytest.approx((deviation**3).mean() / (deviation**2).mean() ** 1.5, rel=1e-12)
    assert (details["hubs"][0], details["hub_counts"][:3]) == (0, [12, 1, 0])
    shares = [details[name] for name in ("antihub_share", "robin_hood", "top_share")]
    assert shares == pytest.approx([11 / 13, 11 / 13, 12 / 13])  # 1% of 13 rows is one row
    assert reading.range[0] < float(reading) <= reading.range[1]


RING = torch.arange(12) * math.pi / 6
FIGURES = [
    (simplex(6), 6),  # everybody has everybody else
    (torch.stack([torch.cos(RING), torch.sin(RING)], 1), 2),
    (torch.cartesian_prod(*[torch.tensor([-1.0, 1.0])] * 4), 4),  # the corners of a cube and their edges
]


@pytest.mark.parametrize(("x", "k"), FIGURES)
@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_figures_that_look_alike_from_each_point_have_no_hubs(x: Tensor, k: int, metric: measure.points.Metric) -> None:
    reading = measure.hubness(x, k=k, metric=metric)
    assert float(reading) == 0
    assert reading.details["robin_hood"] == reading.details["antihub_share"] == 0


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_hubness_is_scipys_skewness_of_scikit_learns_neighbours(metric: measure.points.Metric) -> None:
    neighbors = pytest.importorskip("sklearn.neighbors", reason="pip install scikit-learn")
    skew = pytest.importorskip("scipy.stats").skew
    x = gaussian(800, 30, dtype=F64) + 0.2
    lists = neighbors.NearestNeighbors(n_neighbors=10, metric=metric, algorithm="brute").fit(x.numpy()).kneighbors()[1]
    counts = np.bincount(lists.ravel(), minlength=800)
    reading, shares = measure.hubness(x, metric=metric), (np.abs(counts - 10).sum() / 16000, (counts == 0).mean())
    assert float(reading) == pytest.approx(skew(counts), rel=1e-9)
    found = [reading.details[name] for name in ("robin_hood", "antihub_share", "top_share")]
    assert found == pytest.approx([*shares, np.sort(counts)[-8:].sum() / 8000], rel=1e-12)
    assert reading.details["hub_counts"] == sorted(counts.tolist(), reverse=True)[:10]


def test_hubs_grow_with_the_dimension() -> None:
    values = [float(measure.hubness(gaussian(1500, d), metric="euclidean")) for d in (2, 10, 60)]
    assert values == sorted(values)
    assert values[0] < 0.5
    assert values[2] > 2


def test_hubs_are_named_by_id_and_label() -> None:
    rows = as_rows(_star(12))
    rows.load_labels = lambda: ["centre", *(f"corner {i}" for i in range(11)), None]
    details = measure.hubness(rows, k=1, metric="euclidean").details
    assert details["hub_labels"][0] == "centre"
    assert len(details["hubs"]) == len(details["hub_counts"]) == len(details["hub_labels"]) == 10
    assert "hub_labels" not in measure.hubness(_star(12), k=1, metric="euclidean").details


@given(seed=st.integers(0, 10**6))
@settings(deadline=None, max_examples=15)
def test_counts_with_copies_and_ties_are_those_of_a_slow_loop(seed: int) -> None:
    x = torch.randint(0, 4, (60, 2), generator=torch.Generator().manual_seed(seed)).float()
    counts = _slow_counts(x, 5)
    reading = measure.hubness(x, k=5, metric="euclidean")
    assert reading.details["hub_counts"] == sorted(counts.tolist(), reverse=True)[:10]
    assert float(reading) == pytest.approx(((counts - 5.0) ** 3).mean() / ((counts - 5.0) ** 2).mean() ** 1.5, rel=1e-9)
    assert any("among copies, the first are listed" in warning for warning in reading.warnings)


@given(seed=st.integers(0, 10**6))
@settings(deadline=None, max_examples=6)
def test_what_hubness_keeps(seed: int) -> None:
    x = gaussian(150, 6, seed=seed, dtype=F64) + 0.5
    order = torch.randperm(150, generator=torch.Generator().manual_seed(seed))
    for metric in ("cosine", "euclidean"):
        turned = 3 * x[order] @ rotation(6, seed=seed)
        value, moved = (float(measure.hubness(rows, metric=metric)) for rows in (x, turned))
        assert moved == pytest.approx(value, rel=1e-9)
    assert float(measure.hubness(x + 4, metric="euclidean")) == float(measure.hubness(x, metric="euclidean"))
    lengths = torch.rand(150, 1, dtype=F64, generator=torch.Generator().manual_seed(seed)) + 0.1
    assert float(measure.hubness(lengths * x)) == float(measure.hubness(x))


def test_factorial_moments_of_a_sample_are_right_on_average() -> None:
    """Over every sample of three of six lists, the estimated moments average to those of all lists."""
    lists = np.array([[1, 2], [2, 3], [1, 0], [1, 2], [2, 1], [1, 2]])
    counts = np.bincount(lists.ravel(), minlength=6)

    def third(rows: np.ndarray) -> float:
        q = len(rows)
        found = np.bincount(rows.ravel(), minlength=6)
        return float((found * (found - 1) * (found - 2)).sum()) * (6 * 5 * 4) / (q * (q - 1) * (q - 2))

    samples = [third(lists[list(chosen)]) for chosen in combinations(range(6), 3)]
    assert sum(samples) / len(samples) == pytest.approx(float((counts * (counts - 1) * (counts - 2)).sum()))
    deviation = counts - 2
    expected = float((deviation**3).mean() / (deviation**2).mean() ** 1.5)
    assert _thinned_skewness(lists, 6) == pytest.approx(expected)  # a sample of all is all


def test_a_sample_whose_unbiased_variance_is_nothing_but_rounding() -> None:
    lists = (np.arange(999)[:, None] + np.arange(1, 11)) % 1000  # of all 1,000, every row would occur ten times
    with pytest.raises(UndefinedMeasure, match="take a larger sample"):
        _sampled_skewness(lists, 1000, 998 / math.sqrt(999), 0)


@given(st.integers(0, 10**6))
def test_a_sample_gives_no_skewness_that_counts_cannot_have(seed: int) -> None:
    generator, n = np.random.default_rng(seed), 100
    lists = np.stack([generator.permutation(n)[:10] for _ in range(int(generator.integers(3, 100)))])
    bound = 98 / math.sqrt(99)
    try:
        value, interval = _sampled_skewness(lists, n, bound, seed)
    except UndefinedMeasure:
        return
    low, high = (value, value) if interval is None else interval
    assert -bound <= low <= value <= high <= bound


def test_a_sample_estimates_the_whole_within_its_interval() -> None:
    x = gaussian(2000, 20)
    whole = measure.hubness(x)
    assert whole.interval is None
    readings = [measure.hubness(x, sample=1000, seed=seed) for seed in range(40)]
    for reading in readings:
        assert [reading.details[name] for name in ("robin_hood", "antihub_share", "top_share")] == [None] * 3
        assert "sampled: the neighbours of 1000 rows were searched among 2000" in reading.warnings
    assert sum(low <= float(whole) <= high for low, high in (one.interval for one in readings)) >= 34  # of 40 at 95%
    assert sum(map(float, readings)) / 40 == pytest.approx(float(whole), rel=0.15)


def test_zero_rows_are_left_out_of_cosine_and_kept_in_euclidean() -> None:
    x = gaussian(60, 4)
    x[:7] = 0
    cosine = measure.hubness(x)
    assert float(cosine) == pytest.approx(float(measure.hubness(x[7:])), rel=1e-12)
    assert cosine.details["hubs"] == [i + 7 for i in measure.hubness(x[7:]).details["hubs"]]
    assert any("7 rows are all zero" in warning for warning in cosine.warnings)
    assert measure.hubness(x, metric="euclidean").details["searched"] == 60


def test_all_rows_equal_has_a_value_that_is_warned_of() -> None:
    reading = measure.hubness(torch.ones(30, 3), metric="euclidean")
    assert reading.details["hubs"] == list(range(10))  # copies are listed in the order of their numbers
    assert (reading.details["duplicates"], reading.details["tied"], len(reading.warnings)) == (29, 30, 3)


def test_without_enough_rows_there_is_no_hubness() -> None:
    for x, message in (
        (gaussian(10, 3), "expected more than k = 10 rows to be neighbours, got 10"),
        (gaussian(1, 3), "expected at least two rows with a direction, got 1"),
        (torch.zeros(40, 3), "expected at least two rows with a direction, got 0"),
    ):
        with pytest.raises(UndefinedMeasure, match=re.escape(message)):
            measure.hubness(x)


def test_wrong_arguments_are_refused() -> None:
    x = gaussian(30, 3)
    with pytest.raises(InputError, match="expected at least one neighbour, got k = 0"):
        measure.hubness(x, k=0)
    with pytest.raises(InputError, match="expected neighbours of 30 rows, cosine, with distinct=False"):
        measure.hubness(x, neighbours=measure.nearest_neighbours(x, 10))
