"""Two ranks against one: the same steps of `TableAdam`, joined, and `CenterRows`, under DDP and FSDP2, and of shards."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from uncone import CenterRows, TableAdam, table_parameters, with_table_adam
from uncone.training.optimisers.table_adam import KINDS

from ...processes import TRANSFORMERS, of_two_ranks, once
from ..models import untied
from ..test_ranks import part, whole
from .test_table_adam import gradients, start

Tensor = torch.Tensor
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
STEPS = 3
OPTIONS: dict[str, Any] = {"lr": 1e-2, "weight_decay": 0.1, "decay": "touched", "max_row_norm": 1.2}
SPLITS = ("rows", "columns")


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = once(tmp_path_factory, "tables", lambda folder: of_two_ranks(folder, _on_a_rank, *TRANSFORMERS))
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in (0, 1)]


def trained(
    model: Any, inner: Any, batches: Any, kind: str, *, saved: Any = None, center: bool = True
) -> dict[str, Any]:
    optimizer = with_table_adam(inner, partial(torch.optim.AdamW, lr=1e-2), second_moment=kind, **OPTIONS)
    centering = CenterRows(inner) if center else None
    for step in range(STEPS):
        optimizer.zero_grad()
        model(**batches(step)).loss.backward()
        optimizer.step()
        if centering is not None:
            centering.step()
    if saved is not None:
        saved.update(optimizer.state_dict())
    return {name: _whole(p.detach()) for name, p in inner.named_parameters()}


def _whole(value: Any) -> Any:
    return value.full_tensor() if hasattr(value, "full_tensor") else value


def one_table(kind: str, table: Tensor, split: Any) -> Tensor:
    """On known gradients, without a model."""
    parameter = torch.nn.Parameter(split(table))
    optimizer = TableAdam([parameter], kind, **OPTIONS)
    for g in gradients(steps=5):
        parameter.grad = split(g)
        optimizer.step()
    return _whole(parameter.detach())


def _on_a_rank(rank: int, folder: Path) -> None:
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import Shard, distribute_tensor

    def mine(step: int) -> dict[str, Tensor]:
        return part(step, rank)

    found: dict[str, Any] = {}
    mesh = torch.distributed.init_device_mesh("cpu", (2,))
    for kind in KINDS:
        model = untied("LlamaForCausalLM")
        found[f"ddp {kind}"] = trained(torch.nn.parallel.DistributedDataParallel(model), model, mine, kind)
        model = untied("LlamaForCausalLM")
        fully_shard(model.lm_head, mesh=mesh)
        fully_shard(model, mesh=mesh)
        saved: dict[str, Any] = {}
        found[f"fsdp {kind}"] = trained(model, model, mine, kind, saved=saved)
        found[f"full state {kind}"] = _through_checkpoints(model, kind, mine)
        for axis, split in enumerate(SPLITS):
            spread = partial(distribute_tensor, device_mesh=mesh, placements=[Shard(axis)])
            found[f"{split} {kind}"] = one_table(kind, start(), spread)
    torch.save(found, folder / f"{rank}.pt")


def _through_checkpoints(model: Any, kind: str, batches: Any) -> dict[str, Any]:
    """The whole state of the tables as torch's checkpoints gather it, and whether it comes back from there."""
    from torch.distributed.checkpoint.state_dict import (
        StateDictOptions,
        get_optimizer_state_dict,
        set_optimizer_state_dict,
    )

    options = StateDictOptions(full_state_dict=True)
    optimizer = TableAdam(table_parameters(model)[0], kind)
    model(**batches(0)).loss.backward()
    optimizer.step()
    local = {i: {n: _whole(v).clone() for n, v in one.items()} for i, one in optimizer.state_dict()["state"].items()}
    full = get_optimizer_state_dict(model, optimizer, options=options)
    shapes = {name: {n: tuple(v.shape) for n, v in one.items() if n != "step"} for name, one in full["state"].items()}
    optimizer.zero_grad()  # torch makes an empty state only then
    again = TableAdam(table_parameters(model)[0], kind)
    set_optimizer_state_dict(model, again, full, options=options)
    same = [
        torch.equal(_whole(again.state_dict()["state"][i][n]), v) for i, one in local.items() for n, v in one.items()
    ]
    return {"shapes": shapes, "same": all(same) and len(same) > 2}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", ["ddp", "fsdp"])
def test_two_ranks_train_as_one(two: list[dict[str, Any]], way: str, kind: str) -> None:
    model = untied("LlamaForCausalLM")
    alone, before = trained(model, model, whole, kind), dict(untied("LlamaForCausalLM").named_parameters())
    for rank in two:
        found = rank[f"{way} {kind}"]
        assert found.keys() == alone.keys()
        assert max(float((found[name] - value).abs().max()) for name, value in alone.items()) < 1e-7
    assert float((alone["lm_head.weight"] - before["lm_head.weight"]).abs().max()) > 1e-3


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("split", SPLITS)
def test_a_table_split_by_rows_or_columns_moves_as_the_whole(two: list[dict[str, Any]], split: str, kind: str) -> None:
    alone = one_table(kind, start(), lambda x: x.clone())
    for rank in two:
        assert torch.allclose(rank[f"{split} {kind}"], alone, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_the_state_goes_through_torchs_checkpoints(two: list[dict[str, Any]], kind: str) -> None:
    vectors = {"column": {"column_sq": (32,)}, "row": {"row_sq": (97,)}, "entry": {"exp_avg_sq": (97, 32)}}
    vectors["factored"] = vectors["column"] | vectors["row"]
    first = {} if kind == "factored" else {"exp_avg": (97, 32)}
    shapes = two[0][f"full state {kind}"]["shapes"]
    assert shapes.keys() == {"model.embed_tokens.weight", "lm_head.weight"}
    assert all(one == first | vectors[kind] for one in shapes.values())
    assert all(rank[f"full state {kind}"]["same"] for rank in two)
