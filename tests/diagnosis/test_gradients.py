"""The ledger of a head's gradient: against autograd and slow loops, planted directions, text of the model's own."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from uncone.diagnosis.why.gradients import gradient_parts as parts_module
from uncone.diagnosis.why.gradients.gradient_parts import gradient_parts
from uncone.diagnosis.why.gradients.gradients import EPS, gradient_ledger
from uncone.diagnosis.why.gradients.record import GradientLedger
from uncone.errors import InputError, UndefinedMeasure
from uncone.model.last_states import States
from uncone.records.rebuild import build_record

Tensor = torch.Tensor


def _states(n: int = 60, v: int = 23, d: int = 5, seed: int = 0, dtype: Any = torch.float64, **more: Any) -> States:
    random = torch.Generator().manual_seed(seed)
    labels = (torch.rand(n, generator=random) ** 3 * (v - 2)).long()
    head, states = (torch.randn(k, d, generator=random, dtype=dtype) for k in (v, n))
    bias = torch.randn(v, generator=random, dtype=dtype) if more.pop("biased", False) else None
    given_ = {"bias": bias, "cap": None, "scale": 1.0, "name": "planted", "windows": torch.arange(n) * 5 // n} | more
    return States(states=states, labels=labels, head=head, **given_)


def _rare(states: States) -> Tensor:
    return torch.arange(len(states.head)) >= 10


def _autograd(states: States, which: Tensor | None = None) -> Tensor:
    """The gradient by the head of the mean loss of some targets, and the number of all."""
    head = states.head.clone().requires_grad_()
    z = states.scale * (states.states @ head.T) + (0 if states.bias is None else states.bias)
    logits = z if states.cap is None else states.cap * torch.tanh(z / states.cap)
    losses = torch.nn.functional.cross_entropy(logits, states.labels, reduction="none")
    (losses if which is None else losses[which]).sum().backward()
    return head.grad / len(losses)


BUDGETS = ("pulled", "pushed_by_frequent", "pushed_by_rare")
MAPS = [{}, {"cap": 2.0, "biased": True}, {"scale": 0.4, "biased": True}, {"cap": 3.0, "scale": 2.0}]


@pytest.mark.parametrize("more", MAPS)
@pytest.mark.parametrize("micro_batches", [1, 4])
def test_the_parts_sum_to_the_gradient_of_autograd(more: dict[str, Any], micro_batches: int) -> None:
    states = _states(**more)
    parts = gradient_parts(states, _rare(states), micro_batches=micro_batches)
    torch.testing.assert_close(parts.whole(), _autograd(states), rtol=1e-12, atol=1e-16)


@pytest.mark.parametrize("more", MAPS)
def test_each_part_is_the_sum_that_the_paper_writes(more: dict[str, Any]) -> None:
    states, n = _states(**more), 60
    rare, parts = _rare(states), gradient_parts(_states(**more), _rare(_states(**more)))
    expected = {name: torch.zeros_like(states.head) for name in ("pull", "frequent", "rare")}
    for h, y in zip(states.states, states.labels.tolist(), strict=True):
        z = states.scale * (states.head @ h) + (0 if states.bias is None else states.bias)
        logits = z if states.cap is None else states.cap * torch.tanh(z / states.cap)
        p = torch.softmax(logits, 0)
        slope = torch.ones_like(p) if states.cap is None else 1 - (logits / states.cap) ** 2
        for v in range(len(p)):
            kind = "pull" if v == y else "rare" if rare[y] else "frequent"
            expected[kind][v] += states.scale * (p[v] - int(v == y)) * slope[v] * h / n
    for name, rows in expected.items():
        torch.testing.assert_close(getattr(parts, name), rows, rtol=1e-10, atol=1e-15)


def test_squares_are_the_mean_of_the_squared_gradients_of_micro_batches() -> None:
    states = _states(50)
    expected = torch.zeros_like(states.head)
    for batch in torch.tensor_split(torch.arange(50), 3):
        one = replace(states, states=states.states[batch], labels=states.labels[batch])
        expected += len(batch) / 50 * _autograd(one) ** 2
    torch.testing.assert_close(gradient_parts(states, _rare(states), micro_batches=3).squares, expected)


@pytest.mark.parametrize("more", MAPS)
def test_chunks_change_nothing(more: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    states = _states(300, **more)
    members = torch.eye(23)[:, :3]
    whole = gradient_parts(states, _rare(states), members=members, micro_batches=2)
    monkeypatch.setattr(parts_module, "_FEWEST", 7)
    monkeypatch.setattr(parts_module, "_BUFFER_BYTES", 1)
    cut = gradient_parts(states, _rare(states), members=members, micro_batches=2)
    for name in ("pull", "frequent", "rare", "squares", "masses", "own"):
        torch.testing.assert_close(getattr(cut, name), getattr(whole, name), rtol=1e-10, atol=1e-16)


@settings(deadline=None, max_examples=25)
@given(st.integers(2, 40), st.integers(2, 30), st.integers(1, 9), st.integers(0, 10**6), st.booleans())
def test_the_rows_gradients_sum_to_zero(n: int, v: int, d: int, seed: int, rare_or_not: bool) -> None:
    states = replace(_states(n, v, d, seed), scale=0.7)
    rare = torch.rand(v, generator=torch.Generator().manual_seed(seed)) < (0.5 if rare_or_not else 0)
    whole = gradient_parts(states, rare).whole()
    assert float(whole.sum(0).abs().max()) <= 1e-13 * (1 + float(whole.abs().sum()))


def test_float32_errs_no_more_than_autograd_in_float32() -> None:
    states = _states(4000, 200, 16)
    narrow = replace(states, states=states.states.float(), head=states.head.float())
    ours = gradient_parts(narrow, torch.arange(200) > 150).whole()
    wide = replace(narrow, states=narrow.states.double(), head=narrow.head.double())
    theirs, truth = _autograd(narrow), _autograd(wide)
    assert float((ours - truth).norm()) <= 2 * float((theirs - truth).norm()) + 1e-9 * float(truth.norm())


def _slow(states: States) -> dict[str, float | Tensor]:
    """Readings of all rows from loops."""
    p, n, v = torch.softmax(states.states @ states.head.T, 1), len(states.labels), len(states.head)
    g = _autograd(states)
    unit = g / g.norm(dim=1, keepdim=True)
    pairs = [float(unit[a] @ unit[b]) for a in range(v) for b in range(v) if a != b]
    mean = states.states.mean(0)
    d = mean / mean.norm()
    budget, mu = {"pulled": 0.0, "pushed": 0.0}, states.head.mean(0)
    for i, y in enumerate(states.labels.tolist()):
        for row in range(v):
            budget["pulled" if row == y else "pushed"] += float(1 - p[i, row] if row == y else p[i, row]) / n
    return budget | {
        "cosine": sum(pairs) / len(pairs),
        "along": float(((g @ d) ** 2).sum() / (g**2).sum()),
        "toward": float((unit @ d).mean()),
        "norm": float(g.norm(dim=1).mean()),
        "sgd": -float((g @ d).mean()),
        "mean_state_share": float(mean.norm() / states.states.norm(dim=1).mean()),
        "mean_row_share": float(mu.norm() / states.head.norm(dim=1).mean()),
        "state_to_minus_row": float(-(mu @ mean) / mu.norm() / mean.norm()),
        "logit_of_mean_row": float((states.states @ mu).abs().mean()),
        "nats": float(torch.nn.functional.cross_entropy(states.states @ states.head.T, states.labels)),
    }


def test_readings_of_all_rows_are_those_of_slow_loops() -> None:
    states = _states()
    ledger, slow = gradient_ledger(states), _slow(states)
    every = ledger.groups[0]
    for name in ("pulled", "pushed", "cosine", "along", "toward", "norm", "sgd"):
        assert getattr(every, name) == pytest.approx(slow[name], rel=1e-9, abs=1e-15), name
    assert every.pulled == pytest.approx(every.pushed, rel=1e-12)
    for name in ("mean_state_share", "mean_row_share", "state_to_minus_row", "logit_of_mean_row", "nats"):
        assert getattr(ledger, name) == pytest.approx(slow[name]), name


@settings(deadline=None, max_examples=25)
@given(
    st.integers(0, 10**6),
    st.sampled_from([0.01, 1.0, 10.0, 40.0]),
    st.sampled_from([1e-30, 1e-15, 1e-5, 1.0, 1e5, 1e15, 1e30]),
    st.sampled_from([None, 30.0]),
)
def test_a_ledger_in_float32_is_that_in_float64_whatever_the_logits_and_the_scale(
    seed: int, spread: float, size: float, cap: float | None
) -> None:
    """Logits up to some hundreds, so that most probabilities leave the range of float32, of states of any length."""
    made = _states(40, 23, 5, seed, dtype=torch.float32, cap=cap, scale=spread)
    narrow = replace(made, states=made.states * size, head=made.head / size)
    wide = replace(narrow, states=narrow.states.double(), head=narrow.head.double())
    counts = torch.arange(23).flip(0)
    ours, truth = gradient_ledger(narrow, counts=counts), gradient_ledger(wide, counts=counts)
    norms = _autograd(wide).norm(dim=1)
    all_in_range = float(norms.min()) > 1e-33 * float(norms.max())
    shares, lengths = (*BUDGETS, "adam"), ("norm", "pull_norm", "frequent_norm", "rare_norm", "sgd")
    for one, other in zip([*ours.groups, *ours.bins], [*truth.groups, *truth.bins], strict=True):
        for name in (*shares, *lengths):
            largest = 1 if name in shares else spread * size
            assert getattr(one, name) == pytest.approx(getattr(other, name), rel=2e-4, abs=2e-5 * largest), name
        for name in ("cosine", "push_cosine", "along", "toward"):
            value = getattr(one, name)
            assert value is None or -1.00001 <= value <= 1.00001
            if all_in_range and name != "push_cosine":
                assert value == pytest.approx(getattr(other, name), abs=1e-3), name
    for drift, true in zip(ours.drifts, truth.drifts, strict=True):
        assert drift.share == pytest.approx(true.share, abs=1e-4)
    assert ours.zero_sum == pytest.approx(truth.zero_sum, abs=1e-5)


@pytest.mark.parametrize("logit", [-80.0, -88.0, -90.0, -95.0])
def test_a_push_below_the_range_of_float32_has_a_direction(logit: float) -> None:
    """One over its norm was infinite."""
    head = torch.zeros(9, 1)
    head[5] = logit
    made = _states(3, 9, 1, dtype=torch.float32)
    states = replace(made, states=torch.ones(3, 1), labels=torch.tensor([1, 2, 3]), head=head)
    ledger = gradient_ledger(states, counts=torch.arange(9, 0, -1))
    assert [one.toward for one in ledger.groups] == pytest.approx([1 / 3, -1 / 3, 1 / 2, 1])
    assert [one.cosine for one in ledger.groups] == pytest.approx([0, -1 / 3, 0, 1])


def test_groups_and_counts_partition_the_rows_the_targets_and_the_budgets() -> None:
    states = _states(200)
    ledger = gradient_ledger(states, counts=torch.arange(23).flip(0) * 7)
    every, *groups = ledger.groups
    assert [group.name for group in groups] == ["frequent", "medium", "rare", "never"]
    for cut in (groups, ledger.bins):
        for name in ("rows", "targets"):
            assert sum(getattr(one, name) for one in cut) == getattr(every, name)
        for name in BUDGETS:
            assert sum(getattr(one, name) for one in cut) == pytest.approx(getattr(every, name))
    assert sum(one.net.value or 0 for one in groups) == pytest.approx(0, abs=1e-12)
    rare = torch.zeros(23, dtype=torch.bool)
    rare[-5:] = True  # a fifth of the 22 ids with a count, and the one without
    assert ledger.rare_targets == int(rare[states.labels].sum())
    assert ledger.group("rare") == groups[2]
    assert [one.name for one in ledger.bins] == ["0", "1 to 9", "10 to 99", "100 to 999"]


def test_steps_of_each_optimiser_are_those_of_its_formula() -> None:
    """Adam moves the mean row though the gradients sum to 0; SGD and coupled Adam do not."""
    states = _states(300)
    ledger = gradient_ledger(states, micro_batches=5)
    g = _autograd(states)
    second = gradient_parts(states, _rare(states), micro_batches=5).squares
    steps = {"SGD": -g, "Adam": -g / (second.sqrt() + EPS), "coupled Adam": -g / (second.mean(0).sqrt() + EPS)}
    mean_state, mean_row = states.states.mean(0), states.head.mean(0)
    for drift, field in zip(ledger.drifts, ("sgd", "adam", "coupled_adam"), strict=True):
        step = steps[drift.optimiser]
        share = float(step.sum(0).norm() / step.norm(dim=1).sum())
        assert drift.share == pytest.approx(share, abs=1e-12)
        along = float((step @ mean_state).mean() / mean_state.norm())
        assert getattr(ledger.groups[0], field) == pytest.approx(along, abs=1e-12)
        if drift.optimiser == "Adam":
            assert share > 1e-3
            cosines = [torch.nn.functional.cosine_similarity(step.sum(0), to, 0) for to in (mean_state, mean_row)]
            assert (drift.to_mean_state, drift.to_mean_row) == pytest.approx(tuple(map(float, cosines)))
        else:
            assert share < 1e-12
            assert drift.to_mean_state is drift.to_mean_row is None


def test_a_planted_common_direction_of_states_is_the_direction_of_all_pushes() -> None:
    """States that share a large component push every row along it, and only the pull of targets differs."""
    states = _states(400, 40, 16)
    common = torch.zeros(16, dtype=torch.float64)
    common[3] = 20.0
    planted = replace(states, states=states.states + common, head=states.head * 0.05)
    ledger, plain = gradient_ledger(planted), gradient_ledger(replace(states, head=states.head * 0.05))
    rows = ledger.group("never")
    assert min(rows.push_cosine, rows.toward, rows.along) > 0.99
    assert rows.adam < 0  # away from the mean state
    assert ledger.mean_state_share > 0.95
    assert "The pushes share a direction" in ledger.verdict
    assert plain.group("never").toward < rows.toward


def test_text_that_the_model_draws_itself_reads_zero() -> None:
    """Pull and push have one expectation then: 60 draws, their mean and spread, and the norm of the whole gradient."""
    states = _states(400, 12, 4)
    p = torch.softmax(states.states @ states.head.T, 1)
    counts, random = torch.arange(1, 13).flip(0), torch.Generator().manual_seed(3)
    scores, squares = list[float](), list[float]()
    for _ in range(60):
        drawn = replace(states, labels=torch.multinomial(p, 1, generator=random)[:, 0])
        rows = gradient_ledger(drawn, counts=counts, micro_batches=1).group("rare")
        scores.append(rows.net.value / ((rows.net.interval[1] - rows.net.interval[0]) / 2 / 1.96))
        squares.append(float((gradient_parts(drawn, counts < 4).whole() ** 2).sum()))
    assert abs(np.mean(scores)) < 4 / np.sqrt(60)
    assert np.std(scores) == pytest.approx(1, abs=4 / np.sqrt(120))
    # E |G|^2 = sum over i of (1 - sum of p^2) |h_i|^2 / N^2
    expected = float(((1 - (p**2).sum(1)) * (states.states**2).sum(1)).sum()) / 400**2
    assert np.mean(squares) == pytest.approx(expected, rel=0.2)


def test_a_text_of_frequent_tokens_alone_pushes_the_rare_ones() -> None:
    one = replace(_states(300), labels=torch.zeros(300, dtype=torch.int64))
    ledger = gradient_ledger(one, counts=torch.arange(23).flip(0))
    assert "push of frequent targets (Yu et al.'s part b) is the largest" in ledger.verdict
    assert "This text only pushes these rows, because none of its targets is among them." in ledger.verdict
    rare = ledger.group("rare")
    assert rare.pulled == rare.pushed_by_rare == rare.pull_norm == 0


def test_a_cap_breaks_the_identity_and_says_so() -> None:
    capped, plain = gradient_ledger(_states(cap=2.0)), gradient_ledger(_states(scale=0.5))
    assert (plain.is_zero_sum, capped.is_zero_sum) == (True, False)
    assert plain.zero_sum < 1e-12 < 1e-3 < capped.zero_sum
    assert "because the logits are capped" in " ".join(
        block.text for block in capped.blocks() if hasattr(block, "text")
    )


def test_the_record_goes_to_json_and_back_and_shows_its_verdict_first() -> None:
    ledger = gradient_ledger(_states(300))
    text = json.dumps(ledger, default=lambda x: dict(vars(x)), allow_nan=False)
    assert build_record(GradientLedger, json.loads(text), "ledger") == ledger
    heading, lead, *_ = ledger.blocks()
    assert (heading.level, lead.tone) == (3, "lead")


def test_bad_input_is_refused() -> None:
    states, at, ones = _states(), torch.tensor([3]), torch.ones(23)
    none = {"states": states.states[:0], "labels": states.labels[:0]}
    for changed, counts, message in (
        (none, ones, "expected a target and a micro-batch, got 0 and 8"),
        ({"labels": states.labels.index_fill(0, at, -100)}, None, "expected targets from 0 to 22, got -100 to"),
        ({"states": states.states.index_fill(0, at, torch.nan)}, None, "expected finite states and a finite head"),
        ({}, torch.ones(5), "expected 23 counts"),
    ):
        with pytest.raises(InputError, match=message):
            gradient_ledger(replace(states, **changed), counts=counts)
    with pytest.raises(UndefinedMeasure, match="the gradient of every row is 0"):
        gradient_ledger(replace(states, states=torch.zeros_like(states.states)))


def test_progress_is_told_and_torch_threads_are_left() -> None:
    told, threads = list[tuple[str, int, int]](), torch.get_num_threads()
    gradient_ledger(_states(), micro_batches=3, progress=lambda *step: told.append(step))
    assert told == [("splitting the gradient", n, 60) for n in (20, 40, 60)]
    assert torch.get_num_threads() == threads


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("more", [{}, {"biased": True, "scale": 2.0}, {"cap": 500.0}])
def test_the_loss_of_confident_mistakes_is_the_models(dtype: Any, more: dict[str, Any]) -> None:
    made = _states(dtype=dtype, **more)
    states = replace(made, head=100 * made.head)
    z = states.logits(states.states.double(), states.head.double())
    expected = float(torch.nn.functional.cross_entropy(z, states.labels))
    assert expected > 60
    assert gradient_ledger(states).nats == pytest.approx(expected, rel=1e-5)


def test_the_definition_says_where_counts_are_from() -> None:
    told = gradient_ledger(_states(), counts=np.arange(23), counted_in="in these texts").definition
    assert "in these texts" in told
