"""Kinds of evidence for untrained rows, each alone where the others have no power, and joined where they depend on each other."""

import statistics

import numpy as np
import pytest
import torch

from uncone.errors import UndefinedMeasure
from uncone.measure import benjamini_hochberg, robust_null, under_trained_tokens
from uncone.measure.under_trained import RATE
from uncone.measure.untrained_evidence import KINDS
from uncone.records.tokens import UnderTrained
from uncone.rows import ArrayRows, Rows

from ..matrices import gaussian
from ..planted_tokens import Planted, plant, plant_short


def _rows(planted: Planted) -> Rows:
    rows = ArrayRows(planted.table, name="planted")
    rows.load_labels = lambda: planted.labels
    return rows


def _found(u: UnderTrained) -> set[int]:
    return {one.id for one in u.listed("found")}


def _counting(u: UnderTrained) -> set[str]:
    return {one.name for one in u.kinds if one.found is not None}


def decayed(n: int = 4000, d: int = 256, planted: int = 400, *, spread: float = 0.6, seed: int = 0) -> Planted:
    """An input table whose trained rows have all lengths, so that shortness says little, and untrained ones decayed."""
    short = plant_short(n=n, d=d, reserved=40, planted=planted, seed=seed)
    random = torch.Generator().manual_seed(seed)
    lengths = torch.exp(spread * torch.randn(n, generator=random))
    rows = torch.cat([short.unused, short.planted])
    lengths[rows] = 0.05 / 0.2
    return Planted(short.table * lengths[:, None], short.labels, short.unused, short.planted)


def in_pairs(*, pull: float = 0.21, seed: int = 0) -> Planted:
    """Every untrained row equals another one, is as long as others, and not far from them."""
    planted = plant(reserved=40, planted=40, pull=pull, seed=seed)
    for rows in (planted.unused, planted.planted):
        planted.table[rows] /= planted.table[rows].norm(dim=1, keepdim=True)
        planted.table[rows[::2]] = planted.table[rows[1::2]]
    return planted


class TestEachKind:
    def test_decay_finds_what_is_not_short_enough_alone(self) -> None:
        planted = decayed()
        u = under_trained_tokens(_rows(planted), prefer="norm", most=10**6)
        assert _counting(u) == {"decay"}
        assert u.indicator == "norm"
        assert len(_found(u) & set(planted.planted.tolist())) >= 0.9 * len(planted.planted)
        assert len(_found(u) - set(planted.planted.tolist())) <= 0.01 * len(planted.planted)
        assert {one.kinds for one in u.listed("found")} == {("decay",)}

    def test_a_few_decayed_rows_among_rows_of_all_lengths_are_not_named(self) -> None:
        """Of 40 rows no null says that none was there by chance."""
        with pytest.raises(UndefinedMeasure, match="norm: expected to find at least 50%"):
            under_trained_tokens(_rows(decayed(planted=0, spread=1.0)), prefer="norm")

    def test_equality_finds_what_its_place_does_not_show(self) -> None:
        planted = in_pairs()
        u = under_trained_tokens(_rows(planted), most=10**6)
        assert _counting(u) == {"equality"}
        assert len(_found(u) & set(planted.planted.tolist())) >= 0.8 * len(planted.planted)
        assert _found(u) <= set(planted.planted.tolist())
        assert {(one.kinds, one.p) for one in u.listed("found")} == {(("equality",), 0.0)}

    def test_equal_rows_on_the_side_of_ordinary_ones_are_no_untrained_ones(self) -> None:
        planted = plant(reserved=40, planted=40, pull=1.2)
        ordinary = sorted(set(range(4000)) - set(planted.unused.tolist()) - set(planted.planted.tolist()))[:30]
        planted.table[ordinary] = planted.table[ordinary[0]].clone()
        u = under_trained_tokens(_rows(planted), most=10**6)
        assert not _found(u) & set(ordinary)
        assert _found(u) >= set(planted.planted.tolist())

    @pytest.mark.parametrize("step", [0.25, 1.0])
    def test_of_coarse_numbers_equality_says_less(self, step: float) -> None:
        """Rows of three columns that are rounded to a few values equal others by chance."""
        planted = plant(n=2000, d=3, reserved=40, planted=0, pull=0.3)
        planted.table.copy_((planted.table / step).round() * step)
        try:
            u = under_trained_tokens(_rows(planted), most=10**6)
        except UndefinedMeasure:
            return
        assert "equality" not in _counting(u)

    def test_rows_that_differ_in_the_last_bit_are_not_equal(self) -> None:
        planted = in_pairs()
        planted.table[planted.planted[::2], 5] *= 1 + 2.0**-22
        u = under_trained_tokens(_rows(planted), most=10**6)
        assert (_counting(u), u.found) == ({"equality"}, 0)

    def test_length_without_power_neither_hides_nor_adds(self) -> None:
        """As in a head, where untrained rows are as long as others."""
        planted = plant(reserved=40, pull=0.9)
        random = np.random.default_rng(0).permutation(4000)[:300]
        ordinary = np.setdiff1d(random, [*planted.unused.tolist(), *planted.planted.tolist()])
        planted.table[ordinary] *= 0.2  # short, and trained
        u = under_trained_tokens(_rows(planted), most=10**6)
        assert _counting(u) == {"place"}
        assert len(_found(u) & set(planted.planted.tolist())) >= 36
        assert not _found(u) & set(ordinary.tolist())


class TestJoin:
    def test_p_is_the_least_times_the_number_of_kinds_that_count(self) -> None:
        planted = plant(reserved=40, pull=1.2)
        planted.table[planted.unused] *= 0.3
        planted.table[planted.planted[:20]] *= 0.3
        u = under_trained_tokens(_rows(planted), prefer="norm")
        assert _counting(u) >= {"length", "place"}
        norms = planted.table.double().norm(dim=1).numpy()
        tested = np.setdiff1d(np.arange(4000), planted.unused)
        alone = len(_counting(u)) * robust_null(-norms[tested]).upper_p(-norms)
        short = [one for one in u.tokens if one.kinds == ("length",)]
        assert all(one.p == pytest.approx(alone[one.id]) for one in short)
        assert all(one.p <= alone[one.id] * (1 + 1e-9) for one in u.tokens if "length" in one.kinds)
        by_id = dict(zip(tested.tolist(), benjamini_hochberg(np.minimum(1, alone[tested])).tolist(), strict=True))
        assert all(one.q <= by_id[one.id] + 1e-12 for one in u.listed("found"))

    def test_sure_finds_let_no_doubtful_row_in(self) -> None:
        """Beside 400 untrained rows one percent is four rows, which would be the likeliest ordinary ones."""
        false = list[int]()
        for seed in range(10):
            planted = plant(n=4000, reserved=40, planted=400, pull=1.2, seed=seed)
            u = under_trained_tokens(_rows(planted), most=10**6)
            true = set(planted.planted.tolist())
            assert len(_found(u) & true) >= 0.99 * len(true)
            false.append(len(_found(u) - true))
        assert np.mean(false) < 1

    def test_every_found_row_has_a_kind_and_stands_once(self) -> None:
        u = under_trained_tokens(_rows(plant(reserved=30, pull=1.2)), most=10**6)
        ids = [one.id for one in u.tokens]
        assert len(set(ids)) == len(ids)
        assert all(bool(one.kinds) != one.leaning for one in u.tokens)
        assert all(set(one.kinds) <= _counting(u) for one in u.tokens)
        assert [one.name for one in u.kinds] == [*KINDS]
        assert sum(one.found or 0 for one in u.kinds) >= (u.found or 0)
        assert all(one.of == 30 for one in u.kinds)

    def test_without_known_unused_rows_lengths_are_read_alone(self) -> None:
        u = under_trained_tokens(_rows(plant_short(reserved=0)), prefer="norm")
        assert {one.name: (one.known_found, one.of) for one in u.kinds} == dict.fromkeys(
            ("length", "decay"), (None, None)
        )
        assert _counting(u) >= {"length"}
        assert u.notes


@pytest.mark.slow
@pytest.mark.parametrize("sign", [-1.0, 0.0, 1.0])
def test_the_rate_is_held_where_the_kinds_depend_on_each_other(sign: float) -> None:
    """Ordinary rows that lean to the unused ones are longer, shorter, or neither; untrained ones are short and at one point."""
    false, power = list[float](), list[float]()
    for seed in range(40):
        planted = plant(reserved=30, planted=40, pull=0.45, seed=seed)
        untrained = torch.cat([planted.unused, planted.planted])
        point = torch.nn.functional.normalize(planted.table[untrained].mean(0), dim=0)
        ordinary = torch.ones(4000, dtype=torch.bool)
        ordinary[untrained] = False
        leans = planted.table @ point * 8
        lengths = torch.exp(0.1 * (sign * leans + (1 - abs(sign)) * gaussian(4000, 1, seed=seed + 5)[:, 0]))
        planted.table[ordinary] *= lengths[ordinary, None]
        u = under_trained_tokens(_rows(planted), most=10**6)
        assert {"place", "length"} & _counting(u)
        true = set(planted.planted.tolist())
        false.append(len(_found(u) - true) / max(1, len(_found(u))))
        power.append(len(_found(u) & true) / len(true))
    error = statistics.stdev(false) / len(false) ** 0.5
    assert statistics.mean(false) <= RATE + 2 * error, (statistics.mean(false), error)
    assert statistics.mean(power) > 0.9
