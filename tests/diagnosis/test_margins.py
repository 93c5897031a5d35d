"""Margins with and without what rows share: a slow loop, the gauge, and heads whose answer is known."""

from dataclasses import replace

import pytest
import torch

from uncone.diagnosis.why.margins.margins import margin_claim
from uncone.errors import UndefinedMeasure
from uncone.model.last_states import States


def _states(seed: int = 0, **more: float) -> States:
    random = torch.Generator().manual_seed(seed)
    n, v, d = 90, 17, 6
    head, states = torch.randn(v, d, generator=random), torch.randn(n, d, generator=random)
    labels = torch.randint(0, v, (n,), generator=random)
    head = head + 3 * torch.randn(d, generator=random)
    given = {"bias": torch.randn(v, generator=random), "cap": None, "scale": 0.7} | more
    return States(states=states, labels=labels, head=head, name="", windows=torch.zeros(n), **given)


def test_margins_are_those_of_a_slow_loop() -> None:
    states = _states()
    found = []
    for h, y in zip(states.states, states.labels.tolist(), strict=True):
        z = (0.7 * (states.head @ h) + states.bias).tolist()
        found.append(z[y] - max(value for v, value in enumerate(z) if v != y))
    stored = margin_claim(states).heads[0]
    assert (stored.name, stored.change) == ("as stored", 0)
    assert stored.margin == pytest.approx(sum(found) / len(found), rel=1e-5)
    assert stored.positive == pytest.approx(sum(m > 0 for m in found) / len(found))
    assert stored.by_norm == pytest.approx(stored.margin / float(states.head.norm(dim=1).mean()), rel=1e-5)


def test_the_mean_row_is_without_effect_and_other_directions_are_not() -> None:
    claim = margin_claim(_states())
    stored, centred, *others = claim.heads
    assert claim.holds
    assert centred.margin == pytest.approx(stored.margin, rel=1e-4)
    assert centred.nats == pytest.approx(stored.nats, rel=1e-5)
    assert abs(centred.by_norm) > 1.5 * abs(stored.by_norm)
    cut = ("the mean row's direction", "the first direction of centred rows", "the first 3 directions of centred rows")
    assert [head.name for head in others] == [f"without {what}" for what in cut]
    assert all(head.change > 0.05 for head in others)
    assert "shrinks no softmax margin" in claim.verdict


def test_negative_margins_have_no_ratio() -> None:
    """ "-0.2 is 1.6 times as large as -0.1" reads as if margins grew."""
    states = _states()
    worst = replace(states, labels=(states.states @ states.head.T).argmin(1))
    claim = margin_claim(worst)
    stored, centred = claim.heads[:2]
    assert centred.by_norm < stored.by_norm < 0
    assert "times as large" not in claim.verdict
    assert f"from {stored.by_norm:.3g} to {centred.by_norm:.3g}" in claim.verdict


def test_a_larger_common_component_changes_no_margin() -> None:
    states = _states()
    moved = replace(states, head=states.head + 5 * torch.ones(6))
    one, other = margin_claim(states).heads[1], margin_claim(moved).heads[1]
    assert one.margin == pytest.approx(other.margin, rel=1e-3)


def test_a_cap_gives_the_mean_row_an_effect_and_the_verdict_says_so() -> None:
    claim = margin_claim(_states(cap=2.0))
    assert not claim.holds
    assert claim.verdict.startswith("Logits are capped")


def test_few_targets_are_taken_evenly_and_progress_is_told() -> None:
    told = list[tuple[str, int, int]]()
    claim = margin_claim(_states(), most=10, progress=lambda *step: told.append(step))
    assert (claim.targets, claim.of_targets) == (10, 90)
    assert "for 10 of 90 targets, evenly spaced. " in claim.blocks()[-1].text
    assert told == [("comparing margins", 1, 1)]
    heading, lead, table, _ = claim.blocks()
    assert (heading.level, lead.tone, len(table.rows)) == (3, "lead", 5)


def test_one_token_and_no_target_have_no_margin() -> None:
    states = _states()
    for broken in (
        replace(states, head=states.head[:1], bias=None, labels=torch.zeros(90, dtype=torch.int64)),
        replace(states, states=states.states[:0], labels=states.labels[:0]),
    ):
        with pytest.raises(UndefinedMeasure, match="a margin needs a target and two tokens"):
            margin_claim(broken)


def test_some_targets_are_evenly_spaced_and_whole_states_come_with_them() -> None:
    n = 23
    ids = torch.arange(n)
    states = States(torch.arange(2.0 * n).view(n, 2), ids, torch.eye(2), None, None, 1.0, "x", ids // 5)
    few = states.some(5)
    assert few.labels.tolist() == [0, 4, 9, 13, 18]
    assert few.states[:, 0].tolist() == [2.0 * i for i in few.labels]
    assert few.windows.tolist() == [int(i) // 5 for i in few.labels]
    assert states.some(100).labels.tolist() == list(range(n))
