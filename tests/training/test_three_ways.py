"""A remedy is one line in a plain loop, in a Trainer and in Lightning, and the three end with the same weights."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

import uncone
from uncone import InputError, RareTokenGate, UnsupportedModel
from uncone.training.attach_states import attach_states
from uncone.training.lightning import lightning_callback

from .models import V, build, gpt2, untied, without_dropout

Tensor = torch.Tensor
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
MODELS = ("GPT2LMHeadModel", "LlamaForCausalLM", "T5ForConditionalGeneration")
ROWS, ACCUMULATED, EPOCHS = 48, 2, 2
STEPS = EPOCHS * ROWS // 4 // ACCUMULATED


def size(weight: Tensor) -> Tensor:
    return 0.1 * weight.square().mean()


def examples(name: str) -> list[dict[str, Tensor]]:
    """As many targets in each micro-batch: first tokens have none."""
    ids = torch.randint(5, V, (ROWS, 12), generator=torch.Generator().manual_seed(0)).square() % V
    first = 0 if name.startswith("T5") else 1
    return [{"input_ids": x, "labels": torch.cat([torch.full((first,), -100), x[first:]])} for x in ids]


def attached_to(model: Any, *, gate: Any = None, **options: Any) -> Any:
    gate = gate or RareTokenGate(V, window="epoch", rare_share=0.5, gate_max=0.5)
    return uncone.attach(model, gate=gate, penalties=[uncone.CosinePenalty(), size], **options)


def sgd(model: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.5)


def in_a_loop(model: Any, data: Any, attached: Any) -> list[dict[str, float]]:
    optimizer, logged = sgd(model), []
    for _ in range(EPOCHS):
        for i, batch in enumerate(torch.utils.data.DataLoader(data, batch_size=4)):
            (model(**batch).loss / ACCUMULATED).backward()
            if i % ACCUMULATED == ACCUMULATED - 1:
                optimizer.step()
                optimizer.zero_grad()
                attached.step()
                logged.append(attached.logs())
        attached.gate.end_epoch()
    return logged


def in_a_trainer(model: Any, data: Any, attached: Any, folder: Path) -> list[dict[str, float]]:
    import transformers

    settings: dict[str, Any] = {"report_to": [], "use_cpu": True, "disable_tqdm": True, "logging_steps": 1}
    settings |= {"per_device_train_batch_size": 4, "gradient_accumulation_steps": ACCUMULATED, "max_grad_norm": 0.0}
    settings |= {"train_sampling_strategy": "sequential", "save_strategy": "no", "num_train_epochs": EPOCHS}
    arguments = transformers.TrainingArguments(str(folder), **settings)
    optimizer = sgd(model)
    both = (optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: 1.0))
    run = transformers.Trainer(model, arguments, train_dataset=data, optimizers=both, callbacks=[attached.callback])
    run.train()
    return [entry for entry in run.state.log_history if "loss" in entry]


def lightning_trainer(folder: Path, callback: Any, **settings: Any) -> tuple[Any, list[dict[str, float]]]:
    from lightning.pytorch import Trainer
    from lightning.pytorch.loggers.logger import Logger

    logged: list[dict[str, float]] = []

    class Kept(Logger):  # type: ignore[misc]
        name, version = "kept", 0

        def log_metrics(self, metrics: Any, step: Any = None) -> None:
            if metrics := {key: value for key, value in metrics.items() if key.startswith("uncone/")}:
                logged.append(metrics)

        def log_hyperparams(self, *args: Any, **kwargs: Any) -> None:
            pass

    quiet: dict[str, Any] = {"enable_progress_bar": False, "enable_model_summary": False, "log_every_n_steps": 1}
    quiet |= {"accelerator": "cpu", "devices": 1, "enable_checkpointing": False, "logger": Kept()}
    quiet |= {"accumulate_grad_batches": ACCUMULATED, "max_epochs": EPOCHS, "default_root_dir": folder}
    return Trainer(callbacks=callback, **quiet | settings), logged


def module_of(model: Any, loss: Any, optimizer: Any = sgd) -> Any:
    from lightning.pytorch import LightningModule

    class Module(LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def training_step(self, batch: Any, index: int) -> Tensor:
            return loss(batch)

        def configure_optimizers(self) -> torch.optim.Optimizer:
            made: torch.optim.Optimizer = optimizer(self.model)
            return made

    return Module().train()


def in_lightning(
    model: Any, data: Any, attached: Any, folder: Path, *, ckpt_path: Any = None, saved: Any = None, **settings: Any
) -> list[dict[str, float]]:
    run, logged = lightning_trainer(folder, [attached.lightning], **settings)
    module = module_of(model, lambda batch: model(**batch).loss)
    run.fit(module, torch.utils.data.DataLoader(data, batch_size=4), ckpt_path=ckpt_path)
    if saved is not None:
        run.save_checkpoint(saved)
    return logged


def near(found: dict[str, float], known: dict[str, float], rel: float) -> None:
    names = {name for name in known if name.startswith("uncone/")}
    assert {name for name in found if name.startswith("uncone/")} == names
    for name in names:
        assert float(found[name]) == pytest.approx(float(known[name]), rel=rel, abs=1e-9), name


@pytest.mark.parametrize("name", MODELS)
def test_three_ways_to_train_end_alike(name: str, tmp_path: Path) -> None:
    found, data = [], examples(name)
    for way in (in_a_loop, in_a_trainer, in_lightning):
        model = build(name, scale=1.0)
        attached = attached_to(model)
        logged = way(model, data, attached, *([tmp_path] if way is not in_a_loop else []))
        attached.detach()
        assert attached.gate.status.step == STEPS
        found.append((model.state_dict(), attached.gate, logged))
    (weights, gate, logs), *others = found
    assert not torch.equal(weights[next(iter(weights))], next(iter(build(name, scale=1.0).parameters())))
    assert len(logs) == STEPS
    assert {f"uncone/{name}" for name in ("cross_entropy", "accuracy", "logsumexp", "largest_logsumexp")} <= set(
        logs[0]
    )
    assert {"uncone/penalty", "uncone/penalty/CosinePenalty", "uncone/penalty/size", "uncone/gated_share"} <= set(
        logs[0]
    )
    for theirs, their_gate, their_logs in others:
        for key, value in weights.items():
            torch.testing.assert_close(theirs[key], value, rtol=1e-6, atol=1e-8)
        assert all(torch.equal(a, b) for a, b in zip(their_gate.gates(), gate.gates(), strict=True))
        assert len(their_logs) == STEPS
        for mine, known in zip(their_logs, logs, strict=True):
            near(mine, known, 1e-5)  # Lightning logs float32


@pytest.mark.parametrize("name", MODELS)
def test_an_optimiser_of_tables_and_a_centred_head_end_alike_in_lightning(name: str, tmp_path: Path) -> None:
    data, ends = examples(name), []
    for in_lightning in (False, True):
        model = untied(name, dtype=torch.float32, scale=1.0).train()
        before, centering = model.lm_head.weight.detach().clone(), uncone.CenterRows(model)
        loader = torch.utils.data.DataLoader(data, batch_size=4)
        if in_lightning:
            run, _ = lightning_trainer(tmp_path, [centering.lightning])
            run.fit(module_of(model, lambda batch, model=model: model(**batch).loss, uncone.with_table_adam), loader)
        else:
            optimizer = uncone.with_table_adam(model)
            for i, batch in enumerate([*loader] * EPOCHS):
                (model(**batch).loss / ACCUMULATED).backward()
                if i % ACCUMULATED == ACCUMULATED - 1:
                    optimizer.step()
                    optimizer.zero_grad()
                    centering.step()
        ends.append(model.state_dict())
        assert float(model.lm_head.weight.mean(0).abs().max().detach()) < 1e-6 < float(before.mean(0).abs().max())
        assert not torch.equal(model.lm_head.weight, before)
    for key, value in ends[0].items():
        torch.testing.assert_close(ends[1][key], value, rtol=1e-6, atol=1e-8)


def test_lightning_logs_means_of_the_steps_since_its_last_log(tmp_path: Path) -> None:
    data, found = examples("GPT2LMHeadModel"), []
    for every in (1, 3):
        model = gpt2(scale=1.0)
        found.append(in_lightning(model, data, attached_to(model), tmp_path, log_every_n_steps=every))
    each, means = found
    assert len(means) == STEPS // 3
    for i, logged in enumerate(means):
        steps = each[3 * i : 3 * i + 3]
        for name in ("uncone/cross_entropy", "uncone/accuracy", "uncone/penalty", "uncone/penalty/size"):
            assert logged[name] == pytest.approx(sum(step[name] for step in steps) / 3, rel=1e-5)
        assert logged["uncone/largest_logsumexp"] == max(step["uncone/largest_logsumexp"] for step in steps)
        assert logged["uncone/step"] == 3 * i + 3


def test_lightnings_checkpoint_has_the_gate(tmp_path: Path) -> None:
    data, saved = examples("GPT2LMHeadModel"), tmp_path / "half.ckpt"
    whole, half, rest = (gpt2(scale=1.0) for _ in range(3))
    known, gate = attached_to(whole), RareTokenGate(V, window="epoch", rare_share=0.5, gate_max=0.5)
    in_lightning(whole, data, known, tmp_path)
    in_lightning(half, data, attached_to(half), tmp_path, max_epochs=1, saved=saved)
    in_lightning(rest, data, attached_to(rest, gate=gate), tmp_path, ckpt_path=saved)
    assert gate.status == known.gate.status
    assert all(torch.equal(a, b) for a, b in zip(gate.gates(), known.gate.gates(), strict=True))
    for a, b in zip(rest.parameters(), whole.parameters(), strict=True):
        assert torch.equal(a, b)


def test_a_checkpoint_of_lightning_without_a_gate(tmp_path: Path) -> None:
    data, saved = examples("GPT2LMHeadModel"), tmp_path / "half.ckpt"
    model = gpt2(scale=1.0)
    in_lightning(model, data, uncone.attach(model), tmp_path, max_epochs=1, saved=saved)
    model = gpt2(scale=1.0)
    with pytest.raises(
        InputError, match=r"expected the gate's state in the checkpoint of step 6, got none: .*fresh=True"
    ):
        in_lightning(model, data, attached_to(model), tmp_path, ckpt_path=saved)
    model = gpt2(scale=1.0)
    attached = attached_to(model, fresh=True)
    with pytest.warns(UserWarning, match="the checkpoint of step 6 was written without a gate"):
        in_lightning(model, data, attached, tmp_path, ckpt_path=saved)
    assert attached.gate.status.step == STEPS


def test_any_step_can_follow_lightnings(tmp_path: Path) -> None:
    calls, model = [], gpt2(scale=1.0)
    both = [lightning_callback(lambda i=i: calls.append(i), name=f"step {i}") for i in range(2)]
    run, logged = lightning_trainer(tmp_path, both)
    data = torch.utils.data.DataLoader(examples("GPT2LMHeadModel"), batch_size=4)
    run.fit(module_of(model, lambda batch: model(**batch).loss), data)
    assert calls == [0, 1] * STEPS
    assert not logged


def test_steps_of_states_go_on_from_lightnings_checkpoint(tmp_path: Path) -> None:
    saved, data = tmp_path / "half.ckpt", examples("LlamaForCausalLM")
    for epochs, before in ((1, None), (2, saved)):
        model = build("LlamaForCausalLM", scale=1.0)
        attached = attach_states(model, crowding, pooling="last")
        logged = in_lightning(model, data, attached, tmp_path, max_epochs=epochs, ckpt_path=before, saved=saved)
        attached.detach()
        assert attached.steps == epochs * STEPS // 2
        assert len(logged) == STEPS // 2
        assert all(entry["uncone/states_penalty"] > 0 for entry in logged)


def test_the_older_package_gets_a_callback_of_its_own() -> None:
    code = (
        "import pytorch_lightning as pl, uncone; "
        "assert isinstance(uncone.lightning_callback(print, name='x'), pl.Callback)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_without_lightning_its_name_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lightning.pytorch", None)
    with uncone.attach(gpt2()) as attached, pytest.raises(UnsupportedModel, match="pip install lightning"):
        _ = attached.lightning


# ---- a Sentence Transformer, whose states are penalised


def encoder(folder: Path) -> Any:
    import transformers
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Pooling, Transformer

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{i}" for i in range(60))]
    if not folder.exists():
        folder.mkdir()
        (folder / "vocab.txt").write_text("\n".join(words))
        transformers.BertTokenizerFast(str(folder / "vocab.txt")).save_pretrained(folder)
        sizes = {"vocab_size": len(words), "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
        torch.manual_seed(0)
        config = transformers.BertConfig(**sizes, intermediate_size=32, max_position_embeddings=32)
        transformers.BertModel(config).save_pretrained(folder)
    transformer = Transformer(str(folder))
    model = SentenceTransformer(modules=[transformer, Pooling(16)], device="cpu")
    without_dropout(model)
    return model.train()


def crowding(points: Tensor, labels: Tensor | None) -> Tensor:
    return points.mean(0).square().sum()


@pytest.mark.parametrize("penalty", [crowding, uncone.OrthogonalPenalty(), uncone.IsoScorePenalty()])
def test_a_sentence_transformer_three_ways(penalty: Any, tmp_path: Path) -> None:
    """Without the package datasets, whose tables its Trainer takes, two ways."""
    from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments
    from sentence_transformers.losses import MultipleNegativesRankingLoss

    pairs = {
        side: [f"w{i} w{(7 * i + shift) % 60}" for i in range(8)] for side, shift in (("anchor", 3), ("positive", 5))
    }
    found, ways = [], ["loop", "lightning", "alone"]
    if find_spec("datasets") is not None:
        ways.insert(1, "trainer")
    for way in ways:
        model = encoder(tmp_path / "model")
        attached = attach_states(model[0].auto_model, penalty, pooling="mean")
        plain = MultipleNegativesRankingLoss(model)
        loss = plain if way == "alone" else attached.added_to(plain)
        features = [model.preprocess(texts) for texts in pairs.values()]
        optimizer = sgd(model)
        if way == "trainer":
            import datasets

            settings: dict[str, Any] = {"report_to": [], "use_cpu": True, "disable_tqdm": True, "logging_steps": 1}
            settings |= {"per_device_train_batch_size": 8, "num_train_epochs": 3, "max_grad_norm": 0.0}
            run = SentenceTransformerTrainer(
                model,
                SentenceTransformerTrainingArguments(str(tmp_path / "out"), save_strategy="no", **settings),
                train_dataset=datasets.Dataset.from_dict(pairs),
                loss=loss,
                optimizers=(optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: 1.0)),
                callbacks=[attached.callback],
            )
            run.train()
            logs = [entry for entry in run.state.log_history if "loss" in entry]
        elif way == "lightning":
            options = {"accumulate_grad_batches": 1, "max_epochs": 3}
            run, logs = lightning_trainer(tmp_path, [attached.lightning], **options)
            module = module_of(model, lambda batch, loss=loss: loss(batch, None))
            one_batch = torch.utils.data.DataLoader(range(8), 8, collate_fn=lambda _, f=features: [dict(x) for x in f])
            run.fit(module, one_batch)
        else:
            logs = []
            for _ in range(3):
                loss([dict(one) for one in features], None).backward()
                optimizer.step()
                optimizer.zero_grad()
                if way == "loop":
                    attached.step()
                    logs.append(attached.logs())
        attached.detach()
        found.append((model[0].auto_model.state_dict(), logs))
    (weights, logs), *others, (alone, _) = found
    moved = {key: float((alone[key] - value).abs().max()) for key, value in weights.items()}
    assert max(moved.values()) > 1e-4, "the penalty changes the weights"
    for theirs, their_logs in others:
        for key, value in weights.items():
            torch.testing.assert_close(theirs[key], value, rtol=1e-4, atol=1e-6)
        for mine, known in zip(their_logs, logs, strict=True):
            assert mine["uncone/states_penalty"] == pytest.approx(known["uncone/states_penalty"], rel=1e-4)
