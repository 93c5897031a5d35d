"""The monitor in loops: its lines, its cadence, what it leaves alone, and what never ends a run."""

import itertools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import uncone
from uncone import CosinePenalty, CrossEntropyOptions, InputError, Monitor, RareTokenGate, UnsupportedModel
from uncone.diagnosis.why.gradients.gradients import gradient_ledger
from uncone.model.last_states import States
from uncone.training import resume
from uncone.training.monitor.rows import Groups
from uncone.training.monitor.rules import Rules

from ..classifiers import batch as sequences
from ..classifiers import classifier
from ..models import V, batch, build, narrow_gpt2, untied

Tensor = torch.Tensor
pytestmark = pytest.mark.filterwarnings("ignore:.*lock_unlock.*")


def text(seed: int) -> dict[str, Tensor]:
    ids = batch(seed)["input_ids"]
    labels = ids.clone()
    labels[0, 5:] = -100
    return {"input_ids": ids, "labels": labels}


def lines(path: Path) -> list[dict[str, Any]]:
    """Without the header."""
    return [json.loads(line) for line in path.read_text().splitlines()][1:]


def train(model: Any, monitor: Any, steps: range, *, handle: Any = None, parts: int = 1) -> Tensor:
    """All parameters after some steps of SGD, as one row."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in steps:
        for part in range(parts):
            model(**text(parts * step + part)).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if handle is not None:
            handle.step()
        if monitor is not None:
            monitor.step()
    return torch.cat([p.detach().flatten() for p in model.parameters()])


@pytest.mark.parametrize(("every", "steps", "recorded"), [(3, 7, [1, 3, 6, 7]), (50, 4, [1, 4]), (2, 4, [1, 2, 4])])
def test_the_first_step_each_so_many_and_the_last_have_a_line(
    tmp_path: Path, every: int, steps: int, recorded: list[int]
) -> None:
    model = narrow_gpt2()
    with Monitor(tmp_path / "run", model, every) as monitor:
        train(model, monitor, range(steps))
    assert [line["step"] for line in lines(tmp_path / "run")] == recorded
    header = json.loads((tmp_path / "run").read_text().splitlines()[0])
    assert header["schema"] == "uncone.run/1"
    assert (header["model"], header["every"], header["vocabulary"]) == ("GPT2LMHeadModel", every, V)
    assert header["groups"] == {"by": "targets seen"}


@pytest.mark.parametrize("name", ["GPT2LMHeadModel", "LlamaForCausalLM", "T5ForConditionalGeneration"])
def test_the_numbers_of_a_record_are_the_models(tmp_path: Path, name: str) -> None:
    model = untied(name) if name.startswith("T5") else build(name)
    inputs = batch()
    with Monitor(tmp_path / "run", model, targets=10**4) as monitor:
        loss = float(model(**inputs).loss.detach())
        found = monitor.measure(0)
    assert found["loss.cross_entropy"] == pytest.approx(loss, rel=1e-5)
    table, head = model.get_input_embeddings().weight.detach(), model.get_output_embeddings().weight.detach()
    assert found["table.mean_cosine"] == pytest.approx(uncone.measure.mean_cosine(table.numpy()).value)
    assert found["head.mean_cosine"] == pytest.approx(
        uncone.measure.mean_cosine(head.numpy() - head.numpy().mean(0)).value, abs=1e-9
    )
    assert found["head.effective_rank"] == pytest.approx(uncone.measure.effective_rank(head.numpy()).value, rel=1e-6)
    labels = inputs["labels"] if name.startswith("T5") else inputs["labels"][:, 1:]
    targets = labels[labels != -100]
    assert found["head.untouched"] == pytest.approx(1 - len(targets.unique()) / V)
    ids = inputs["input_ids"]
    if name.startswith("T5"):
        ids = torch.cat([ids.flatten(), model.prepare_decoder_input_ids_from_labels(inputs["labels"]).flatten()])
    assert found["table.untouched"] == pytest.approx(1 - len(ids.unique()) / V)
    ledger = monitor.ledger()
    assert ledger.tokens == len(targets) == found["loss.targets"]
    assert found["gradient.norm"] == pytest.approx(ledger.groups[0].norm, rel=1e-4)
    assert found["gradient.rare.pushed_by_frequent"] == pytest.approx(ledger.group("rare").pushed_by_frequent, rel=1e-4)
    assert found["states.n"] == len(targets) + int((labels == -100).sum()) + (0 if name.startswith("T5") else len(ids))
    assert all(math.isfinite(value) for value in found.values())
    (line,) = lines(tmp_path / "run")
    assert {key: value for key, value in line.items() if key not in ("step", "time")} == found


def test_training_is_the_same_to_the_bit_and_detaching_leaves_nothing(tmp_path: Path) -> None:
    def run(model: Any, monitor: Any) -> Tensor:
        torch.manual_seed(1)
        return torch.cat([train(model, monitor, range(5)), torch.rand(3)])

    plain, watched = narrow_gpt2(), narrow_gpt2()
    before = set(vars(watched)), set(vars(watched.lm_head))
    expected = run(plain, None)
    monitor = Monitor(tmp_path / "run", watched, 2)
    assert torch.equal(run(watched, monitor), expected)
    monitor.detach()
    monitor.detach()
    assert (set(vars(watched)), set(vars(watched.lm_head))) == before
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_forward_hooks_with_kwargs")
    assert not any(getattr(module, name) for module in watched.modules() for name in hooks)


def test_an_attached_loss_is_averaged_over_the_step_and_its_options_are_read() -> None:
    model, options = narrow_gpt2(), CrossEntropyOptions(label_smoothing=0.3, z_loss=0.01)
    values = itertools.count(1.0)
    penalties = [CosinePenalty(1.0), lambda w: w.square().mean() + next(values)]
    gate = RareTokenGate(V, window=8)
    with (
        uncone.attach(model, gate=gate, penalties=penalties, options=options) as attached,
        Monitor(None, model) as monitor,
    ):
        nll, n = [], []
        head = attached.head.weight.detach().clone()
        for part in range(2):
            model(**text(part)).loss.backward()
            nll.append(float(attached.stats.cross_entropy))
            n.append(float(attached.stats.targets))
        attached.step()
        monitor.step()
        found = dict(monitor.last)
        train(model, monitor, range(1, 4), handle=attached)
        assert attached.logs()["uncone/cross_entropy"] > 0, "a log has its own means"
        plain = Monitor(None, model, options=CrossEntropyOptions())
        plain.detach()
    assert found["loss.cross_entropy"] == pytest.approx((nll[0] * n[0] + nll[1] * n[1]) / sum(n))
    assert found["penalty.<lambda>"] == pytest.approx(float(head.square().mean()) + 1.5), "the mean of 1 and 2"
    assert found["penalty.total"] == pytest.approx(found["penalty.<lambda>"] + found["penalty.CosinePenalty"])
    assert found["loss.z_loss"] > 0
    of_gate = {name.removeprefix("gate."): value for name, value in monitor.last.items() if name.startswith("gate.")}
    assert {"rare_ids", "rare_share", "rare_mass", "gated_share", "mean_g1", "mean_g2"} == set(of_gate)
    assert of_gate == {name: getattr(gate.status, name) for name in of_gate}
    labels = text(1)["labels"][:, 1:]
    smoothed = found["gradient.pulled"]  # of a target (1 - E) - p + ..., so at most 1 - E
    assert 0.5 < smoothed < 0.7 + 0.3 / V
    assert len(labels)


def test_in_a_loop_that_only_measures_labels_and_states_may_be_given() -> None:
    model = torch.nn.Sequential(torch.nn.Embedding(V, 8), torch.nn.Linear(8, V))
    ids = batch()["input_ids"]
    labels = ids.roll(-1, 1)
    labels[0, 3:] = -100
    with Monitor(None, model, head=model[1], table=model[0], targets=10**4) as monitor:
        z = model(ids)
        loss = torch.nn.functional.cross_entropy(z.flatten(0, 1), labels.flatten())
        loss.backward()
        found = monitor.measure(7, labels=labels, token_weights=torch.full(ids.shape, 2.0))
        assert monitor.measure(7) == found, "a step is read once"
        assert found["loss.cross_entropy"] == pytest.approx(float(loss.detach()), rel=1e-5)
        assert found["gradient.norm"] == pytest.approx(float(model[1].weight.grad.norm(dim=1).mean()), rel=1e-4)
        assert "head.untouched" not in found
        model.zero_grad()
        weights = torch.linspace(0, 3, ids.numel()).view(ids.shape)
        kept, of_token = (labels != -100).flatten(), weights.flatten()
        each = torch.nn.functional.cross_entropy(model(ids).flatten(0, 1), labels.flatten(), reduction="none")
        ((each * of_token)[kept].sum() / of_token[kept].sum()).backward()
        weighted = monitor.measure(8, labels=labels, token_weights=weights)
        assert weighted["gradient.norm"] == pytest.approx(float(model[1].weight.grad.norm(dim=1).mean()), rel=1e-4)
        assert weighted["loss.cross_entropy"] == found["loss.cross_entropy"]
        model(ids)
        other = monitor.measure(9, states=torch.eye(5))
    assert other["states.mean_cosine"] == 0
    assert "loss.cross_entropy" not in other


def test_an_encoder_has_states_and_a_table() -> None:
    model, inputs = classifier("BertFor"), sequences(12)
    with Monitor(None, model) as monitor:
        hidden = model.base_model(**{k: v for k, v in inputs.items() if k != "labels"}).last_hidden_state.detach()
        model(**inputs)
        found = monitor.measure(1)
    keep = inputs["attention_mask"][:, :, None].double()
    points = (hidden * keep).sum(1) / keep.sum(1)
    assert found["states.mean_cosine"] == pytest.approx(uncone.measure.mean_cosine(points.numpy()).value)
    assert "head.mean_cosine" not in found
    with uncone.attach_states(model, lambda p, c: p.square().mean()), Monitor(None, model) as monitor:
        model(**inputs)
        found = monitor.measure(1)
    first = uncone.anisotropy_scores(hidden[:, 0], inputs["labels"])
    assert [found[f"states.within_class_{i}"] for i in (1, 2, 3)] == pytest.approx(list(first.within_class))
    assert found["penalty.states"] == pytest.approx(float(hidden[:, 0].square().mean()))


def collapse(model: Any, monitor: Any, steps: range) -> None:
    """From step 14 on the rows of the table turn to their mean."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in steps:
        model(**text(step)).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step >= 13:
            with torch.no_grad():
                weight = model.transformer.wte.weight
                weight.lerp_(weight.mean(0), 0.3)
                weight.add_(0.3 * weight.std())
        monitor.step()


@pytest.mark.filterwarnings("ignore:step ")
@pytest.mark.parametrize("every", [1, 2])
@pytest.mark.parametrize("saved", [7, 12, 15, 16])
def test_a_resumed_loop_has_the_file_and_the_warnings_of_one_that_went_through(
    tmp_path: Path, saved: int, every: int
) -> None:
    def numbers(path: Path) -> list[dict[str, Any]]:
        return [{name: value for name, value in line.items() if name != "time"} for line in lines(path)]

    expected, found = list[Any](), list[Any]()

    def watched(name: str, model: Any, on_warning: Any) -> Monitor:
        return Monitor(tmp_path / name, model, every, rules=Rules(every, unjudged=0), on_warning=on_warning)

    with watched("whole", narrow_gpt2(), expected.append) as monitor:
        collapse(monitor._taps.model, monitor, range(30))
    model = narrow_gpt2()
    monitor = watched("run", model, found.append)
    collapse(model, monitor, range(saved))
    resume.save(monitor.state_dict(), tmp_path / "state", format="a/1")
    weights, before = {k: v.clone() for k, v in model.state_dict().items()}, len(found)
    collapse(model, monitor, range(saved, saved + 5))
    monitor._file.close()  # killed
    monitor._taps.detach()
    model = narrow_gpt2()
    model.load_state_dict(weights)
    del found[before:]
    with watched("run", model, found.append) as monitor:
        monitor.load_state_dict(resume.load(tmp_path / "state", format="a/1"))
        monitor.resume(saved)
        collapse(model, monitor, range(saved, 30))
    assert found == expected
    assert {one.rule for one in found} >= {"one_direction"}
    assert "head.oscillating" in numbers(tmp_path / "run")[3 if every == 1 else 4]
    for one, other in zip(numbers(tmp_path / "run"), numbers(tmp_path / "whole"), strict=True):
        assert one.pop("warning", None) == other.pop("warning", None)
        assert one == pytest.approx(other, rel=1e-6)


def test_a_loop_that_only_measures_goes_on_as_before() -> None:
    model = Plain()
    with Monitor(None, model, 50, head=model.out, table=model.table) as monitor:
        monitor.resume(3)
        for step in (4, 5):
            ids = batch(step)["input_ids"]
            torch.nn.functional.cross_entropy(model(ids).flatten(0, 1), ids.flatten()).backward()
            assert monitor.measure(step)["loss.targets"] == ids.numel()


def test_a_state_of_another_model_changes_nothing() -> None:
    small, other = Monitor(None, narrow_gpt2(), 1), Plain()
    train(small._taps.model, small, range(3))
    with Monitor(None, other, 1, head=other.out, table=other.table) as monitor:
        before = monitor.state_dict()
        damaged = small.state_dict()
        for state in (damaged, damaged | {"ids": before["ids"], "targets": before["targets"]}, {"steps": 3}):
            with pytest.raises(InputError, match="expected a state from state_dict or save"):
                monitor.load_state_dict(state)
        with pytest.raises(InputError, match="give the run the same `every`"):
            monitor.load_state_dict(damaged | {"rules": small.rules.state_dict() | {"every": 7}})
        assert monitor.steps == 0
        assert monitor.rules.state_dict() == before["rules"]
        assert not monitor._taps.counted("ids").any()
    small.detach()


def test_a_disk_that_is_full_ends_no_run_and_later_lines_are_written(tmp_path: Path, monkeypatch: Any) -> None:
    import errno
    import os

    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    model = narrow_gpt2()
    monitor = Monitor(tmp_path / "run", model, 1)
    train(model, monitor, range(1))
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.warns(UserWarning, match=r"write its file.*No space left") as said:
            train(model, monitor, range(1, 3))
    assert len(said) == 1
    train(model, monitor, range(3, 4))
    monitor.detach()
    assert [line["step"] for line in lines(tmp_path / "run")] == [1, 4]


def test_a_file_of_an_earlier_run_is_left_alone_with_one_warning(tmp_path: Path) -> None:
    model = narrow_gpt2()
    with Monitor(tmp_path / "run", model) as monitor:
        train(model, monitor, range(2))
    before = (tmp_path / "run").read_text()
    with Monitor(tmp_path / "run", model) as monitor, pytest.warns(UserWarning, match=r"call monitor\.resume") as said:
        train(model, monitor, range(3))
    assert monitor.last["table.norm_median"] > 0
    assert len(said) == 1
    assert (tmp_path / "run").read_text() == before
    first, second = Monitor(tmp_path / "two", model), Monitor(tmp_path / "two", model)
    first.resume(0)
    with pytest.raises(InputError, match="for this run alone"):
        second.resume(0)
    with pytest.raises(InputError, match=r"model 'GPT2LMHeadModel'.*got model 'BertForSequence"):
        Monitor(tmp_path / "run", classifier("BertFor"))


def test_bad_input_is_refused(tmp_path: Path) -> None:
    model = narrow_gpt2()
    with pytest.raises(InputError, match="expected every to be a whole number from 1 up, got 0"):
        Monitor(tmp_path / "run", model, 0)
    with pytest.raises(UnsupportedModel, match="expected a model with a token table or an output head"):
        Monitor(tmp_path / "run", torch.nn.Linear(3, 3))
    with pytest.raises(InputError, match="expected 97 counts"):
        Monitor(tmp_path / "run", model, counts=torch.ones(3))
    with pytest.raises(InputError, match="expected a file in a folder that exists"):
        Monitor(tmp_path / "none" / "run", model)
    with pytest.raises(InputError, match="expected a record with targets"):
        Monitor(None, model).ledger()
    monitor = Monitor(None, model)
    with pytest.raises(InputError, match="expected a state from state_dict or save"):
        monitor.load_state_dict({"steps": 3})


def test_the_cap_and_the_scale_of_a_head_that_is_given_are_read() -> None:
    model, ids = Plain(), batch()["input_ids"]
    with torch.no_grad():
        model.out.weight.mul_(5)
    options = CrossEntropyOptions(softcap=2.0, logit_scale=0.5)
    given: dict[str, Any] = {"head": model.out, "table": model.table, "targets": 10**4}
    with Monitor(None, model, options=options, **given) as monitor:
        z = 2 * torch.tanh(0.5 * model(ids).flatten(0, 1) / 2)
        loss = torch.nn.functional.cross_entropy(z, ids.flatten())
        loss.backward()
        model.out.bias.data.zero_()  # a bias is added after the scale
        found = monitor.measure(0)
    assert found["loss.targets"] == ids.numel()
    assert found["loss.largest_logit"] < 2
    model.zero_grad()
    z = 2 * torch.tanh(0.5 * model(ids).flatten(0, 1) / 2)
    loss = torch.nn.functional.cross_entropy(z, ids.flatten())
    loss.backward()
    assert found["loss.cross_entropy"] == pytest.approx(float(loss.detach()), rel=1e-5)
    assert found["gradient.norm"] == pytest.approx(float(model.out.weight.grad.norm(dim=1).mean()), rel=1e-4)


def test_kappa_is_that_of_the_targets_and_of_the_optimiser() -> None:
    model, steps = narrow_gpt2(), 4
    with Monitor(None, model, 1, beta2=0.95) as monitor:
        train(model, monitor, range(steps), parts=2)
        found = monitor.last
    seen = torch.cat([text(part)["labels"][:, 1:].flatten() for part in range(2 * steps)])
    counts = torch.bincount(seen[seen != -100], minlength=V)
    groups = Groups.by_count(counts)
    for place, name in enumerate(groups.names):
        if name == "never":
            assert f"gradient.{name}.kappa" not in found
            continue
        share = float(np.median(counts[groups.of == place])) / int(counts.sum())
        kappa = 0.05 / (share * int(counts.sum()) / steps)
        assert found[f"gradient.{name}.kappa"] == pytest.approx(kappa)


class Found:
    rule, name, text = "rank", "table.effective_rank", "The effective rank fell."


def test_warnings_of_rules_are_written_and_given_out(tmp_path: Path) -> None:
    class Planted:
        def see(self, step: int, numbers: Any) -> list[Any]:
            return [Found] if step == 2 and numbers["table.effective_rank" if step == 1 else "table.dead"] == 0 else []

    model, seen = narrow_gpt2(), list[Any]()
    said = pytest.warns(UserWarning, match="step 2: The effective rank fell")
    with Monitor(tmp_path / "run", model, 1, rules=Planted(), on_warning=seen.append) as monitor, said:
        train(model, monitor, range(3))
    assert seen == [Found]
    assert [line["step"] for line in lines(tmp_path / "run")] == [1, 2, 2, 3]
    warning = {"rule": "rank", "name": "table.effective_rank", "text": "The effective rank fell."}
    assert lines(tmp_path / "run")[2] == {"step": 2, "warning": warning}


class Plain(torch.nn.Module):
    """A loop of one's own: the loss is outside of the model, which is of no library."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.out = torch.nn.Embedding(V, 8), torch.nn.Linear(8, V)

    def forward(self, ids: Tensor, labels: Tensor | None = None) -> Tensor:
        """Logits (..., V); `labels` are for whoever watches."""
        return self.out(torch.tanh(self.table(ids)))


LOSSES: dict[str, Any] = {
    "mean": torch.nn.functional.cross_entropy,
    "sum": lambda z, y: torch.nn.functional.cross_entropy(z, y, reduction="sum"),
    "scaled": lambda z, y: 1024 * torch.nn.functional.cross_entropy(z, y),
    "smoothed": lambda z, y: torch.nn.functional.cross_entropy(z, y, label_smoothing=0.1),
}


@pytest.mark.parametrize("confident", [False, True])
@pytest.mark.parametrize("name", LOSSES)
def test_targets_are_read_off_the_gradient_of_a_loop_of_ones_own(name: str, confident: bool) -> None:
    torch.manual_seed(0)
    model, ids = Plain(), batch()["input_ids"]
    labels = ids.roll(-1, 1).clone()
    if confident:  # of some targets more than a smoothed label asks for, of others less
        with torch.no_grad():
            model.out.weight.mul_(20)
        labels = model(ids).argmax(-1)
        labels[0, ::3] = (labels[0, ::3] + 1) % V
    labels[1, 3:7] = -100
    kept = labels.flatten() != -100
    with Monitor(None, model, head=model.out, table=model.table, targets=10**4) as monitor:
        z = model(ids).flatten(0, 1)
        LOSSES[name](z, labels.flatten()).backward()
        monitor.step()
    assert monitor.last["loss.targets"] == int(kept.sum())
    nats = float(torch.nn.functional.cross_entropy(z.detach(), labels.flatten()))
    assert monitor.last["loss.cross_entropy"] == pytest.approx(nats, rel=1e-5)
    assert monitor.ledger().tokens == int(kept.sum())
    seen = monitor._taps.counted("targets")
    assert torch.equal(seen, torch.bincount(labels.flatten()[kept], minlength=V))


@pytest.mark.parametrize("logit", [-40.0, -60.0, -84.0, -1e4])
def test_a_row_whose_gradient_leaves_the_range_of_float32_has_its_direction(logit: float) -> None:
    """Its square is 0 in float32."""
    head = torch.nn.Linear(4, 9, bias=False)
    torch.nn.init.zeros_(head.weight).data[5, 0] = logit
    model, states, labels = torch.nn.Sequential(head), torch.eye(4)[[0, 0, 0]] + 0.01, torch.tensor([1, 2, 3])
    counts = torch.arange(9, 0, -1)
    with Monitor(None, model, head=head, counts=counts) as monitor:
        model(states)
        found = monitor.measure(0, labels=labels)
    whole = States(states.double(), labels, head.weight.detach().double(), None, None, 1.0, "", torch.zeros(3))
    for group in gradient_ledger(whole, counts=counts).groups:
        for name in ("norm", "frequent_norm", "toward", "push_cosine", "adam"):
            at = "" if group.name == "all" else f"{group.name}."
            if logit > -85 or name not in ("toward", "push_cosine"):  # else the row's push is 0 in float32
                assert found[f"gradient.{at}{name}"] == pytest.approx(getattr(group, name), rel=1e-3, abs=1e-9)


def test_a_step_without_targets_ends_nothing() -> None:
    model = narrow_gpt2()
    with Monitor(None, model, 1) as monitor:
        ids = batch()["input_ids"]
        model(input_ids=ids, labels=torch.full_like(ids, -100))
        monitor.step()
        assert "loss.cross_entropy" not in monitor.last
        assert "table.mean_cosine" in monitor.last
        train(model, monitor, range(1))
        assert monitor.last["loss.targets"] > 0


def test_states_without_classes_are_one_cloud() -> None:
    model, inputs = classifier("BertFor"), sequences(12)
    nothing = inputs | {"topic": torch.full((12,), -100)}
    with uncone.attach_states(model, lambda p, c: p.sum() * 0, labels="topic"), Monitor(None, model) as monitor:
        model(**nothing)
        assert "states.within_class_1" not in monitor.measure(0)
        model(**inputs, topic=torch.arange(12) % 2)
        assert monitor.measure(1)["states.within_class_1"] > 0


def test_an_attached_model_has_the_numbers_of_a_plain_one() -> None:
    found = []
    for attach in (False, True):
        model = narrow_gpt2()
        if attach:
            uncone.attach(model)
        with Monitor(None, model, 2) as monitor:
            train(model, monitor, range(1))
        found.append(monitor.last)
    for name, value in found[0].items():
        near = 0.1 if name.startswith("loss.") else 1e-3  # before the step, or after it
        assert found[1][name] == pytest.approx(value, rel=near, abs=1e-6), name
