"""Planted untrained rows are found again at the stated rate, by cosine or norm, with few or many known-unused rows."""

import math
import statistics
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.studies import first_of
from uncone import InputError, UndefinedMeasure
from uncone.measure import benjamini_hochberg, discovery, robust_null, under_trained, under_trained_tokens
from uncone.measure.groups import special_rows
from uncone.measure.projections import project_about
from uncone.records.tokens import UnderTrained
from uncone.rows import ArrayRows, CenteredRows, Rows, SelectedRows, Tokens

from ..matrices import F64, gaussian
from ..planted_tokens import Planted, plant, plant_short


def _rows(planted: Planted) -> Rows:
    rows = ArrayRows(planted.table, name="planted")
    rows.load_labels = lambda: planted.labels
    return rows


def _found(result: UnderTrained) -> set[int]:
    return {token.id for token in result.tokens if not token.expected and not token.leaning}


class TestCosine:
    @pytest.mark.parametrize("drift", [0.0, 1.5, 20.0, 1e4, 1e6])
    @pytest.mark.parametrize("reserved", [10, 1000])
    def test_planted_rows_are_found(self, reserved: int, drift: float) -> None:
        planted = plant(reserved=reserved, drift=drift)
        u = under_trained_tokens(_rows(planted))
        assert u.indicator == "cosine"
        assert len(_found(u) & set(planted.planted.tolist())) >= 0.9 * len(planted.planted)
        assert len(_found(u) - set(planted.planted.tolist())) <= 1
        assert u.found == len(_found(u))
        assert (u.known, u.known_found) == (reserved, reserved)
        assert u.tested == 4000 - reserved
        assert f"{reserved:,} rows whose token is reserved by name" in u.reference

    def test_the_evidence_is_that_of_a_slow_loop(self) -> None:
        planted = plant(n=400, reserved=12, planted=9, drift=1.0)
        u = under_trained_tokens(_rows(planted))
        x = planted.table.double()
        y = x - x.mean(0)
        first = torch.linalg.svd(y, full_matrices=False)[2][0]
        if "principal" in u.definition:
            y = y - (y @ first)[:, None] * first
        assert len(u.tokens) > 12
        for token in u.tokens:
            others = [i for i in planted.unused.tolist() if i != token.id]
            unused = sum((y[i] for i in others), start=torch.zeros(64, dtype=F64))
            cosine = float(torch.nn.functional.cosine_similarity(y[token.id], unused, dim=0))
            assert token.cosine_to_unused == pytest.approx(cosine, abs=1e-5)
            assert token.indicator == pytest.approx(1 - cosine, abs=1e-5)
            assert token.norm == pytest.approx(float(x[token.id].norm()), rel=1e-6)
            to_mean = float(torch.nn.functional.cosine_similarity(x[token.id], x.mean(0), dim=0))
            assert token.cosine_to_mean == pytest.approx(to_mean, abs=1e-5)
            assert token.expected == (token.id in planted.unused)
            assert token.token == planted.labels[token.id]

    def test_a_head_has_the_same_finds_whatever_its_gauge(self) -> None:
        planted = plant()
        moved = planted.table + 3 * gaussian(1, 64, seed=5)
        heads = [CenteredRows(ArrayRows(t, name="head"), t.double().mean(0).numpy()) for t in (planted.table, moved)]
        found = []
        for head in heads:
            head._rows.load_labels = lambda: planted.labels
            found.append(under_trained_tokens(head))
        assert _found(found[0]) == _found(found[1]) != set()
        assert found[0].tokens[0].cosine_to_mean is None  # a head has no mean

    def test_the_direction_looked_for_is_not_removed(self) -> None:
        many = under_trained_tokens(_rows(plant(reserved=1000)))
        assert "principal component" not in many.definition  # it is that of the unused rows
        rogue = plant(reserved=10, pull=0.9)
        rogue.table[:, 3] *= 6
        few = under_trained_tokens(_rows(rogue))
        assert "the mean row and the first principal component" in few.definition
        assert len(_found(few) & set(rogue.planted.tolist())) >= 36

    @settings(max_examples=15, deadline=None)
    @given(st.integers(0, 10_000), st.sampled_from([1e-12, 1.0, 1e12]))
    def test_scale_and_order_of_rows_change_nothing(self, seed: int, scale: float) -> None:
        planted = plant(n=600, planted=12, seed=seed)
        order = torch.randperm(600, generator=torch.Generator().manual_seed(seed))
        moved = Planted(scale * planted.table[order], [planted.labels[i] for i in order.tolist()], order, order)
        first, second = under_trained_tokens(_rows(planted)), under_trained_tokens(_rows(moved))
        assert {planted.labels[i] for i in _found(first)} == {moved.labels[i] for i in _found(second)}


class TestOffset:
    """Rows that all lie far from 0: what they differ by is kept as long as their dtype holds it, and then that is said."""

    def test_the_products_are_those_of_differences_in_float64(self) -> None:
        x = gaussian(5000, 16, seed=1) + 1e6
        rows, axes, mean = ArrayRows(x, name="x"), gaussian(16, 3, seed=2).double(), x.double().mean(0)
        products, squares = project_about(rows, axes.numpy(), mean.numpy())
        y = x.double() - mean
        assert products == pytest.approx(y @ axes, abs=1e-5)
        assert squares == pytest.approx(y.square().sum(1), rel=1e-6)

    def test_project_about_counts_the_rows_that_are_done(self) -> None:
        told = list[int]()
        project_about(ArrayRows(gaussian(9000, 3), name="x"), np.zeros((3, 1)), np.zeros(3), told.append)
        assert told == [8192, 9000]

    @pytest.mark.parametrize(("dtype", "drift"), [("float32", 1e9), ("bfloat16", 1e4), ("float16", 3e4)])
    def test_where_rounding_took_the_differences_it_is_said(self, dtype: str, drift: float) -> None:
        planted = plant(drift=drift)
        moved = Planted(planted.table.to(getattr(torch, dtype)), planted.labels, planted.unused, planted.planted)
        told = f"differ by more than {dtype} rounds off, .* subtract the mean row before"
        with pytest.raises(UndefinedMeasure, match=told):
            under_trained_tokens(_rows(moved))

    def test_float64_rows_hold_it_longer(self) -> None:
        planted = plant(drift=0.0)
        moved = Planted(planted.table.double() + 1e9, planted.labels, planted.unused, planted.planted)
        assert len(_found(under_trained_tokens(_rows(moved))) & set(planted.planted.tolist())) >= 36


class TestNorm:
    @pytest.mark.parametrize("reserved", [0, 10, 1000])
    def test_planted_rows_are_found(self, reserved: int) -> None:
        planted = plant_short(reserved=reserved)
        u = under_trained_tokens(_rows(planted), prefer="norm")
        assert u.indicator == "norm"
        assert _found(u) >= set(planted.planted.tolist())
        assert u.found <= 41
        assert bool(u.notes) == (reserved == 0)
        assert all(token.indicator == token.norm for token in u.tokens)

    def test_the_other_indicator_takes_over_where_the_first_says_nothing(self) -> None:
        assert under_trained_tokens(_rows(plant_short()), prefer="cosine").indicator == "norm"
        planted = plant(pull=0.9)  # as long as the others
        assert under_trained_tokens(_rows(planted), prefer="norm").indicator == "cosine"

    def test_rows_that_are_all_zero_are_untrained(self) -> None:
        planted = plant_short(reserved=20, planted=0)
        planted.table[[5, 77]] = 0
        assert {5, 77} - set(planted.unused.tolist()) <= _found(under_trained_tokens(_rows(planted), prefer="norm"))


class TestKnownUnused:
    def test_rows_without_a_token_are_unused(self) -> None:
        planted = plant(reserved=64)
        rows = ArrayRows(planted.table, name="padded")
        labels = [None if label.startswith("[") else label for label in planted.labels]
        rows.load_labels = lambda: labels
        u = under_trained_tokens(rows)
        assert u.reference == "64 rows without a token"
        assert u.known_found == 64
        assert len(_found(u) & set(planted.planted.tolist())) >= 36

    def test_rows_of_count_0_stand_in_and_it_is_said(self) -> None:
        planted = plant(reserved=30)
        counts = torch.full((4000,), 7)
        counts[planted.unused] = 0
        u = under_trained_tokens(planted.table, counts=counts)
        assert u.reference.startswith("30 rows of count 0, because fewer than 10")
        assert u.known == 0  # nobody knows that no other text has them
        assert _found(u) >= set(planted.unused.tolist())
        assert {token.count for token in u.tokens} == {0, 7}

    def test_too_few(self) -> None:
        told = r"expected at least 10 rows known to be unused .* got fewer: give counts"
        with pytest.raises(UndefinedMeasure, match=told):
            under_trained_tokens(_rows(plant(reserved=9)))

    def test_unused_rows_like_all_others_tell_nothing(self) -> None:
        labels = [f"[unused{i}]" if i < 200 else f"token{i}" for i in range(4000)]
        told = r"cosine: expected to find at least 50% of the rows known to be unused, got \d+ of 200.* norm: expected"
        for seed in range(5):
            rows = ArrayRows(gaussian(4000, 64, seed=seed), name="healthy")
            rows.load_labels = lambda: labels
            with pytest.raises(UndefinedMeasure, match=told):
                under_trained_tokens(rows)


class TestSpecialTokens:
    """Some of them are trained: those that lie together show where untrained rows are."""

    @staticmethod
    def _special(together: int, apart: int, **options: Any) -> tuple[Rows, Planted]:
        """Of the reserved rows of `plant` so many are special tokens, beside trained ones."""
        planted = plant(reserved=together, **options)
        trained = [i for i in range(4000) if i not in {*planted.unused.tolist(), *planted.planted.tolist()}][:apart]
        rows = ArrayRows(planted.table, name="special")
        tokens = Tokens(f"token{i}" for i in range(4000))
        tokens.special = frozenset(planted.unused.tolist() + trained)
        rows.load_labels = lambda: tokens
        return rows, planted

    @pytest.mark.parametrize(("together", "apart"), [(3, 0), (11, 6), (4, 3)])
    def test_those_that_lie_together_stand_in(self, together: int, apart: int) -> None:
        rows, planted = self._special(together, apart, pull=1.2)
        u = under_trained_tokens(rows)
        assert u.reference.startswith(
            f"{together} rows of special tokens that are close together, because fewer than 10"
        )
        assert (u.known, u.special, u.special_found) == (0, together + apart, together)
        true = {*planted.planted.tolist(), *planted.unused.tolist()}
        assert len(_found(u) & true) >= 0.95 * len(true)
        assert len(_found(u) - true) <= 1
        assert {one.id for one in u.tokens if one.special} == set(planted.unused.tolist())

    def test_trained_ones_show_nothing(self) -> None:
        rows, _ = self._special(0, 40)
        with pytest.raises(UndefinedMeasure, match="expected at least 10 rows known to be unused"):
            under_trained_tokens(rows)

    def test_those_that_lie_together_by_themselves_may_be_trained(self) -> None:
        """As tokens that always occur in one place are. Counts of the training text settle it."""
        rows, planted = self._special(9, 0, planted=0, pull=1.2)
        expected = "at least 3 rows of other tokens where rows of special tokens lie together, got 0: .* give counts"
        with pytest.raises(UndefinedMeasure, match=expected):
            under_trained_tokens(rows)
        counts = torch.full((4000,), 5)
        with pytest.raises(UndefinedMeasure, match="expected at least 10 rows known to be unused"):
            under_trained_tokens(rows, counts=counts)
        counts[planted.unused] = 0
        assert _found(under_trained_tokens(rows, counts=counts)) == set(planted.unused.tolist())

    def test_rows_reserved_by_name_show_that_they_are_not(self) -> None:
        planted = plant(reserved=9, planted=0, pull=1.2)
        rows, tokens = ArrayRows(planted.table, name="special"), Tokens(planted.labels)
        for i in planted.unused[:6].tolist():
            tokens[i] = f"token{i}"
        tokens.special = frozenset(planted.unused[:6].tolist())
        rows.load_labels = lambda: tokens
        assert _found(under_trained_tokens(rows)) == tokens.special

    def test_those_that_the_training_text_has_do_not_stand_in(self) -> None:
        """Then rows of count 0 do, which lie elsewhere."""
        rows, planted = self._special(12, 0, pull=1.2)
        rows_of_text = gaussian(30, 64, seed=9).mul(0.02).sub(planted.table[planted.unused].mean(0))
        counts, elsewhere = torch.full((4000,), 5), torch.arange(3970, 4000)
        assert not set(elsewhere.tolist()) & {*planted.unused.tolist(), *planted.planted.tolist()}
        planted.table[elsewhere], counts[elsewhere] = rows_of_text.float(), 0
        u = under_trained_tokens(rows, counts=counts)
        assert u.reference.startswith("30 rows of count 0")
        assert _found(u) == set(elsewhere.tolist())

    def test_names_show_special_tokens_without_marks(self) -> None:
        labels = ["<pad>", "<unk>", "[CLS]", "<|im_start|>", "<extra_id_7>", "<0x0A>", "the", "[unused3]", None, "<s>"]
        assert special_rows(labels) == [0, 1, 2, 3, 4, 9]

    def test_rows_that_are_left_out_keep_the_marks_of_the_others(self) -> None:
        rows, _ = self._special(5, 5)
        kept = SelectedRows(rows, np.arange(100, 4000))
        assert [kept.labels[i] for i in special_rows(kept.labels)] == [
            f"token{i}" for i in special_rows(rows.labels) if i >= 100
        ]


class TestTwoReadings:
    def test_rows_by_direction_alone_are_hardly_trained(self) -> None:
        """Half of the planted rows were trained on: longer, along the same direction."""
        planted = plant(reserved=40, planted=80, pull=1.2)
        half = planted.planted[::2]
        planted.table[half] *= 2.5
        u = under_trained_tokens(_rows(planted))
        leaning = {one.id for one in u.tokens if one.leaning}
        assert len(_found(u) & set(planted.planted[1::2].tolist())) >= 38
        assert len(_found(u) & set(half.tolist())) <= 2
        assert u.leaning == len(leaning)
        assert len(leaning & set(half.tolist())) >= 38

    def test_distances_and_p_are_those_of_a_slow_loop(self) -> None:
        planted = plant(n=400, reserved=12, planted=9, pull=1.2)
        u = under_trained_tokens(_rows(planted))
        assert "principal" not in u.definition
        y = planted.table.double() - planted.table.double().mean(0)
        cosines, distances = [], []
        for i in range(400):
            others = torch.stack([y[j] for j in planted.unused.tolist() if j != i]).mean(0)
            cosines.append(math.atanh(float(torch.nn.functional.cosine_similarity(y[i], others, dim=0))))
            distances.append(-(float((y[i] - others).square().sum()) ** (1 / 3)))
        tested = [i for i in range(400) if i not in planted.unused.tolist()]
        of = [robust_null(np.array(x)[tested]).upper_p(np.array(x)) for x in (cosines, distances)]
        for token in u.tokens:
            if not token.leaning:
                assert token.p == pytest.approx(max(of[0][token.id], of[1][token.id]), rel=1e-3)

    def test_where_the_cosine_has_no_power_the_reason_tells_how_many_it_found(self) -> None:
        planted = plant(n=300, d=3, reserved=20, planted=10, pull=0.05)
        with pytest.raises(
            UndefinedMeasure, match=r"got \d+ of 20: this test cannot separate untrained rows in 3 columns"
        ):
            under_trained_tokens(_rows(planted))


class TestRecord:
    def test_lists_are_cut_and_counts_are_not(self) -> None:
        u = under_trained_tokens(_rows(plant(reserved=300, planted=400)))
        assert u.found > 390
        assert u.known_found == 300
        assert [token.expected for token in u.tokens] == [False] * 200 + [True] * 20
        p = [token.p for token in u.tokens]
        assert p[:200] == sorted(p[:200])
        assert p[200:] == sorted(p[200:])
        assert all(token.p <= token.q <= u.rate for token in u.tokens)
        assert all(token.indicator <= u.threshold for token in u.tokens[:200])

    def test_ids_are_those_of_the_source(self) -> None:
        planted = plant(reserved=20)
        u = under_trained_tokens(SelectedRows(_rows(planted), np.arange(100, 4000)))
        assert _found(u) <= set(range(100, 4000))
        assert all(planted.labels[token.id] == token.token for token in u.tokens)

    def test_what_does_not_fit(self) -> None:
        rows = _rows(plant())
        with pytest.raises(InputError, match="expected a false-discovery rate between 0 and 1, got 1"):
            under_trained_tokens(rows, rate=1)
        with pytest.raises(InputError, match=r"expected counts of shape \(4000,\), got \(3,\)"):
            under_trained_tokens(rows, counts=torch.ones(3))

    def test_q_of_a_known_row_is_that_of_one_more_test(self) -> None:
        p = np.random.default_rng(0).random(50) ** 3
        for extra in (0.0, 1e-4, float(p[7]), 0.3, 1.0):
            one = np.array([extra])
            expected = benjamini_hochberg(np.concatenate([one, p]))[0]
            assert float(discovery.q_if_tested(one, p)[0]) == pytest.approx(float(expected))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "prefer", "options"),
    first_of(
        [
            *((plant, "cosine", {"reserved": r, "drift": drift}) for r in (10, 1000) for drift in (0.0, 1.5)),
            (plant, "cosine", {"reserved": 10, "planted": 5}),
            (plant, "cosine", {"reserved": 100, "planted": 400}),
            (plant, "cosine", {"reserved": 10, "n": 8000, "d": 256, "pull": 0.3}),
            (plant_short, "norm", {"reserved": 10}),
            (plant_short, "norm", {"reserved": 0, "planted": 400}),
        ]
    ),
)
def test_the_false_discovery_rate_is_held_and_planted_rows_are_found(
    make: Callable[..., Planted], prefer: under_trained.Indicator, options: dict[str, float]
) -> None:
    """Realised rate at most 1% within its error, and power above 0.9, over 60 tables."""
    false, power = [], []
    for seed in range(60):
        planted = make(seed=seed, **options)
        found = _found(under_trained_tokens(_rows(planted), prefer=prefer, most=10**6))
        true = set(planted.planted.tolist())
        false.append(len(found - true) / max(1, len(found)))
        power.append(len(found & true) / len(true))
    error = statistics.stdev(false) / len(false) ** 0.5
    assert statistics.mean(false) <= under_trained.RATE + 2 * error, (statistics.mean(false), error)
    assert statistics.mean(power) > 0.9
    assert min(power) > 0.6


@pytest.mark.slow
def test_tables_without_planted_rows_have_hardly_any_finds() -> None:
    """Then every find is false: in at most a few of 100 tables is there one."""
    tables = (plant(planted=0, reserved=30, seed=seed) for seed in range(100))
    assert sum(bool(_found(under_trained_tokens(_rows(table)))) for table in tables) <= 4


def test_unused_rows_that_are_not_apart_are_not_called_too_few() -> None:
    counts = torch.ones(300)
    counts[:20] = 0
    with pytest.raises(UndefinedMeasure, match="got their mean at the mean of all rows"):
        under_trained_tokens(torch.ones(300, 4), counts=counts)


def test_arrays_are_read_as_tensors_are() -> None:
    planted, counts = plant(reserved=30), torch.ones(4000)
    counts[planted.unused] = 0
    of_tensors = under_trained_tokens(planted.table, counts=counts)
    assert under_trained_tokens(planted.table.numpy(), counts=counts.numpy()) == of_tensors
