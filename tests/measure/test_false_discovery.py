"""The null from the bulk, and Benjamini-Hochberg, against scipy-free oracles: slow loops and known quantiles."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from uncone import InputError, UndefinedMeasure
from uncone.measure import benjamini_hochberg, robust_null
from uncone.measure.discovery import Null, support_line

from ..matrices import F64, gaussian

RATES = (0.013, 0.11, 0.27)
TENTH, QUARTER = 1 / 1.2815515655446004, 1 / 0.6744897501960817  # of one standard deviation of a normal distribution


def _by_steps(p: list[float], rate: float) -> list[bool]:
    """The step-up procedure as the paper words it: the largest i with p_(i) <= i a / N; reject all up to it."""
    order = sorted(range(len(p)), key=lambda i: p[i])
    last = max((i for i in range(1, len(p) + 1) if p[order[i - 1]] <= i * rate / len(p)), default=0)
    return [i in order[:last] or p[i] <= (p[order[last - 1]] if last else -1) for i in range(len(p))]


class TestBenjaminiHochberg:
    @given(st.lists(st.integers(0, 1000).map(lambda k: k / 1024), min_size=1, max_size=30), st.sampled_from(RATES))
    def test_q_values_give_the_step_up_procedure(self, p: list[float], rate: float) -> None:
        q = benjamini_hochberg(np.array(p))
        assert (q <= rate).tolist() == _by_steps(p, rate)
        assert bool((q >= np.array(p) - 1e-15).all())

    @pytest.mark.parametrize("form", [list, np.array, lambda p: torch.tensor(p, dtype=F64)])
    def test_by_hand(self, form: Callable[[list[float]], Any]) -> None:
        q = benjamini_hochberg(form([0.04, 0.001, 0.9, 0.02]))
        assert q.tolist() == pytest.approx([0.04 * 4 / 3, 0.004, 0.9, 0.04])

    def test_nothing_and_nonsense(self) -> None:
        assert len(benjamini_hochberg(torch.empty(0))) == 0
        with pytest.raises(InputError, match=r"expected p-values from 0 to 1, got -0\.5 to 0\.2"):
            benjamini_hochberg(torch.tensor([0.2, -0.5]))
        with pytest.raises(InputError, match="expected p-values from 0 to 1"):
            benjamini_hochberg(torch.tensor([0.2, float("nan")]))


class TestSupportLine:
    @given(st.lists(st.integers(0, 1000).map(lambda k: k / 1024), min_size=1, max_size=30), st.sampled_from(RATES))
    def test_it_is_where_the_line_of_the_slope_touches(self, p: list[float], rate: float) -> None:
        """No other number of rows has a smaller p_(k) - rate k / N."""
        edge = support_line(np.array(p), rate)
        costs = [x - rate * k / len(p) for k, x in enumerate([0.0, *sorted(p)])]
        found = sum(x <= edge for x in p)
        assert costs[found] == pytest.approx(min(costs), abs=1e-12)

    def test_the_last_find_is_false_as_seldom_as_stated(self) -> None:
        """3,800 null rows and 200 that stand out, 300 times."""
        random, last = np.random.default_rng(0), list[bool]()
        for _ in range(300):
            z = random.standard_normal(4000)
            z[:200] += 4
            p = Null(0.0, 1.0).upper_p(z)
            last.append(bool(np.flatnonzero(p == support_line(p, 0.2))[0] >= 200))
        assert 0.1 < np.mean(last) < 0.2 + 2 * (0.2 * 0.8 / 300) ** 0.5

    def test_none(self) -> None:
        assert support_line([], 0.2) == support_line([0.9, 0.5], 0.2) == -1.0


class TestNull:
    def test_of_normal_readings(self) -> None:
        null = robust_null(3 + 2 * gaussian(40_000, 1)[:, 0])
        assert null.center == pytest.approx(3, abs=0.05)
        assert 1.95 < null.scale < 2.15  # the largest of three estimates

    @pytest.mark.parametrize("share", [0.01, 0.05, 0.15, 0.24])
    def test_rows_that_stand_out_only_make_it_wider_and_higher(self, share: float) -> None:
        values = gaussian(40_000, 1)[:, 0]
        values[: round(share * 40_000)] = 12.0
        null = robust_null(values)
        assert null.center >= -0.02
        assert null.scale >= 0.97
        assert float(null.upper_p(torch.tensor([12.0]))[0]) < (1e-12 if share < 0.2 else 1e-3)

    def test_p_values_are_those_of_the_normal_distribution(self) -> None:
        p = Null(1.0, 2.0).upper_p(torch.tensor([1.0, 3.0, -3.0, 1000.0]))
        assert p[:3].tolist() == pytest.approx([0.5, 0.15865525393145707, 0.9772498680518208], rel=1e-12)
        assert 0 < float(p[3]) < 1e-300

    def test_too_little(self) -> None:
        with pytest.raises(UndefinedMeasure, match="expected at least 100 rows for a null, got 99"):
            robust_null(torch.arange(99.0))
        with pytest.raises(UndefinedMeasure, match="the same reading for most of them"):
            robust_null(torch.cat([torch.ones(160), torch.arange(40.0)]))

    @pytest.mark.parametrize(
        ("below", "equal", "above", "scale"),
        [
            (200, 600, 200, TENTH),  # the quartiles are equal, the lowest tenth is not
            (0, 600, 400, QUARTER),  # equal readings are the lowest: the upper quartile
            (400, 600, 0, QUARTER),
            (99, 651, 250, None),  # all four quantiles are equal
            (101, 651, 248, TENTH),
            (99, 649, 252, QUARTER),
        ],
    )
    def test_of_many_equal_readings(self, below: int, equal: int, above: int, scale: float | None) -> None:
        values = torch.tensor([4.0] * below + [5.0] * equal + [6.0] * above)
        if scale is None:
            with pytest.raises(UndefinedMeasure, match="the same reading for most of them"):
                robust_null(values)
        else:
            null = robust_null(values)
            assert (null.center, null.scale) == (5.0, pytest.approx(scale))

    @given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6))
    def test_it_moves_and_scales_with_the_readings(self, shift: float, scale: float) -> None:
        values = gaussian(200, 1, dtype=F64)[:, 0]
        first, second = robust_null(values), robust_null(shift + scale * values)
        assert second.center == pytest.approx(shift + scale * first.center, rel=1e-6, abs=1e-6 * scale)
        assert second.scale == pytest.approx(scale * first.scale, rel=1e-3)
        assert math.isfinite(second.scale)
