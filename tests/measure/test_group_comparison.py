"""Groups by frequency against slow loops: every pair, every row left out, every subset drawn."""

import itertools
import math
import statistics

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from uncone import Moments, UndefinedMeasure
from uncone.measure import PairSums, compare_groups, frequency_membership, permutation_test
from uncone.records.tokens import Estimate, FrequencyGroup, FrequencyGroups, token_measurements

from ..matrices import F64, Tensor, gaussian
from ..rows.reading import refuses

Z = 1.959963984540054


def _unit(x: Tensor) -> Tensor:
    x = x.double()
    return torch.nn.functional.normalize(x[x.norm(dim=1) > 0], dim=1)


def _pairs(x: Tensor) -> float:
    """The mean cosine over all pairs, one by one."""
    u = _unit(x)
    i, j = torch.triu_indices(len(u), len(u), 1)
    return float((u[i] * u[j]).sum(1).mean())


def _example(n: int = 60, d: int = 5, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Rows with a drift and a zero row, counts that fall, and reserved rows."""
    x = gaussian(n, d, seed=seed) + 0.7
    x[7] = 0
    x[50:] += 1
    return x, torch.arange(n, 0, -1) ** 2, torch.arange(48, 60)


def _by_name(found: FrequencyGroups) -> dict[str, FrequencyGroup]:
    return {group.name: group for group in found.groups}


GROUPS = pytest.mark.parametrize(("g", "name"), list(enumerate(("frequent", "medium", "rare", "reserved"))))


class TestReadings:
    x, counts, reserved = _example()
    cut = frequency_membership(60, reserved, counts)
    found = compare_groups(x, cut, counts=counts)

    def _of(self, g: int) -> Tensor:
        return self.x[self.cut.groups == g]

    def _estimate(self, name: str, reading: str) -> Estimate:
        return getattr(_by_name(self.found)[name], reading)

    @GROUPS
    def test_values(self, g: int, name: str) -> None:
        rows, u, common = self._of(g), _unit(self._of(g)), _unit(self.x).sum(0)
        expected = {
            "mean_cosine": _pairs(rows),
            "mean_norm": float(rows.double().norm(dim=1).mean()),
            "cosine_to_common": float((u @ common / common.norm()).mean()),
            "cosine_to_reserved": float((u @ _unit(self._of(3)).T).mean()) if g < 3 else None,
        }
        for reading, value in expected.items():
            assert self._estimate(name, reading).value == (value if value is None else pytest.approx(value, rel=1e-5))
        assert _by_name(self.found)[name].occurrences == int(self.counts[self.cut.groups == g].sum())
        assert g < 3 or self._estimate(name, "cosine_to_reserved") == Estimate(None)

    @GROUPS
    def test_the_interval_of_the_mean_cosine_is_the_jackknife(self, g: int, name: str) -> None:
        u = _unit(self._of(g))
        n, interval = len(u), self._estimate(name, "mean_cosine").interval
        if n < 10:
            assert interval is None
            return
        without = [_pairs(torch.cat([u[:i], u[i + 1 :]])) for i in range(n)]
        error = math.sqrt((n - 1) / n * sum((v - statistics.mean(without)) ** 2 for v in without))
        assert interval[1] - interval[0] == pytest.approx(2 * Z * error, rel=1e-4)

    def test_intervals_of_means_are_those_of_means(self) -> None:
        norms = self._of(1).double().norm(dim=1)
        low, high = self._estimate("medium", "mean_norm").interval
        assert high - low == pytest.approx(2 * Z * float(norms.std()) / math.sqrt(len(norms)), rel=1e-5)

    def test_differences_are_differences(self) -> None:
        seen = {(d.first, d.second, d.reading): d.difference for d in self.found.differences}
        assert ("reserved", "rare", "cosine_to_reserved") not in seen
        for (first, second, reading), estimate in seen.items():
            a, b = self._estimate(first, reading), self._estimate(second, reading)
            assert estimate.value == pytest.approx(a.value - b.value)
            if reading != "cosine_to_reserved" and a.interval and b.interval and estimate.interval:
                reach = [(e.interval[1] - e.interval[0]) / 2 for e in (a, b)]
                assert (estimate.interval[1] - estimate.interval[0]) / 2 == pytest.approx(math.hypot(*reach))

    def test_the_difference_to_the_same_reserved_rows_is_by_the_rows_left_out(self) -> None:
        """Its variance, from the influence of each row on the difference of the two means of cosines."""
        a, b, r = (_unit(self._of(g)) for g in (1, 0, 3))
        of_a, of_b = (a @ r.T).mean(1), (b @ r.T).mean(1)
        of_r = (r @ a.T).mean(1) - (r @ b.T).mean(1)
        error = math.sqrt(sum(float(v.var()) / len(v) for v in (of_a, of_b, of_r)))
        found = {(d.first, d.second, d.reading): d.difference for d in self.found.differences}
        low, high = found["medium", "frequent", "cosine_to_reserved"].interval
        assert high - low == pytest.approx(2 * Z * error, rel=1e-4)

    def test_a_wider_confidence_is_wider(self) -> None:
        wider = compare_groups(self.x, self.cut, confidence=0.99)
        assert wider.confidence == 0.99
        ends = [_by_name(f)["medium"].mean_cosine.interval for f in (self.found, wider)]
        assert (ends[1][1] - ends[1][0]) / (ends[0][1] - ends[0][0]) == pytest.approx(2.5758293 / Z, rel=1e-6)

    def test_few_and_equal_rows(self) -> None:
        found = _by_name(compare_groups(torch.ones(11, 3), frequency_membership(11)))["frequent"].mean_cosine
        assert (found.value, found.interval) == (pytest.approx(1.0), None)
        nothing = _by_name(compare_groups(torch.zeros(40, 3), frequency_membership(40)))["medium"]
        assert (nothing.mean_cosine, nothing.mean_norm) == (Estimate(None), Estimate(0.0, (0.0, 0.0)))

    def test_what_does_not_fit(self) -> None:
        refuses("expected a group for each of 60 rows, got", compare_groups, self.x, frequency_membership(59))
        refuses(r"expected a confidence between 0 and 1, got 95\.0", compare_groups, self.x, self.cut, confidence=95.0)

    def test_a_large_length_changes_nothing_but_norms(self) -> None:
        for a, b in zip(compare_groups(self.x * 1e18, self.cut).groups, self.found.groups, strict=True):
            assert a.mean_cosine.value == pytest.approx(b.mean_cosine.value, rel=1e-5)
            assert a.mean_norm.value == pytest.approx(b.mean_norm.value * 1e18, rel=1e-5)


def test_tokens_never_seen_are_a_group_of_their_own() -> None:
    x, counts = gaussian(400, 6) + 0.5, torch.arange(400) // 2
    x[:100] += 1
    counts[:100] = 0
    found = compare_groups(x, frequency_membership(400, torch.arange(20), counts), counts=counts)
    assert [g.name for g in found.groups] == ["frequent", "medium", "rare", "never_seen", "reserved"]
    groups = _by_name(found)
    never = groups["never_seen"]
    assert (never.n, never.occurrences, never.counts) == (80, 0, (0, 0))
    assert groups["rare"].counts == (50, 79)
    assert never.mean_cosine.value == pytest.approx(_pairs(x[20:100]), rel=1e-5)
    assert never.cosine_to_reserved.value == pytest.approx(float((_unit(x[20:100]) @ _unit(x[:20]).T).mean()), rel=1e-5)
    (apart,) = (d for d in found.differences if (d.first, d.second, d.reading) == ("never_seen", "rare", "mean_norm"))
    assert apart.difference.value == pytest.approx(float(x[20:100].norm(dim=1).mean() - x[100:160].norm(dim=1).mean()))
    assert apart.difference.interval is not None
    assert apart.difference.interval[0] > 0
    names = [m.name for m in token_measurements(found, None, 6)]
    assert "never_seen.cosine_to_reserved" in names
    assert "rare.cosine_to_reserved" in names


class TestRandomGroups:
    """Mean and deviation over all subsets, one by one."""

    @given(st.integers(0, 50), st.integers(2, 7))
    def test_null_is_that_of_all_subsets(self, seed: int, size: int) -> None:
        x = gaussian(7, 3, seed=seed, dtype=F64) + 0.3
        mean, deviation = PairSums.of(Moments.of(x, unit_second=True)).null(size)
        drawn = [_pairs(x[list(chosen)]) for chosen in itertools.combinations(range(7), size)]
        assert mean == pytest.approx(statistics.mean(drawn), abs=1e-9)
        assert deviation == pytest.approx(statistics.pstdev(drawn), abs=1e-7)

    def test_zero_rows_are_left_out(self) -> None:
        x = gaussian(6, 3, dtype=F64)
        padded = torch.cat([x, torch.zeros(2, 3, dtype=F64)])
        with_zeros, without = (PairSums.of(Moments.of(one, unit_second=True)).null(3) for one in (padded, x))
        assert with_zeros == pytest.approx(without, rel=1e-12)  # a BLAS sums another number of rows in another order

    def test_excess_and_chance(self) -> None:
        x = gaussian(400, 8)
        x[320:] += 1
        pairs = PairSums.of(Moments.of(x, unit_second=True))
        found = _by_name(compare_groups(x, frequency_membership(400), pairs=pairs))
        mean, deviation = pairs.null(80)
        rare = found["rare"]
        assert rare.excess == pytest.approx((_pairs(x[320:]) - mean) / deviation, rel=1e-4)
        assert rare.chance == pytest.approx(1 / (1 + rare.excess**2))
        assert rare.chance < 0.01 < found["frequent"].chance

    def test_what_does_not_fit(self) -> None:
        refuses("sum with unit_second=True", PairSums.of, Moments.of(gaussian(5, 3)))
        with pytest.raises(UndefinedMeasure, match="expected from 2 to 5 rows with a direction, got 6"):
            PairSums.of(Moments.of(gaussian(5, 3), unit_second=True)).null(6)


class TestPermutation:
    def test_p_is_that_of_all_subsets(self) -> None:
        x = gaussian(9, 3, dtype=F64)
        group = torch.tensor([2, 4, 5, 8])
        own = _pairs(x[group])
        drawn = [_pairs(x[list(chosen)]) for chosen in itertools.combinations(range(9), 4)]
        exact = sum(value >= own - 1e-12 for value in drawn) / len(drawn)
        found = permutation_test(x, group, seed=1, permutations=4999)
        assert float(found) == pytest.approx(own)
        assert found.reference == pytest.approx(_pairs(x))
        assert found.details["p"] == pytest.approx(exact, abs=3 * math.sqrt(exact * (1 - exact) / 4999) + 2e-4)
        assert found.details["null_std"] == pytest.approx(statistics.pstdev(drawn), rel=0.05)
        assert found.details["z"] == pytest.approx((own - _pairs(x)) / found.details["null_std"])

    @pytest.mark.parametrize("dtype", [torch.float32, F64])
    @pytest.mark.parametrize("spread", [1e-2, 1e-4])
    def test_an_effect_far_below_the_common_direction_is_found(self, spread: float, dtype: torch.dtype) -> None:
        """All cosines are 1 but for spread^2 or so; the group is half as wide as the rest."""
        x = spread * gaussian(2000, 16, dtype=F64)
        x[:200] *= 0.5
        x[:, 0] += 1
        found = permutation_test(x.to(dtype), torch.arange(200), seed=0)
        assert found.details["p"] == 0.001
        assert found.details["z"] > 5
        assert permutation_test(x.to(dtype), torch.arange(1000, 1200), seed=0).details["p"] > 0.01
        assert found.value is not None
        assert 1 - found.value < 20 * spread**2

    @pytest.mark.parametrize("nearness", [0.0, 1e-3])
    def test_ties_count_by_the_hypergeometric_distribution(self, nearness: float) -> None:
        """Of rows of two kinds a group is no more than its number of the first kind: most draws tie with some other."""
        a, b = gaussian(2, 24, seed=3)
        if nearness:
            b = a + nearness * b
        own = permutation_test(torch.stack([a] * 12 + [b] * 48), torch.arange(8, 18), seed=0, permutations=2999)

        def cosine(firsts: int) -> float:
            return _pairs(torch.stack([a] * firsts + [b] * (10 - firsts)))

        ways = [math.comb(12, j) * math.comb(48, 10 - j) for j in range(11)]
        p = sum(way for j, way in enumerate(ways) if cosine(j) >= cosine(4) - 1e-14) / math.comb(60, 10)
        assert 0.1 < p < 0.995
        assert own.details["p"] == pytest.approx(p, abs=4 * math.sqrt(p * (1 - p) / 2999) + 1 / 3000)

    def test_it_agrees_with_the_closed_form_and_draws_no_zero_rows(self) -> None:
        for x, size in ((gaussian(500, 6) + 0.4, 100), (torch.cat([gaussian(20, 4), torch.zeros(200, 4)]), 10)):
            mean, deviation = PairSums.of(Moments.of(x, unit_second=True)).null(size)
            found = permutation_test(x, torch.arange(size), seed=0)
            assert found.reference == pytest.approx(mean, rel=1e-5)
            assert found.reference == pytest.approx(_pairs(x), rel=1e-4)
            assert found.details["null_std"] == pytest.approx(deviation, rel=0.1)

    def test_a_group_that_leans_has_the_least_p(self) -> None:
        x = gaussian(9000, 8)  # two blocks
        x[8500:] += 0.5
        found = permutation_test(x, torch.arange(9000) >= 8500, seed=0, permutations=99)
        assert found.details["p"] == 0.01
        assert found.details["z"] > 10

    def test_a_seed_is_a_seed(self) -> None:
        x = gaussian(50, 4)
        first, again, other = (permutation_test(x, torch.arange(9), seed=s).details for s in (3, 3, 4))
        assert first == again
        assert first["null_std"] != other["null_std"]

    def test_all_rows_are_no_more_alike_than_all_rows(self) -> None:
        found = permutation_test(gaussian(20, 4), torch.arange(20), seed=0, permutations=19).details
        assert (found["p"], found["z"]) == (1.0, None)

    @pytest.mark.parametrize(
        ("members", "options", "message"),
        [
            ([0, 0], {}, "got a row number twice"),
            ([0, 9], {}, "expected row numbers from 0 to 8, got 0 to 9"),
            ([0.5], {}, r"expected row numbers \(n,\) or a mask \(9,\), got float32"),
            ([True] * 4, {}, r"got bool of shape \(4,\)"),
            ([0, 1, 2], {"permutations": 0}, "expected at least one permutation, got 0"),
            ([0, 1, 2], {"seed": -1}, "expected a seed from 0 up, got -1"),
        ],
    )
    def test_what_does_not_fit(self, members: list[float], options: dict[str, int], message: str) -> None:
        refuses(message, permutation_test, gaussian(9, 3), torch.tensor(members), **{"seed": 0} | options)

    def test_too_little(self) -> None:
        with pytest.raises(UndefinedMeasure, match="expected at least two rows with a direction in the group, got 1"):
            permutation_test(gaussian(9, 3), torch.tensor([1]), seed=0)


@pytest.mark.slow
@pytest.mark.parametrize(("drift", "low", "high"), [(1.0, 0.93, 0.975), (0.3, 0.95, 1.0), (0.0, 0.97, 1.0)])
def test_intervals_cover(drift: float, low: float, high: float) -> None:
    """95% intervals of groups drawn from one cloud hold the cloud's mean cosine; too often where there is no direction."""
    point = torch.zeros(16)
    point[0] = drift
    everywhere = (gaussian(400_000, 16, seed=7) + point).double()
    truth = float(torch.nn.functional.normalize(everywhere, dim=1).mean(0).square().sum()) if drift else 0.0
    held, trials = dict.fromkeys(("frequent", "medium", "rare", "difference"), 0), 600
    for seed in range(trials):
        found = compare_groups(gaussian(200, 16, seed=seed) + point, frequency_membership(200))
        for group in found.groups:
            held[group.name] += group.mean_cosine.interval[0] <= truth <= group.mean_cosine.interval[1]
        (difference,) = [d.difference for d in found.differences if (d.first, d.reading) == ("medium", "mean_cosine")]
        held["difference"] += difference.interval[0] <= 0 <= difference.interval[1]
    for name, count in held.items():
        assert low - 0.02 * (name == "rare") <= count / trials <= high, (name, count / trials)


@pytest.mark.slow
def test_p_values_of_random_groups_are_uniform() -> None:
    """Of groups that were drawn at random, a share a has p <= a: never more, within the error of the simulation."""
    x = gaussian(120, 5) + 0.3
    p = []
    for seed in range(400):
        group = torch.randperm(120, generator=torch.Generator().manual_seed(seed))[:30]
        p.append(permutation_test(x, group, seed=seed + 10_000, permutations=99).details["p"])
    for level in (0.05, 0.2, 0.5, 0.8):
        share = sum(value <= level for value in p) / len(p)
        assert abs(share - level) < 4 * math.sqrt(level * (1 - level) / len(p)), (level, share)


def test_rows_of_one_direction_are_not_significant() -> None:
    """All groups are alike: what rounding makes of them must not reach the least p-value, or many deviations."""
    x = torch.randn(300, generator=torch.Generator().manual_seed(0)).repeat(3000, 1)
    found = permutation_test(x, torch.arange(1500), seed=0, permutations=19)
    assert (found.details["p"], found.details["z"]) == (1.0, None)
    assert (found.value, found.reference) == pytest.approx((1.0, 1.0), abs=1e-15)
    pairs = PairSums.of(Moments.of(x, unit_second=True))
    assert pairs.null(600)[1] == 0.0
    groups = compare_groups(x, frequency_membership(3000), pairs=pairs).groups
    assert all(group.excess is None and group.chance is None for group in groups)


def test_a_null_within_rounding_is_none() -> None:
    """The deviation is right or not given."""
    generator = torch.Generator().manual_seed(0)
    direction, noise = torch.randn(8, generator=generator), torch.randn(2000, 8, generator=generator)
    for spread in (1e-3, 1e-2, 0.1, 0.3, 1.0):
        x = direction + spread * noise
        unit = torch.nn.functional.normalize(x.double())
        h = unit @ unit.T
        h.fill_diagonal_(0.0)
        exact = PairSums(2000, float(h.sum()), float(h.square().sum()), float(h.sum(1).square().sum())).null(400)[1]
        found = PairSums.of(Moments.of(x, unit_second=True)).null(400)[1]
        assert found == (pytest.approx(exact, rel=0.1) if spread >= 0.1 else 0.0)


def test_occurrences_do_not_wrap() -> None:
    groups = compare_groups(gaussian(4000, 4), frequency_membership(4000), counts=torch.full((4000,), 2**53)).groups
    assert groups[1].occurrences == 2000 * 2**53


@pytest.mark.parametrize("spread", [0.0, 1e-3, 1e-2])
def test_rows_of_nearly_one_direction_keep_their_digits(spread: float) -> None:
    x = gaussian(1, 8, seed=1) + spread * gaussian(20_000, 8, seed=2)
    for group in compare_groups(x, frequency_membership(len(x))).groups[:3]:
        at = {"frequent": slice(0, 6000), "medium": slice(6000, 16_000), "rare": slice(16_000, 20_000)}[group.name]
        u = torch.nn.functional.normalize(x[at].double())
        n = len(u)
        exact = float((u.sum(0).square().sum() - n) / (n * (n - 1)))
        assert group.mean_cosine is not None
        assert group.mean_cosine.value == pytest.approx(exact, abs=1e-8 + 1e-4 * (1 - exact))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, F64])
def test_arrays_are_read_as_tensors_are(dtype: torch.dtype) -> None:
    x, counts, reserved = _example()
    x = x.to(dtype)
    cut = frequency_membership(60, reserved.numpy(), counts.numpy())
    assert np.array_equal(cut.groups, frequency_membership(60, reserved, counts).groups)
    assert compare_groups(x.numpy(), cut, counts=counts.numpy()) == compare_groups(x, cut, counts=counts)
