"""Heads cut in closed form: nested logits against each head alone, optimality against rivals, bounds that hold."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.saturation.heads_made import made
from uncone.saturation.head.rank import truncation
from uncone.saturation.head.rank.truncation import Nested, Text, bounds, data_aware, gauge, losses, plain, second_moment

Tensor = torch.Tensor


def _alone(head: Tensor, text: Text) -> Tensor:
    z = text.x.double() @ head.T
    if text.bias is not None:
        z = z + text.bias.double()
    if text.cap is not None:
        z = text.cap * torch.tanh(z / text.cap)
    return torch.nn.functional.cross_entropy(z, text.labels, reduction="none")


@pytest.mark.parametrize("cap", [None, 5.0])
@pytest.mark.parametrize("bias", [False, True])
def test_nested_losses_are_those_of_each_head(cap: float | None, bias: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(truncation, "_CHUNK_BYTES", 60 * 4 * 50)  # many chunks, the last one short
    s = made(333, cap=cap, bias=bias)
    text, head = Text(s.states, s.labels, s.bias, s.cap), gauge(s.head, s.cap)
    ranks, seen = [1, 3, 4, 16], []
    for heads in (plain(head), data_aware(head, second_moment(text.x))):
        for rank, row in zip(ranks, losses(heads, ranks, text, lambda *told: seen.append(told)), strict=True):
            torch.testing.assert_close(row, _alone(heads.at(rank), text), atol=3e-5, rtol=1e-5)
    assert max(seen) == (333, 333)


def test_logits_beyond_the_range_of_float32_are_read_by_their_maximum() -> None:
    s = made(200, size=60.0)
    text, heads = Text(s.states, s.labels), plain(gauge(s.head, None))
    assert float((text.x @ s.head.T).max()) > 100
    torch.testing.assert_close(losses(heads, [16], text)[0], _alone(heads.at(16), text), atol=1e-3, rtol=1e-5)


def test_the_plain_cut_is_that_of_the_singular_value_decomposition() -> None:
    head = gauge(torch.randn(40, 12), None)
    u, s, v = torch.linalg.svd(head, full_matrices=False)
    for rank in (1, 5, 11):
        torch.testing.assert_close(plain(head).at(rank), u[:, :rank] * s[:rank] @ v[:rank])
        left = float((head - plain(head).at(rank)).norm())
        assert left == pytest.approx(float(s[rank:].square().sum().sqrt()))  # Eckart and Young


@pytest.mark.parametrize("weighted", [False, True])
def test_no_rival_of_the_same_rank_cuts_the_states_better(weighted: bool) -> None:
    x = torch.randn(500, 10) @ torch.randn(10, 10)
    head, moment, rank = gauge(torch.randn(30, 10), None), second_moment(x), 4
    weights = torch.rand(30, dtype=torch.float64) if weighted else torch.ones(30, dtype=torch.float64)
    ours = data_aware(head, moment, weights if weighted else None).at(rank)

    def cost(other: Tensor) -> float:
        """By the states themselves: the mean square by which logits change."""
        return float((((head - other) @ x.double().T).square() * weights[:, None]).sum() / len(x))

    assert torch.linalg.matrix_rank(ours) == rank
    best = cost(ours)
    assert best < cost(plain(head).at(rank))
    a, b = torch.linalg.svd(ours)[0][:, :rank], torch.linalg.svd(ours)[2][:rank]
    core = a.T @ ours @ b.T
    for step in (1e-3, 1e-2, 1e-1, 1.0):
        for _ in range(20):
            noise = [step * torch.randn_like(one) for one in (a, core, b)]
            assert cost((a + noise[0]) @ (core + noise[1]) @ (b + noise[2])) >= best * (1 - 1e-9)


def test_states_that_lie_in_a_subspace_are_cut_there() -> None:
    x = torch.randn(400, 3) @ torch.linalg.qr(torch.randn(12, 12))[0][:3]
    head = gauge(torch.randn(50, 12), None)
    heads = data_aware(head, second_moment(x))
    assert torch.isfinite(heads.left).all()
    assert torch.isfinite(heads.right).all()
    change = ((head - heads.at(3)) @ x.double().T).abs().max()
    assert float(change) < 1e-3, "three columns are all that the states use"
    torch.testing.assert_close(heads.at(12), head, atol=1e-6, rtol=1e-6)


def test_a_row_added_to_all_changes_nothing_unless_logits_are_capped() -> None:
    s = made(300)
    shifted = s.head.double() + 5 * torch.randn(16, dtype=torch.float64)
    text = Text(s.states, s.labels)
    one, other = (losses(plain(gauge(h, None)), [4, 16], text) for h in (s.head, shifted))
    torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)
    assert torch.equal(gauge(shifted, 30.0), shifted.double())


@given(st.integers(0, 10**6), st.integers(1, 7), st.floats(0.01, 30), st.sampled_from([None, 2.0, 30.0]))
def test_no_loss_changes_by_more_than_its_bound(seed: int, rank: int, size: float, cap: float | None) -> None:
    random = torch.Generator().manual_seed(seed)
    x = torch.randn(64, 8, generator=random) @ torch.randn(8, 8, generator=random)
    head = gauge(size * torch.randn(20, 8, generator=random) + torch.randn(8, generator=random), cap)
    text, moment = Text(x, torch.randint(0, 20, (64,), generator=random), None, cap), second_moment(x)
    norms = x.double().norm(dim=1)
    for heads in (plain(head), data_aware(head, moment)):
        changes = (_alone(heads.at(rank), text) - _alone(head, text)).abs()
        found = bounds(head, heads, rank, moment, float(norms.mean()))
        room = 1 + 1e-6
        assert float(changes.mean()) <= found.on_states * room + 1e-6
        bound = float(norms.square().mean().sqrt()) * found.frobenius / float(norms.mean())
        assert found.on_states <= bound * room + 1e-6
        assert float(changes.mean()) <= found.spectral * room + 1e-6
        assert found.spectral <= found.frobenius * room
        largest = float(torch.linalg.matrix_norm(head - heads.at(rank), 2)) * np.sqrt(2)
        assert bool((changes <= largest * norms * room + 1e-6).all()), "token by token too (note, 1.6)"


def test_near_an_optimum_the_loss_grows_with_the_square_and_elsewhere_linearly() -> None:
    """The theorem's rate, the root of the tail's sum of squares, is not reached at the optimum (note, section 1.6)."""
    s = made(3000)
    text, head = Text(s.states, s.labels), gauge(s.head, None)
    # an optimum of the expected loss: against the head's own probabilities, and not against labels
    p = torch.softmax(text.x.double() @ head.T, 1)
    away = torch.randn(60, 16, dtype=torch.float64)

    def expected(weight: Tensor) -> float:
        return float(-(p * torch.log_softmax(text.x.double() @ weight.T, 1)).sum(1).mean())

    def rate(at: Tensor) -> float:
        small, large = (abs(expected(at + size * away) - expected(at)) for size in (1e-3, 1e-2))
        return float(np.log10(large / small))

    assert rate(head) == pytest.approx(2, abs=0.05)
    assert rate(head + torch.randn(60, 16, dtype=torch.float64)) == pytest.approx(1, abs=0.05)


def test_a_head_of_factors_is_read_as_their_product() -> None:
    s = made(100)
    a, b = torch.randn(60, 3, dtype=torch.float64), torch.randn(3, 16, dtype=torch.float64)
    text = Text(s.states, s.labels)
    torch.testing.assert_close(losses(Nested(a, b), [3], text)[0], _alone(a @ b, text), atol=3e-5, rtol=1e-5)
