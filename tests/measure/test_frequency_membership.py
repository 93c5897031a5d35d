"""Which rows are frequent, medium, rare, reserved or never seen: against every pair of cuts between two counts."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from uncone import InputError
from uncone.measure import frequency_membership


def test_shares_by_count() -> None:
    cut = frequency_membership(12, torch.tensor([11, 1]), torch.tensor([5, 0, 9, 9, 1, 2, 3, 4, 8, 7, 6, 100]))
    order = [2, 3, 8, 9, 10, 0, 7, 6, 5, 4]
    assert [cut.groups[i].item() for i in order] == [0] * 3 + [1] * 5 + [2] * 2
    assert cut.groups[[1, 11]].tolist() == [3, 3]
    assert cut.by == "count"
    assert "ranked by count and cut where counts differ; reserved rows apart" in cut.definition


def test_without_counts_ids_stand_in_and_it_is_said() -> None:
    cut = frequency_membership(10)
    assert cut.groups.tolist() == [0] * 3 + [1] * 5 + [2] * 2
    assert cut.by == "id"
    assert "because no counts were given" in cut.definition


def test_ids_that_are_ranks_are_said_to_be() -> None:
    cut = frequency_membership(11, [4], "ranks")
    assert cut.groups.tolist() == [0] * 3 + [1, 3] + [1] * 4 + [2] * 2
    assert cut.by == "rank"
    assert "because the rows were declared to be in order of frequency; reserved rows apart" in cut.definition


@given(st.integers(1, 200), st.integers(1, 60), st.data())
def test_groups_are_cut_between_counts_nearest_to_the_shares(n: int, most: int, data: st.DataObject) -> None:
    """Every pair of cuts between two counts is tried: the rare one first, then the frequent one above it."""
    counts = np.array(data.draw(st.lists(st.integers(0, most), min_size=n, max_size=n)))
    counts[0] = most
    groups = frequency_membership(n, None, counts).groups
    assert ((groups == 4) == (counts == 0)).all()
    seen = counts[counts > 0]
    cuts = sorted(set(seen.tolist()))[1:]  # at each a group of higher counts may begin
    if not cuts:
        assert set(groups[counts > 0]) == {1}
        return
    rare = min(cuts, key=lambda c: (abs(int((seen < c).sum()) - 0.2 * len(seen)), c))
    frequent = min((c for c in cuts if c >= rare), key=lambda c: (abs(int((seen >= c).sum()) - 0.3 * len(seen)), c))
    assert set(counts[groups == 2]) == {c for c in seen if c < rare}
    assert set(counts[groups == 1]) == {c for c in seen if rare <= c < frequent}
    assert set(counts[groups == 0]) == {c for c in seen if c >= frequent}


def test_where_most_tokens_occur_once_these_are_the_rare_ones() -> None:
    """No order of ids makes a group: it is the same whichever way the rows are turned."""
    counts = np.repeat([0, 1, 2, 9], [22_000, 4500, 1500, 2000])
    for turned in (counts, counts[::-1].copy()):
        groups = frequency_membership(len(turned), counts=turned).groups
        assert [set(turned[groups == g]) for g in (0, 1, 2, 4)] == [{9}, {2}, {1}, {0}]
    two = frequency_membership(10, counts=np.array([1] * 8 + [5] * 2))
    assert two.groups.tolist() == [2] * 8 + [0] * 2
    assert "ranked by count and cut where counts differ" in two.definition


@pytest.mark.parametrize("counts", [[1, 2], [1, -2, 3], [0, 0, 0], []])
def test_counts_that_do_not_fit(counts: list[int]) -> None:
    n = 3 if counts else 0
    with pytest.raises(InputError, match=f"expected {n} counts from 0 up, not all of them 0"):
        frequency_membership(n, None, torch.tensor(counts))
