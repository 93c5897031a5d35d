"""The handle of a penalty on states: what a monitor reads, its steps, what is copied or saved, and what is refused."""

import copy
import inspect
import json
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch

from uncone import InputError, Monitor, PersistentEntropy, UnsupportedModel
from uncone.training.attach_states import attach_states
from uncone.training.cloud import anisotropy_scores

from .classifiers import Kept, batch, classifier
from .models import batch as tokens
from .models import build

Tensor = torch.Tensor
pytestmark = pytest.mark.filterwarnings("ignore:.*lock_unlock.*")


def test_a_monitor_reads_the_training_states(tmp_path: Path) -> None:
    model, kept = classifier(), Kept()
    with attach_states(model, kept) as attached, Monitor(tmp_path / "run", model, 2) as monitor:
        for step in range(5):
            model(**batch(20, seed=step))
            model(**batch(20, seed=step))
            if step == 0:
                expected = anisotropy_scores(kept.points, kept.labels)
            attached.step()
            monitor.step()
            if step == 0:
                first = dict(monitor.last)
        assert attached.steps == 5
    assert [first[f"states.raw_{i}"] for i in (1, 2, 3)] == pytest.approx(list(expected.raw))
    assert first["states.n"] == 20
    lines = [json.loads(line) for line in (tmp_path / "run").read_text().splitlines()[1:]]
    assert [line["step"] for line in lines] == [1, 2, 4, 5]


def test_states_alone_change_no_loss() -> None:
    model, inputs = classifier(), batch()
    plain = model(**inputs).loss
    with attach_states(model) as attached, Monitor(None, model) as monitor:
        assert torch.equal(model(**inputs).loss, plain)
        attached.step()
        monitor.step()
        assert attached.value is None
    assert monitor.last["states.n"] == len(inputs["labels"])


def test_a_step_without_states_is_an_error() -> None:
    model, inputs = classifier(), batch()
    with attach_states(model, Kept()) as attached:
        model(input_ids=inputs["input_ids"])
        said = "expected at least one cloud of states in this step, got none: pass labels"
        with pytest.raises(UnsupportedModel, match=said):
            attached.step()
    with attach_states(model.base_model, Kept()) as attached:
        model.base_model(input_ids=inputs["input_ids"])
        with pytest.raises(UnsupportedModel, match=r"got none: call penalty\(\) before"):
            attached.step()


def test_a_penalty_that_fails_counts_as_none() -> None:
    def fails(points: Tensor, labels: Tensor | None) -> Tensor:
        raise ArithmeticError

    model, inputs = classifier(), batch()
    plain = model(**inputs).loss
    with attach_states(model, fails) as attached:
        with pytest.raises(ArithmeticError):
            model(**inputs)
        with pytest.raises(UnsupportedModel, match="expected at least one cloud"):
            attached.step()
    with pytest.raises(ArithmeticError), attach_states(model, fails):
        model(**inputs)
    assert torch.equal(model(**inputs).loss, plain)
    assert not any("forward" in module.__dict__ for module in (model, model.base_model))


def test_states_of_a_step_that_is_over_do_not_come_back() -> None:
    model, inputs, kept = classifier().base_model, batch(12), Kept()
    del inputs["labels"]
    with attach_states(model, kept) as attached:
        model(**inputs)
        attached.penalty()
        model(**inputs)  # nobody asks for these
        attached.step()
        model(**inputs)
        attached.penalty()
    assert len(kept.points) == 12


@pytest.mark.parametrize("asked", [False, True])
def test_a_forward_that_is_run_again_for_its_gradient_counts_once(asked: bool) -> None:
    """As torch.utils.checkpoint does around a whole model, to save its activations."""
    from torch.utils.checkpoint import checkpoint

    def loss_of(again: bool) -> tuple[list[int], Tensor]:
        model, inputs, sizes = classifier(), batch(12), []
        run = (lambda **inputs: checkpoint(model, use_reentrant=False, **inputs)) if again else model
        with attach_states(model, PersistentEntropy(3.0), add_to_loss=not asked) as attached:
            for rows in (slice(0, 6), slice(6, 12)):
                loss = run(**{k: v[rows] for k, v in inputs.items()}).loss
                sizes.append(len(torch.cat(attached._kept)) if asked else 0)
                (loss + attached.penalty() if asked else loss).backward()
            attached.step()
        grad: Tensor = model.base_model.embeddings.word_embeddings.weight.grad
        return sizes, grad

    (found, again), (wanted, once) = loss_of(True), loss_of(False)
    assert found == wanted
    assert torch.allclose(again, once, rtol=1e-9, atol=1e-15)


def test_generation_keeps_no_states() -> None:
    model = build("GPT2LMHeadModel")
    with attach_states(model, Kept(), add_to_loss=False) as attached:
        model.generate(torch.tensor([[5, 6, 7]]), max_new_tokens=3, do_sample=False, pad_token_id=0)
        assert model.training
        assert not attached._kept


def test_an_attached_model_is_copied_and_saved_and_a_detached_one_pickled(tmp_path: Path) -> None:
    model, inputs = classifier(dtype=torch.float32), batch(12)
    plain = model(**inputs).loss
    with attach_states(model, PersistentEntropy()) as attached:
        wanted = model(**inputs).loss
        assert torch.equal(copy.deepcopy(model)(**inputs).loss, wanted)
        assert attached._taken == 1, "a copy has a state of its own"
        model.save_pretrained(tmp_path)
    assert torch.equal(type(model).from_pretrained(tmp_path)(**inputs).loss, plain)
    assert torch.equal(pickle.loads(pickle.dumps(model))(**inputs).loss, plain)


def test_a_forward_patched_over_is_noticed() -> None:
    model = classifier()
    attached = attach_states(model, Kept())
    model.forward = lambda **inputs: None
    said = "expected the attached forward of BertForSequenceClassification, got another"
    with pytest.raises(UnsupportedModel, match=said):
        attached.check()


@pytest.mark.parametrize(("layer", "got"), [(3, "3"), (-4, "-4"), (1.0, r"1\.0"), (True, "True"), ("last", "'last'")])
def test_layers_that_there_are_not_are_refused(layer: Any, got: str) -> None:
    with pytest.raises(InputError, match=rf"expected layer 0 \(embeddings\) to 2, or -3 to -1, got {got}"):
        inspect.unwrap(attach_states)(classifier(), Kept(), layer=layer)  # as without the tests' own checks of types


def test_models_without_states_of_one_stack_are_refused() -> None:
    import transformers

    with pytest.raises(UnsupportedModel, match="expected a transformers model, got Linear"):
        attach_states(torch.nn.Linear(2, 2), Kept())
    of_images = transformers.ViTModel(transformers.ViTConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=1))
    with pytest.raises(
        UnsupportedModel, match="expected a model that reads token ids, got ViTModel without a token table"
    ):
        attach_states(of_images, Kept())
    t5 = build("T5ForConditionalGeneration")
    said = r"with a single stack, got T5ForConditionalGeneration .* pass its get_encoder\(\)"
    with pytest.raises(UnsupportedModel, match=said):
        attach_states(t5, Kept())
    kept = Kept()
    with attach_states(t5.get_encoder(), kept, pooling="mean") as attached:
        t5(**tokens(rows=6))
        attached.penalty()
        attached.step()
    assert kept.points.shape == (6, 32)
    with pytest.raises(InputError, match="expected add_to_loss False with BertModel, got True"):
        attach_states(classifier().base_model, Kept(), add_to_loss=True)


@pytest.mark.parametrize(
    ("penalty", "changed", "said"),
    [
        (lambda points, labels: points.sum(1), {}, "expected a scalar"),
        (lambda points, labels: 1.0, {}, "scalar tensor from penalty, got float"),
        (Kept(), {"attention_mask": torch.ones(8, 1, 10, 10).bool()}, r"expected an attention_mask of shape \(8, 10\)"),
    ],
)
def test_penalties_that_are_no_number_and_what_is_no_mask_are_refused(penalty: Any, changed: Any, said: str) -> None:
    model, inputs = classifier(), batch(8)
    with attach_states(model, penalty), pytest.raises(InputError, match=said):
        model(**inputs | changed)
