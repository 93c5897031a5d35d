"""Intervals of readings: the jackknife by leaving out every row in turn, rows that decide a reading, and how often they hold."""

import math
import pickle
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from uncone import Measurement, Moments, measure
from uncone.measure.influence import FEWEST, along, products, tail_index
from uncone.measure.intrinsic_dimension import dimensions_of
from uncone.moments.drawn import FEWEST as KEPT
from uncone.moments.drawn import DrawnRows

Function = Callable[..., Measurement]
FROM_MOMENTS: dict[str, Function] = {
    "mean_cosine": measure.mean_cosine,
    "mean_shift": measure.mean_shift,
    "rogue_dimensions": measure.rogue_dimensions,
    "dominant_dimension": measure.dominant_dimension,
    "isoscore": measure.isoscore,
    "isoscore_debiased": partial(measure.isoscore, debiased=True),
    "isoscore_star": measure.isoscore_star,
    "participation_ratio": measure.participation_ratio,
    "participation_ratio_debiased": partial(measure.participation_ratio, debiased=True),
    "effective_rank": measure.effective_rank,
    "effective_rank_raw": partial(measure.effective_rank, centered=False),
    "rankme": measure.rankme,
    "stable_rank": measure.stable_rank,
    "stable_rank_centered": partial(measure.stable_rank, centered=True),
    "anisotropy_2": partial(measure.anisotropy, k=2),
    "anisotropy_1_raw": partial(measure.anisotropy, centered=False),
    "singular_entropy": measure.singular_entropy,
    "condition_number": measure.condition_number,
    "uniformity": measure.uniformity,
    "gaussian_isotropy": measure.gaussian_isotropy,
    "partition_isotropy": measure.partition_isotropy,
}
IN_LOGARITHMS = {"gaussian_isotropy", "partition_isotropy"}


def cone(n: int, d: int, seed: int = 0) -> np.ndarray:
    """A cloud with a mean, and a spectrum without ties."""
    return np.random.default_rng(seed).standard_normal((n, d)) * np.linspace(1, 0.4, d) + 1.5 * np.eye(d)[1]


@pytest.mark.parametrize("name", FROM_MOMENTS)
def test_intervals_are_those_of_leaving_out_every_row_in_turn(name: str) -> None:
    """Tukey's jackknife, which the influences are the limit of: 1.97 of its standard errors, to a few percent in so many rows."""
    x, function = cone(80, 4), FROM_MOMENTS[name]
    told = math.log if name in IN_LOGARITHMS else float
    kinds = {"unit_second": name == "uniformity", "drawn": False}
    without = (np.delete(x, i, 0) for i in range(len(x)))
    if name == "partition_isotropy":
        found = [function(one, Moments.of(one, **kinds)) for one in without]
    else:
        found = [function(Moments.of(one, **kinds)) for one in without]
    left = np.array([told(float(one)) for one in found])
    error = math.sqrt((len(x) - 1) / len(x) * float(np.square(left - left.mean()).sum()))
    reading = function(x)
    assert reading.interval is not None
    low, high = map(told, reading.interval)
    assert (high - low) / 2 == pytest.approx(1.99 * error, rel=0.12)
    assert (low + high) / 2 == pytest.approx(told(float(reading)), abs=1e-9)


@pytest.mark.parametrize("name", FROM_MOMENTS)
def test_rows_that_stand_for_others_give_nearly_the_interval_of_all(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 4,000 rows 1,024 say as much as all, to the error of their number."""
    x, function = cone(4000, 4), FROM_MOMENTS[name]
    wide = function(x).interval
    monkeypatch.setattr("uncone.moments.drawn.MOST", KEPT)
    narrow = function(x).interval
    assert wide is not None
    assert narrow is not None
    assert narrow != wide
    assert narrow[1] - narrow[0] == pytest.approx(wide[1] - wide[0], rel=0.15)


def test_how_often_intervals_hold_the_mean_reading() -> None:
    """Of 100 clouds of 120 rows; the table of many clouds is in experiments/intervals."""
    random = np.random.default_rng(5)
    clouds = [random.standard_normal((120, 6)) * np.linspace(1, 0.3, 6) + 0.8 * np.eye(6)[0] for _ in range(100)]
    for name in ("mean_cosine", "isoscore", "effective_rank", "partition_isotropy"):
        found = [FROM_MOMENTS[name](x) for x in clouds]
        mean = float(np.mean([float(one) for one in found]))
        held = [one.interval is not None and one.interval[0] <= mean <= one.interval[1] for one in found]
        assert 0.9 <= np.mean(held) <= 1


def test_without_a_common_direction_the_mean_cosine_has_the_error_of_chance() -> None:
    """Along one loud axis single rows say next to nothing where the signs happen to cancel: the cosines are 1 and -1."""
    x = np.zeros((200, 3))
    x[:, 0] = np.repeat([1.0, -1.0], 100)
    reading = measure.mean_cosine(x)
    assert reading.interval is not None
    assert reading.interval[1] - float(reading) == pytest.approx(1.972 * math.sqrt(2) / 200, rel=1e-3)


def test_an_interval_stays_inside_the_range() -> None:
    for name, function in FROM_MOMENTS.items():
        reading = function(cone(40, 20))
        low, high = reading.range
        assert reading.interval is not None or name == "partition_isotropy"
        if reading.interval:
            assert (-math.inf if low is None else low) <= reading.interval[0] <= float(reading) <= reading.interval[1]
            assert reading.interval[1] <= (math.inf if high is None else high)


class TestNone:
    """Where no interval can be had, the reading has the reason."""

    def test_of_few_rows(self) -> None:
        assert measure.isoscore(cone(FEWEST, 3)).interval is not None
        reading = measure.isoscore(cone(FEWEST - 1, 3))
        assert reading.interval is None
        assert reading.details["no_interval"] == "29 rows are too few for an interval: it takes 30"

    def test_where_a_few_rows_decide(self) -> None:
        x = cone(2000, 6)
        x[:12] *= np.geomspace(10, 3000, 12)[:, None]
        reading = measure.effective_rank(x)
        assert reading.interval is None
        assert "a few rows decide the reading" in reading.details["no_interval"]
        assert measure.mean_cosine(x).interval is not None  # of directions every row has one

    def test_where_a_few_rows_carry_the_partition_function(self) -> None:
        x = cone(150, 6)
        x[7] *= 30
        assert "rows carry Z along one direction" in measure.partition_isotropy(x).details["no_interval"]

    def test_of_a_share_of_nothing(self) -> None:
        """The mean cosine is above 4 of the errors of isotropic rows, but not of these, which have one loud axis."""
        x = np.random.default_rng(0).standard_normal((400, 8)) * np.array([12, 1, 1, 1, 1, 1, 1, 1])
        x[:, 0] += 1.2
        reading = measure.rogue_dimensions(x)
        assert "of its interval from 0" in reading.details["no_interval"]

    def test_of_weighted_and_of_saved_moments(self, tmp_path: Path) -> None:
        m = Moments.of(cone(100, 4))
        m.save(tmp_path / "m.safetensors")
        weighted = Moments.of(cone(100, 4), np.arange(100.0))
        for one in (Moments.load(tmp_path / "m.safetensors"), weighted, Moments.of(cone(100, 4), drawn=False)):
            assert measure.isoscore(one).interval is None
        assert measure.isoscore(m).interval is not None
        m.update(cone(10, 4), np.ones(10))
        assert measure.isoscore(m).interval is None

    def test_of_a_count(self) -> None:
        assert measure.outlier_dimensions(cone(100, 12)).interval is None


class TestDrawnRows:
    x = cone(20_000, 64)
    x[123] *= 400

    def drawn(self, *blocks: int) -> DrawnRows:
        drawn = DrawnRows(64)
        for block in np.split(self.x, np.cumsum(blocks)):
            drawn.add(np.square(block).sum(1), lambda at, block=block: block[at])  # type: ignore[misc]
        return drawn

    def test_few_rows_are_all_there(self) -> None:
        drawn = DrawnRows(64)
        drawn.add(np.ones(50), lambda at: self.x[at])
        assert np.array_equal(drawn.rows, self.x[:50])
        assert (drawn.weights == 1).all()

    def test_they_stand_for_all(self) -> None:
        drawn = self.drawn()
        assert len(drawn.rows) == len(drawn.weights) == drawn.most == 4096
        assert drawn.weights.sum() == pytest.approx(20_000, rel=0.06)
        for power in (1, 2, 4):
            sums = [(np.abs(rows) ** power).sum(1) for rows in (self.x, drawn.rows)]
            assert drawn.weights @ sums[1] == pytest.approx(sums[0].sum(), rel=0.06)

    def test_a_giant_row_is_always_there(self) -> None:
        assert (self.drawn().rows == self.x[123]).all(axis=1).any()

    def test_they_do_not_depend_on_how_rows_are_cut(self) -> None:
        """Lengths are compared with the mean of the first block, of which there are at least as many rows here."""
        one, other = self.drawn(8192, 8192), self.drawn(8192, 100, 4000)
        assert np.array_equal(one.rows, other.rows)
        assert np.array_equal(one.weights, other.weights)

    def test_rows_that_are_left_out_beforehand_would_not_have_been_kept(self) -> None:
        one, other = self.drawn(4096), DrawnRows(64)
        other.expect(20_000)
        for start in range(0, 20_000, 4096):
            block = self.x[start : start + 4096]
            other.add(np.square(block).sum(1), block.__getitem__)
        assert np.array_equal(one.rows, other.rows)
        assert np.array_equal(one.weights, other.weights)

    @pytest.mark.parametrize("second", [True, False])
    def test_moments_give_their_distances(self, second: bool, monkeypatch: pytest.MonkeyPatch) -> None:
        """The rows drift so far that later pieces have centres of their own."""
        x, found = (self.x[:5000] * 0.01 + np.linspace(0, 30, 5000)[:, None]).astype(np.float32), list[np.ndarray]()
        monkeypatch.setattr(DrawnRows, "add", lambda self, squares, take: found.append(squares))
        shift = Moments.of(x, second=second).shift
        assert np.concatenate(found) == pytest.approx(np.square(x - shift).sum(1), rel=1e-4)

    def test_merged_they_stand_for_both(self) -> None:
        halves = [DrawnRows(64) for _ in range(2)]
        for half, x in zip(halves, np.split(self.x, 2), strict=True):
            half.add(np.square(x).sum(1), lambda at, x=x: x[at])  # type: ignore[misc]
        merged = halves[0].merge(halves[1])
        assert len(merged.rows) == merged.most
        assert merged.weights.sum() == pytest.approx(20_000, rel=0.06)
        assert (merged.rows == self.x[123]).all(axis=1).any()

    @pytest.mark.parametrize("first", [50, 5000])
    def test_they_go_on_in_another_process(self, first: int) -> None:
        one, other = (self.drawn(first, 20_000 - first) for _ in range(2))
        sent = DrawnRows(64)
        sent.add(np.square(self.x[:first]).sum(1), self.x[:first].__getitem__)
        sent = pickle.loads(pickle.dumps(sent))
        sent.add(np.square(self.x[first:]).sum(1), self.x[first:].__getitem__)
        assert np.array_equal(sent.rows, one.rows)
        assert np.array_equal(sent.weights, other.weights)

    def test_of_wide_rows_that_come_in_small_parts(self) -> None:
        """The first rows are kept, and summed when there are too many; they were drawn before."""
        x, m = cone(3000, 600), Moments(600, drawn=True)
        for start in range(0, 3000, 100):
            m.update(x[start : start + 100], more=start % 1000 != 900)
        assert m.drawn is not None
        assert (m.drawn.rows[:, None, 0] == x[:, 0]).any(1).all()
        assert m.drawn.weights.sum() == pytest.approx(3000, rel=0.06)

    def test_moments_keep_them_through_a_merge(self) -> None:
        a, b = (Moments.of(half) for half in np.split(self.x[:200], 2))
        whole = measure.isoscore(Moments.of(self.x[:200])).interval
        assert measure.isoscore(a.merge(b)).interval == pytest.approx(whole, rel=1e-6)


def test_the_tail_index_is_that_of_a_power_law() -> None:
    """Quantiles of a Pareto law; a row that stands for three counts three times."""
    sizes = (np.arange(1, 100_001) / 100_001) ** (-1 / 1.5)
    index, error = tail_index(sizes, np.ones(len(sizes)))
    assert index == pytest.approx(1.5, rel=0.01)
    assert error == pytest.approx(1.5 / math.sqrt(1000), rel=0.02)
    assert tail_index(sizes[::3], np.full(len(sizes[::3]), 3.0))[0] == pytest.approx(1.5, rel=0.02)


def test_products_with_directions_come_from_those_with_centred_ones() -> None:
    m = Moments.of(cone(2000, 60))
    found = products(m, centered=False)
    assert not m.keeps_directions
    assert np.abs(found - along(m, m.directions())).max() <= 1e-12 * float(np.abs(found).max())


def test_norms_have_fishers_interval() -> None:
    """By the formula of Bonett & Wright: n = 103 makes its root 0.1 sqrt(1 + r^2 / 2)."""
    x = np.random.default_rng(0).standard_normal((103, 8)) * np.linspace(1, 1.5, 103)[:, None]
    reading = measure.all(x)["norm_id_correlation"]
    r, half = float(reading), 1.959964 * 0.1 * math.sqrt(1 + float(reading) ** 2 / 2)
    assert reading.interval == pytest.approx((math.tanh(math.atanh(r) - half), math.tanh(math.atanh(r) + half)))


class TestBiasOfTwoNN:
    """Fresh clouds: of the seed 0 the table was made."""

    def test_a_gaussian_cloud_reads_as_one(self) -> None:
        x = np.random.default_rng(11).standard_normal((2000, 40))
        reading = measure.two_nn(x)
        assert float(reading) < 34
        assert reading.details["gaussian_dimensions"] == pytest.approx(40, rel=0.12)
        assert any("The interval ignores this bias" in one for one in reading.warnings)

    def test_a_ball_reads_as_one(self) -> None:
        random = np.random.default_rng(12)
        x = random.standard_normal((2000, 5))
        x *= random.random((2000, 1)) ** (1 / 5) / np.linalg.norm(x, axis=1, keepdims=True)
        reading = measure.two_nn(x)
        assert reading.details["ball_dimensions"] == pytest.approx(5, rel=0.1)
        assert not any("bias" in one for one in reading.warnings)

    def test_nothing_is_said_outside_the_table(self) -> None:
        assert dimensions_of(5.0, 200, "ball") is None
        assert dimensions_of(500.0, 3000, "ball") is None
        assert dimensions_of(5.0, 10**7, "gaussian") is None
