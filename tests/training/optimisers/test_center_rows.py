"""`CenterRows`: probabilities stay, the mean row goes, two passes; what it refuses; in a loop and in a Trainer."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from uncone import CenterRows, UnsupportedModel, with_table_adam
from uncone.training.optimisers import rows

from ..models import V, batch, build, untied
from ..test_trainer import losses, stock

Tensor = torch.Tensor
MODELS = ("GPT2LMHeadModel", "LlamaForCausalLM", "T5ForConditionalGeneration", "CohereForCausalLM")


def log_probabilities(model: Any) -> Tensor:
    with torch.no_grad():
        return torch.log_softmax(model(**batch()).logits.double(), dim=-1)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("name", MODELS)
def test_probabilities_stay_and_the_mean_row_goes(name: str, dtype: Any) -> None:
    model = untied(name, dtype=dtype)
    head = model.get_output_embeddings()
    with torch.no_grad():
        head.weight += 3 * head.weight.std()
    before, rows_before = log_probabilities(model), head.weight.detach().double().clone()
    table = model.get_input_embeddings().weight.detach().clone()
    centering = CenterRows(model)
    centering.step()
    mean = rows_before.numpy().sum(0) / V
    near = 1e-10 if dtype == torch.float64 else 1e-4
    assert centering.mean is not None
    assert np.allclose(centering.mean, mean, atol=near)
    assert torch.allclose(head.weight.double(), rows_before - torch.from_numpy(mean), atol=near)
    assert float((log_probabilities(model) - before).abs().max()) < near
    assert torch.equal(model.get_input_embeddings().weight, table)
    again = head.weight.detach().clone()
    centering.step()
    assert torch.allclose(head.weight, again, atol=1e-6)


def test_a_bias_of_the_head_changes_nothing_about_it() -> None:
    model = untied("GPT2LMHeadModel")
    model.lm_head.bias = torch.nn.Parameter(torch.randn(V, dtype=torch.float64))
    with torch.no_grad():
        model.lm_head.weight += 1
    before, bias = log_probabilities(model), model.lm_head.bias.detach().clone()
    CenterRows(model).step()
    assert float((log_probabilities(model) - before).abs().max()) < 1e-10
    assert torch.equal(model.lm_head.bias, bias)


@given(seed=st.integers(0, 99), block=st.integers(1, 700))
def test_the_blocks_do_not_matter(seed: int, block: int) -> None:
    x = torch.randn(31, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows, "_IN_CACHE", block)
        assert torch.allclose(rows.column_sums(x), x.sum(0), rtol=1e-12, atol=1e-12)
        of_rows, of_columns = rows.square_sums(x, by_row=True, by_column=True)
        assert of_rows is not None
        assert of_columns is not None
        assert torch.allclose(of_rows, x.square().sum(1), rtol=1e-12)
        assert torch.allclose(of_columns, x.square().sum(0), rtol=1e-12)


class _Passes(TorchDispatchMode):
    """Numbers of `table` that operations take or write, in tables; views and shapes are free."""

    def __init__(self, table: Tensor) -> None:
        super().__init__()
        self.numbers, self._table = 0.0, table

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = function(*args, **(kwargs or {}))
        of = self._table.untyped_storage().data_ptr()
        taken = [one for one in args if isinstance(one, Tensor) and one.untyped_storage().data_ptr() == of]
        takes_none = function.is_view or "new_empty" in str(function)
        self.numbers += 0 if takes_none else sum(one.numel() for one in taken) / self._table.numel()
        return found


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_step_passes_over_the_head_twice(dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "_IN_CACHE", 100)
    model = untied("LlamaForCausalLM", dtype=torch.float32).to(dtype)
    centering = CenterRows(model)
    with _Passes(model.lm_head.weight) as passes:
        centering.step()
    writes = 1 if dtype == torch.bfloat16 else 0  # of the blocks that the second pass has just read
    assert passes.numbers == pytest.approx(2 + writes)


def test_bfloat16_is_rounded_once() -> None:
    model = untied("LlamaForCausalLM", dtype=torch.float32).to(torch.bfloat16)
    before = model.lm_head.weight.detach().clone()
    CenterRows(model).step()
    assert torch.equal(model.lm_head.weight, (before.float() - before.float().mean(0)).bfloat16())


def test_a_tied_head_is_refused_unless_said() -> None:
    model = build("GPT2LMHeadModel")
    with pytest.raises(UnsupportedModel, match="expected a separate head, got one that is also the token table"):
        CenterRows(model)
    CenterRows(model, tied=True).step()
    assert float(model.transformer.wte.weight.mean(0).abs().max().detach()) < 1e-12


def test_capped_logits_are_refused_with_what_works_there() -> None:
    model = untied("Gemma2ForCausalLM")
    with pytest.raises(
        UnsupportedModel, match=r"got a cap of 2: under it the mean row changes .*second_moment='column'"
    ):
        CenterRows(model)
    with torch.no_grad():
        model.lm_head.weight += model.lm_head.weight.std()
    before = log_probabilities(model)
    with torch.no_grad():
        model.lm_head.weight -= model.lm_head.weight.mean(0)
    assert float((log_probabilities(model) - before).abs().max()) > 0.01, "it does change them"
    optimizer = with_table_adam(model, lr=1e-2)
    model(**batch()).loss.backward()
    optimizer.step()


def test_a_model_without_a_head_is_refused() -> None:
    with pytest.raises(UnsupportedModel, match="expected a transformers model with an output head"):
        CenterRows(torch.nn.Linear(3, 3))


@pytest.mark.parametrize("name", MODELS[:3])
def test_in_a_loop_the_loss_goes_down_and_the_mean_row_stays_at_0(name: str) -> None:
    model = untied(name, dtype=torch.float32, scale=1.0)
    optimizer, centering, first = torch.optim.AdamW(model.parameters(), 1e-2), CenterRows(model), 0.0
    for step in range(12):
        optimizer.zero_grad()
        loss = model(**batch()).loss
        first = first or float(loss.detach())
        loss.backward()
        optimizer.step()
        assert step == 0 or float(model.lm_head.weight.mean(0).abs().max().detach()) > 1e-4, "Adam moved it"
        centering.step()
        assert float(model.lm_head.weight.mean(0).abs().max().detach()) < 1e-6
    assert float(loss.detach()) < first - 0.5


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["GPT2LMHeadModel", "LlamaForCausalLM", "T5ForConditionalGeneration"])
def test_a_trainer_calls_it_after_its_optimiser(name: str, tmp_path: Path) -> None:
    import transformers

    model = untied(name, dtype=torch.float32, scale=1.0)
    centering, means = CenterRows(model), []

    class Look(transformers.TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, *args: Any, **kwargs: Any) -> None:
            assert centering.mean is not None
            means.append((float(model.lm_head.weight.mean(0).norm().detach()), float(centering.mean.norm())))

    run = stock(name, tmp_path, model=model, steps=6, more=(centering.callback, Look()), eval_strategy="no")
    run.train()
    assert len(means) == 6
    assert all(left < 1e-5 < 1e-3 < taken for left, taken in means[1:])
    assert losses(run)[-1] < losses(run)[0]


def test_deepspeed_is_refused() -> None:
    callback = CenterRows(untied("LlamaForCausalLM")).callback
    with pytest.raises(UnsupportedModel, match="got DeepSpeed's, which holds copies"):
        callback.on_train_begin(type("Arguments", (), {"deepspeed": "zero.json"})(), None, None)


def test_a_tied_and_capped_head_is_not_sent_in_a_circle() -> None:
    for tied in (False, True):
        with pytest.raises(UnsupportedModel, match="expected logits without a cap, got a cap of"):
            CenterRows(build("Gemma2ForCausalLM"), tied=tied)


def test_a_head_that_was_replaced_or_does_not_train_is_refused() -> None:
    model = untied("GPT2LMHeadModel")
    centering = CenterRows(model)
    model.resize_token_embeddings(V + 3)
    with pytest.raises(UnsupportedModel, match=r"got another: was it replaced .*Make CenterRows after that"):
        centering.step()
    model.lm_head.requires_grad_(False)
    with pytest.raises(UnsupportedModel, match="expected a head that trains, got a frozen one"):
        CenterRows(model)
