"""Two ranks against one: the same gates to the bit, and the same gradients, under DDP and FSDP2."""

import warnings
from typing import Any

import pytest
import torch

import uncone
from uncone import CrossEntropyOptions, RareTokenGate
from uncone.training.means import Means

from .models import V, batch, build

Tensor = torch.Tensor
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
STEPS = 3
MODELS = {"GPT2LMHeadModel": "tied", "Gemma2ForCausalLM": "tied", "LlamaForCausalLM": "of its own"}
GATE: dict[str, Any] = {"rare_share": 0.5, "gate_max": 0.5}


def whole(step: int) -> dict[str, Tensor]:
    """Both ranks' batch: the same number of targets on each, so that a mean of means is the mean."""
    found = batch(step, rows=4)
    found["labels"][2] = found["labels"][0].where(found["labels"][0] == -100, found["labels"][2])
    return found


def part(step: int, rank: int) -> dict[str, Tensor]:
    return {name: value[2 * rank : 2 * rank + 2] for name, value in whole(step).items()}


def gates_of(labels: list[list[Tensor]], **options: Any) -> list[Any]:
    gate = RareTokenGate(V, window=2, **options)
    found = []
    for step in labels:
        for micro in step:
            gate.observe(micro)
        gate.record(torch.tensor(1.0 + len(step)), torch.tensor(4.0))
        gate.step()
        found.append((*gate.gates(), gate.status))
    return found


def means_of(micro_batches: range) -> dict[str, float]:
    means = Means(["penalty"], torch.device("cpu"))
    for i in micro_batches:
        means.add(torch.tensor([1.0 + i, 3.0 * i, 0.0, i, -i, 10.0 - i]).double(), torch.tensor([2.0**i]))
    return means.take()


def trained(model: Any, inner: Any, batches: Any, *, gate: RareTokenGate, attached: Any = None) -> dict[str, Tensor]:
    """The gradients of the last of a few steps, as whole tensors."""
    attached = attached or uncone.attach(inner, gate=gate)
    for step in range(STEPS):
        model.zero_grad()
        model(**batches(step)).loss.backward()
        attached.step()
    return {name: _whole(p.grad) for name, p in inner.named_parameters() if p.grad is not None}


def _whole(gradient: Tensor) -> Tensor:
    return gradient.full_tensor() if hasattr(gradient, "full_tensor") else gradient


def on_a_rank(rank: int) -> dict[str, Any]:
    found: dict[str, Any] = {"means": means_of(range(5)[rank::2])}
    for mode in ("relative", "paper", "official"):
        found[f"gates {mode}"] = gates_of([[part(s, rank)["labels"]] * 2 for s in range(4)], mode=mode)
    for name in MODELS:
        found |= _models_on_ranks(name, rank)
    return found | {"refused": _refusals(rank)}


def _models_on_ranks(name: str, rank: int) -> dict[str, Any]:
    from torch.distributed.fsdp import fully_shard

    def mine(step: int) -> dict[str, Tensor]:
        return part(step, rank)

    model = build(name)
    found = {f"ddp {name}": trained(torch.nn.parallel.DistributedDataParallel(model), model, mine, gate=_gate())}
    # DDP finds a parameter without a gradient only at its first forward: attach comes after it here, and before it below.
    model, gate = build(name), _gate()
    attached = uncone.attach(model, gate=gate)
    ddp = torch.nn.parallel.DistributedDataParallel(model)
    found[f"ddp attached first {name}"] = trained(ddp, model, mine, gate=gate, attached=attached)
    mesh = torch.distributed.init_device_mesh("cpu", (2,))
    for order in ("before", "after"):
        model, gate = build(name), _gate()
        attached = uncone.attach(model, gate=gate) if order == "before" else None
        if MODELS[name] == "of its own":
            fully_shard(model.lm_head, mesh=mesh)
        fully_shard(model, mesh=mesh)
        found[f"fsdp, attached {order} {name}"] = trained(model, model, mine, gate=gate, attached=attached)
    found[f"{name}, forgotten"] = _forgotten(model, mine)
    return found


def _forgotten(model: Any, batches: Any) -> tuple[bool, list[str]]:
    """Whether an optimiser made after attaching holds the shards, and what is said without `step()`."""
    model.forward._handle.detach()
    attached = uncone.attach(model, gate=_gate())
    optimizer = torch.optim.AdamW(model.parameters())
    are_shards = all(hasattr(p, "full_tensor") for p in model.parameters())
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for step in range(2):
            model(**batches(step)).loss.backward()
            optimizer.step()
        attached.detach()
    return are_shards, [str(one.message) for one in said if one.category is uncone.StepWarning]


def _gate() -> RareTokenGate:
    return RareTokenGate(V, **GATE)


def _refusals(rank: int) -> list[str]:
    """What is said about single losses of a head sharded by itself, before attaching and after."""
    from torch.distributed.fsdp import fully_shard

    def shard(model: Any) -> None:
        fully_shard(model.lm_head, mesh=mesh)
        fully_shard(model, mesh=mesh)

    def late() -> None:
        uncone.attach(model, options=options)
        shard(model)
        model(**part(0, rank))

    def early() -> None:
        shard(model)
        uncone.attach(model, options=options)

    mesh, options = torch.distributed.init_device_mesh("cpu", (2,)), CrossEntropyOptions(reduction="none")
    said = []
    for attempt in (early, late):
        model = build("LlamaForCausalLM")
        try:
            attempt()
        except uncone.UnconeError as error:
            said.append(str(error))
    return said


@pytest.mark.parametrize("name", MODELS)
def test_a_sharded_model_is_left_sharded_and_a_forgotten_step_is_said(ranks: list[dict[str, Any]], name: str) -> None:
    for rank in ranks:
        are_shards, (said, at_the_end) = rank[f"{name}, forgotten"]
        assert are_shards
        assert "another training forward pass without it" in said
        assert "none after 2 of 2 optimiser steps" in at_the_end


def test_logs_of_two_ranks_are_those_of_one(ranks: list[dict[str, Any]]) -> None:
    assert ranks[0]["means"] == ranks[1]["means"] == pytest.approx(means_of(range(5)))


@pytest.mark.parametrize("mode", ["relative", "paper", "official"])
def test_gates_of_two_ranks_are_those_of_one_to_the_bit(ranks: list[dict[str, Any]], mode: str) -> None:
    alone = gates_of([[part(s, 0)["labels"], part(s, 1)["labels"]] * 2 for s in range(4)], mode=mode)
    for one, *both in zip(alone, *(found[f"gates {mode}"] for found in ranks), strict=True):
        for rank in both:
            assert all(torch.equal(a, b) for a, b in zip(rank[:3], one[:3], strict=True))
            assert rank[3].rare_mass == one[3].rare_mass
            assert rank[3].gated_share == 0.75


@pytest.mark.parametrize("name", MODELS)
def test_gradients_of_two_ranks_are_those_of_one(ranks: list[dict[str, Any]], name: str) -> None:
    model = build(name)
    alone = trained(model, model, whole, gate=_gate())
    plain = _plain(name)
    scale = max(float(g.abs().max()) for g in alone.values())
    ways = [way for way in ranks[0] if way.endswith(name)]
    assert len(ways) == 4
    for way in ways:
        for found in ranks:
            assert found[way].keys() == alone.keys()
            assert max(float((found[way][n] - g).abs().max()) for n, g in alone.items()) <= 1e-6 * scale
    assert max(float((plain[n] - g).abs().max()) for n, g in alone.items()) > 1e-3 * scale, "the gate acted"


def _plain(name: str) -> dict[str, Tensor]:
    model = build(name)
    model(**whole(STEPS - 1)).loss.backward()
    return {n: p.grad for n, p in model.named_parameters() if p.grad is not None}


def test_single_losses_of_a_head_sharded_by_itself_are_refused(ranks: list[dict[str, Any]]) -> None:
    for found in ranks:
        assert len(found["refused"]) == 2
        wanted = "expected reduction 'mean' with a head that is sharded on its own, got 'none'"
        assert all(wanted in said for said in found["refused"])
