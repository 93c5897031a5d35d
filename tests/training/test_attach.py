"""What stays as it was under an attached loss, what is added, and what is refused."""

import copy
import functools
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import uncone
from uncone import CrossEntropyOptions, InputError, RareTokenGate, UnsupportedModel
from uncone.training.attach import _check_gate
from uncone.training.heads import refuse_patched

from .models import D, V, batch, build, gpt2
from .test_architectures import largest, loss_and_gradients

Tensor = torch.Tensor
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(params=["GPT2LMHeadModel", "MarianMTModel"])
def model(request: pytest.FixtureRequest) -> Any:
    return build(request.param)


def test_evaluation_generation_and_files_are_as_before(model: Any, tmp_path: Path) -> None:
    inputs = batch()
    model.eval()
    before, written = model(**inputs), model.generate(inputs["input_ids"], max_new_tokens=4, do_sample=False)
    model.train()
    model.save_pretrained(tmp_path / "before")
    with uncone.attach(model, gate=RareTokenGate(V)):
        model(**inputs).loss.backward()
        model.eval()
        after = model(**inputs)
        assert torch.equal(after.loss, before.loss)
        assert torch.equal(after.logits, before.logits)
        assert torch.equal(model.generate(inputs["input_ids"], max_new_tokens=4, do_sample=False), written)
        model.save_pretrained(tmp_path / "after")
    for file in (tmp_path / "before").iterdir():
        assert file.read_bytes() == (tmp_path / "after" / file.name).read_bytes()


def test_detaching_leaves_nothing(model: Any) -> None:
    keys = list(model.state_dict())
    forward, head_forward = model.forward, model.get_output_embeddings().forward
    with uncone.attach(model) as attached:
        assert list(model.state_dict()) == keys
        attached.detach()
    assert "forward" not in model.__dict__
    assert "forward" not in attached.head.__dict__
    with pytest.raises(UnsupportedModel, match="got a detached one: attach again"):
        attached.check()
    assert (model.forward, attached.head.forward) == (forward, head_forward)


def test_probing_disturbs_neither_random_numbers_nor_modes() -> None:
    model = gpt2()
    model.transformer.h[0].eval()
    state, modes = torch.random.get_rng_state(), [m.training for m in model.modules()]
    uncone.attach(model).detach()
    assert torch.equal(torch.random.get_rng_state(), state)
    assert [m.training for m in model.modules()] == modes
    assert all(p.grad is None for p in model.parameters())


def test_gradient_checkpointing(model: Any) -> None:
    loss, known = loss_and_gradients(model, batch())
    model.gradient_checkpointing_enable({"use_reentrant": False})
    gate = RareTokenGate(V)
    with uncone.attach(model) as attached:
        again, found = loss_and_gradients(model, batch())
        attached.gate = gate
        model(**batch()).loss.backward()
    assert float(again) == pytest.approx(float(loss), rel=1e-6)
    assert largest(found, known) < 1e-6
    targets = attached.head_map.align(batch()["labels"], -100) != -100
    assert int(gate._current.sum()) == int(targets.sum()), "counted once"


def test_the_gate_counts_aligned_targets_of_training_alone() -> None:
    model, inputs, gate = gpt2(), batch(), RareTokenGate(V)
    with uncone.attach(model, gate=gate):
        model.eval()
        model(**inputs)
        with torch.no_grad():
            model.train()(**inputs)
        assert not gate._current.any()
        model(**inputs)
    targets = inputs["labels"][:, 1:]
    assert torch.equal(gate._current, torch.bincount(targets[targets != -100], minlength=V))


@pytest.mark.parametrize("ends", [[2], [2, 7]])
def test_special_ids_of_the_config_are_never_rare(ends: list[int]) -> None:
    model, gate = gpt2(), RareTokenGate(V, rare_share=1.0)
    model.config.eos_token_id = ends if len(ends) > 1 else ends[0]
    with uncone.attach(model, gate=gate) as attached:
        model(**batch()).loss.backward()
        attached.step()
    assert gate.gates()[0].sum() == V - 1 - len(ends)
    assert not gate.gates()[0][[1, *ends]].any()


def test_micro_batches_with_the_number_of_all_their_targets_are_one_batch() -> None:
    model, whole = gpt2(), batch(rows=4)
    parts = [{k: v[i : i + 2] for k, v in whole.items()} for i in (0, 2)]
    items = int((whole["labels"][:, 1:] != -100).sum())

    def penalty(weight: Tensor) -> Tensor:
        return weight.square().mean()

    with uncone.attach(model, penalties=[penalty]) as attached:
        loss, known = loss_and_gradients(model, whole)
        assert float(attached.penalty) == pytest.approx(float(penalty(attached.head.weight)))
        assert float(attached.nll + attached.penalty) == pytest.approx(float(loss))
        model.zero_grad()
        losses = []
        for part in parts:
            losses.append(model(**part, num_items_in_batch=items).loss)
            losses[-1].backward()
            assert float(attached.penalty) == pytest.approx(float(penalty(attached.head.weight)))
    assert float(sum(losses)) == pytest.approx(float(loss))
    assert largest({name: p.grad for name, p in model.named_parameters()}, known) < 1e-9


@pytest.mark.parametrize("options", [{}, {"reduction": "sum"}, {"reduction": "none"}], ids=str)
@pytest.mark.parametrize("items", [None, 200, torch.tensor(7), torch.tensor([9.0])], ids=str)
def test_nll_is_that_of_the_models_own_loss_however_the_loss_is_divided(options: Any, items: Any) -> None:
    model, inputs = gpt2(), batch()
    known = float(model(**inputs).loss)
    told = {} if items is None or options else {"num_items_in_batch": items}
    with uncone.attach(model, options=CrossEntropyOptions(**options)) as attached:
        model(**inputs, **told)
        assert attached.nll.shape == ()
        assert not attached.nll.requires_grad
        assert float(attached.nll) == pytest.approx(known, rel=1e-7)  # a float32
        model(**inputs | {"labels": torch.full_like(inputs["labels"], -100)}, **told)
        assert float(attached.nll) == 0


def test_tuples_and_arguments_by_position() -> None:
    model, inputs = gpt2(), batch()
    ids, mask, labels = inputs.values()
    with uncone.attach(model):
        named = model(**inputs)
        loss, logits, *_ = model(ids, attention_mask=mask, labels=labels, return_dict=False)
    assert float(loss) == float(named.loss)
    assert not hasattr(logits, "shape")
    with pytest.raises(UnsupportedModel, match="expected no code that reads a training step's logits"):
        named.logits.argmax(-1)


def test_labels_that_are_shifted_already() -> None:
    model, inputs = gpt2(), batch()
    with uncone.attach(model) as attached:
        loss = model(**inputs).loss
        shifted = attached.head_map.align(inputs["labels"], -100)
        assert float(model(**inputs, shift_labels=shifted).loss) == float(loss)


def test_a_copy_of_the_model_is_attached_by_itself() -> None:
    model, inputs = gpt2(), batch()
    with uncone.attach(model, gate=RareTokenGate(V)):
        twin = copy.deepcopy(model)
        with torch.no_grad():
            for p in twin.parameters():
                p.zero_()
        assert float(twin(**inputs).loss) == pytest.approx(torch.log(torch.tensor(V)).item())
        assert float(model(**inputs).loss) != pytest.approx(torch.log(torch.tensor(V)).item(), abs=1e-3)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_models_are_measured_exactly(dtype: torch.dtype) -> None:
    model = build("CohereForCausalLM", dtype=dtype)
    loss = float(model(**batch()).loss)
    with uncone.attach(model) as attached:
        assert attached.head_map.scale == 0.0625
        assert attached.head_map.shift
        again = model(**batch()).loss
        again.backward()
    assert float(again) == pytest.approx(loss, rel=0.02)
    assert model.lm_head.weight.grad.dtype == dtype


def test_under_autocast() -> None:
    model = gpt2(dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        loss, known = loss_and_gradients(model, batch())
        with uncone.attach(model, gate=None):
            again, found = loss_and_gradients(model, batch())
    assert float(again) == pytest.approx(float(loss), rel=1e-2)
    assert largest(found, known) < 0.05


@pytest.mark.slow
def test_under_a_compiler() -> None:
    model, gate = gpt2(dtype=torch.float32, n_layer=1), RareTokenGate(V)
    loss, known = loss_and_gradients(model, batch())
    compiled = torch.compile(model)
    with uncone.attach(compiled) as attached:
        attached.gate = gate
        model.zero_grad()
        again = compiled(**batch()).loss
        again.backward()
        assert gate._current.any()
        found = {name: p.grad.clone() for name, p in model.named_parameters()}
        compiled(**batch(1)).loss.backward()
    assert float(again) == pytest.approx(float(loss), rel=1e-5)
    assert largest(found, known) < 1e-5


def test_a_step_without_a_loss_is_named() -> None:
    model = gpt2()
    with uncone.attach(model, gate=RareTokenGate(V)) as attached:
        model(**batch())
        attached.step()
        with pytest.raises(UnsupportedModel, match="expected at least one training loss in this step, got none"):
            attached.step()


def test_a_head_that_was_replaced_is_named() -> None:
    model = build("LlamaForCausalLM")
    with uncone.attach(model):
        model.lm_head = torch.nn.Linear(D, V, bias=False, dtype=torch.float64)
        with pytest.raises(UnsupportedModel, match="expected the model to use the head that it had when attached"):
            model(**batch())


def test_fewer_states_than_labels_are_named() -> None:
    model = build("LlamaForCausalLM")
    said = "hidden state for each of 36 labels, got 3 at the head: leave logits_to_keep"
    with uncone.attach(model), pytest.raises(InputError, match=said):
        model(**batch(), logits_to_keep=1)


def test_a_forward_that_failed_is_counted_once() -> None:
    model, gate = gpt2(), RareTokenGate(V)
    with uncone.attach(model, gate=gate) as attached:
        hook = model.transformer.ln_f.register_forward_hook(lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            model(**batch())
        hook.remove()
        assert attached._targets is None
        model(**batch())
    assert int(gate._current.sum()) == int((batch()["labels"][:, 1:] != -100).sum())


def test_a_loss_that_changed_since_is_refused() -> None:
    mixtral = build("MixtralForCausalLM")
    with uncone.attach(mixtral) as attached:
        with pytest.raises(UnsupportedModel, match="expected the cross-entropy as the only loss, got aux_loss as well"):
            mixtral(**batch(), output_router_logits=True)
        assert attached._loss is None
        with pytest.raises(InputError, match="expected no ignore_index in a call to the model, got 3"):
            mixtral(**batch(), ignore_index=3)
        mixtral.loss_function = lambda *args, **kwargs: torch.zeros(())
        said = "expected the loss function that the model had when attached, got another: set the loss function first"
        with pytest.raises(UnsupportedModel, match=said):
            mixtral(**batch())


def test_a_step_without_targets_is_nothing_but_its_penalty() -> None:
    model, inputs = gpt2(), batch()
    inputs["labels"][:] = -100
    with uncone.attach(model, penalties=[lambda w: w.square().mean()]):
        assert float(model(**inputs, num_items_in_batch=0).loss) == 0
        with pytest.raises(InputError, match="expected num_items of at least 0, got nan"):
            model(**inputs, num_items_in_batch=torch.tensor(torch.nan))
        assert float(model(**inputs).loss) > 0
    with pytest.raises(InputError, match="expected a reduced loss with penalties, got 'none'"):
        uncone.attach(model, penalties=[torch.sum], options=CrossEntropyOptions(reduction="none"))


def test_scaled_losses_are_gated_alike() -> None:
    """What a GradScaler does commutes with the gate."""
    model, gate = gpt2(), RareTokenGate(V, rare_share=0.5)
    with uncone.attach(model, gate=gate) as attached:
        model(**batch()).loss.backward()
        attached.step()
        _, once = loss_and_gradients(model, batch())
        model.zero_grad()
        (model(**batch()).loss * 2.0**16).backward()
    assert largest({n: p.grad / 2.0**16 for n, p in model.named_parameters() if p.grad is not None}, once) < 1e-15


def test_a_wrapped_forward_is_still_ours_and_detaches() -> None:
    """accelerate wraps the forward for mixed precision, and keeps what it wrapped."""
    model = gpt2()
    attached = uncone.attach(model)
    ours = model.forward

    @functools.wraps(ours)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return ours(*args, **kwargs)

    model.forward = wrapped
    attached.check()
    attached.detach()
    out = model(**batch())
    assert out.logits.shape == (3, 12, V)
    out.loss.backward()


# PEFT


def peft(model: Any, **options: Any) -> Any:
    peft = pytest.importorskip("peft")
    return peft.get_peft_model(model, peft.LoraConfig(r=2, **options))


def test_an_adapter_with_a_head_that_trains() -> None:
    model = peft(build("LlamaForCausalLM"), target_modules=["q_proj"], modules_to_save=["lm_head"]).train()
    loss, known = loss_and_gradients(model, batch())
    with uncone.attach(model, gate=RareTokenGate(V)):
        again, found = loss_and_gradients(model, batch())
    assert float(again) == pytest.approx(float(loss), rel=1e-6)
    assert any("lm_head" in name for name in found)
    assert largest(found, known) < 1e-6


@pytest.mark.parametrize("name", ["LlamaForCausalLM", "Qwen2ForCausalLM"])
@pytest.mark.parametrize(
    ("options", "refused"),
    [
        ({"target_modules": ["q_proj"]}, "got a frozen one .no gradient.: give the adapter's config "),
        (
            {"target_modules": ["lm_head"]},
            "a head that is a matrix, got an adapter on it .Linear.: leave the head out of ",
        ),
    ],
)
def test_the_options_that_an_adapter_is_offered_gate_its_head(name: str, options: dict[str, Any], refused: str) -> None:
    with pytest.raises(UnsupportedModel, match=refused) as error:
        uncone.attach(peft(build(name), **options), gate=RareTokenGate(V))
    offered = re.search(r"modules_to_save=.*?(?=, or attach without| trains it whole)", str(error.value))
    is_tied = name == "Qwen2ForCausalLM"
    assert ("ensure_weight_tying=True" in offered[0]) is is_tied
    model = peft(build(name), target_modules=["q_proj"], **eval(f"dict({offered[0]})")).train()
    with uncone.attach(model, gate=RareTokenGate(V)) as attached:
        model(**batch()).loss.backward()
        assert attached.head.weight.grad.any()
        assert (attached.head.weight is model.get_input_embeddings().weight) is is_tied


def test_a_frozen_head_without_an_adapter_and_one_of_a_loaded_adapter(tmp_path: Path) -> None:
    model = build("LlamaForCausalLM")
    model.lm_head.requires_grad_(False)
    said = r"frozen .*: unfreeze it \(model\.get_output_embeddings\(\)\.requires_grad_\(True\)\), or attach without"
    for asked in ({"gate": RareTokenGate(V)}, {"penalties": [torch.linalg.norm]}):
        with pytest.raises(UnsupportedModel, match=said):
            uncone.attach(model, **asked)
    with uncone.attach(model):
        assert model(**batch()).loss.requires_grad
    peft(build("LlamaForCausalLM"), target_modules=["q_proj"], modules_to_save=["lm_head"]).save_pretrained(tmp_path)
    loaded = pytest.importorskip("peft").PeftModel.from_pretrained(build("LlamaForCausalLM"), tmp_path)
    with pytest.raises(UnsupportedModel, match=r"frozen .*: load the adapter with is_trainable=True, or"):
        uncone.attach(loaded, gate=RareTokenGate(V))


def test_an_adapter_that_copies_the_head_later_is_refused() -> None:
    model = build("LlamaForCausalLM")
    with uncone.attach(model):
        copied = peft(model, target_modules=["q_proj"], modules_to_save=["lm_head"]).train()
        with pytest.raises(UnsupportedModel, match="expected the model to use the head that it had when attached"):
            copied(**batch())


# Refusals


class Strange(torch.nn.Module):
    """A GPT-2 whose logits pass through a function of somebody's own."""

    def __init__(self, change: Any) -> None:
        super().__init__()
        self.inner, self.change = gpt2(dtype=torch.float32), change
        self.config = self.inner.config

    def get_output_embeddings(self) -> Any:
        return self.inner.lm_head

    def get_input_embeddings(self) -> Any:
        return self.inner.transformer.wte

    def forward(self, input_ids: Any, attention_mask: Any = None, labels: Any = None, return_dict: Any = None) -> Any:
        out = self.inner(input_ids=input_ids, attention_mask=attention_mask)
        out.logits = self.change(out.logits)
        if labels is not None:
            out.loss = self.inner.loss_function(out.logits, labels, vocab_size=V)
        return out


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda z: z + 0.1 * z.sin(), "expected logits of the form cap tanh"),
        (lambda z: z.flip(-1), "expected logits of the form cap tanh"),
        (lambda z: z.softmax(-1), "expected logits"),
        (lambda z: z * torch.linspace(1, 2, V), "expected logits of the form cap tanh"),
        (lambda z: z[..., :-1], "1746 logits, got 1 and shape"),
    ],
)
def test_other_maps_than_the_known_one_are_refused(change: Any, message: str) -> None:
    with pytest.raises(UnsupportedModel, match=message):
        uncone.attach(Strange(change))


def test_known_maps_are_measured_under_any_name() -> None:
    bias = torch.randn(V, generator=torch.Generator().manual_seed(0))
    found = uncone.attach(Strange(lambda z: 7 * torch.tanh((-0.3 * z + bias) / 7))).head_map
    assert (found.scale, found.cap) == (pytest.approx(-0.3, rel=1e-4), pytest.approx(7.0, rel=1e-5))
    assert torch.allclose(found.bias, bias, atol=1e-4)


def test_a_scaled_bias_of_the_heads_own_is_in_the_loss() -> None:
    strange = Strange(lambda z: -0.3 * z)
    strange.inner.lm_head.bias = torch.nn.Parameter(torch.randn(V, generator=torch.Generator().manual_seed(0)))
    loss = float(strange(**batch()).loss)
    with uncone.attach(strange):
        assert float(strange(**batch()).loss) == pytest.approx(loss, rel=1e-4)


def test_a_parameter_behind_the_head_is_refused() -> None:
    strange = Strange(None)
    strange.scale = torch.nn.Parameter(torch.ones(V))
    strange.change = lambda z: z * strange.scale
    with pytest.raises(UnsupportedModel, match="got a trainable parameter between it and the logits"):
        uncone.attach(strange)


def test_a_loss_with_something_added_is_refused() -> None:
    mixtral = build("MixtralForCausalLM", output_router_logits=True, router_aux_loss_coef=0.5)
    said = "expected the model's own loss on a probe batch to be the cross-entropy of its logits"
    with pytest.raises(UnsupportedModel, match=said):
        uncone.attach(mixtral)


def test_models_that_cannot_be_gated_are_refused() -> None:
    import transformers

    with pytest.raises(UnsupportedModel, match="expected a transformers model with an output head, got Linear"):
        uncone.attach(torch.nn.Linear(2, 2))
    config = transformers.BertConfig(vocab_size=V, hidden_size=D, num_hidden_layers=1, num_attention_heads=4)
    with pytest.raises(UnsupportedModel, match="expected an output head, got none in BertModel"):
        uncone.attach(transformers.BertModel(config))
    quantised = build("LlamaForCausalLM")
    quantised.lm_head.weight = torch.nn.Parameter(torch.zeros(V, D, dtype=torch.int8), requires_grad=False)
    with pytest.raises(UnsupportedModel, match=r"expected a head in floating point, got Linear of torch.int8"):
        uncone.attach(quantised)
    odd = build("LlamaForCausalLM")
    odd.lm_head = torch.nn.Bilinear(D, D, V)
    with pytest.raises(UnsupportedModel, match=r"expected a torch\.nn\.Linear head, got Bilinear"):
        uncone.attach(odd)


def test_a_second_hand_on_the_model_is_refused() -> None:
    model = gpt2()
    said = "expected an unattached model, got an attached one"
    with uncone.attach(model), pytest.raises(UnsupportedModel, match=said):
        uncone.attach(model)

    def lce_forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        return type(self).forward(self, *args, **kwargs)

    lce_forward.__module__ = "liger_kernel.transformers.model.gpt2"
    model.forward = lce_forward.__get__(model)
    refuse_patched(model, "wrap:liger")
    with pytest.raises(UnsupportedModel, match="expected the model's own forward, got Liger's"):
        uncone.attach(model)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"gate": RareTokenGate(V + 1)}, "expected a gate for the head's 97 rows, got 98"),
        ({"gate": RareTokenGate(V, ignore_index=3)}, "expected one ignore_index, got 3 .gate. and -100 .options."),
        ({"options": CrossEntropyOptions(softcap=3.0)}, "expected options without softcap and logit_scale, got 3.0"),
        ({"options": CrossEntropyOptions(num_items=3)}, "expected options without num_items"),
        ({"options": CrossEntropyOptions(ignore_index=None)}, "expected an ignore_index, got None: use -100"),
    ],
)
def test_arguments_that_contradict_the_model_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=r"expected a gate with gates.., got object"):
        _check_gate(object(), torch.nn.Linear(2, 2), None, -100)
    with pytest.raises(InputError, match=message):
        uncone.attach(gpt2(), **arguments)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        (
            {"label_smoothing_factor": 0.1},
            "label_smoothing_factor 0, got 0.1: .*CrossEntropyOptions.label_smoothing=0.1",
        ),
        ({"use_liger_kernel": True}, "expected use_liger_kernel=False, got True"),
        ({"n_gpu": 2}, "expected one device per process, got 2: DataParallel"),
    ],
)
def test_settings_of_a_trainer_that_go_around_the_head_are_refused(setting: dict[str, Any], message: str) -> None:
    args = SimpleNamespace(**({"label_smoothing_factor": 0.0, "use_liger_kernel": False, "n_gpu": 0} | setting))
    attached = uncone.attach(gpt2())
    with pytest.raises(UnsupportedModel, match=message):
        attached.callback.on_train_begin(args, SimpleNamespace(global_step=0), None)


def test_a_forward_that_was_patched_over_is_refused() -> None:
    model = gpt2()
    attached = uncone.attach(model)
    model.forward = type(model).forward.__get__(model)
    with pytest.raises(UnsupportedModel, match="expected the attached forward of GPT2LMHeadModel, got another"):
        attached.callback.on_train_begin(SimpleNamespace(), SimpleNamespace(global_step=0), None)
