"""A step that is not closed, or closed too often, is said at the user's line; a run as it should be is left alone."""

import atexit
import copy
import gc
import pickle
import re
import warnings
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.optim.optimizer import _global_optimizer_post_hooks

import uncone
from uncone import PersistentEntropy, RareTokenGate, StepWarning

from .classifiers import batch as texts
from .classifiers import classifier
from .models import V, batch, gpt2

pytestmark = pytest.mark.filterwarnings("ignore:only:UserWarning", "ignore:the:UserWarning")
AGAIN = r"got another training forward pass without it: add attached\.step\(\) after optimizer\.step\(\)"
TOO_OFTEN = r"got it after micro-batches too, .*: move attached\.step\(\) to the line after optimizer\.step\(\)"
NEVER = r"got none at all: add attached\.step\(\) after optimizer\.step\(\), or .*callbacks=\[attached\.callback\]"
OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, 1e-3),
    "one tensor at a time": lambda p: torch.optim.AdamW(p, foreach=False),
    "several at once": lambda p: torch.optim.AdamW(p, foreach=True),
    "fused": lambda p: torch.optim.AdamW(p, fused=True),
    "factored": lambda p: torch.optim.Adafactor(p),
}


def started() -> tuple[Any, Any, Any]:
    model = gpt2(dtype=torch.float32)
    return model, torch.optim.AdamW(model.parameters()), uncone.attach(model, gate=RareTokenGate(V))


def missed(steps: int, of: int) -> str:
    return rf"got none after {steps} of {of} optimiser steps: add attached\.step\(\) after optimizer\.step\(\)"


def train(model: Any, optimizer: Any, steps: int, *, after: Any = lambda: None, micro_batches: int = 1) -> None:
    for _ in range(steps):
        for seed in range(micro_batches):
            model(**batch(seed)).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        after()


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_forgotten_step_is_said_once_in_training_and_once_at_the_end(name: str) -> None:
    model = gpt2(dtype=torch.float32)
    optimizer = OPTIMIZERS[name](model.parameters())
    with pytest.warns(StepWarning) as said, uncone.attach(model, gate=RareTokenGate(V)):
        train(model, optimizer, 4)
    assert [Path(one.filename) for one in said] == [Path(__file__)] * 2
    assert re.search(AGAIN, str(said[0].message))
    assert re.search(missed(4, 4), str(said[1].message))


def test_it_is_said_at_the_second_forward_pass_and_no_earlier() -> None:
    model, optimizer, attached = started()
    train(model, optimizer, 1)
    model.eval()
    model(**batch())
    model.train()
    with torch.no_grad():
        model(**batch())
    model(input_ids=batch()["input_ids"])
    with pytest.warns(StepWarning, match=AGAIN):
        model(**batch())
    with pytest.warns(StepWarning, match=missed(1, 1)):
        attached.detach()


@pytest.mark.parametrize("micro_batches", [1, 4])
def test_steps_closed_after_or_before_the_optimisers_and_a_loss_left_over_are_no_case(micro_batches: int) -> None:
    model, optimizer, attached = started()
    with attached:
        train(model, optimizer, 3, after=attached.step, micro_batches=micro_batches)
    model, optimizer, attached = started()
    with attached:
        for seed in range(3):
            model(**batch(seed)).loss.backward()
            attached.step()
            optimizer.step()
        model(**batch()).loss.backward()


def test_a_step_that_is_skipped_later_is_said() -> None:
    model, optimizer, attached = started()
    train(model, optimizer, 2, after=attached.step)
    train(model, optimizer, 1)
    with pytest.warns(StepWarning, match=AGAIN):
        train(model, optimizer, 2, after=attached.step)
    train(model, optimizer, 3)
    with pytest.warns(StepWarning, match=missed(4, 8)):
        attached.detach()
    attached.detach()


def test_steps_that_nothing_of_ours_follows_are_said_when_python_exits(monkeypatch: pytest.MonkeyPatch) -> None:
    at_exit: list[Any] = []
    monkeypatch.setattr(atexit, "register", lambda call: at_exit.append(call) or call)
    monkeypatch.setattr(atexit, "unregister", at_exit.remove)
    model, optimizer, attached = started()
    train(model, optimizer, 1)
    (said_at_exit,) = at_exit
    with pytest.warns(StepWarning, match=missed(1, 1)):
        said_at_exit()
    attached.step()
    said_at_exit()
    attached.detach()
    assert at_exit == []


def test_losses_of_two_optimisers_are_one_step() -> None:
    model = gpt2(dtype=torch.float32)
    first, *rest = model.parameters()
    optimizers = [torch.optim.SGD([first], 1e-3), torch.optim.AdamW(rest)]
    attached = uncone.attach(model, gate=RareTokenGate(V))
    model(**batch()).loss.backward()
    for optimizer in optimizers:
        optimizer.step()
    with pytest.warns(StepWarning, match=missed(1, 1)):
        attached.detach()


def train_too_often(model: Any, optimizer: Any, attached: Any, steps: int, *, micro_batches: int) -> None:
    """The mistake: `step()` stands inside the loop over micro-batches."""
    for _ in range(steps):
        for seed in range(micro_batches):
            model(**batch(seed)).loss.backward()
            attached.step()
        optimizer.step()
        optimizer.zero_grad()


@pytest.mark.parametrize("micro_batches", [2, 4])
@pytest.mark.parametrize("before", [0, 1])
def test_a_step_after_each_micro_batch_is_said_once_at_the_users_line(micro_batches: int, before: int) -> None:
    model, optimizer, attached = started()
    with attached:
        train(model, optimizer, before, after=attached.step)
        with pytest.warns(StepWarning) as said:
            train_too_often(model, optimizer, attached, 4, micro_batches=micro_batches)
    assert [Path(one.filename) for one in said] == [Path(__file__)]
    assert re.search(TOO_OFTEN, str(said[0].message))


def test_weights_that_no_optimiser_of_torch_updates_are_left_alone() -> None:
    class Plain:
        def __init__(self, parameters: Any) -> None:
            self.parameters = list(parameters)

        def step(self) -> None:
            with torch.no_grad():
                for p in self.parameters:
                    p -= 1e-3 * p.grad

        def zero_grad(self) -> None:
            for p in self.parameters:
                p.grad = None

    model = gpt2(dtype=torch.float32)
    with uncone.attach(model, gate=RareTokenGate(V)) as attached:
        train_too_often(model, Plain(model.parameters()), attached, 3, micro_batches=2)
        train(model, Plain(model.parameters()), 3, after=attached.step)


@pytest.mark.parametrize("closes", ["before zero_grad", "after zero_grad", "before the optimiser"])
@pytest.mark.parametrize("to_none", [True, False])
def test_steps_that_a_scaler_skips_are_no_case(closes: str, to_none: bool) -> None:
    model = gpt2(dtype=torch.float32)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    moved = []
    with uncone.attach(model, gate=RareTokenGate(V)) as attached:
        for step in range(8):
            scaler.scale(model(**batch(step)).loss).backward()
            if step in (2, 3, 6):
                model.transformer.h[0].mlp.c_fc.weight.grad[0, 0] = torch.inf  # away from the head
            if closes == "before the optimiser":
                attached.step()
            before = model.lm_head.weight.detach().clone()
            scaler.step(optimizer)
            scaler.update()
            moved.append(not torch.equal(before, model.lm_head.weight))
            if closes == "before zero_grad":
                attached.step()
            optimizer.zero_grad(set_to_none=to_none)
            if closes == "after zero_grad":
                attached.step()
    assert moved == [step not in (2, 3, 6) for step in range(8)]


def test_a_step_that_is_left_out_now_and_then_is_no_case() -> None:
    model, optimizer, attached = started()
    with attached:
        for step in range(12):
            model(**batch(step)).loss.backward()
            if step not in (4, 9):  # a norm that is too large, for instance
                optimizer.step()
            attached.step()
            optimizer.zero_grad()


def test_an_optimiser_that_runs_the_model_itself_is_one_step() -> None:
    model = gpt2(dtype=torch.float32)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = model(**batch()).loss
        loss.backward()
        return loss

    with uncone.attach(model, gate=RareTokenGate(V)) as attached:
        for _ in range(2):
            optimizer.step(closure)
            attached.step()


def test_another_models_optimiser_is_none_of_its_business() -> None:
    model, other = gpt2(dtype=torch.float32), torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(other.parameters(), 1e-3)
    with uncone.attach(model, gate=RareTokenGate(V)) as attached:
        for seed in range(3):
            model(**batch(seed)).loss.backward()
            other(torch.ones(2)).sum().backward()
            optimizer.step()
        attached.step()


def test_a_gate_that_never_stepped_is_said_on_leaving() -> None:
    model = gpt2(dtype=torch.float32)
    attached = uncone.attach(model, gate=RareTokenGate(V))
    model(**batch()).loss.backward()
    with pytest.warns(StepWarning, match=NEVER) as said:
        attached.detach()
    attached.detach()
    with pytest.warns(StepWarning, match=NEVER) as again, uncone.attach(model, gate=RareTokenGate(V)):
        model(**batch()).loss.backward()
    assert [Path(one.filename) for one in (*said, *again)] == [Path(__file__)] * 2
    assert "forward" not in model.__dict__


def test_without_training_or_without_a_gate_nothing_is_missing() -> None:
    model = gpt2(dtype=torch.float32)
    with uncone.attach(model, gate=RareTokenGate(V)):
        model(input_ids=batch()["input_ids"])
        model.eval()(**batch())
    model.train()
    with uncone.attach(model, penalties=[lambda weight: weight.square().mean()]):
        train(model, torch.optim.AdamW(model.parameters()), 3)


@pytest.mark.parametrize(("fails", "error"), [(True, ZeroDivisionError), (False, StepWarning)])
def test_an_error_on_its_way_out_is_not_masked_and_the_model_is_given_back(fails: bool, error: Any) -> None:
    model = gpt2(dtype=torch.float32)
    with pytest.raises(error), uncone.attach(model, gate=RareTokenGate(V)):
        assert model(**batch()).loss.backward() or 1 / (not fails)
    assert "forward" not in model.__dict__


def test_steps_of_a_penalty_on_states_may_go_uncounted() -> None:
    model = classifier(dtype=torch.float32)
    optimizer = torch.optim.AdamW(model.parameters())
    with uncone.attach_states(model, PersistentEntropy()):
        for _ in range(3):
            model(**texts(12)).loss.backward()
            optimizer.step()


def test_nothing_is_left_behind() -> None:
    before = list(_global_optimizer_post_hooks)
    model = gpt2(dtype=torch.float32)
    attached = uncone.attach(model, gate=RareTokenGate(V))
    assert len(_global_optimizer_post_hooks) == len(before) + 1
    twin = copy.deepcopy(model)
    assert len(_global_optimizer_post_hooks) == len(before) + 1
    pickle.loads(pickle.dumps(attached._watch)).end()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train(twin, torch.optim.AdamW(twin.parameters()), 2)
    attached.detach()
    assert list(_global_optimizer_post_hooks) == before
    forgotten = weakref.ref(uncone.attach(model, gate=RareTokenGate(V)))
    hook = [key for key in _global_optimizer_post_hooks if key not in before]
    del model.forward, attached
    model.transformer.h, model.lm_head = None, None
    gc.collect()
    assert forgotten() is None
    torch.optim.SGD(torch.nn.Linear(2, 2).parameters(), 1e-3).step()
    for key in hook:
        del _global_optimizer_post_hooks[key]
