"""The kept share of the gradient: planted heads whose share is known, a dense projector, and chance in closed form."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from uncone.errors import UndefinedMeasure
from uncone.model.last_states import States
from uncone.saturation.head.gradient.gradient_share import chance_of_norms, kept_gradient_share
from uncone.saturation.head.gradient.record import GradientShare

Tensor = torch.Tensor


def _states(head: Tensor, x: Tensor, labels: Tensor, *, cap: float | None = None, bias: Tensor | None = None) -> States:
    windows = torch.arange(len(labels)) * 20 // len(labels)
    return States(x.float(), labels, head.float(), bias, cap, 1.0, "planted", windows)


def _random(n: int, v: int, d: int, seed: int = 0, **more: float) -> States:
    torch.manual_seed(seed)
    return _states(torch.randn(v, d), torch.randn(n, d), torch.randint(0, v, (n,)), **more)  # type: ignore[arg-type]


def _all(share: GradientShare) -> tuple[float, ...]:
    one = share.groups[0]
    return tuple(of.value for of in (one.mean_norms, one.sum_norms, one.mean_squares, one.sum_squares))


@pytest.mark.parametrize("cap", [None, 1.5])
def test_shares_are_those_of_a_dense_projector(cap: float | None) -> None:
    given_ = _random(60, 31, 5, cap=cap, bias=torch.randn(31))  # type: ignore[arg-type]
    head = given_.head.double()
    if cap is None:
        head = head - head.mean(0)
    projector = head @ torch.linalg.pinv(head)
    kept, whole = [], []
    for state, label in zip(given_.states.double(), given_.labels, strict=True):
        z = (given_.head.double() @ state + given_.bias).requires_grad_()
        logits = z if cap is None else cap * torch.tanh(z / cap)
        torch.nn.functional.cross_entropy(logits[None], label[None]).backward()
        kept.append(float((projector @ z.grad).norm()))
        whole.append(float(z.grad.norm()))
    k, w = np.array(kept), np.array(whole)
    expected = (k / w).mean(), k.sum() / w.sum(), (k**2 / w**2).mean(), (k**2).sum() / (w**2).sum()
    assert _all(kept_gradient_share(given_)) == pytest.approx(expected, rel=1e-5)


def test_uniform_guesses_keep_exactly_what_a_random_subspace_keeps() -> None:
    """With states of 0 and each label once, g = 1/V - e_y: the leverages of the rows add up to the rank."""
    v, d = 40, 7
    torch.manual_seed(1)
    share = kept_gradient_share(_states(torch.randn(v, d), torch.zeros(v, d), torch.arange(v)))
    assert _all(share)[3] == pytest.approx(d / (v - 1), rel=1e-5) == share.chance_squares
    assert share.times_chance == pytest.approx(1, rel=1e-5)
    assert "the number of dimensions explains nearly all of the loss" in share.verdict


def test_a_head_of_the_first_tokens_keeps_their_part_of_a_capped_gradient() -> None:
    v, d, cap = 12, 4, 3.0
    given_ = _states(torch.eye(v)[:, :d], torch.zeros(6, d), torch.tensor([0, 1, 2, 5, 6, 7]), cap=cap)
    whole = (1 - 1 / v) ** 2 + (v - 1) / v**2  # of all of g
    of_first, of_others = (1 - 1 / v) ** 2 + (d - 1) / v**2, d / v**2
    assert _all(kept_gradient_share(given_))[2] == pytest.approx((of_first / whole + of_others / whole) / 2, rel=1e-5)


def test_a_row_that_is_the_mean_passes_nothing_back() -> None:
    head = torch.randn(30, 4)
    head[7] = 0
    head = head - head.sum(0) / 29
    head[7] = 0
    share = kept_gradient_share(_states(head, torch.zeros(20, 4), torch.full((20,), 7)))
    assert _all(share)[3] == pytest.approx(0, abs=1e-10)
    assert "more is lost than counting" in share.verdict


def test_a_head_of_full_rank_keeps_everything() -> None:
    share = kept_gradient_share(_random(20, 9, 12))
    assert share.rank == 8  # centred, in the space of 9 - 1
    assert _all(share) == pytest.approx((1, 1, 1, 1), rel=1e-5)
    assert share.chance_squares == share.chance_norms == 1


def test_a_repeated_column_counts_once() -> None:
    given_ = _random(50, 25, 4)
    head, states = torch.cat([given_.head, given_.head[:, :1]], 1), torch.cat([given_.states, torch.zeros(50, 1)], 1)
    one, two = (kept_gradient_share(of) for of in (given_, _states(head, states, given_.labels)))
    assert two.rank == one.rank == 4 < two.dimensions == 5
    assert _all(two) == pytest.approx(_all(one), rel=1e-5)


@settings(max_examples=8)
@given(st.integers(0, 1000), st.floats(0, 30))
def test_a_shared_vector_in_all_rows_changes_nothing(seed: int, size: float) -> None:
    given_ = _random(30, 15, 3, seed)
    moved = _states(given_.head + size * torch.randn(3), given_.states, given_.labels)
    assert _all(kept_gradient_share(moved)) == pytest.approx(_all(kept_gradient_share(given_)), rel=2e-3)


def test_groups_are_of_the_targets_frequency() -> None:
    labels = torch.tensor([0] * 50 + [1] * 30 + [2] * 10 + [3] * 6 + [4] * 4)
    share = kept_gradient_share(_states(torch.randn(9, 3), torch.randn(100, 3), labels))
    told = {group.name: (group.tokens, group.ids) for group in share.groups}
    assert told == {"all": (100, 5), "frequent": (80, 2), "medium": (16, 2), "rare": (4, 1)}
    everything = share.groups[0].sum_squares
    assert everything.interval[0] < everything.value < everything.interval[1]


@pytest.mark.parametrize(("rank", "n"), [(1, 3), (5, 20), (64, 511), (768, 50256)])
def test_chance_of_norms_is_the_mean_root_of_a_beta(rank: int, n: int) -> None:
    drawn = np.sqrt(np.random.default_rng(0).beta(rank / 2, (n - rank) / 2, 200_000))
    assert chance_of_norms(rank, n) == pytest.approx(drawn.mean(), abs=4 * drawn.std() / np.sqrt(200_000))
    assert chance_of_norms(rank, n) <= np.sqrt(rank / n)


def test_random_subspaces_keep_the_chance() -> None:
    rng = np.random.default_rng(0)
    g = np.r_[1.0, -0.4, -0.6, np.zeros(17)]
    kept = []
    for _ in range(3000):
        basis = np.linalg.qr(rng.standard_normal((20, 4)))[0]
        kept.append(np.linalg.norm(basis.T @ g) / np.linalg.norm(g))
    assert np.mean(np.square(kept)) == pytest.approx(4 / 20, rel=0.03)
    assert np.mean(kept) == pytest.approx(chance_of_norms(4, 20), rel=0.02)


def test_a_head_of_equal_rows_is_undefined() -> None:
    with pytest.raises(UndefinedMeasure, match="all the same"):
        kept_gradient_share(_states(torch.ones(5, 2), torch.zeros(4, 2), torch.arange(4)))
    sure = 100 * torch.eye(5)
    with pytest.raises(UndefinedMeasure, match="zero at every token"):
        kept_gradient_share(_states(sure, sure, torch.arange(5)))
