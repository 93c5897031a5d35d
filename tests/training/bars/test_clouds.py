"""Numbers of several groups in one flat tensor."""

import pytest
import torch

from uncone.errors import InputError
from uncone.training.bars.bars import check_bars, check_lengths
from uncone.training.bars.clouds import group_of_each, place_of_each


def test_groups_and_places() -> None:
    bars = torch.tensor([2, 0, 3])
    group = group_of_each(bars, 5)
    assert group.tolist() == [0, 0, 2, 2, 2]
    assert place_of_each(bars, group).tolist() == [0, 1, 0, 1, 2]


def test_what_is_no_tensor_is_refused() -> None:
    with pytest.raises(InputError, match=r"expected lengths \(M,\) of floats, got list: pass Barcode\.lengths"):
        check_lengths([1.0, 2.0])
    with pytest.raises(InputError, match=r"expected bars \(G,\) of integers, got list"):
        check_bars([1, 2], 3)
    check_lengths(torch.ones(3))
    check_bars(torch.tensor([1, 2]), 3)
