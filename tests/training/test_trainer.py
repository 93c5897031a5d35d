"""Real runs of a Trainer through the gated loss: they learn, save, load, and go on after a kill as if nothing had been."""

import dataclasses
import os
import signal
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

import uncone
from uncone import InputError, RareTokenGate, StepWarning

from ..processes import TRANSFORMERS, forked
from .models import V, build

Tensor = torch.Tensor
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
MODELS = ("GPT2LMHeadModel", "BertForMaskedLM", "MarianMTModel")
STEPS, SAVED, KILLED = 12, 4, 10


def examples(name: str, n: int = 64) -> list[dict[str, Tensor]]:
    """Something to learn: runs of counting ids; masked, or to be copied, where the model is no causal one."""
    random = torch.Generator().manual_seed(0)
    found = []
    for start in torch.randint(5, 15, (n,), generator=random).tolist():
        ids = torch.arange(start, start + 12)
        labels = ids.clone()
        if name == "BertForMaskedLM":
            hidden = torch.rand(12, generator=random) < 0.3
            labels[~hidden] = -100
            ids = torch.where(hidden, 4, ids)
        found.append({"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": labels})
    return found


def stock(name: str, folder: Path, *, model: Any = None, steps: int = STEPS, more: Any = (), **settings: Any) -> Any:
    """A Trainer on one of the small models."""
    import transformers

    model = model or build(name, dtype=torch.float32, scale=1.0)
    fixed: dict[str, Any] = {"report_to": [], "use_cpu": True, "seed": 1, "disable_tqdm": True, "logging_steps": 1}
    fixed |= {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "save_steps": SAVED}
    settings = fixed | {"learning_rate": 3e-3} | settings
    arguments = transformers.TrainingArguments(str(folder), max_steps=steps, **settings)
    data = {"train_dataset": examples(name), "eval_dataset": examples(name, 4)}
    return transformers.Trainer(model, arguments, callbacks=list(more), **data)


def trainer(name: str, folder: Path, *, gate: Any = "one", fresh: bool = False, more: Any = (), **settings: Any) -> Any:
    """The same, gated unless `gate` is None; its callback stops with the model attached."""
    model = settings.pop("model", None) or build(name, dtype=torch.float32, scale=1.0)
    gate = RareTokenGate(V, window="epoch") if gate == "one" else gate
    attached = uncone.attach(model, gate=gate, fresh=fresh)
    return stock(name, folder, model=model, more=(attached.callback, *more), **settings)


def losses(run: Any) -> list[float]:
    return [entry["loss"] for entry in run.state.log_history if "loss" in entry]


@pytest.mark.parametrize(("bf16", "near"), [(False, 1e-3), (True, 1e-2)])
def test_without_a_gate_a_trainer_runs_as_with_the_models_own_loss(tmp_path: Path, bf16: bool, near: float) -> None:
    attached = trainer("GPT2LMHeadModel", tmp_path / "a", gate=None, bf16=bf16)
    own = stock("GPT2LMHeadModel", tmp_path / "b", bf16=bf16)
    for run in (attached, own):
        run.train()
    assert losses(attached) == pytest.approx(losses(own), rel=near)


def test_the_gates_status_is_in_the_logs_and_reaches_trackers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import transformers

    seen: list[dict[str, Any]] = []

    class Tracker(transformers.TrainerCallback):  # type: ignore[misc]
        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
            seen.append(dict(logs))

    trackers = [*transformers.trainer.DEFAULT_CALLBACKS, Tracker]  # where report_to puts them
    monkeypatch.setattr(transformers.trainer, "DEFAULT_CALLBACKS", trackers)
    run = trainer("GPT2LMHeadModel", tmp_path, eval_strategy="steps", eval_steps=6)
    run.train()
    status = run.model.forward._handle.gate.status
    trained, rest = ([one for one in run.state.log_history if ("loss" in one) is wanted] for wanted in (True, False))
    assert [one["uncone/step"] for one in trained] == list(range(1, STEPS + 1))
    last = {name.removeprefix("uncone/"): value for name, value in trained[-1].items() if "uncone/" in name}
    assert {name: last[name] for name in dataclasses.asdict(status)} == dataclasses.asdict(status)
    of_loss = {"cross_entropy", "accuracy", "logsumexp", "largest_logsumexp"}
    assert last.keys() == {*dataclasses.asdict(status), *of_loss}
    assert [one for one in seen if "loss" in one] == [
        {name: value for name, value in one.items() if name != "step"} for one in trained
    ]
    assert len(rest) == 3, "two evaluations and the summary"
    assert not any("uncone" in name for one in rest for name in one)
    assert not any("uncone" in name for name in run.evaluate())
    run.train(resume_from_checkpoint=str(tmp_path / "checkpoint-8"))
    assert [one["uncone/step"] for one in run.state.log_history if "loss" in one] == list(range(1, STEPS + 1))


def test_a_forgotten_callback_is_said_and_one_that_was_given_is_not(tmp_path: Path) -> None:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        trainer("GPT2LMHeadModel", tmp_path / "given").train()
        assert not any(issubclass(one.category, StepWarning) for one in said)
        run = trainer("GPT2LMHeadModel", tmp_path / "forgotten")
        run.pop_callback(next(one for one in run.callback_handler.callbacks if "uncone" in type(one).__module__))
        run.train()
        run.model.forward._handle.detach()
    missing = [one for one in said if issubclass(one.category, StepWarning)]
    assert [Path(one.filename) for one in missing] == [Path(__file__)] * 2
    assert all("callbacks=[attached.callback]" in str(one.message) for one in missing)
    assert f"none after {STEPS} of {STEPS} optimiser steps" in str(missing[1].message)


@pytest.mark.parametrize("name", MODELS)
def test_it_learns_saves_and_loads(name: str, tmp_path: Path) -> None:
    run = trainer(name, tmp_path, steps=40, eval_strategy="no")
    run.train()
    found = losses(run)
    assert sum(found[-5:]) < 0.8 * sum(found[:5])
    gate = RareTokenGate(V, window="epoch")
    gate.load(tmp_path / "checkpoint-40" / "uncone_gate.safetensors")
    assert gate.status.step == 40
    evaluated = run.evaluate(examples(name))["eval_loss"]
    run.save_model(str(tmp_path / "saved"))
    again = type(run.model).from_pretrained(tmp_path / "saved")
    fresh = trainer(name, tmp_path / "fresh", model=again.train(), gate=None)
    assert fresh.evaluate(examples(name))["eval_loss"] == pytest.approx(evaluated, rel=1e-4)


def main(name: str, folder: str) -> None:
    """A run that is killed in a step after a checkpoint."""
    import transformers

    class Kill(transformers.TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.global_step == KILLED:
                os.kill(os.getpid(), signal.SIGKILL)

    torch.set_num_threads(1)  # as in the run that it is compared with
    trainer(name, Path(folder), more=[Kill()]).train()


@pytest.mark.parametrize("name", MODELS)
def test_a_killed_run_goes_on_to_the_same_loss(name: str, tmp_path: Path) -> None:
    whole = trainer(name, tmp_path / "whole")
    whole.train()
    killed = forked(*TRANSFORMERS).Process(target=main, args=(name, str(tmp_path / "killed")))
    killed.start()
    killed.join()
    assert killed.exitcode == -signal.SIGKILL
    resumed = trainer(name, tmp_path / "killed")
    resumed.train(resume_from_checkpoint=True)
    assert losses(resumed)[-4:] == losses(whole)[-4:]
    for a, b in zip(resumed.model.parameters(), whole.model.parameters(), strict=True):
        assert torch.equal(a, b)


def test_a_checkpoint_without_the_gates_state_is_refused(tmp_path: Path) -> None:
    trainer("GPT2LMHeadModel", tmp_path, gate=None, steps=SAVED).train()
    said = r"state of step 4 in checkpoint-4/uncone_gate.safetensors of .*, got none.*attach\(model, gate=gate, fresh=True\)"
    with pytest.raises(InputError, match=said):
        trainer("GPT2LMHeadModel", tmp_path).train(resume_from_checkpoint=True)


def test_a_gate_begins_at_a_checkpoint_without_one_and_goes_on_from_its_own(tmp_path: Path) -> None:
    trainer("GPT2LMHeadModel", tmp_path, gate=None, steps=SAVED).train()
    gate = RareTokenGate(V, window=5, start_step=2)
    run = trainer("GPT2LMHeadModel", tmp_path, gate=gate, fresh=True, steps=2 * SAVED)
    with pytest.warns(UserWarning, match="the checkpoint of step 4 was written without a gate .* starts at this step"):
        run.train(resume_from_checkpoint=True)
    assert (gate.status.step, gate.status.counted_steps) == (2 * SAVED, SAVED)
    rare = [entry["uncone/rare_ids"] for entry in run.state.log_history if "uncone/rare_ids" in entry]
    assert [ids > 0 for ids in rare] == [False, True, True, True]
    for fresh in (False, True):  # its own state is there now
        again = RareTokenGate(V, window=5, start_step=2)
        run = trainer("GPT2LMHeadModel", tmp_path, gate=again, fresh=fresh, steps=STEPS)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            run.train(resume_from_checkpoint=str(tmp_path / f"checkpoint-{2 * SAVED}"))
        assert not [one for one in said if "without a gate" in str(one.message)]
        assert (again.status.step, again.status.counted_steps) == (STEPS, 5)


def test_a_checkpoint_that_lies_elsewhere_goes_on_after_the_gate_is_loaded(tmp_path: Path) -> None:
    trainer("GPT2LMHeadModel", tmp_path / "a", steps=SAVED).train()
    gate = RareTokenGate(V, window="epoch")
    gate.load(tmp_path / "a" / "checkpoint-4" / "uncone_gate.safetensors")
    run = trainer("GPT2LMHeadModel", tmp_path / "b", gate=gate)
    run.train(resume_from_checkpoint=str(tmp_path / "a" / "checkpoint-4"))
    assert gate.status.step == STEPS


def test_another_batch_after_a_resume_is_refused(tmp_path: Path) -> None:
    trainer("GPT2LMHeadModel", tmp_path, steps=SAVED).train()
    other = trainer("GPT2LMHeadModel", tmp_path)
    other.args.gradient_accumulation_steps = 4
    with pytest.raises(InputError, match="expected 8 sequences per step, as before the resume, got 16"):
        other.train(resume_from_checkpoint=True)
