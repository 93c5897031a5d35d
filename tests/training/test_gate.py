"""The rare-token gate against slow ones written from the paper's rule and from what the published code does."""

import dataclasses
import tempfile
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.rows.reading import refuses
from uncone import InputError, RareTokenGate
from uncone.training.counts import Gates

Tensor = torch.Tensor
V = 40
pytestmark = pytest.mark.filterwarnings("ignore:.*(are rare|rare ids are):UserWarning")


def zipfian(steps: int, micro: int = 2, n: int = 30, seed: int = 0) -> list[list[Tensor]]:
    """Labels of `steps` optimiser steps of `micro` batches, ids sorted by frequency, some ignored."""
    random = torch.Generator().manual_seed(seed)
    labels = torch.multinomial(1 / torch.arange(1, V + 1).float() ** 1.3, steps * micro * n, True, generator=random)
    labels[torch.rand(len(labels), generator=random) < 0.1] = -100
    return [list(step.view(micro, n // 5, 5)) for step in labels.view(steps, micro, n)]


def run(gate: RareTokenGate, steps: list[list[Tensor]]) -> list[Gates]:
    """The gates that every micro-batch's loss sees, and those after the last step."""
    seen = []
    for step in steps:
        for labels in step:
            gate.observe(labels)
            seen.append(gate.gates())
        gate.step()
    return [*seen, gate.gates()]


def same(a: Gates, b: Gates) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def close(a: Gates, b: Gates) -> bool:
    return torch.equal(a[0], b[0]) and all(torch.allclose(x, y) for x, y in zip(a[1:], b[1:], strict=True))


def count(labels: Tensor) -> list[int]:
    return [int((labels == v).sum()) for v in range(V)]


def slow_gates(window: list[list[int]], steps: int, alpha: float, special: Any = ()) -> tuple[list[Any], ...]:
    """Section 3 of the paper, id by id: `window` holds the counts of steps."""
    a = [sum(c[v] for c in window) for v in range(V)]
    rare = [v not in special and a[v] / steps < alpha for v in range(V)]
    mean = sum(a[v] for v in range(V) if rare[v]) / max(1, sum(rare)) + 1e-7
    g1 = [a[v] / steps if rare[v] else 1.0 for v in range(V)]
    return rare, g1, [min(a[v] / mean, 1.0) if rare[v] else 1.0 for v in range(V)]


def agree(found: Gates, slow: tuple[list[Any], ...]) -> bool:
    return found[0].tolist() == slow[0] and all(
        torch.allclose(mine, torch.tensor(other), rtol=1e-6, atol=1e-9)
        for mine, other in zip(found[1:], slow[1:], strict=True)
    )


def test_official_follows_the_published_order() -> None:
    """A ring of K + 1 slots: one is cleared for the step to come, the micro-batch is counted before it is gated."""
    k, alpha, special = 4, 0.9, {0, 1}
    gate = RareTokenGate(V, window=k, alpha=alpha, mode="official", protected_ids=special)
    ring = [[0] * V for _ in range(k + 1)]
    for update, step in enumerate(zipfian(11)):
        itr = update + 1
        ring[itr % (k + 1)] = [0] * V
        for labels in step:
            slot = ring[(itr - 1) % (k + 1)]
            ring[(itr - 1) % (k + 1)] = [a + b for a, b in zip(slot, count(labels), strict=True)]
            gate.observe(labels)
            assert agree(gate.gates(), slow_gates(ring, min(itr, k), alpha, special))
        gate.step()


def test_paper_is_the_published_rule_of_the_steps_before() -> None:
    k, alpha = 3, 0.9
    gate = RareTokenGate(V, window=k, alpha=alpha, mode="paper")
    closed: list[list[int]] = []
    for step in zipfian(8):
        before = gate.gates()
        for labels in step:
            gate.observe(labels)
            assert same(gate.gates(), before), "frozen within a step"
        gate.step()
        closed.append([sum(c) for c in zip(*(count(labels) for labels in step), strict=True)])
        assert agree(gate.gates(), slow_gates(closed[-k:], min(len(closed), k), alpha))


def test_relative_is_the_published_rule_at_its_own_batch_size() -> None:
    steps = zipfian(6)
    paper = RareTokenGate(V, window=4, alpha=0.9, mode="paper")
    relative = RareTokenGate(V, window=4, alpha=0.9, mode="relative", gate_max=0.9)
    assert all(close(a, b) for a, b in zip(run(paper, steps), run(relative, steps), strict=True))


@pytest.mark.parametrize("setting", [{"rare_share": 0.5}, {"rare_frequency": 0.02}])
def test_relative_does_not_depend_on_the_batch_size(setting: dict[str, float]) -> None:
    steps = zipfian(6)
    once, thrice = RareTokenGate(V, **setting), RareTokenGate(V, **setting)  # type: ignore[arg-type]
    assert close(run(once, steps)[-1], run(thrice, [[*step, *step, *step] for step in steps])[-1])


def test_hard_lets_no_push_through() -> None:
    rare, g1, g2 = run(RareTokenGate(V, mode="hard"), zipfian(3))[-1]
    assert bool(rare.any())
    assert not g1[rare].any()
    assert not g2[rare].any()


COUNTS = st.lists(st.integers(0, 6), min_size=V, max_size=V).filter(any)


@given(COUNTS, st.floats(0, 1), st.sets(st.integers(0, V - 1), max_size=9))
def test_a_share_is_met_exactly_by_the_ids_with_fewest_targets(counts: list[int], share: float, protected: Any) -> None:
    rare = RareTokenGate(V, counts=counts, rare_share=share, protected_ids=protected).gates()[0].tolist()
    free = [v for v in range(V) if v not in protected]
    assert [v for v in free if rare[v]] == sorted(sorted(free, key=lambda v: (counts[v], -v))[: int(share * len(free))])
    assert not any(rare[v] for v in protected)


def test_padding_rows_are_no_tokens() -> None:
    gate = RareTokenGate(V, counts=[1] * 30 + [0] * 10, n_tokens=30, rare_share=0.5)
    assert not gate.gates()[0][30:].any()
    assert gate.status.rare_share == 0.5
    gate.observe(torch.tensor([29]))
    refuses(r"expected labels from 0 to 29 or -100 .ignored., got 30", gate.observe, torch.tensor([30]))
    with pytest.raises(InputError, match=r"expected labels from 0 to 29, got -100"):
        RareTokenGate(V, n_tokens=30, rare_share=0.5, ignore_index=None).observe(torch.tensor([29, -100]))


@pytest.mark.parametrize("mode", ["relative", "paper", "official", "hard"])
def test_factors_never_amplify_and_are_one_off_the_rare(mode: Any) -> None:
    for rare, g1, g2 in run(RareTokenGate(V, mode=mode, window=3), zipfian(6)):
        for g in (g1, g2):
            assert g.dtype == torch.float32
            assert 0 <= float(g.min()) <= float(g.max()) <= 1
            assert bool((g[~rare] == 1).all())


def test_an_exact_window_forgets_and_an_epoch_ends() -> None:
    steps = zipfian(9)
    windowed, recent = RareTokenGate(V, window=4), RareTokenGate(V, window=4)
    assert same(run(windowed, steps)[-1], run(recent, steps[-4:])[-1])
    epoch = RareTokenGate(V, window="epoch")
    run(epoch, steps[:4])
    epoch.end_epoch()
    assert same(run(epoch, steps[4:])[-1], windowed.gates())


@pytest.mark.parametrize("window", [1, 5, 16, 17, 20, 33, 64, 100])
def test_a_ring_forgets_by_buckets(window: int) -> None:
    steps = zipfian(2 * window + 9, micro=1)
    ring = RareTokenGate(V, window=window, memory="ring")
    held = []
    for step in steps:
        run(ring, [step])
        held.append(int(ring._counts.steps))
    assert max(held) == window
    assert min(held[window:]) >= window - -(-window // 16)
    assert same(ring.gates(), run(RareTokenGate(V, window=held[-1]), steps[-held[-1] :])[-1])


def test_an_average_comes_near_the_window() -> None:
    steps = zipfian(400, micro=1)
    average, exact = RareTokenGate(V, window=100, memory="average"), RareTokenGate(V, window=100)
    run(average, steps), run(exact, steps)
    a, b = (gate._counts.total / gate._counts.steps for gate in (average, exact))
    assert torch.allclose(a, b.double(), rtol=0.1, atol=0.25)
    assert average.memory_bytes < exact.memory_bytes


def test_the_memory_is_what_is_stated() -> None:
    held = 8 * V + 9 * V  # one step's counts and the gates
    assert RareTokenGate(V, window=64, memory="ring").memory_bytes == 8 * V + 16 * 8 * V + 8 * V
    exact = RareTokenGate(V, window=8)
    steps = zipfian(8)
    run(exact, steps)
    different = sum(len(torch.cat([y.flatten() for y in s]).unique()) - 1 for s in steps)  # less the ignored
    assert exact.memory_bytes == 8 * V + 12 * different + held


KINDS = [{}, {"memory": "ring"}, {"memory": "average"}, {"mode": "official"}, {"mode": "paper"}, {"window": "epoch"}]


@settings(max_examples=25)
@given(st.sampled_from(KINDS), st.integers(0, 7), st.integers(0, 1), st.booleans())
def test_a_resumed_gate_is_an_uninterrupted_one_to_the_bit(kind: Any, at: int, micro: int, by_file: bool) -> None:
    steps = zipfian(8)
    options = {"window": 3} | kind
    whole, first, second = (RareTokenGate(V, **options) for _ in range(3))
    expected = run(whole, steps)
    found = run(first, steps[:at])[:-1]
    for labels in steps[at][:micro]:
        first.observe(labels)
        found.append(first.gates())
    if by_file:
        with tempfile.TemporaryDirectory() as folder:
            first.save(Path(folder) / "gate.safetensors")
            second.load(Path(folder) / "gate.safetensors")
    else:
        second.load_state_dict(first.state_dict())
    assert same(second.gates(), first.gates())
    found += run(second, [steps[at][micro:], *steps[at + 1 :]])
    assert all(same(a, b) for a, b in zip(found, expected, strict=True))
    assert second.status == whole.status


def test_a_state_of_other_settings_is_refused(tmp_path: Path) -> None:
    gate = RareTokenGate(V)
    refuses(r"mode .relative.*got mode .hard", RareTokenGate(V, mode="hard").load_state_dict, gate.state_dict())
    refuses(r"window 1000.*got window 500", RareTokenGate(V, window=500).load_state_dict, gate.state_dict())
    (tmp_path / "x").write_bytes(b"nothing")
    refuses(r"expected the state of a gate, got .*x which cannot be read", gate.load, tmp_path / "x")
    with pytest.raises(InputError, match="expected the corpus counts of the saved state, got others"):
        RareTokenGate(V, counts=[1] * V).load_state_dict(RareTokenGate(V, counts=[2] * V).state_dict())


def test_protected_ids_are_part_of_the_state() -> None:
    gate, again, more = (RareTokenGate(V, counts=range(V), protected_ids=ids) for ids in ([0], [], [1]))
    for other in (again, more):
        other.load_state_dict(gate.state_dict())
    again.step()
    assert same(again.gates(), gate.gates())
    assert not again.gates()[0][0]
    assert not more.gates()[0][:2].any()


def test_a_changed_batch_is_refused_or_rescaled() -> None:
    steps = zipfian(5)
    doubled = [[*step, *step] for step in steps]
    gate, refusing = (RareTokenGate(V, mode="paper", alpha=0.9) for _ in range(2))
    run(gate, steps)
    refusing.load_state_dict(gate.state_dict())
    said = r"expected about \d+ targets per step, as before the resume, got \d+: keep ranks x batch"
    refuses(said, run, refusing, doubled)
    options: dict[str, Any] = {"mode": "paper", "alpha": 0.9, "window": 5}
    small, rescaling = RareTokenGate(V, **options), RareTokenGate(V, on_batch_change="rescale", **options)
    run(small, steps)
    rescaling.load_state_dict(small.state_dict())
    with pytest.warns(UserWarning, match="counts per step are now scaled to"):
        run(rescaling, doubled)
    assert close(rescaling.gates(), small.gates())  # the same five steps twice over, read at the former batch size


def test_a_short_step_after_a_resume_is_no_other_batch() -> None:
    steps = zipfian(8)
    short = [[labels[:1]] for labels in steps[5]]
    gate, resumed = RareTokenGate(V), RareTokenGate(V)
    run(gate, steps[:5])
    resumed.load_state_dict(gate.state_dict())
    run(resumed, [short[0], *steps[5:]])
    assert resumed.status.step == 9


def test_a_batch_that_is_told_is_compared_exactly() -> None:
    gate = RareTokenGate(V)
    gate.set_batch(32)
    gate.set_batch(64)  # nothing was counted yet
    run(gate, zipfian(2))
    same_batch, other = RareTokenGate(V), RareTokenGate(V)
    for resumed in (same_batch, other):
        resumed.load_state_dict(gate.state_dict())
    same_batch.set_batch(64)
    run(same_batch, [[labels[:1] for labels in step] for step in zipfian(5)])
    said = r"expected 64 sequences per step, as before the resume, got 65: keep ranks x batch"
    refuses(said, other.set_batch, 65)
    rescaled = RareTokenGate(V, on_batch_change="rescale")
    rescaled.load_state_dict(gate.state_dict())
    said = "expected 64 sequences per step, as before the resume, got 32: counts per step are now scaled to"
    with pytest.warns(UserWarning, match=said):
        rescaled.set_batch(32)


MUTATIONS: dict[str, Any] = {
    "a key is missing": lambda s: s.pop("shares"),
    "counts are cut": lambda s: s["counts"].update(counts=s["counts"]["counts"][:-1]),
    "lengths lie": lambda s: s["counts"].update(lengths=s["counts"]["lengths"] + 1),
    "a length is negative": lambda s: s["counts"]["lengths"].neg_(),
    "an id is out of range": lambda s: s["counts"]["ids"].fill_(V),
    "an id is negative": lambda s: s["counts"]["ids"].fill_(-1),
    "a count is negative": lambda s: s["counts"]["counts"].neg_(),
    "another window": lambda s: s["counts"].update(window=torch.tensor(7)),
    "a window that is no number": lambda s: s["counts"].update(window=torch.tensor([1.5, 2])),
    "current is short": lambda s: s.update(current=s["current"][:3]),
    "current is of another dtype": lambda s: s.update(current=s["current"].float()),
    "shares are not finite": lambda s: s["shares"].fill_(torch.nan),
    "rare is float": lambda s: s["gates"].update(rare=s["gates"]["rare"].float()),
    "a gate amplifies": lambda s: s["gates"]["g1"].fill_(5),
    "a gate acts on ids that are not rare": lambda s: s["gates"].update(rare=torch.zeros(V, dtype=torch.bool)),
    "the eligible ids are cut": lambda s: s.update(can_be_rare=s["can_be_rare"][:3]),
    "the step is negative": lambda s: s.update(step=-1),
    "it began after its step": lambda s: s.update(begun=4),
    "it began before the run": lambda s: s.update(begun=-1),
    "the step is a word": lambda s: s.update(step="many"),
    "the batch is a word": lambda s: s.update(batch="large"),
    "a batch size is negative": lambda s: s["batch"].update(per_step=-3.0),
    "said is a number": lambda s: s.update(said=3),
    "settings are a list": lambda s: s.update(settings=[1]),
}


@pytest.mark.parametrize("how", MUTATIONS)
def test_a_state_that_does_not_hold_together_is_refused_and_changes_nothing(how: str) -> None:
    gate, other = RareTokenGate(V), RareTokenGate(V)
    run(gate, zipfian(3))
    run(other, zipfian(2, seed=1))
    state, before = gate.state_dict(), other.state_dict()
    MUTATIONS[how](state)
    refuses(r"expected a (state|gate)", other.load_state_dict, state)
    assert str(other.state_dict()) == str(before)


@pytest.mark.parametrize(
    ("memory", "change"),
    [
        ("ring", {"now": torch.tensor(99)}),
        ("ring", {"counts": torch.zeros(2, V, dtype=torch.int64)}),
        ("ring", {"steps": torch.full((16,), 1000)}),
        ("average", {"total": torch.full((V,), torch.nan, dtype=torch.float64)}),
        ("average", {"steps": torch.tensor(-1.0, dtype=torch.float64)}),
        ("average", {"total": torch.zeros(3, dtype=torch.float64)}),
    ],
)
def test_memories_refuse_what_they_cannot_have_held(memory: str, change: dict[str, Tensor]) -> None:
    gate = RareTokenGate(V, window=32, memory=memory)
    state = gate.state_dict()
    state["counts"] |= change
    refuses("expected a state from state_dict or save", gate.load_state_dict, state)


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    save_file({"x": torch.ones(1)}, tmp_path / "a", metadata={"format": "uncone.gate/1", "state": "[nonsense"})
    refuses("expected a state from state_dict or save", RareTokenGate(V).load, tmp_path / "a")
    save_file({"x": torch.ones(1)}, tmp_path / "b")
    said = r"expected the state of a gate of format 'uncone.gate/1', got .*b of format None"
    refuses(said, RareTokenGate(V).load, tmp_path / "b")


@pytest.mark.filterwarnings("error")
def test_a_set_that_is_no_rare_set_is_named_once() -> None:
    few = RareTokenGate(V, counts=[1] * V, rare_share=0.01)
    with pytest.warns(UserWarning, match="only 0 ids .0.0% of the vocabulary. are rare"):
        few.step()
    few.step()
    common = RareTokenGate(V, counts=[1] * V, rare_share=0.5)
    with pytest.warns(UserWarning, match="the 20 rare ids are 50.0% of the targets"):
        common.step()
    with warnings.catch_warnings():
        RareTokenGate(V, counts=[1000] * 30 + [1] * 10).step()


def test_it_waits_for_its_start() -> None:
    seen = run(RareTokenGate(V, start_step=3), zipfian(4, micro=1))
    assert [bool(rare.any()) for rare, *_ in seen] == [False, False, False, True, True]


@pytest.mark.parametrize("mode", ["relative", "official"])
def test_a_gate_that_begins_in_a_run_is_a_new_one_with_the_steps_of_the_run(mode: str, tmp_path: Path) -> None:
    new, late = (RareTokenGate(V, start_step=3, mode=mode) for _ in range(2))
    late.begin_at(100)
    steps = zipfian(5)
    assert all(same(a, b) for a, b in zip(run(late, steps[:2]), run(new, steps[:2]), strict=True))
    again = RareTokenGate(V, start_step=3, mode=mode)
    late.save(tmp_path / "gate")
    again.load(tmp_path / "gate")
    assert all(same(a, b) for a, b in zip(run(again, steps[2:]), run(new, steps[2:]), strict=True))
    assert again.status == dataclasses.replace(new.status, step=105)
    refuses("expected a gate that has not begun, got one at step 105: make another", again.begin_at, 7)


def test_a_state_from_before_gates_could_begin_in_a_run_is_read() -> None:
    gate, again = RareTokenGate(V), RareTokenGate(V)
    run(gate, zipfian(2))
    state = gate.state_dict()
    del state["begun"]
    again.load_state_dict(state)
    assert again.status == gate.status


def test_the_gated_share_is_that_of_the_last_step() -> None:
    gate = RareTokenGate(V)
    gate.record(torch.tensor(1.0), torch.tensor(4.0))
    gate.record(torch.tensor(2.0), torch.tensor(8.0))
    assert gate.status.gated_share is None
    gate.step()
    assert gate.status.gated_share == 0.25
    gate.step()
    assert gate.status.gated_share is None


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"mode": "soft"}, "expected a mode among relative, paper, official, hard, got 'soft'"),
    ({"rare_share": 0.1, "alpha": 0.1}, "expected one of rare_share, rare_frequency and alpha, got several"),
    ({"alpha": 4.0}, "got 4.0: it is a number of targets per step, and above 1 the gate would amplify"),
    ({"gate_max": 2.0}, "expected gate_max in .0, 1., got 2.0: above 1 the gate would amplify"),
    ({"rare_share": 19.0}, "expected rare_share in .0, 1., got 19.0: it is a share of the whole"),
    ({"window": 0}, "expected window as a number of at least 1, got 0"),
    ({"memory": "disk"}, "expected memory 'exact', 'ring' or 'average', got 'disk'"),
    ({"memory": "ring", "window": "epoch"}, "expected memory 'exact' with window='epoch'"),
    ({"memory": "ring", "mode": "official"}, "expected memory 'exact'.*cannot drop single steps"),
    ({"counts": [1, 2]}, "expected corpus counts of shape .40,., .*got shape .2,."),
    ({"counts": [1] * V, "mode": "official"}, "expected the modes 'relative' or 'hard' and no alpha with corpus"),
    ({"counts": [1] * V, "alpha": 0.5}, "expected the modes 'relative' or 'hard' and no alpha with corpus counts"),
    ({"protected_ids": [40]}, "expected protected_ids in .0, 40., got 40"),
    ({"n_tokens": 41}, "expected n_tokens from 1 to 40, got 41"),
    ({"start_step": 0}, "expected start_step of at least 1, got 0"),
    ({"on_batch_change": "ignore"}, "expected on_batch_change 'refuse' or 'rescale', got 'ignore'"),
]


@pytest.mark.parametrize(("options", "message"), REFUSED, ids=lambda value: str(value)[:40])
def test_contradictions_are_refused(options: dict[str, Any], message: str) -> None:
    refuses(message, RareTokenGate, V, **options)
