"""A penalty on states: the right states, the right gradient, and nothing else changed."""

import inspect
from typing import Any

import pytest
import torch

import uncone
from uncone import InputError, PersistentEntropy
from uncone.training.attach_states import attach_states
from uncone.training.cloud import pool

from .classifiers import CLASSIFIERS, Kept, batch, classifier
from .models import batch as tokens
from .models import build

Tensor = torch.Tensor
pytestmark = pytest.mark.filterwarnings("ignore:.*lock_unlock.*")


def by_hand(model: Any, inputs: dict[str, Tensor], layer: int, pooling: str) -> Tensor:
    """One sequence at a time, without its padding."""
    states = model.base_model(**{k: v for k, v in inputs.items() if k != "labels"}, output_hidden_states=True)
    hidden = states.last_hidden_state if layer == -1 else states.hidden_states[layer]
    rows = [row[mask == 1] for row, mask in zip(hidden, inputs["attention_mask"], strict=True)]
    return torch.stack([{"cls": row[0], "last": row[-1], "mean": row.mean(0)}[pooling] for row in rows])


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize(("kind", "pooling"), [(k, p) for k in CLASSIFIERS for p in ("cls", "mean", "last")])
def test_the_states_are_those_of_the_tokens(kind: str, pooling: Any, side: str) -> None:
    model, kept = classifier(kind), Kept()
    inputs = batch(8, side=side, pad=model.config.pad_token_id)
    for layer in (-1, 0, -2):
        with attach_states(model, kept, pooling=pooling, layer=layer):
            model(**inputs)
        assert torch.allclose(kept.points, by_hand(model, inputs, layer, pooling), rtol=1e-12)
        assert kept.labels is inputs["labels"] or torch.equal(kept.labels, inputs["labels"])  # type: ignore[arg-type]


@pytest.mark.parametrize("pooling", ["cls", "mean", "last"])
def test_without_a_mask_padding_is_known_by_its_id(pooling: Any) -> None:
    model, kept = classifier("LlamaFor"), Kept()
    inputs = batch(8)
    given = {k: v for k, v in inputs.items() if k != "attention_mask"}
    with attach_states(model, kept, pooling=pooling):
        model(**given)
    found = kept.points
    hidden = model.base_model(input_ids=given["input_ids"]).last_hidden_state
    assert torch.equal(found, pool(hidden, inputs["attention_mask"], pooling))


def test_sequences_without_tokens_and_what_is_no_number_in_padding() -> None:
    hidden, mask = torch.ones(3, 3, 2), torch.tensor([[0, 0, 0], [1, 1, 0], [1, 1, 0]])
    hidden[1], hidden[2, 2] = torch.randn(3, 2), torch.nan
    assert torch.equal(pool(hidden, mask, "mean")[[0, 2]], torch.tensor([[0.0, 0], [1, 1]]))
    assert torch.equal(pool(hidden, mask, "last"), hidden[[0, 1, 2], [0, 1, 1]])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("masked", [True, False])
def test_a_mean_over_many_tokens_loses_no_digits_in_half_precision(dtype: torch.dtype, masked: bool) -> None:
    random = torch.Generator().manual_seed(0)
    hidden = (300 + torch.randn(2, 301, 4, generator=random)).to(dtype)  # bfloat16 counts 300 or 302, float16 overflows
    found = pool(hidden, torch.ones(2, 301) if masked else None, "mean")
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), hidden.double().mean(1), rtol=1e-6, atol=0)


@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_loss_and_gradient_are_those_of_the_sum(kind: str) -> None:
    model, inputs = classifier(kind), batch(20)
    with attach_states(model, PersistentEntropy(2.0), pooling="last", layer=1) as attached:
        found = model(**inputs)
        found.loss.backward()
        attached.step()
    gradients = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    plain = model(**inputs)
    penalty = PersistentEntropy(2.0)(by_hand(model, inputs, 1, "last"), inputs["labels"])
    (plain.loss + penalty).backward()
    assert found.loss.item() == pytest.approx((plain.loss + penalty).item(), rel=1e-12)
    assert attached.value.item() == pytest.approx(penalty.item(), rel=1e-12)
    assert torch.equal(found.logits, plain.logits)
    assert found.hidden_states is None
    wanted = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    assert gradients.keys() == wanted.keys()
    near = 1e-6 if kind == "LlamaFor" else 1e-11  # its norms are in float32
    scale = max(float(g.abs().max()) for g in wanted.values())
    assert max(float((gradients[n] - g).abs().max()) for n, g in wanted.items()) < near * scale


def test_evaluation_is_as_before_and_nothing_is_left_behind() -> None:
    model, inputs, kept = classifier(), batch(), Kept()
    model.eval()(**inputs, output_hidden_states=True)  # for which transformers itself leaves hooks
    before = [dict(module.__dict__) for module in (model, model.base_model)]
    plain = model(**inputs)
    with attach_states(model, kept, layer=1) as attached:
        evaluated = model(**inputs)
        model.train()
        with torch.no_grad():
            model(**inputs)
        asked = model(**inputs, output_hidden_states=True)
        assert len(asked.hidden_states) == 3
        assert torch.equal(model(**inputs, return_dict=False)[0], asked.loss)
    assert torch.equal(evaluated.loss, plain.loss)
    assert evaluated.keys() == plain.keys()
    for module, was in zip((model, model.base_model), before, strict=True):
        assert module.__dict__.keys() == was.keys()
    attached.detach()
    assert torch.equal(model.eval()(**inputs).loss, plain.loss)


def test_two_handles_and_a_gate_work_together_and_come_off_in_any_order() -> None:
    model, inputs = build("GPT2LMHeadModel"), tokens(rows=6)
    plain = model(**inputs).loss.item()
    gate = uncone.attach(model)
    settings = ((1.0, -1), (3.0, 1))
    first, second = (attach_states(model, PersistentEntropy(w), pooling="mean", layer=i) for w, i in settings)
    loss = model(**inputs).loss.item()
    assert loss == pytest.approx(plain + first.value.item() + second.value.item())
    for handle in (gate, first, second):
        handle.step()
        handle.check()
        handle.detach()
    assert model(**inputs).loss.item() == pytest.approx(plain)
    assert not any("forward" in module.__dict__ for module in (model, model.base_model, model.lm_head))


@pytest.mark.parametrize("kind", ["BertFor", "GPT2For"])
def test_a_loop_without_labels_asks_for_the_penalty(kind: str) -> None:
    model, inputs = classifier(kind).base_model, batch(12)
    del inputs["labels"]
    with attach_states(model, PersistentEntropy(), pooling="mean") as attached:
        for rows in (slice(0, 5), slice(5, 12)):
            model(**{k: v[rows] for k, v in inputs.items()})
        found = attached.penalty()
        found.backward()
        attached.step()
        said = r"expected a forward in training .*gradients on.* since the last call, got none"
        with pytest.raises(InputError, match=said):
            attached.penalty()
    states = model(**inputs).last_hidden_state
    assert found.item() == pytest.approx(PersistentEntropy()(pool(states, inputs["attention_mask"], "mean")).item())
    assert next(model.parameters()).grad is not None


def test_micro_batches_can_be_one_cloud() -> None:
    model, inputs, kept = classifier(), batch(16), Kept()
    with attach_states(model, kept, add_to_loss=False) as attached:
        losses = [model(**{k: v[i : i + 4] for k, v in inputs.items()}).loss for i in range(0, 16, 4)]
        (torch.stack(losses).mean() + attached.penalty(inputs["labels"])).backward()
        attached.step()
    assert len(kept.points) == 16
    assert torch.allclose(kept.points, by_hand(model, inputs, -1, "cls"))
    with attach_states(model, kept) as adding, pytest.raises(InputError, match="the loss already contains the penalty"):
        adding.penalty()


def test_labels_are_classes_of_sequences_or_none() -> None:
    model, inputs, kept = classifier(), batch(8), Kept()
    with attach_states(model, kept, labels=None):
        model(**inputs)
        assert kept.labels is None
    with attach_states(model, kept):
        model(**inputs | {"labels": inputs["labels"][:, None]})
        assert kept.labels.tolist() == inputs["labels"].tolist()
    language_model = build("LlamaForCausalLM")
    with attach_states(language_model, kept, pooling="last"):
        language_model(**tokens())
        assert kept.labels is None, "token labels are no classes"
    regression = classifier(num_labels=1)
    with attach_states(regression, kept):
        regression(**inputs | {"labels": inputs["labels"].double()})
        assert kept.labels is None


def test_a_column_of_its_own_is_taken_out() -> None:
    model, inputs, kept = classifier(), batch(8), Kept()
    topic = torch.arange(8) % 3
    with attach_states(model, kept, labels="topic") as attached:
        assert "topic" in inspect.signature(model.forward).parameters
        model(**inputs, topic=topic)
        assert kept.labels.tolist() == topic.tolist()
        for wrong in ({}, {"topic": topic[:3]}, {"topic": topic.float()}):
            with pytest.raises(
                InputError, match="expected a column 'topic' in the batch with one integer per sequence"
            ):
                model(**inputs, **wrong)
        model.eval()(**inputs, topic=topic)
        attached.check()
    assert "topic" not in inspect.signature(model.forward).parameters


@pytest.mark.parametrize("kind", ["BertFor", "LlamaFor"])
def test_micro_batches_count_as_the_models_own_loss_does(kind: str) -> None:
    """These classifiers take the number of a step's targets and do not divide by it."""
    model, inputs = classifier(kind), batch(12)
    with attach_states(model, PersistentEntropy()) as attached:
        model(**inputs)
        whole = attached.value
        model(**inputs, num_items_in_batch=torch.tensor(24))
        assert torch.equal(attached.value, whole)  # type: ignore[arg-type]
        assert model.training


def test_a_micro_batch_counts_by_its_targets_where_the_loss_is_divided_by_a_steps() -> None:
    model, inputs = build("GPT2LMHeadModel"), tokens(rows=8)
    mine = (inputs["labels"][:, 1:] != -100).sum()
    with attach_states(model, PersistentEntropy(), pooling="mean") as attached:
        model(**inputs)
        whole = attached.value
        model(**inputs, num_items_in_batch=4 * mine)
        part = attached.value
    assert part.item() == pytest.approx(whole.item() / 4, rel=1e-6)


@pytest.mark.filterwarnings("ignore:.*gradient_checkpointing.*:FutureWarning")
@pytest.mark.parametrize("reentrant", [True, False])
def test_recomputed_layers_change_nothing(reentrant: bool) -> None:
    def gradient(model: Any) -> Tensor:
        with attach_states(model, PersistentEntropy(5.0), layer=1):
            model(**batch(20)).loss.backward()
        grad: Tensor = model.base_model.encoder.layer[0].attention.self.query.weight.grad
        return grad

    again = classifier()
    again.gradient_checkpointing_enable({"use_reentrant": reentrant})
    assert torch.allclose(gradient(again), gradient(classifier()), rtol=1e-9, atol=1e-15)


def test_mixed_precision_keeps_the_penalty_in_full() -> None:
    model, inputs = classifier(dtype=torch.float32), batch(20)
    with attach_states(model, PersistentEntropy()) as attached, torch.autocast("cpu", torch.bfloat16):
        loss = model(**inputs).loss
    loss.backward()
    assert attached.value.dtype == torch.float32
    assert all(bool(torch.isfinite(p.grad).all()) for p in model.parameters() if p.grad is not None)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("order", ["before", "after", "in place"])
def test_a_compiled_model_has_the_penalty(order: str) -> None:
    """Captured by dynamo and differentiated by AOT autograd; machine code is compiled in one of the orders only."""
    torch._dynamo.reset()
    backend = "inductor" if order == "before" else "aot_eager"
    model, inputs = classifier(dtype=torch.float32, num_hidden_layers=1), batch(20)
    compiled = torch.compile(model, backend=backend) if order == "before" else model
    if order == "before":
        compiled(**inputs).loss.backward()
        model.zero_grad()
    with attach_states(compiled, PersistentEntropy(3.0)) as attached:
        if order == "after":
            compiled = torch.compile(model, backend=backend)
        elif order == "in place":
            model.compile(backend=backend)
        found = compiled(**inputs).loss
        found.backward()
        attached.step()
    grad = model.base_model.embeddings.word_embeddings.weight.grad.clone()
    model.zero_grad()
    torch._dynamo.reset()
    model = classifier(dtype=torch.float32, num_hidden_layers=1)
    with attach_states(model, PersistentEntropy(3.0)):
        loss = model(**inputs).loss
        loss.backward()
    assert found.item() == pytest.approx(loss.item(), rel=1e-5)
    assert torch.allclose(grad, model.base_model.embeddings.word_embeddings.weight.grad, atol=1e-6)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing.*:FutureWarning")
def test_adapters_are_looked_into() -> None:
    peft = pytest.importorskip("peft", reason="peft is not installed")
    model, inputs, kept = classifier(), batch(8), Kept()
    adapted = peft.get_peft_model(model, peft.LoraConfig(task_type="SEQ_CLS", target_modules=["query"], r=2))
    with attach_states(adapted, kept) as attached:
        adapted(**inputs).loss.backward()
        attached.step()
    assert kept.points.shape == (8, 32)
