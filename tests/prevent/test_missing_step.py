"""A step that is not closed is said once, at the user's line; micro-batches, evaluation and errors are left alone."""

import copy
import gc
import pickle
import warnings
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.optim.optimizer import _global_optimizer_post_hooks

import uncone
from uncone import MissingStepWarning, PersistentEntropy, RareTokenGate
from uncone.prevent import AnisotropyTrack

from .classifiers import batch as texts
from .classifiers import classifier
from .models import V, batch, build

pytestmark = pytest.mark.filterwarnings("ignore:only:UserWarning", "ignore:the:UserWarning")
AGAIN = r"got another training forward pass without it: add attached\.step\(\) after optimizer\.step\(\)"
NEVER = r"got none in all: add attached\.step\(\) after optimizer\.step\(\), or .*callbacks=\[attached\.callback\]"
OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, 1e-3),
    "one tensor at a time": lambda p: torch.optim.AdamW(p, foreach=False),
    "several at once": lambda p: torch.optim.AdamW(p, foreach=True),
    "fused": lambda p: torch.optim.AdamW(p, fused=True),
    "factored": lambda p: torch.optim.Adafactor(p),
}


def gpt2() -> Any:
    return build("GPT2LMHeadModel", dtype=torch.float32)


def train(
    model: Any, optimizer: Any, steps: int, *, after: Any = lambda: None, micro_batches: int = 1
) -> None:
    for _ in range(steps):
        for seed in range(micro_batches):
            model(**batch(seed)).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        after()


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_forgotten_step_is_said_once_at_the_users_line(name: str) -> None:
    model = gpt2()
    optimizer = OPTIMIZERS[name](model.parameters())
    with (
        pytest.warns(MissingStepWarning, match=AGAIN) as said,
        uncone.attach(model, gate=RareTokenGate(V)),
    ):
        train(model, optimizer, 4)
    assert [Path(one.filename) for one in said] == [Path(__file__)]


def test_it_is_said_at_the_second_forward_pass_and_no_earlier() -> None:
    model = gpt2()
    optimizer = torch.optim.AdamW(model.parameters())
    attached = uncone.attach(model, gate=RareTokenGate(V))
    train(model, optimizer, 1)
    model.eval()
    model(**batch())
    model.train()
    with torch.no_grad():
        model(**batch())
    model(input_ids=batch()["input_ids"])
    with pytest.warns(MissingStepWarning, match=AGAIN):
        model(**batch())
    attached.detach()


@pytest.mark.parametrize("micro_batches", [1, 4])
def test_steps_that_are_closed_are_no_case(micro_batches: int) -> None:
    model = gpt2()
    optimizer = torch.optim.AdamW(model.parameters())
    with uncone.attach(model, gate=RareTokenGate(V)) as attached:
        train(model, optimizer, 3, after=attached.step, micro_batches=micro_batches)


def test_a_step_that_is_closed_before_the_optimisers_and_a_loss_left_over_are_no_case() -> None:
    model = gpt2()
    optimizer = torch.optim.AdamW(model.parameters())
    with uncone.attach(model, gate=RareTokenGate(V)) as attached:
        for seed in range(3):
            model(**batch(seed)).loss.backward()
            attached.step()
            optimizer.step()
        model(**batch()).loss.backward()


def test_a_step_that_is_skipped_later_is_said() -> None:
    model = gpt2()
    optimizer = torch.optim.AdamW(model.parameters())
    attached = uncone.attach(model, gate=RareTokenGate(V))
    train(model, optimizer, 2, after=attached.step)
    train(model, optimizer, 1)
    with pytest.warns(MissingStepWarning, match=AGAIN):
        train(model, optimizer, 2, after=attached.step)
    attached.detach()


def test_an_optimiser_that_runs_the_model_itself_is_one_step() -> None:
    model = gpt2()
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
    model, other = gpt2(), torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(other.parameters(), 1e-3)
    with uncone.attach(model, gate=RareTokenGate(V)) as attached:
        for seed in range(3):
            model(**batch(seed)).loss.backward()
            other(torch.ones(2)).sum().backward()
            optimizer.step()
        attached.step()


def test_a_gate_that_never_stepped_is_said_on_leaving() -> None:
    model = gpt2()
    attached = uncone.attach(model, gate=RareTokenGate(V))
    model(**batch()).loss.backward()
    with pytest.warns(MissingStepWarning, match=NEVER) as said:
        attached.detach()
    attached.detach()
    with pytest.warns(MissingStepWarning, match=NEVER) as again, uncone.attach(model, gate=RareTokenGate(V)):
        model(**batch()).loss.backward()
    assert [Path(one.filename) for one in (*said, *again)] == [Path(__file__)] * 2
    assert "forward" not in model.__dict__


def test_without_training_or_without_a_gate_nothing_is_missing() -> None:
    model = gpt2()
    with uncone.attach(model, gate=RareTokenGate(V)):
        model(input_ids=batch()["input_ids"])
        model.eval()(**batch())
    model.train()
    with uncone.attach(model, penalties=[lambda weight: weight.square().mean()]):
        train(model, torch.optim.AdamW(model.parameters()), 3)


def test_an_error_on_its_way_out_is_not_masked() -> None:
    model = gpt2()

    def fails() -> Any:
        return model(**batch()).loss.backward() or 1 / 0

    with pytest.raises(ZeroDivisionError), uncone.attach(model, gate=RareTokenGate(V)):
        fails()
    assert "forward" not in model.__dict__


def test_the_model_is_given_back_though_the_warning_is_an_error() -> None:
    model = gpt2()
    with pytest.raises(MissingStepWarning, match=NEVER), uncone.attach(model, gate=RareTokenGate(V)):
        model(**batch()).loss.backward()
    assert "forward" not in model.__dict__


def test_a_track_of_states_that_stands_still_is_said(tmp_path: Path) -> None:
    model = classifier(dtype=torch.float32)
    optimizer = torch.optim.AdamW(model.parameters())
    track = AnisotropyTrack(1, tmp_path / "track.jsonl")

    def run(attached: Any, *, closes: bool) -> None:
        for _ in range(3):
            model(**texts(12)).loss.backward()
            optimizer.step()
            if closes:
                attached.step()

    with pytest.warns(MissingStepWarning, match=AGAIN), uncone.attach_states(model, track=track) as attached:
        run(attached, closes=False)
    with uncone.attach_states(model, track=track) as attached:
        run(attached, closes=True)
    with uncone.attach_states(model, PersistentEntropy()) as attached:  # no step counts there
        run(attached, closes=False)


def test_nothing_is_left_behind() -> None:
    before = list(_global_optimizer_post_hooks)
    model = gpt2()
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
    other = torch.nn.Linear(2, 2)
    torch.optim.SGD(other.parameters(), 1e-3).step()
    for key in hook:
        del _global_optimizer_post_hooks[key]
