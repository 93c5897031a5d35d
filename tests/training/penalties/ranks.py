"""One of two ranks: the penalties of tables that are cut by rows, and of models that train on both."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import uncone
from uncone import CosinePenalty, InputError, IsoScorePenalty, OrthogonalPenalty

from ..classifiers import batch as sequences
from ..classifiers import classifier
from ..models import build
from ..test_ranks import part, whole
from .tables import table

Tensor = torch.Tensor
CUT, V, D = 25, 41, 6
GROUPS: dict[str, Any] = {"all": None, "mask": torch.arange(V) % 3 == 0, "ids": [30, 3, 40], "one rank": [1, 2, 5]}
STATES: dict[str, Any] = {"orthogonal": OrthogonalPenalty(), "isoscore": IsoScorePenalty(2.0)}


def main(rank: int, folder: Path) -> None:
    warnings.simplefilter("ignore")
    torch.save(_tables(rank) | _models(rank) | {"refused": _refused(rank)}, folder / f"{rank}.pt")


def of_table(x: Tensor, weight: float, **options: Any) -> dict[str, Tensor]:
    x = x.detach().requires_grad_()
    value = CosinePenalty(weight, **options)(x)
    value.backward()
    assert x.grad is not None
    return {"value": value.detach(), "gradient": x.grad}


def _tables(rank: int) -> dict[str, Any]:
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    found, x = dict[str, Any](), table(V, D)
    mesh, square = (torch.distributed.init_device_mesh("cpu", shape) for shape in ((2,), (1, 2)))
    own = x[:CUT] if rank == 0 else x[CUT:]
    for name, rows in GROUPS.items():
        found[f"group, {name}"] = of_table(own, 2.0, rows=rows, group=torch.distributed.group.WORLD)
        for way, placed in (("rows", [Shard(0)]), ("copies", [Replicate()])):
            found[f"DTensor of {way}, {name}"] = of_table(distribute_tensor(x, mesh, placed), 2.0, rows=rows)
        both = distribute_tensor(x, square, [Replicate(), Shard(0)])
        found[f"DTensor of both, {name}"] = of_table(both, 2.0, rows=rows)
        head = torch.nn.Linear(D, V, bias=False, dtype=torch.float64)
        head.weight.data.copy_(x)
        fully_shard(head, mesh=mesh)
        value = CosinePenalty(2.0, rows=rows)(head.weight)
        value.backward()
        found[f"sharded parameter, {name}"] = {"value": value.detach(), "gradient": head.weight.grad}
    for result in found.values():
        if hasattr(result["gradient"], "full_tensor"):
            result["gradient"] = result["gradient"].full_tensor()
    return found


def of_model(model: Any, inner: Any, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    penalties = [CosinePenalty(30.0), CosinePenalty(5.0, rows=range(9))]
    with uncone.attach(model, penalties=penalties) as attached:
        model(**inputs).loss.backward()
        attached.step()
    return _gradients(inner) | {"value": attached.penalty}


def of_states(model: Any, inner: Any, inputs: dict[str, Tensor], penalty: Any) -> dict[str, Tensor]:
    with uncone.attach_states(model, penalty) as attached:
        model(**inputs).loss.backward()
        attached.step()
    return _gradients(inner) | {"value": attached.value}


def half(rank: int) -> dict[str, Tensor]:
    return {name: value[12 * rank : 12 * rank + 12] for name, value in sequences(24).items()}


def _gradients(model: Any) -> dict[str, Tensor]:
    grads = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    return {n: g.full_tensor() if hasattr(g, "full_tensor") else g for n, g in grads.items()}


def _models(rank: int) -> dict[str, Any]:
    from torch.distributed.fsdp import fully_shard

    found, mesh = dict[str, Any](), torch.distributed.init_device_mesh("cpu", (2,))
    model = build("LlamaForCausalLM")
    found["model, ddp"] = of_model(torch.nn.parallel.DistributedDataParallel(model), model, part(0, rank))
    for way in ("root", "head by itself"):
        model = build("LlamaForCausalLM")
        if way != "root":
            fully_shard(model.lm_head, mesh=mesh)
        fully_shard(model, mesh=mesh)
        found[f"model, fsdp, {way}"] = of_model(model, model, part(0, rank))
    for name, penalty in STATES.items():
        model = classifier()
        ddp = torch.nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)
        found[f"states, {name}"] = of_states(ddp, model, half(rank), penalty)
    return found


def alone() -> dict[str, dict[str, Any]]:
    """What one process finds with the whole."""
    found: dict[str, Any] = {f"table, {name}": of_table(table(V, D), 2.0, rows=rows) for name, rows in GROUPS.items()}
    model = build("LlamaForCausalLM")
    found["model"] = of_model(model, model, whole(0))
    for name, penalty in STATES.items():
        model = classifier()
        found[f"states, {name}"] = of_states(model, model, sequences(24), penalty)
    return found


def _refused(rank: int) -> dict[str, str]:
    from torch.distributed.tensor import DeviceMesh, Shard, distribute_tensor

    mesh: DeviceMesh = torch.distributed.init_device_mesh("cpu", (2,))
    x, broken, group = table(V, D), table(V, D), torch.distributed.group.WORLD
    broken[30] = torch.nan
    own = slice(0, CUT) if rank == 0 else slice(CUT, V)
    tries: dict[str, Callable[[], Tensor]] = {
        "columns": lambda: CosinePenalty()(distribute_tensor(x, mesh, [Shard(1)])),
        "group and DTensor": lambda: CosinePenalty(group=group)(distribute_tensor(x, mesh, [Shard(0)])),
        "another mask": lambda: CosinePenalty(rows=torch.ones(CUT, dtype=torch.bool), group=group)(x[own]),
        "NaN in the second slice": lambda: CosinePenalty(group=group)(broken[own]),
        "NaN in a DTensor": lambda: CosinePenalty()(distribute_tensor(broken, mesh, [Shard(0)])),
    }
    said = {}
    for name, attempt in tries.items():
        try:
            attempt()
            said[name] = "nothing"
        except InputError as error:
            said[name] = str(error)
    return said
