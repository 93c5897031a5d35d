"""Real runs of a Trainer with a penalty on states: the loss is the sum, and an interrupted run goes on."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from uncone import Monitor, PersistentEntropy, UnsupportedModel
from uncone.training.attach_states import attach_states

from .classifiers import classifier
from .models import V, build
from .test_trainer import losses

Tensor = torch.Tensor
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


def examples(n: int = 96) -> list[dict[str, Any]]:
    random = torch.Generator().manual_seed(0)
    ranges = [(5 + 40 * (i % 2), V - 45 + 40 * (i % 2)) for i in range(n)]
    ids = [torch.randint(*ends, (10,), generator=random) for ends in ranges]
    return [{"input_ids": x, "labels": i % 2, "topic": i % 3} for i, x in enumerate(ids)]


class Values:
    """What the penalty was in each micro-batch."""

    def __init__(self) -> None:
        self.inner, self.found = PersistentEntropy(), list[float]()

    def __call__(self, points: Tensor, labels: Tensor | None) -> Tensor:
        loss = self.inner(points, labels)
        self.found.append(loss.item())
        return loss


def trainer(folder: Path, model: Any, penalty: Any, *, steps: int = 4, data: Any = None, **settings: Any) -> Any:
    """A Trainer whose callback stops with the states attached; `more` are options of `attach_states`."""
    import transformers

    fixed: dict[str, Any] = {"report_to": [], "use_cpu": True, "seed": 1, "disable_tqdm": True, "logging_steps": 1}
    fixed |= {"per_device_train_batch_size": 16, "save_steps": 2, "learning_rate": 1e-3}
    attached = attach_states(model, penalty, **settings.pop("more", {}))
    arguments = transformers.TrainingArguments(str(folder), max_steps=steps, **fixed | settings)
    data = {"train_dataset": data or examples(), "eval_dataset": examples(32)}
    run = transformers.Trainer(model, arguments, callbacks=[attached.callback], **data)
    run.attached = attached
    return run


def differences(found: Any, plain: Any) -> list[float]:
    """What a penalty added to the logged losses."""
    for run in (found, plain):
        run.train()
    return [one - other for one, other in zip(losses(found), losses(plain), strict=True)]


@pytest.mark.parametrize("accumulated", [1, 2])
@pytest.mark.parametrize("kind", ["BertFor", "LlamaFor"])
def test_the_logged_loss_is_the_models_and_the_penalty_once(kind: str, accumulated: int, tmp_path: Path) -> None:
    """With a learning rate of 0, against the same run without a penalty."""
    values, settings = Values(), {"gradient_accumulation_steps": accumulated, "learning_rate": 0.0}
    runs = (trainer(tmp_path, classifier(kind, dtype=torch.float32), p, **settings) for p in (values, None))
    added = differences(*runs)
    assert len(values.found) == 4 * accumulated
    # these classifiers do not divide by the step's targets, and neither does Trainer: loss and penalty are too large alike
    assert added == pytest.approx(torch.tensor(values.found).view(4, -1).sum(1).tolist(), rel=1e-3)


def test_a_causal_models_penalty_is_a_mean_over_micro_batches(tmp_path: Path) -> None:
    data = [{"input_ids": e["input_ids"], "labels": e["input_ids"]} for e in examples()]
    values, settings = Values(), {"gradient_accumulation_steps": 2, "learning_rate": 0.0, "more": {"pooling": "last"}}
    models = (build("LlamaForCausalLM", dtype=torch.float32, scale=1.0) for _ in range(2))
    runs = [trainer(tmp_path, m, p, data=data, **settings) for m, p in zip(models, (values, None), strict=True)]
    assert differences(*runs) == pytest.approx(torch.tensor(values.found).view(4, 2).mean(1).tolist(), rel=1e-3)


def test_evaluation_while_it_trains_adds_nothing(tmp_path: Path) -> None:
    values, model = Values(), classifier(dtype=torch.float32)
    settings = {"learning_rate": 0.0, "eval_strategy": "steps", "eval_steps": 1}
    run = trainer(tmp_path, model, values, gradient_checkpointing=True, **settings)
    run.train()
    assert len(values.found) == 4, "one a training step"
    run.attached.detach()
    evaluated = [entry["eval_loss"] for entry in run.state.log_history if "eval_loss" in entry]
    assert evaluated == pytest.approx([run.evaluate()["eval_loss"]] * 4)


def test_it_trains_tracks_evaluates_and_saves(tmp_path: Path) -> None:
    model = classifier(dtype=torch.float32)
    settings = {"steps": 30, "bf16": True, "learning_rate": 1e-2}
    run = trainer(tmp_path / "out", model, PersistentEntropy(0.1), **settings)
    run.add_callback(Monitor(tmp_path / "run.jsonl", model, 5).callback)
    run.train()
    evaluated = run.evaluate(examples())["eval_loss"]
    assert evaluated < 0.5
    records = [json.loads(line) for line in (tmp_path / "run.jsonl").read_text().splitlines()[1:]]
    assert [record["step"] for record in records] == [1, *range(5, 31, 5)]
    assert all("states.within_class_1" in record and "penalty.states" in record for record in records)
    run.save_model(str(tmp_path / "saved"))
    again = type(model).from_pretrained(tmp_path / "saved")
    run.attached.detach()
    run.model = again
    assert run.evaluate(examples())["eval_loss"] == pytest.approx(evaluated, rel=1e-2)


def test_a_column_of_classes_reaches_it_through_a_trainer(tmp_path: Path) -> None:
    values = Values()
    settings: dict[str, Any] = {"per_device_train_batch_size": 32, "more": {"labels": "topic"}}
    trainer(tmp_path, classifier(dtype=torch.float32), values, steps=2, **settings).train()
    assert values.inner.last.classes.tolist() == [0, 1, 2]


def test_an_interrupted_run_goes_on_as_if_it_had_not_been(tmp_path: Path) -> None:
    def run(folder: str, steps: int) -> Any:
        model, settings = classifier(dtype=torch.float32), {"lr_scheduler_type": "constant"}
        run = trainer(tmp_path / folder, model, PersistentEntropy(), steps=steps, **settings)
        run.add_callback(Monitor(tmp_path / f"{folder}.jsonl", model, 1).callback)
        return run

    def lines(folder: str) -> list[dict[str, Any]]:
        """Of states and penalty, to the bit."""
        found = [json.loads(line) for line in (tmp_path / f"{folder}.jsonl").read_text().splitlines()[1:]]
        return [{k: v for k, v in line.items() if k == "step" or k[:6] in ("states", "penalt")} for line in found]

    whole = run("whole", 6)
    whole.train()
    run("cut", 4).train()
    resumed = run("cut", 6)
    resumed.train(resume_from_checkpoint=True)
    assert resumed.attached.steps == 6
    assert losses(resumed)[-2:] == losses(whole)[-2:]
    for a, b in zip(resumed.model.parameters(), whole.model.parameters(), strict=True):
        assert torch.equal(a, b)
    assert lines("cut") == lines("whole")


def test_a_loss_that_is_computed_elsewhere_is_refused(tmp_path: Path) -> None:
    run = trainer(tmp_path, classifier(dtype=torch.float32), PersistentEntropy(), label_smoothing_factor=0.1)
    with pytest.raises(UnsupportedModel, match=r"expected label_smoothing_factor 0, got 0\.1"):
        run.train()
