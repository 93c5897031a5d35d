"""Measures against slow loops from the papers, an outside implementation, and readings of a real model."""

import math
from itertools import permutations, product
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import uncone
from uncone import Moments, UndefinedMeasure, measure
from uncone.measure.partition import _rounding, log_partition, sign_interval, tied_runs

from ..matrices import F64, Tensor, gaussian, rotation


def _drifted(n: int, d: int, seed: int = 0) -> Tensor:
    spread = torch.arange(1, d + 1, dtype=F64) ** -0.35
    return gaussian(n, d, seed=seed, dtype=F64) * spread + torch.linspace(0.3, 0, d, dtype=F64)


def _unit(x: Tensor) -> Tensor:
    return torch.nn.functional.normalize(x, dim=1)


@pytest.mark.parametrize("weighted", [False, True])
def test_mean_cosine_is_the_mean_over_all_pairs(weighted: bool) -> None:
    x, w = _drifted(80, 5), torch.rand(80, dtype=F64) if weighted else torch.ones(80, dtype=F64)
    unit, total, weight = _unit(x), 0.0, 0.0
    for i, j in permutations(range(80), 2):
        total += float(w[i] * w[j] * (unit[i] @ unit[j]))
        weight += float(w[i] * w[j])
    m = Moments.of(x, w) if weighted else Moments.of(x, second=False)
    assert float(measure.mean_cosine(m)) == pytest.approx(total / weight, rel=1e-12)


def test_the_range_of_a_weighted_mean_cosine() -> None:
    """With half of the weight on each of two opposite directions, however many rows share it, S is 0."""
    x = torch.tensor([[1.0, 2], [-1, -2], [-2, -4]], dtype=F64)
    reading = measure.mean_cosine(Moments.of(x, torch.tensor([2.0, 1, 1], dtype=F64)))
    assert float(reading) == pytest.approx(-6 / 10, rel=1e-12)  # -sum w^2 / (W^2 - sum w^2)
    assert reading.range[0] == pytest.approx(-6 / 10, rel=1e-12)
    assert measure.mean_cosine(Moments.of(x, torch.tensor([1e6, 1, 1], dtype=F64))).range == (-1.0, 1.0)


def test_contributions_of_dimensions_are_means_over_all_pairs() -> None:
    x = _drifted(50, 6)
    unit = _unit(x)
    products = torch.stack([unit[i] * unit[j] for i, j in permutations(range(50), 2)]).mean(0)
    reading = measure.rogue_dimensions(Moments.of(x))
    shares, order = (products / products.sum()).sort(descending=True)
    assert reading.details["dimensions"] == order.tolist()
    assert reading.details["shares"] == pytest.approx(shares.tolist())
    assert float(reading) == pytest.approx(float(shares[0]))


@pytest.mark.parametrize(("n", "d"), [(12, 300), (300, 12), (40, 40), (1, 9), (9, 1)])
def test_rankme_is_the_published_sum_over_singular_values(n: int, d: int) -> None:
    x = gaussian(n, d, dtype=F64) + 0.3
    s = np.linalg.svd(x.numpy(), compute_uv=False)
    p = s / s.sum() + 1e-7
    reading = measure.rankme(Moments.of(x))
    assert float(reading) == pytest.approx(np.exp(-(p * np.log(p)).sum()), rel=1e-9)
    assert reading.range == pytest.approx((1, min(n, d)), rel=1e-4)


def test_rankme_reaches_the_ends_of_its_range() -> None:
    even, rank_one = Moments.of(torch.eye(64, dtype=F64)), Moments.of(torch.ones(5, 64, dtype=F64))
    total, highest, lowest = 1 + 64e-7, measure.rankme(even), measure.rankme(rank_one)  # the p sum to the total
    assert float(highest) == pytest.approx((64 / total) ** total, rel=1e-12)
    assert (float(highest), float(lowest)) == pytest.approx((highest.range[1], lowest.range[0]), rel=1e-12)


@pytest.mark.parametrize("shift", [0.0, 0.5, 2.0])
def test_uniformity_is_near_the_exact_sum(shift: float) -> None:
    x = gaussian(1500, 64, dtype=F64) + shift / 8 * torch.ones(64, dtype=F64)
    exact = math.log(float(torch.exp(-2 * torch.pdist(_unit(x)).square()).mean()))
    assert float(measure.uniformity(Moments.of(x, unit_second=True))) == pytest.approx(exact, abs=2e-3)


def test_outlier_dimensions_are_those_planted() -> None:
    x = gaussian(3000, 50)
    x[:, [4, 30]] += torch.tensor([3.0, -2.0])
    reading = measure.outlier_dimensions(Moments.of(x))
    assert (float(reading), reading.details["dimensions"]) == (2.0, [4, 30])


@given(st.integers(2, 300), st.integers(2, 12), st.integers(0, 10**6))
def test_isoscore_is_the_published_seven_steps(n: int, d: int, seed: int) -> None:
    """Rudman et al. 2022, Algorithm 1, with the covariance after rotation to its own axes."""
    x = gaussian(n, d, seed=seed, dtype=F64) * torch.linspace(0.2, 3, d, dtype=F64)
    variances = torch.linalg.eigvalsh(torch.cov(x.T)).clamp_min(0)
    normed = math.sqrt(d) * variances / variances.norm()
    defect = float((normed - 1).norm()) / math.sqrt(2 * (d - math.sqrt(d)))
    phi = (d - defect**2 * (d - math.sqrt(d))) ** 2 / d**2
    assert float(measure.isoscore(Moments.of(x))) == pytest.approx((d * phi - 1) / (d - 1), abs=1e-9)


@pytest.mark.filterwarnings("ignore")
def test_isoscore_agrees_with_the_package_to_six_digits() -> None:
    package = pytest.importorskip("IsoScore.IsoScore", reason="the IsoScore package is not installed")
    for n, d in [(2000, 32), (500, 100)]:
        x = _drifted(n, d).float()
        assert float(measure.isoscore(Moments.of(x))) == pytest.approx(float(package.IsoScore(x)), abs=5e-7)


class TestPartition:
    """I(W) against direct sums in float64, and in exact arithmetic where float64 overflows too."""

    def _direct(self, x: Tensor) -> dict[str, float]:
        rows = x.double().numpy()
        _, vectors = np.linalg.eigh(rows.T @ rows)
        z = rows @ vectors
        top = np.abs(z).max()
        plus, minus = (np.log(np.exp(sign * z - top).sum(0)) for sign in (1, -1))
        one, both = np.where(rows.mean(0) @ vectors >= 0, plus, minus), np.concatenate([plus, minus])
        return {"value": math.exp(both.min() - both.max()), "one_sign": math.exp(one.min() - one.max())}

    @pytest.mark.parametrize("scale", [0.1, 1.0, 5.0])
    @pytest.mark.parametrize("dtype", [torch.float32, F64])
    def test_against_direct_sums(self, scale: float, dtype: torch.dtype) -> None:
        x = (_drifted(700, 20) * scale).to(dtype)
        reading, direct = measure.partition_isotropy(x), self._direct(x)
        tolerance = 1e-5 if dtype == torch.float32 else 1e-10
        assert float(reading) == pytest.approx(direct["value"], rel=tolerance)
        assert reading.details["one_sign"] == pytest.approx(direct["one_sign"], rel=tolerance)
        assert set(reading.details) - {"no_interval"} == {"one_sign", "low", "high"}
        assert float(reading) <= reading.details["low"] <= reading.details["one_sign"] <= reading.details["high"]
        assert "not scale-free: read at mean norm" in reading.definition

    def test_where_float32_overflows(self) -> None:
        x = _drifted(300, 8).float() * 60  # exponents beyond 88.7, the end of float32
        assert float(x.norm(dim=1).max()) > 150
        assert float(measure.partition_isotropy(x)) == pytest.approx(self._direct(x)["value"], rel=1e-9)

    def test_where_float64_overflows(self) -> None:
        x = torch.tensor([[900.0, 0.0], [-899.0, 0.1], [0.0, 2.0]], dtype=F64)
        plus, minus = log_partition(uncone.open_rows(x), np.eye(2), longest=900.0)
        assert plus.tolist() == pytest.approx([900.0, math.log(1 + math.exp(0.1) + math.exp(2.0))])
        assert minus.tolist() == pytest.approx([899.0, math.log(1 + math.exp(-0.1) + math.exp(-2.0))])

    def test_plain_and_logarithmic_sums_agree(self) -> None:
        rows = uncone.open_rows(_drifted(500, 10))
        plain, logs = (np.stack(log_partition(rows, np.eye(10), longest=longest)) for longest in (1.0, 1e3))
        assert plain == pytest.approx(logs, rel=1e-12)

    @given(st.lists(st.tuples(st.integers(-20, 20), st.integers(-20, 20)), min_size=1, max_size=9))
    def test_the_interval_is_that_of_all_choices(self, pairs: list[tuple[int, int]]) -> None:
        values = np.array(pairs, np.float64) / 7
        chosen = np.array(list(product(*values)))
        spread = chosen.max(1) - chosen.min(1)
        low, high = sign_interval(values[:, 0], values[:, 1])
        assert (low, high) == pytest.approx((math.exp(-float(spread.max())), math.exp(-float(spread.min()))))

    @pytest.mark.parametrize("dtype", [torch.float32, F64])
    def test_where_eigenvalues_coincide_the_warning_has_the_spread(self, dtype: torch.dtype) -> None:
        """Along the mean of three times a frame of 64, Z(c) is 64 exp(3 / 8), and Z(-c) its inverse times 64 squared."""
        frame = torch.eye(64, dtype=F64) * 3
        frames = [(frame @ q).to(dtype) for q in (frame / 3, rotation(64), rotation(64, seed=3))]
        readings = [measure.partition_isotropy(x) for x in frames]
        for x, reading in zip(frames, readings, strict=True):
            low, high = (reading.details[name] for name in ("tied_low", "tied_high"))
            assert (reading.details["tied"], low) == (64, pytest.approx(math.exp(-0.75), rel=1e-5))
            for other in readings:
                assert low * (1 - 1e-12) <= float(other) <= high + 0.05  # one may lie at the end itself
            assert "64 eigenvalues coincide within rounding" in reading.warnings[0]
            assert low <= float(reading) <= high
            gaussian_value = measure.gaussian_isotropy(Moments.of(x))  # which is unique
            assert float(gaussian_value) == pytest.approx(math.exp(-0.75), rel=1e-5)
        assert measure.partition_isotropy(frame.to(dtype)) == readings[0]

    def test_only_the_eigenvectors_that_coincide_are_tried_anew(self) -> None:
        """An axis of its own beside a plane of equal eigenvalues, in which other axes have other Z: a slow search over angles."""
        axes = torch.tensor([[3.0, 0, 0], [0, 2, 0], [0, 0, 2]], dtype=F64)
        x, found = torch.cat([axes, -axes[:1]]), []
        details = measure.partition_isotropy(x).details
        for angle in np.linspace(0, math.pi, 1001):
            cos, sin = math.cos(angle), math.sin(angle)
            c = torch.tensor([[1, 0, 0], [0, cos, sin], [0, -sin, cos]], dtype=F64)
            z = torch.cat([(x @ c.T).exp().sum(0), (-x @ c.T).exp().sum(0)])
            found.append(float(z.min() / z.max()))
        assert details["tied"] == 2
        assert min(found) - 1e-9 <= details["tied_low"] < details["tied_high"] <= max(found) + 1e-9
        assert details["tied_high"] - details["tied_low"] > 0.5 * (max(found) - min(found))

    def test_a_dense_spectrum_is_not_taken_for_tied(self) -> None:
        """Gaps of a millionth of the largest eigenvalue, as tables of 1,000 columns have them: the rows were read for eight more bases."""
        x = (gaussian(4096, 1024, dtype=F64) * (torch.arange(1, 1025, dtype=F64) ** -0.35) @ rotation(1024)).float()
        m = Moments.of(x)
        values, directions = m.eigen()
        runs = tied_runs(values, _rounding(m, values, m.mean() @ directions))
        assert sum(stop - first for first, stop in runs) <= 16

    def test_rows_without_ties_are_read_once(self) -> None:
        for x in (gaussian(5000, 200), gaussian(60, 200), gaussian(900, 30) * torch.linspace(1, 1.01, 30)):
            with patch.object(measure.partition, "log_partition", side_effect=log_partition) as passes:
                assert set(measure.partition_isotropy(x).details) - {"no_interval"} == {"one_sign", "low", "high"}
            assert passes.call_count == 1

    def test_gaussian_rows_have_the_gaussian_value(self) -> None:
        x = gaussian(200_000, 4, dtype=F64) * 0.5 + torch.tensor([0.5, 0, 0, 0.0], dtype=F64)
        m = Moments.of(x)
        assert float(measure.gaussian_isotropy(m)) == pytest.approx(float(measure.partition_isotropy(x, m)), rel=0.02)

    def test_what_is_too_small_for_a_float_says_its_logarithm(self) -> None:
        reading = measure.partition_isotropy(_drifted(200, 4) * 2000)
        assert reading.value == 0.0
        assert "the natural logarithm is -" in reading.warnings[-1]


@pytest.fixture(scope="module")
def table(minilm: Path) -> uncone.Rows:
    return uncone.open_rows(f"{minilm}#input")


@pytest.fixture(scope="module")
def m(table: uncone.Rows) -> Moments:
    return Moments.of(table, unit_second=True)


class TestMiniLM:
    """A real model's token table, to the digits of independent readings."""

    def test_the_headline(self, m: Moments) -> None:
        assert m.n == 30522
        assert round(float(measure.mean_cosine(m)), 4) == 0.0181
        assert round(float(measure.isoscore(m)), 3) == 0.532
        assert round(math.exp(float(measure.singular_entropy(m, centered=False))), 1) == 272.7

    def test_the_partition_function(self, table: uncone.Rows, m: Moments) -> None:
        reading = measure.partition_isotropy(table, m)
        assert round(float(reading), 3) == 0.843
        assert round(reading.details["low"], 3) == 0.885
        centered = np.concatenate([b.copy() for b in table.blocks()]) - m.mean().astype(np.float32)
        assert round(float(measure.partition_isotropy(centered)), 3) == 0.988

    def test_figure_3_of_too_much_in_common(self, table: uncone.Rows) -> None:
        reserved = measure.reserved_rows(table.labels, 30522)
        assert (len(reserved.indices), reserved.by_name) == (994, True)
        x = np.concatenate([b.copy() for b in table.blocks()])
        special = Moments.of(x[reserved.indices], second=False)
        assert round(float(measure.mean_cosine(special)), 3) == 0.822
        bins = [Moments.of(x[start : start + 1000], second=False) for start in (3000, 30000)]
        assert [round(float(measure.cosine_between(special, b)), 3) for b in bins] == [-0.046, 0.713]


class TestGroups:
    def test_bins_are_the_measures_of_their_rows(self) -> None:
        x = _drifted(2500, 4)
        found = measure.by_group(x, [measure.mean_cosine, measure.isoscore])
        assert len(found) == 3
        for k, (cosine, score) in enumerate(found):
            part = Moments.of(x[1000 * k : 1000 * (k + 1)])
            assert float(cosine) == pytest.approx(float(measure.mean_cosine(part)))
            assert float(score) == pytest.approx(float(measure.isoscore(part)))
            assert cosine.n == min(1000, 2500 - 1000 * k)

    @given(st.integers(0, 10**6))
    def test_given_groups(self, seed: int) -> None:
        x = _drifted(300, 4, seed=seed)
        groups = torch.randint(-1, 3, (300,), generator=torch.Generator().manual_seed(seed))
        for k, (shift,) in enumerate(measure.by_group(x, [measure.mean_shift], groups, second=False)):
            assert float(shift) == pytest.approx(float(measure.mean_shift(Moments.of(x[groups == k]))))

    def test_measures_that_read_the_rows_again(self) -> None:
        x, groups, isotropy = _drifted(2500, 6), torch.arange(2500) % 3 - 1, measure.partition_isotropy
        for of, parts in ((None, x.split(1000)), (groups, [x[groups == 0], x[groups == 1]])):
            found = measure.by_group(x, [measure.mean_cosine], of, row_measures=[isotropy])
            assert [reading.name for reading in found[0]] == ["mean_cosine", "partition_isotropy"]
            expected = [float(isotropy(part)) for part in parts]
            assert [float(row[1]) for row in found] == pytest.approx(expected, rel=1e-6)

    def test_a_group_without_a_value_says_why(self) -> None:
        isotropy, groups = [measure.partition_isotropy], [0, 2, 2] * 10
        _, (empty,), _ = measure.by_group(_drifted(30, 2), [], groups, row_measures=isotropy)
        assert (empty.value, empty.n) == (None, 0)
        (single,), (pair,) = measure.by_group(_drifted(3, 2), [measure.mean_cosine], [0, 1, 1])
        assert (single.value, pair.value is None) == (None, False)
        assert "at least two rows" in single.reason
        with pytest.raises(UndefinedMeasure):
            float(single)

    def test_shared_rows_are_not_compared_with_themselves(self) -> None:
        x = _drifted(40, 3)
        unit = _unit(x)
        cosines = [float(unit[i] @ unit[j]) for i in range(20) for j in range(10, 40) if i != j]
        found = measure.cosine_between(Moments.of(x[:20]), Moments.of(x[10:]), shared=10)
        assert float(found) == pytest.approx(sum(cosines) / (600 - 10))
        a = Moments.of(torch.eye(20, 64) * (torch.arange(20) < 10)[:, None], second=False)  # zero rows are no pairs
        assert float(measure.cosine_between(a, a, shared=10)) == pytest.approx(0.0)

    def test_reserved_tokens_are_found(self) -> None:
        tokens = "[unused7] <unused12> <|reserved_special_token_3|> madeupword0001 <|extra_5|> [PAD12]"
        for token in tokens.split():
            labels = ["the"] * 50 + [token] * 20 + ["unused", "[unused", None, "<|endoftext|>"]
            found = measure.reserved_rows(labels, len(labels))
            assert (found.by_name, found.indices.tolist()) == (True, list(range(50, 70))), token

    def test_without_reserved_tokens_the_last_ids_stand_in(self) -> None:
        for labels, why in [(None, "the rows have no names"), (["a"] * 30000, "names no reserved tokens")]:
            found = measure.reserved_rows(labels, 30000)
            assert (found.by_name, found.indices.tolist()) == (False, list(range(29000, 30000)))
            assert why in found.description

    def test_rows_with_nan_are_named(self) -> None:
        x = _drifted(50, 2)
        x[7, 0] = float("nan")
        for groups in (None, [0] * 50):
            with pytest.raises(uncone.InputError, match=r"got 1 row of 50 .*\(row 7\)"):
                measure.by_group(x, [measure.mean_cosine], groups)

    def test_bad_groups(self) -> None:
        x = _drifted(5, 2)
        bad = (([0, 1], r"shape \(5,\)"), ([0.0] * 5, "integer groups"), ([-2, 0, 0, 0, 0], "from -1"))
        for groups, message in bad:
            with pytest.raises(uncone.InputError, match=message):
                measure.by_group(x, [measure.mean_cosine], groups)
        with pytest.raises(uncone.InputError, match="bins of at least one row"):
            measure.by_group(x, [measure.mean_cosine], bin_size=0)


class TestNorms:
    @given(st.integers(3, 400), st.integers(0, 10**6))
    def test_the_rank_correlation_is_spearmans(self, n: int, seed: int) -> None:
        from scipy.stats import spearmanr

        norms = gaussian(n, 1, seed=seed, dtype=F64)[:, 0].abs() + 0.5 + torch.arange(n) / n
        profile = measure.NormProfile()
        for start in range(0, n, 50):
            profile.update(norms[start : start + 50], torch.arange(start, min(start + 50, n)))
        expected = spearmanr(norms.numpy(), np.arange(n)).statistic
        assert float(profile.id_correlation(3)) == pytest.approx(expected, abs=0.01 + 0.5 / n)

    def test_quantiles_and_bars(self) -> None:
        norms = gaussian(20000, 8, dtype=F64).norm(dim=1)
        profile = measure.NormProfile()
        profile.update(norms, torch.arange(20000))
        for q in (0.01, 0.5, 0.99):
            assert profile.quantile(q) == pytest.approx(float(norms.quantile(q)), rel=0.004)
        record, ends = profile.record(), (float(norms.min()), float(norms.max()))
        assert sum(record.counts) == 20000
        assert (record.smallest, record.largest) == pytest.approx(ends)
        assert (record.edges[0], record.edges[-1]) == pytest.approx(ends)

    def test_equal_and_zero_norms(self) -> None:
        profile = measure.NormProfile()
        profile.update(torch.tensor([0.0, 0.0, 0.0]), torch.arange(3))
        with pytest.raises(UndefinedMeasure, match="different norms"):
            profile.id_correlation(2)
        assert profile.record().counts == (3,)
