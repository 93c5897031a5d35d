"""The monitor of the head's gradient: its numbers are the ledger's, training stays as it is, and nothing stays behind."""

import json
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import uncone
from uncone import GradientMonitor, InputError, UnsupportedModel
from uncone.diagnosis.why.gradients.gradients import gradient_ledger
from uncone.model.last_states import States

from .models import V, batch, narrow_gpt2

Tensor = torch.Tensor


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def _text(seed: int) -> dict[str, Tensor]:
    ids = batch(seed)["input_ids"]
    labels = ids.clone()
    labels[0, 5:] = -100
    return {"input_ids": ids, "labels": labels}


def _train(model: Any, steps: int) -> Tensor:
    """All parameters after some steps of SGD, as one row."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(steps):
        model(**_text(step)).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def _ledger(hidden: Tensor, labels: Tensor, head: Tensor, bias: Any = None, counts: Any = None) -> Any:
    return gradient_ledger(States(hidden, labels, head, bias, None, 1.0, "", torch.zeros(0)), counts=counts)


def _by_hand(model: Any) -> Any:
    ids, labels = _text(0).values()
    hidden = model.transformer(input_ids=ids).last_hidden_state[:, :-1].flatten(0, 1).detach().float()
    targets = labels[:, 1:].flatten()
    kept = targets != -100
    return _ledger(hidden[kept], targets[kept], model.get_output_embeddings().weight.detach().float())


def test_a_line_is_the_ledger_of_the_micro_batch(tmp_path: Path) -> None:
    model, path = narrow_gpt2(), tmp_path / "gradients.jsonl"
    expected = _by_hand(model)
    with GradientMonitor(model, path, every=3) as monitor:
        _train(model, 7)
    lines = _lines(path)
    assert [line["step"] for line in lines] == [1, 4, 7]
    assert monitor.steps == 7
    first, every = lines[0], expected.groups[0]
    assert first["tokens"] == expected.tokens == 4 + 2 * 11
    for name in ("norm", "pull_norm", "frequent_norm", "rare_norm", "pulled", "cosine", "toward", "adam"):
        assert first[f"all.{name}"] == pytest.approx(getattr(every, name), rel=1e-4), name
    assert first["nats"] == pytest.approx(expected.nats, rel=1e-6)
    assert first["drift.adam"] == pytest.approx(expected.drifts[1].share, rel=1e-4)
    assert first["zero_sum"] < 1e-6
    assert monitor.last.tokens == lines[-1]["tokens"]


@pytest.mark.parametrize("gate", [None, "one"])
def test_training_is_the_same_to_the_bit_and_detaching_leaves_nothing(tmp_path: Path, gate: Any) -> None:
    def run(model: Any) -> Tensor:
        torch.manual_seed(1)
        with uncone.attach(model) if gate else nullcontext():
            return torch.cat([_train(model, 5), torch.rand(3)])

    plain, watched = narrow_gpt2(), narrow_gpt2()
    before = set(vars(watched)), set(vars(watched.lm_head))
    expected = run(plain)
    monitor = GradientMonitor(watched, tmp_path / "lines", every=2)
    assert torch.equal(run(watched), expected)
    monitor.detach()
    monitor.detach()
    assert len(_lines(tmp_path / "lines")) == 3
    assert (set(vars(watched)), set(vars(watched.lm_head))) == before
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_forward_hooks_with_kwargs")
    assert not any(getattr(module, name) for module in watched.modules() for name in hooks)
    _train(watched, 3)
    assert monitor.steps == 5


def test_an_attached_model_has_the_lines_of_a_plain_one(tmp_path: Path) -> None:
    for name, attach in (("plain", False), ("attached", True)):
        model = narrow_gpt2()
        if attach:
            uncone.attach(model)
        with GradientMonitor(model, tmp_path / name, every=2):
            _train(model, 3)
    plain, attached = _lines(tmp_path / "plain"), _lines(tmp_path / "attached")
    for one, other in zip(plain, attached, strict=True):
        known = {key: value for key, value in one.items() if value is not None}
        assert known == pytest.approx({key: other[key] for key in known}, rel=1e-3, abs=1e-6)


class _Plain(torch.nn.Module):
    """A loop of one's own: the loss is outside of the model, which is of no library."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.out = torch.nn.Embedding(V, 8), torch.nn.Linear(8, V)

    def forward(self, ids: Tensor) -> Tensor:
        """Logits (..., V)."""
        return self.out(torch.tanh(self.table(ids)))


LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "mean": torch.nn.functional.cross_entropy,
    "sum": lambda z, y: torch.nn.functional.cross_entropy(z, y, reduction="sum"),
    "scaled": lambda z, y: 1024 * torch.nn.functional.cross_entropy(z, y),
    "smoothed": lambda z, y: torch.nn.functional.cross_entropy(z, y, label_smoothing=0.1),
}


@pytest.mark.parametrize("confident", [False, True])
@pytest.mark.parametrize("name", LOSSES)
def test_targets_are_read_off_the_gradient_of_a_loop_of_ones_own(tmp_path: Path, name: str, confident: bool) -> None:
    torch.manual_seed(0)
    model, ids = _Plain(), batch()["input_ids"]
    labels = ids.roll(-1, 1).clone()
    if confident:  # of some targets more than a smoothed label asks for, of others less
        with torch.no_grad():
            model.out.weight.mul_(20)
        labels = model(ids).argmax(-1)
        labels[0, ::3] = (labels[0, ::3] + 1) % V
    labels[1, 3:7] = -100
    hidden = torch.tanh(model.table(ids)).flatten(0, 1).detach()
    kept = labels.flatten() != -100
    head, bias = model.out.weight.detach(), model.out.bias.detach()
    expected = _ledger(hidden[kept], labels.flatten()[kept], head, bias)
    with GradientMonitor(model, tmp_path / "lines", head=model.out):
        LOSSES[name](model(ids).flatten(0, 1), labels.flatten()).backward()
    (line,) = _lines(tmp_path / "lines")
    assert line["tokens"] == expected.tokens == int(kept.sum())
    for one in ("norm", "pulled", "cosine", "frequent_norm"):
        assert line[f"all.{one}"] == pytest.approx(getattr(expected.groups[0], one), rel=1e-5)


def test_evaluation_is_not_counted_and_few_targets_are_taken_evenly(tmp_path: Path) -> None:
    model = narrow_gpt2()
    monitor = GradientMonitor(model, tmp_path / "lines", targets=5, counts=torch.arange(V))
    with torch.no_grad():
        model(**batch())
    model.eval()
    model(**batch())
    model.train()
    assert monitor.steps == 0
    _train(model, 1)
    assert monitor.last.tokens == 5
    assert "in the counts given" in monitor.last.definition


def test_a_micro_batch_without_targets_says_why_and_training_goes_on(tmp_path: Path) -> None:
    model = narrow_gpt2()
    with GradientMonitor(model, tmp_path / "lines", every=1):
        ids = batch()["input_ids"]
        model(input_ids=ids, labels=torch.full_like(ids, -100))
        _train(model, 1)
    empty, whole = _lines(tmp_path / "lines")
    assert "expected a target" in empty["reason"]
    assert empty["step"] == 1
    assert whole["tokens"] > 0


def test_bad_input_is_refused(tmp_path: Path) -> None:
    model = narrow_gpt2()
    with pytest.raises(InputError, match=r"expected every and targets of at least 1, got 0"):
        GradientMonitor(model, tmp_path / "lines", every=0)
    for path in (tmp_path, tmp_path / "none" / "lines"):
        with pytest.raises(InputError, match=r"expected a file in a folder that exists"):
            GradientMonitor(model, path)
    with pytest.raises(UnsupportedModel, match=r"expected a transformers model with an output head"):
        GradientMonitor(_Plain(), tmp_path / "lines")
    assert not list(tmp_path.iterdir())
    assert not model.lm_head._forward_hooks


def test_lines_are_appended_to_own_lines_alone(tmp_path: Path) -> None:
    model, path = narrow_gpt2(), tmp_path / "lines"
    for runs in (1, 2):
        with GradientMonitor(model, path, every=2):
            _train(model, 3)
        assert [line["step"] for line in _lines(path)] == [1, 3] * runs
    own = path.read_bytes()
    for content, got in (
        (own + b"a note\n", "another in line 5"),
        (own[:-9], "a part of one in line 4"),
        (b'{"step": 3, "loss": 2.5}\n', "another in line 1"),
        (np.arange(99).tobytes(), "another in line 1"),
    ):
        path.write_bytes(content)
        with pytest.raises(InputError, match=rf"expected gradients of a step in each line of lines, got {got}"):
            GradientMonitor(model, path)
        assert path.read_bytes() == content


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_trainer_writes_lines_and_trains_as_without(tmp_path: Path) -> None:
    from .test_trainer import losses, stock

    runs = list[Any]()
    for name in ("plain", "watched"):
        run = stock("GPT2LMHeadModel", tmp_path / name, steps=6, save_strategy="no")
        model = run.model
        if name == "watched":
            with GradientMonitor(model, tmp_path / "lines", every=4):
                run.train()
        else:
            run.train()
        runs.append(run)
    assert losses(runs[0]) == losses(runs[1])
    lines = _lines(tmp_path / "lines")
    assert [line["step"] for line in lines] == [1, 5, 9]
    assert all(line["tokens"] == 4 * 11 for line in lines)


@pytest.mark.parametrize("error", [MemoryError("none left"), torch.OutOfMemoryError("none left")])
def test_ledgers_without_memory_end_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def none(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr("uncone.training.gradient_monitor.gradient_ledger", none)
    model = narrow_gpt2()
    with GradientMonitor(model, tmp_path / "lines", every=1):
        _train(model, 2)
    assert [line["reason"] for line in _lines(tmp_path / "lines")] == ["none left"] * 2


def test_a_folder_that_goes_away_ends_no_training(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    model = narrow_gpt2()
    monitor = GradientMonitor(model, tmp_path / "logs" / "lines", every=1)
    (tmp_path / "logs").rmdir()
    with pytest.warns(UserWarning, match="the gradients were not written, and are no longer read"):
        _train(model, 2)
    assert monitor.steps == 1


@pytest.mark.parametrize("logit", [-40.0, -60.0, -84.0, -92.0, -100.0, -1e4])
def test_a_row_whose_gradient_leaves_the_range_of_float32_has_numbers_in_the_line(tmp_path: Path, logit: float) -> None:
    """Its square is 0 in float32: its direction was lost."""
    head, path = torch.nn.Linear(4, 9, bias=False), tmp_path / "gradients.jsonl"
    torch.nn.init.zeros_(head.weight).data[5, 0] = logit
    model, states, labels = torch.nn.Sequential(head), torch.eye(4)[[0, 0, 0]] + 0.01, torch.tensor([1, 2, 3])
    counts = torch.arange(9, 0, -1)
    with GradientMonitor(model, path, head=head, counts=counts):
        torch.nn.functional.cross_entropy(model(states), labels).backward()
    (line,) = _lines(path)
    for group in _ledger(states.double(), labels, head.weight.detach().double(), counts=counts).groups:
        for name in ("norm", "frequent_norm", "toward", "push_cosine", "adam"):
            true = getattr(group, name)
            if logit > -85 or name not in ("toward", "push_cosine"):  # else the row's push is 0 in float32
                assert line[f"{group.name}.{name}"] == pytest.approx(true, rel=1e-3, abs=1e-9), (group.name, name)
