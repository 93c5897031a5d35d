"""Each penalty in training: in a plain loop and in a Trainer, on language models and on a Sentence Transformer."""

from pathlib import Path
from typing import Any

import pytest
import torch

import uncone
from uncone import CosinePenalty, IsoScorePenalty, OrthogonalPenalty, UnsupportedModel

from ..classifiers import batch as sequences
from ..classifiers import classifier
from ..models import V, batch, build
from ..test_states_trainer import trainer as states_trainer
from ..test_trainer import stock
from .tables import by_pairs

Tensor = torch.Tensor
pytestmark = pytest.mark.filterwarnings("ignore")
MODELS = ("GPT2LMHeadModel", "LlamaForCausalLM", "T5ForConditionalGeneration")


def gradients(model: Any, loss: Tensor) -> dict[str, Tensor]:
    model.zero_grad()
    loss.backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("name", MODELS)
def test_the_loss_of_a_head_has_the_penalty(name: str) -> None:
    model, rows = build(name), torch.arange(V) < 60
    with uncone.attach(model, penalties=[CosinePenalty(30.0), CosinePenalty(5.0, rows=rows)]) as attached:
        loss = model(**batch()).loss
        found = gradients(model, loss)
        attached.step()
    plain, weight = model(**batch()).loss, model.get_output_embeddings().weight
    penalty = 30 * by_pairs(weight) + 5 * by_pairs(weight[:60])
    assert loss.item() == pytest.approx((plain + penalty).item(), rel=1e-6)
    assert attached.penalty.item() == pytest.approx(penalty.item(), rel=1e-9)
    assert attached.nll.item() == pytest.approx(plain.item(), rel=1e-6)
    known = gradients(model, plain + penalty)
    scale = max(float(g.abs().max()) for g in known.values())
    assert max(float((found[n] - g).abs().max()) for n, g in known.items()) < 1e-6 * scale


@pytest.mark.parametrize("name", MODELS)
def test_micro_batches_have_it_once(name: str) -> None:
    """The number of all targets divides the loss; the penalty is in the step once."""
    model, both, totals = build(name), [batch(0), batch(1)], list[float]()
    for weight in (0.0, 30.0):
        with uncone.attach(model, penalties=[CosinePenalty(weight)]):
            counts = [int((b["labels"][:, 1:] if name != MODELS[2] else b["labels"]).ne(-100).sum()) for b in both]
            totals.append(sum(model(**b, num_items_in_batch=sum(counts)).loss.item() for b in both))
    known = 30 * by_pairs(model.get_output_embeddings().weight).item()
    assert totals[1] - totals[0] == pytest.approx(known, rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS[:2])
def test_a_trainer_takes_it_in_one_line(name: str, tmp_path: Path) -> None:
    cosines = list[float]()
    for folder, penalties in (("plain", []), ("penalised", [CosinePenalty(100.0)])):
        model = build(name, dtype=torch.float32, scale=1.0)
        first = float(CosinePenalty()(model.get_output_embeddings().weight.detach()))
        attached = uncone.attach(model, penalties=penalties)
        run = stock(name, tmp_path / folder, model=model, more=(attached.callback,))
        run.train()
        attached.detach()
        cosines.append(float(CosinePenalty()(model.get_output_embeddings().weight.detach())))
    assert run.state.log_history[0]["uncone/penalty"] == pytest.approx(100 * first, abs=1)
    assert cosines[1] < cosines[0] / 4


@pytest.mark.parametrize("penalty", [OrthogonalPenalty(3.0, 2.0), IsoScorePenalty(2.0), IsoScorePenalty(-2.0)])
def test_the_loss_of_a_classifier_has_the_penalty_of_its_states(penalty: Any) -> None:
    model, inputs = classifier(), sequences(20)
    with uncone.attach_states(model, penalty) as attached:
        loss = model(**inputs).loss
        found = gradients(model, loss)
        attached.step()
    plain = model(**inputs)
    states = model.base_model(inputs["input_ids"], inputs["attention_mask"]).last_hidden_state[:, 0]
    known = penalty(states, inputs["labels"])
    assert loss.item() == pytest.approx((plain.loss + known).item(), rel=1e-12)
    assert attached.value.item() == pytest.approx(known.item(), rel=1e-9)
    wanted = gradients(model, plain.loss + known)
    scale = max(float(g.abs().max()) for g in wanted.values())
    assert max(float((found[n] - g).abs().max()) for n, g in wanted.items()) < 1e-9 * scale


@pytest.mark.slow
@pytest.mark.parametrize("penalty", [OrthogonalPenalty(), IsoScorePenalty()])
def test_a_trainer_logs_the_penalty_of_states(penalty: Any, tmp_path: Path) -> None:
    run = states_trainer(tmp_path, classifier(dtype=torch.float32), penalty, more={"labels": None})
    run.train()
    logged = [one["uncone/states_penalty"] for one in run.state.log_history if "uncone/states_penalty" in one]
    assert len(logged) == 4
    assert logged[-1] == pytest.approx(float(run.attached.value))
    assert all(0 < value < 2 for value in logged)


def sentences() -> tuple[list[str], list[str]]:
    things = [
        "a cat",
        "the old house",
        "rain in May",
        "seven bridges",
        "a green boat",
        "the last train",
        "bread",
        "my dog",
    ]
    return [f"I saw {x}." for x in things], [f"There was {x} here." for x in things]


@pytest.mark.slow
@pytest.mark.parametrize("penalty", [OrthogonalPenalty(), IsoScorePenalty()])
def test_a_sentence_transformer_in_a_plain_loop(penalty: Any, minilm: Path) -> None:
    sentence_transformers = pytest.importorskip("sentence_transformers")
    model = sentence_transformers.SentenceTransformer(str(minilm), device="cpu").train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    texts, values = sentences(), list[float]()
    with uncone.attach_states(model[0].auto_model, penalty, pooling="mean") as attached:
        for _ in range(4):
            first, second = (model(model.preprocess(column))["sentence_embedding"] for column in texts)
            loss = torch.nn.functional.cross_entropy(20 * first @ second.T, torch.arange(8))
            added = attached.penalty(torch.arange(8).repeat(2))
            (loss + added).backward()
            optimizer.step()
            optimizer.zero_grad()
            attached.step()
            values.append(added.item())
    assert values[-1] < values[0]


@pytest.mark.slow
def test_a_sentence_transformer_in_its_trainer(minilm: Path, tmp_path: Path) -> None:
    sentence_transformers = pytest.importorskip("sentence_transformers")
    datasets = pytest.importorskip("datasets")
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

    model = sentence_transformers.SentenceTransformer(str(minilm), device="cpu")
    attached = uncone.attach_states(model[0].auto_model, OrthogonalPenalty(), pooling="mean")
    loss = attached.added_to(MultipleNegativesRankingLoss(model))
    data = datasets.Dataset.from_dict(dict(zip(("anchor", "positive"), sentences(), strict=True)))
    arguments = sentence_transformers.SentenceTransformerTrainingArguments(
        str(tmp_path), max_steps=3, per_device_train_batch_size=8, use_cpu=True, report_to=[], logging_steps=1
    )
    run = sentence_transformers.SentenceTransformerTrainer(
        model, arguments, train_dataset=data, loss=loss, callbacks=[attached.callback]
    )
    run.train()
    attached.detach()
    logged = [one["uncone/states_penalty"] for one in run.state.log_history if "loss" in one]
    assert len(logged) == 3
    assert logged[-1] < logged[0]


@pytest.mark.slow
def test_a_toy_keeps_its_loss_and_loses_its_cone() -> None:
    """Tied GPT-2, V 2,000, D 32: text without context, p proportional to 1 / rank, so that the entropy is the least loss."""
    import transformers

    config = transformers.GPT2Config(
        vocab_size=2000, n_embd=32, n_layer=1, n_head=2, n_positions=32, bos_token_id=0, eos_token_id=0
    )
    p = 1 / torch.arange(1, 2001.0)
    p /= p.sum()
    cosines, losses = dict[float, float](), dict[float, float]()
    for weight in (0.0, 1.0):
        torch.manual_seed(0)
        model = transformers.GPT2LMHeadModel(config).train()
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
        with uncone.attach(model, penalties=[CosinePenalty(weight)] if weight else []) as attached:
            for _ in range(150):
                ids = torch.multinomial(p, 8 * 32, replacement=True).view(8, 32)
                optimizer.zero_grad()
                model(input_ids=ids, labels=ids).loss.backward()
                optimizer.step()
                attached.step()
        cosines[weight] = float(uncone.measure.mean_cosine(model.lm_head.weight.detach()))
        ids = torch.multinomial(p, 64 * 32, replacement=True, generator=torch.Generator().manual_seed(1)).view(64, 32)
        with torch.no_grad():
            losses[weight] = model.eval()(input_ids=ids, labels=ids).loss.item()
    entropy = -float((p * p.log()).sum())
    assert cosines[0.0] > 0.6
    assert abs(cosines[1.0]) <= 0.02
    assert abs(losses[1.0] - losses[0.0]) < 0.02
    assert losses[0.0] < entropy + 0.1, "both have learnt the frequencies"


def test_a_head_that_tensor_parallelism_cut_is_named() -> None:
    model = build("LlamaForCausalLM")
    model.lm_head.weight.placements = ()  # what names a DTensor
    with pytest.raises(UnsupportedModel, match="is whole, or sharded by fully_shard, got another DTensor"):
        uncone.attach(model)
