"""Which parameters are tables, and a joined optimiser in a loop, a Trainer, Lightning, Accelerate and a scaler."""

import copy
import io
import pickle
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

import uncone
from uncone import InputError, JoinedOptimizer, TableAdam, UnsupportedModel, table_parameters, with_table_adam

from ..models import D, V, batch, build, untied
from ..test_trainer import losses, stock

Tensor = torch.Tensor
ADAMW = partial(torch.optim.AdamW, lr=1e-2)
MUON = partial(torch.optim.Muon, lr=1e-2)
MODELS = {
    "GPT2LMHeadModel": ["transformer.wte.weight"],
    "LlamaForCausalLM": ["model.embed_tokens.weight", "lm_head.weight"],
    "T5ForConditionalGeneration": ["shared.weight"],
    "BertForMaskedLM": ["bert.embeddings.word_embeddings.weight"],
    "BartForConditionalGeneration": ["model.shared.weight"],
}


def small(name: str) -> Any:
    return build(name, dtype=torch.float32, scale=1.0)


def named(model: Any, parameters: Any) -> list[str]:
    known = {id(p): name for name, p in model.named_parameters()}
    return [known[id(p)] for p in parameters]


def sentence_transformer(folder: Path) -> Any:
    """Two layers of BERT and a mean, from files, as its users have it."""
    models = pytest.importorskip("sentence_transformers.models")
    transformers = pytest.importorskip("transformers")
    bert = small("BertForMaskedLM").bert
    bert.save_pretrained(folder)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{i}" for i in range(V - 5))]
    (folder / "vocab.txt").write_text("\n".join(words))
    transformers.BertTokenizer(str(folder / "vocab.txt")).save_pretrained(folder)
    import sentence_transformers

    return sentence_transformers.SentenceTransformer(
        modules=[(word := models.Transformer(str(folder))), models.Pooling(word.get_word_embedding_dimension())],
        device="cpu",
    )


@pytest.mark.parametrize("name", MODELS)
def test_tables_and_heads_are_found_once_and_nothing_is_lost(name: str) -> None:
    model = small(name)
    tables, others = table_parameters(model)
    assert named(model, tables) == MODELS[name]
    assert {id(p) for p in tables} | {id(p) for p in others} == {id(p) for p in model.parameters()}
    assert len(tables) + len(others) == len(list(model.parameters()))


def test_a_head_that_was_untied_is_a_table_of_its_own() -> None:
    model = untied("T5ForConditionalGeneration")
    assert named(model, table_parameters(model)[0]) == ["shared.weight", "lm_head.weight"]


def test_tables_are_found_inside_of_wrappers() -> None:
    model = small("LlamaForCausalLM")

    class Wrapped(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model, self.positions = model, torch.nn.Embedding(7, D)

    tables, others = table_parameters(Wrapped())
    assert named(model, tables) == MODELS["LlamaForCausalLM"]
    assert any(p.shape == (7, D) for p in others)


@pytest.mark.filterwarnings("ignore")
def test_the_table_of_a_sentence_transformer_is_found_and_trains(tmp_path: Path) -> None:
    model = sentence_transformer(tmp_path)
    tables, _ = table_parameters(model)
    assert [tuple(p.shape) for p in tables] == [(V, D)]
    before, optimizer = tables[0].detach().clone(), with_table_adam(model, ADAMW, lr=1e-2)
    model.train()
    for _ in range(3):
        out = model(model.tokenize(["w1 w2 w3", "w4 w5"]))["sentence_embedding"]
        optimizer.zero_grad()
        out.square().sum().backward()
        optimizer.step()
    assert float((tables[0] - before).abs().max().detach()) > 1e-3


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_trainer_of_a_sentence_transformer_takes_it(tmp_path: Path) -> None:
    import transformers

    model = sentence_transformer(tmp_path)

    class Contrast(transformers.Trainer):  # type: ignore[misc]
        """Two texts after each other are a pair."""

        def compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            states = torch.nn.functional.normalize(model(inputs)["sentence_embedding"], dim=1)
            scores = 20 * states[::2] @ states[1::2].T
            return torch.nn.functional.cross_entropy(scores, torch.arange(len(scores)))

    texts = [f"w{i} w{i + word} w{i + 2}" for i in range(60) for word in (1, 3)]
    data = [{name: value[0] for name, value in model.tokenize([text]).items()} for text in texts]
    arguments = transformers.TrainingArguments(
        str(tmp_path / "out"), max_steps=8, report_to=[], use_cpu=True, logging_steps=1, disable_tqdm=True, seed=1,
        remove_unused_columns=False, save_strategy="no",
    )  # fmt: skip
    table = table_parameters(model)[0][0]
    optimizer, before = with_table_adam(model, ADAMW, lr=1e-2), table.detach().clone()
    trainer = Contrast(model, arguments, train_dataset=data, optimizers=(optimizer, None))
    trainer.train()
    rates = [group["lr"] for group in optimizer.param_groups]
    assert rates == [0.0] * len(rates), "the Trainer's schedule ends there"
    assert int((table.detach() != before).any(1).sum()) >= 30


def test_it_goes_with_a_gate_and_a_centred_head() -> None:
    model = untied("LlamaForCausalLM", dtype=torch.float32, scale=1.0)
    optimizer = with_table_adam(model, ADAMW, lr=1e-2)
    with uncone.attach(model, gate=uncone.RareTokenGate(V)) as attached:
        centering = uncone.CenterRows(model)
        train(model, optimizer, 1)
        attached.step()
        centering.step()
        first = float(model(**batch()).loss.detach())
        for _ in range(10):
            optimizer.zero_grad()
            model(**batch()).loss.backward()
            optimizer.step()
            attached.step()
            centering.step()
        assert float(model(**batch()).loss.detach()) < first - 0.3
    assert float(model.lm_head.weight.mean(0).abs().max().detach()) < 1e-6


def test_a_frozen_table_and_a_model_without_one_are_refused() -> None:
    model = small("GPT2LMHeadModel")
    model.transformer.wte.requires_grad_(False)
    for one in (model, torch.nn.Linear(3, 2)):
        with pytest.raises(
            UnsupportedModel, match=r"expected a model with get_input_embeddings\(\) and a token table that"
        ):
            table_parameters(one)


class Plain(torch.nn.Module):
    """A model of PyTorch alone."""

    def __init__(self) -> None:
        super().__init__()
        self.emb, self.mid, self.out = torch.nn.Embedding(9, 4), torch.nn.Linear(4, 4), torch.nn.Linear(4, 9)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.out(self.mid(self.emb(ids)))  # type: ignore[no-any-return]


def test_a_plain_model_names_its_modules() -> None:
    model = Plain()
    tables, others = table_parameters(model, model.emb, model.out)
    assert named(model, tables) == ["emb.weight", "out.weight"]
    assert named(model, others) == ["mid.weight", "mid.bias", "out.bias"]
    optimizer = with_table_adam(model, ADAMW, lr=1e-2, modules=(model.emb, model.out))
    assert optimizer.param_groups[0]["params"] == tables
    for call in (
        lambda: table_parameters(model, model.emb.weight),
        lambda: uncone.Monitor(None, model, table=model.emb.weight),
        lambda: uncone.Monitor(None, model, head=torch.nn.LayerNorm(4)),
    ):
        with pytest.raises(InputError, match=r"expected a module with a weight \(V, D\) for .*give a module such as"):
            call()


@pytest.mark.filterwarnings("ignore")
def test_peft_trains_a_copy_of_the_head() -> None:
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(target_modules=["q_proj", "embed_tokens"], modules_to_save=["lm_head"])
    model = peft.get_peft_model(small("LlamaForCausalLM"), config)
    tables, others = table_parameters(model)
    assert [name.split(".")[-2:] for name in named(model, tables)] == [["default", "weight"]]
    assert all("lora" in name for name in named(model, others))


def train(model: Any, optimizer: Any, steps: int = 4, schedule: Any = None) -> dict[str, Tensor]:
    for step in range(steps):
        optimizer.zero_grad()
        model(**batch(step)).loss.backward()
        optimizer.step()
        if schedule is not None:
            schedule.step()
    return {name: p.detach().clone() for name, p in model.named_parameters()}


@pytest.mark.parametrize("name", ["GPT2LMHeadModel", "LlamaForCausalLM", "T5ForConditionalGeneration"])
@pytest.mark.parametrize("muon", [False, True], ids=["AdamW", "Muon"])
def test_joined_is_the_optimisers_one_after_another(name: str, muon: bool) -> None:
    joined = small(name)
    found = train(joined, with_table_adam(joined, ADAMW, matrices=MUON if muon else None, lr=1e-2, second_moment="row"))
    apart = small(name)
    tables, others = table_parameters(apart)
    several: list[Any] = [TableAdam(tables, "row", lr=1e-2), ADAMW([p for p in others if not muon or p.ndim != 2])]
    several += [MUON([p for p in others if p.ndim == 2])] if muon else []

    class InTurn:
        def zero_grad(self) -> None:
            for one in several:
                one.zero_grad()

        def step(self) -> None:
            for one in several:
                one.step()

    known = train(apart, InTurn())
    assert all(torch.equal(found[name], known[name]) for name in known)


def test_a_scheduler_moves_the_rate_of_every_group_and_survives_a_resume() -> None:
    model = small("GPT2LMHeadModel")
    optimizer = with_table_adam(model, ADAMW, matrices=MUON, lr=0.5)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda t: 1 / (1 + t))
    train(model, optimizer, 3, schedule)
    rates = [group["lr"] for one in optimizer.optimizers for group in one.param_groups]
    assert rates == pytest.approx([0.5 / 4, 1e-2 / 4, 1e-2 / 4])
    saved = io.BytesIO()
    torch.save((optimizer.state_dict(), model.state_dict(), schedule.state_dict()), saved)
    known = train(model, optimizer, 3, schedule)
    again = small("GPT2LMHeadModel")
    optimizer = with_table_adam(again, ADAMW, matrices=MUON, lr=0.5)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda t: 1 / (1 + t))
    saved.seek(0)
    of_optimizer, of_model, of_schedule = torch.load(saved, weights_only=True)
    again.load_state_dict(of_model)
    optimizer.load_state_dict(of_optimizer)
    schedule.load_state_dict(of_schedule)
    found = train(again, optimizer, 3, schedule)
    assert all(torch.equal(found[name], known[name]) for name in known)


def test_copies_and_pickles_hold_together() -> None:
    model = small("GPT2LMHeadModel")
    optimizer = with_table_adam(model, ADAMW)
    train(model, optimizer, 2)
    twin_model, twin = copy.deepcopy((model, optimizer))
    known, found = train(model, optimizer, 2), train(twin_model, twin, 2)
    assert all(torch.equal(found[name], known[name]) for name in known)
    assert pickle.loads(pickle.dumps(optimizer)).optimizers[0].param_groups[0]["second_moment"] == "column"


def test_what_cannot_be_joined_is_refused() -> None:
    table, vector = torch.zeros(4, 3, requires_grad=True), torch.zeros(3, requires_grad=True)
    adam = torch.optim.AdamW([vector])
    with pytest.raises(InputError, match="expected each parameter in one optimiser, got 1 repeated of 3"):
        JoinedOptimizer(TableAdam([table]), adam, torch.optim.SGD([vector]))
    with pytest.raises(InputError, match="expected optimisers that step once, got LBFGS"):
        JoinedOptimizer(torch.optim.LBFGS([vector]))
    joined = JoinedOptimizer(TableAdam([table]), adam)
    with pytest.raises(InputError, match="expected all groups before optimisers are joined"):
        joined.add_param_group({"params": [torch.zeros(2, requires_grad=True)]})
    with pytest.raises(InputError, match="expected a state of 2 groups, got 1"):
        joined.load_state_dict(adam.state_dict())
    other = JoinedOptimizer(TableAdam([table], "row"), adam)
    with pytest.raises(InputError, match="expected a state of second_moment"):
        joined.load_state_dict(other.state_dict())
    assert joined.step(lambda: 3.0) == 3.0


def test_a_gradient_scaler_and_one_cycle_take_it() -> None:
    model, scaler = small("GPT2LMHeadModel"), torch.amp.GradScaler("cpu")
    optimizer = with_table_adam(model, ADAMW)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=9)
    for step in range(3):
        optimizer.zero_grad()
        scaler.scale(model(**batch(step)).loss).backward()
        scaler.step(optimizer)
        scaler.update()
        schedule.step()
    assert all(bool(p.isfinite().all()) for p in model.parameters())
    assert all(float(state["step"]) == 3 for state in optimizer.state.values())


@pytest.mark.filterwarnings("ignore")
def test_accelerate_takes_it() -> None:
    accelerate = pytest.importorskip("accelerate")
    model, alone = small("GPT2LMHeadModel"), small("GPT2LMHeadModel")
    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2)
    prepared, optimizer = accelerator.prepare(model, with_table_adam(model, ADAMW))
    for step in range(4):
        with accelerator.accumulate(prepared):
            accelerator.backward(prepared(**batch(step)).loss)
            optimizer.step()
            optimizer.zero_grad()
    known = with_table_adam(alone, ADAMW)
    for step in range(4):
        (alone(**batch(step)).loss / 2).backward()
        if step % 2:
            known.step()
            known.zero_grad()
    for ours, theirs in zip(model.parameters(), alone.parameters(), strict=True):
        assert torch.allclose(ours, theirs, atol=1e-6)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["GPT2LMHeadModel", "LlamaForCausalLM", "T5ForConditionalGeneration"])
def test_a_trainer_learns_with_it_and_resumes(name: str, tmp_path: Path) -> None:
    def run(folder: str, steps: int) -> Any:
        trainer = stock(name, tmp_path / folder, steps=steps, lr_scheduler_type="constant", eval_strategy="no")
        trainer.optimizer = with_table_adam(trainer.model, ADAMW, lr=1e-2)
        return trainer

    whole = run("whole", 12)
    whole.train()
    assert losses(whole)[-1] < losses(whole)[0] - 0.5
    again = run("whole", 12)
    again.train(resume_from_checkpoint=str(tmp_path / "whole" / "checkpoint-8"))
    for ours, theirs in zip(whole.model.parameters(), again.model.parameters(), strict=True):
        assert torch.allclose(ours, theirs, atol=1e-6)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_lightning_takes_it(tmp_path: Path) -> None:
    lightning = pytest.importorskip("lightning")

    class Module(lightning.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.model = small("GPT2LMHeadModel")

        def training_step(self, inputs: Any, index: int) -> Tensor:
            loss: Tensor = self.model(**{name: value[0] for name, value in inputs.items()}).loss
            return loss

        def configure_optimizers(self) -> Any:
            optimizer = uncone.with_table_adam(self, ADAMW, lr=1e-2)
            return [optimizer], [torch.optim.lr_scheduler.LambdaLR(optimizer, lambda t: 1 / (1 + t))]

    module = Module()
    data = torch.utils.data.DataLoader([batch(step) for step in range(4)])
    trainer = lightning.Trainer(
        max_epochs=2, accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False,
        default_root_dir=tmp_path,
    )  # fmt: skip
    trainer.fit(module, data)
    known = small("GPT2LMHeadModel")
    optimizer = with_table_adam(known, ADAMW, lr=1e-2)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda t: 1 / (1 + t))
    for _ in range(2):
        train(known, optimizer, 4)
        schedule.step()
    for ours, theirs in zip(module.model.parameters(), known.parameters(), strict=True):
        assert torch.allclose(ours, theirs, atol=1e-6)


def test_the_others_train_at_the_rate_of_the_tables_where_no_optimiser_is_given() -> None:
    optimizer = with_table_adam(build("GPT2LMHeadModel"), lr=2e-5)
    assert [group["lr"] for group in optimizer.param_groups] == [2e-5, 2e-5]
