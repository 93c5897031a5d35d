"""Moments of ranks are those of shards merged in one process, on each rank, to the byte."""

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist

import uncone
from tests.processes import of_two_ranks
from uncone.errors import InputError

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
RANKS, D = 3, 24


def rows_of(rank: int) -> torch.Tensor:
    return torch.randn(700 + 100 * rank, D, generator=torch.Generator().manual_seed(rank)) + 0.3


def rank_main(rank: int, folder: Path) -> None:
    own = uncone.Moments.of(rows_of(rank), unit_second=True)
    (folder / f"all-{rank}").write_bytes(own.over_ranks().to_bytes())
    pair = dist.new_group([1, 2])
    if rank:
        (folder / f"pair-{rank}").write_bytes(own.over_ranks(pair).to_bytes())
    try:
        uncone.Moments.of(torch.ones(50, D + rank)).over_ranks()
    except InputError as error:
        (folder / f"refused-{rank}").write_text(str(error))


def test_moments_of_ranks_are_merged_in_their_order(tmp_path: Path) -> None:
    of_two_ranks(tmp_path, rank_main, "uncone.moments.ranks", ranks=RANKS)
    one, two, three = (uncone.Moments.of(rows_of(rank), unit_second=True) for rank in range(RANKS))
    merged = one.merge(two).merge(three)
    for rank in range(RANKS):
        assert (tmp_path / f"all-{rank}").read_bytes() == merged.to_bytes()
        assert (
            f"expected the same moments on all ranks, got {{'features': {D}"
            in (tmp_path / f"refused-{rank}").read_text()
        )
    pair = two.merge(three).to_bytes()
    assert (tmp_path / "pair-1").read_bytes() == (tmp_path / "pair-2").read_bytes() == pair
    whole = uncone.Moments.of(torch.cat([rows_of(rank) for rank in range(RANKS)]), unit_second=True)
    np.testing.assert_allclose(merged.covariance(), whole.covariance(), rtol=1e-4, atol=1e-5)


def test_moments_without_ranks_are_refused() -> None:
    with pytest.raises(InputError, match=r"expected ranks of torch\.distributed, got none"):
        uncone.Moments.of(rows_of(0)).over_ranks()
