"""Dominant directions taken out: planted drift that hides nothing, and planted directions that carry the answer."""

from dataclasses import replace

import pytest
import torch

from uncone.errors import InputError
from uncone.model.last_states import States
from uncone.saturation.head.excision.excision import excise
from uncone.saturation.head.excision.record import Excision

V, D, N = 60, 16, 2000


def _states(drift: torch.Tensor, *, seed: int = 0, sharp: float = 2.0) -> States:
    """States that read each label off its own row of the head, and `drift` (D,) or (N, D) beside it."""
    generator = torch.Generator().manual_seed(seed)
    head = torch.randn(V, D, generator=generator)
    head[:, 0] = 0  # a direction that the head does not read
    head -= head.mean(0)
    labels = torch.randint(0, V, (N,), generator=generator)
    states = sharp * head[labels] / D**0.5 + 0.3 * torch.randn(N, D, generator=generator) + drift
    return States(states, labels, head, None, None, 1.0, "planted", torch.arange(N) // 50)


def _row(found: Excision, directions: str, k: int) -> tuple[float, float]:
    row = next(row for row in found.rows if (row.directions, row.k) == (directions, k))
    return row.change.value or 0.0, row.alignment - row.chance


def test_a_drift_that_the_head_does_not_read_is_harmless() -> None:
    drift = torch.zeros(N, D)
    drift[:, 0] = 40.0 * torch.randn(N, generator=torch.Generator().manual_seed(3))
    found = excise(_states(drift))
    for kind in ("raw", "centred"):
        change, alignment = _row(found, kind, 1)
        assert abs(change) < 0.01 * found.loss
        assert alignment > _row(found, kind, 0)[1] + 0.1
    assert found.cause == "harmless drift"
    assert "harmless" in found.verdict
    assert found.bias.value is None


def test_a_constant_that_the_head_does_not_read_hides_nothing() -> None:
    drift = torch.zeros(D)
    drift[0] = 40.0
    found, without = excise(_states(drift)), excise(_states(torch.zeros(D)))
    assert abs(_row(found, "raw", 1)[0]) < 0.01 * found.loss
    assert _row(found, "centred", 0)[1] == pytest.approx(_row(without, "centred", 0)[1], abs=1e-3)
    assert found.cause != "harmless drift"
    assert found.bias.value is None


def test_a_mean_state_that_the_head_reads_is_a_constant_logit_bias() -> None:
    """Labels are drawn by a bias of the head's, which the states carry as a constant."""
    generator = torch.Generator().manual_seed(5)
    head, own = torch.randn(V, D, generator=generator), 0.3 * torch.randn(N, D, generator=generator)
    constant = torch.zeros(D)
    constant[4] = 3.0
    labels = torch.multinomial(torch.softmax((own + constant) @ head.T, 1), 1, generator=generator)[:, 0]
    found = excise(States(own + constant, labels, head, None, None, 1.0, "planted", torch.arange(N) // 50))
    raw, kept = _row(found, "raw", 1)[0], _row(found, "bias", 1)[0]
    assert raw > 0.5 > 20 * abs(kept)
    assert found.bias.value == pytest.approx(1 - kept / raw)
    assert found.bias.interval is not None
    assert found.bias.interval[0] > 0.9
    assert found.cause == "none", "what is constant is no information"
    assert "a constant logit bias" in found.verdict


def test_few_windows_decide_nothing() -> None:
    found = excise(replace(_states(torch.linspace(-1, 1, D)), windows=torch.arange(N) // 500))
    assert (found.cause, found.bias.value) == ("none", None)
    assert "at least 10 windows of text" in found.verdict


def test_directions_that_carry_the_answer_are_missed() -> None:
    generator = torch.Generator().manual_seed(1)
    head = 0.1 * torch.randn(V, D, generator=generator)
    head[: V // 2, 3] += 2
    head[V // 2 :, 3] -= 2
    head -= head.mean(0)
    labels = torch.randint(0, V, (N,), generator=generator)
    found = excise(States(2 * head[labels], labels, head, None, None, 1.0, "planted", torch.arange(N) // 50))
    assert _row(found, "centred", 1)[0] == pytest.approx(torch.log(torch.tensor(2.0)).item(), abs=0.1)
    assert found.cause == "information"
    assert "carry" in found.verdict


def test_round_states_show_neither() -> None:
    generator = torch.Generator().manual_seed(2)
    head, states = torch.randn(V, D, generator=generator), torch.randn(N, D, generator=generator) / D**0.5
    labels = torch.multinomial(torch.softmax(states @ head.T, 1), 1, generator=generator)[:, 0]
    found = excise(States(states, labels, head, None, None, 1.0, "planted", torch.arange(N) // 50), ks=[1])
    assert found.cause == "none"


def test_numbers_are_those_of_a_loop() -> None:
    given = _states(torch.linspace(-1, 1, D))
    found = excise(given, ks=[3])
    wide, head = given.states.double(), given.head.double()
    even = given.windows % 2 == 0
    for kind, is_centred, constant in (("raw", 0, 0), ("bias", 0, 1), ("centred", 1, 1)):
        mean = is_centred * wide.mean(0)
        losses = torch.empty(N, dtype=torch.float64)
        for here in (even, ~even):  # without the directions of the other windows
            other = wide[~here].mean(0)
            leading = torch.linalg.svd(wide[~here] - is_centred * other, full_matrices=False)[2][:3]
            part = wide[here].clone()
            for direction in leading:
                part -= torch.outer((wide[here] - constant * other) @ direction, direction)
            losses[here] = torch.nn.functional.cross_entropy(part @ head.T, given.labels[here], reduction="none")
        _, _, right = torch.linalg.svd(wide - mean, full_matrices=False)
        kept = wide.clone()
        for direction in right[:3]:
            kept -= torch.outer((wide - mean) @ direction, direction)
        row = next(row for row in found.rows if (row.directions, row.k) == (kind, 3))
        assert row.change.value == pytest.approx(float(losses.mean()) - found.loss, abs=1e-5)
        if kind == "bias":
            continue  # its geometry is that of raw directions
        s = (kept - mean).T @ (kept - mean)
        g = (head - head.mean(0)).T @ (head - head.mean(0))
        left = float((kept - mean).square().sum() / (wide - mean).square().sum())
        assert row.energy == pytest.approx(1 - left, abs=1e-6)
        assert row.alignment == pytest.approx(float((s * g).sum() / s.norm() / g.norm()), abs=1e-6)
        u, w = torch.linalg.eigh(s)[1][:, -2:], torch.linalg.eigh(g)[1][:, -2:]
        assert row.overlap == pytest.approx(float(torch.linalg.svdvals(u.T @ w).square().mean()), abs=1e-6)
        assert row.overlap_chance == 2 / D


def test_all_directions_leave_a_uniform_guess() -> None:
    given = _states(torch.linspace(-1, 1, D))
    found = excise(given, ks=[D])
    uniform = torch.log(torch.tensor(float(V))).item()
    assert _row(found, "raw", D)[0] + found.loss == pytest.approx(uniform, abs=1e-4)
    even = (given.windows % 2 == 0)[:, None]
    constant = torch.where(even, given.states[~even[:, 0]].mean(0), given.states[even[:, 0]].mean(0))
    loss = float(torch.nn.functional.cross_entropy(given.logits(constant), given.labels))
    for kind in ("bias", "centred", "random"):
        assert _row(found, kind, D)[0] + found.loss == pytest.approx(loss, abs=1e-4)


def test_chance_is_that_of_a_random_rotation() -> None:
    given = _states(torch.linspace(-1, 1, D))
    row = excise(given, ks=[0]).rows[0]
    s, g = (x.double().T @ x.double() for x in (given.states, given.head - given.head.mean(0)))
    generator, drawn = torch.Generator().manual_seed(0), []
    for _ in range(2000):
        q, r = torch.linalg.qr(torch.randn(D, D, generator=generator, dtype=torch.float64))
        q = q * torch.sign(torch.diagonal(r))
        drawn.append(float((q @ s @ q.T * g).sum() / s.norm() / g.norm()))
    assert row.chance == pytest.approx(sum(drawn) / len(drawn), rel=0.01)


def test_too_many_directions_are_refused() -> None:
    with pytest.raises(InputError, match="0 to 16 directions"):
        excise(_states(torch.zeros(D)), ks=[17])
