"""What a curve of ranks says: blocks by a loop, the smallest rank, planted kinks, and smooth laws without any."""

import csv
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from uncone.errors import InputError
from uncone.saturation.head.rank.answers import kink, resampled, smallest, standard_errors
from uncone.statistics.blocks import block_means

RANKS, FULL = (8, 16, 32, 64, 96, 128, 192), 256
SHARES = np.array(RANKS) / FULL
FIGURES = Path(__file__).parents[2] / "../shared/data/pythia/godey2024_digitised.csv"


def _drawn(excess: np.ndarray, error: float, seed: int = 0, draws: int = 400) -> np.ndarray:
    return excess + np.random.default_rng(seed).normal(0, error, (draws, len(excess)))


def test_means_of_blocks_and_their_errors_are_those_of_a_loop() -> None:
    values, blocks = np.random.default_rng(0).normal(size=(3, 100)), np.repeat([2, 5, 6, 9], [30, 20, 40, 10])
    means = block_means(values, blocks)
    for row, of_row in zip(values, means, strict=True):
        assert of_row == pytest.approx([row[blocks == b].mean() for b in (2, 5, 6, 9)])
    assert standard_errors(means) == pytest.approx([np.std(row, ddof=1) / 2 for row in means])


def test_resampled_means_spread_as_the_standard_error_says() -> None:
    means = np.random.default_rng(0).normal(size=(2, 60)) * np.array([[1.0], [3.0]])
    drawn = resampled(means, seed=1)
    assert drawn.std(0) == pytest.approx(standard_errors(means), rel=0.08)
    assert (drawn == resampled(means, seed=1)).all()
    both = resampled(np.stack([means[0], means[0] + 1]), seed=1)
    assert both[:, 1] - both[:, 0] == pytest.approx(1), "the same blocks for all ranks"


def test_the_smallest_rank_is_the_first_from_which_on_all_are_within() -> None:
    excess = np.array([0.5, 0.008, 0.02, 0.009, 0.0])
    found = smallest((1, 2, 4, 8, 16), excess, _drawn(excess, 0.002), 0.01)
    assert (found.rank, found.low, found.high) == (8, 8, 16)
    nothing = smallest((1, 2), np.array([1.0, 0.5]), _drawn(np.array([1.0, 0.5]), 0.01), 0.01)
    assert (nothing.rank, nothing.low, nothing.high) == (None, None, None)
    assert smallest((1, 2), np.zeros(2), np.zeros((5, 2)), 0.01).rank == 1


SMOOTH: dict[str, Callable[[], np.ndarray]] = {
    "power 0.5": lambda: SHARES**-0.5 - 1,
    "power 1.5": lambda: 0.05 * (SHARES**-1.5 - 1),
    "logarithm": lambda: -0.5 * np.log(SHARES),
    "exponential": lambda: 3 * np.exp(-np.array(RANKS) / 40),
}


@pytest.mark.parametrize("law", SMOOTH)
def test_smooth_laws_have_no_kink(law: str) -> None:
    excess = SMOOTH[law]()
    alarms = 0
    for seed in range(20):
        seen = _drawn(excess, 0.001, seed, 1)[0]
        alarms += kink(RANKS, FULL, seen, _drawn(seen, 0.001, seed + 100)).found
    assert alarms == 0


def test_a_planted_break_is_found_where_it_is() -> None:
    excess = SMOOTH["power 0.5"]() * np.exp(-2.5 * np.maximum(np.log(np.array(RANKS) / 48), 0))
    found = kink(RANKS, FULL, excess, _drawn(excess, 2e-4))
    assert found.found, found.reason
    assert found.rank == pytest.approx(48, rel=0.15)
    assert found.low <= 52
    assert found.high >= 44
    assert found.turn == pytest.approx(-2.5, abs=0.4)


def test_a_fall_to_nothing_is_a_kink_and_a_slow_end_is_none() -> None:
    excess = np.array([1.0, 0.8, 0.6, 0.5, 0.0, 0.0, 0.0])
    found = kink(RANKS, FULL, excess, _drawn(excess, 1e-3))
    assert found.found
    assert (found.low, found.high) == (64, 96)
    slow = np.array([0.4, 0.1, 0.02, 0.004, 0.001, 0.0, 0.0])
    assert not kink(RANKS, FULL, slow, _drawn(slow, 1e-3)).found


def test_few_ranks_tell_nothing() -> None:
    excess = np.array([1.0, 0.5, 0.2])
    found = kink((1, 2, 4), 8, excess, _drawn(excess, 0.01))
    assert not found.found
    assert "at least 6 are needed" in found.reason
    with pytest.raises(InputError, match="for 2 ranks: pass all three alike"):
        kink((1, 2), 8, excess, _drawn(excess, 0.01))


def test_the_papers_own_curves_have_no_kink() -> None:
    """Godey et al. 2024, figure 6b, as read off: no break at a rank of 1000, and none at one rank for all sizes."""
    if not FIGURES.is_file():
        pytest.skip("the digitised figures are not beside the project")
    curves: dict[str, dict[int, float]] = {}
    for row in csv.DictReader(FIGURES.read_text().splitlines()):
        if row["figure"] == "fig6b_val_loss":
            curves.setdefault(row["model"], {})[int(float(row["x"]))] = float(row["y"])
    assert sorted(curves) == ["llama-7b", "pythia-1b", "pythia-410m"]
    for curve in curves.values():
        *ranks, full = sorted(curve)
        losses = np.array([curve[rank] for rank in (*ranks, full)])
        drawn = losses + np.random.default_rng(0).normal(0, 0.002, (2000, len(losses)))
        found = kink(tuple(ranks), full, losses[:-1] - losses[-1], drawn[:, :-1] - drawn[:, -1:])
        assert not found.found, found.reason
