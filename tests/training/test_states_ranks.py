"""Two ranks against one process with the joined batch: the same penalty, and the same gradients, under DDP and FSDP2."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from uncone import Monitor, PersistentEntropy
from uncone.training.attach_states import attach_states

from .classifiers import batch, classifier

Tensor = torch.Tensor
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
ROWS = 24


def part(rank: int, first: int = ROWS // 2) -> dict[str, Tensor]:
    return {name: value[:first] if rank == 0 else value[first:] for name, value in batch(ROWS).items()}


def gradients(model: Any, inner: Any, inputs: dict[str, Tensor], **options: Any) -> dict[str, Any]:
    """Of the model's loss with the penalty, and the penalty."""
    with attach_states(model, PersistentEntropy(3.0), layer=1, **options) as attached:
        model(**inputs).loss.backward()
        attached.step()
    return _found(attached, inner)


def asked(model: Any, inner: Any, inputs: dict[str, Tensor], *, weight: float = 1.0, **options: Any) -> dict[str, Any]:
    """Of the loss and the penalty, in a loop of one's own."""
    with attach_states(model, PersistentEntropy(3.0), add_to_loss=False, **options or {"pooling": "mean"}) as attached:
        loss = model(**inputs).loss
        (weight * loss + attached.penalty(inputs["labels"])).backward()
    return _found(attached, inner)


def of_the_penalty(model: Any, inner: Any, inputs: dict[str, Tensor]) -> dict[str, Any]:
    """Alone: a mean over ranks of losses of different numbers of rows is not the loss of the joined batch."""
    return asked(model, inner, inputs, weight=0.0, layer=1)


def _found(attached: Any, inner: Any) -> dict[str, Any]:
    grads = {n: p.grad for n, p in inner.named_parameters() if p.grad is not None}
    whole = {n: grad.full_tensor() if hasattr(grad, "full_tensor") else grad for n, grad in grads.items()}
    return whole | {"value": attached.value}


def largest(found: dict[str, Any], known: dict[str, Any]) -> float:
    """The largest difference, in units of the largest gradient."""
    assert known.keys() <= found.keys()
    scale = max(float(g.abs().max()) for n, g in known.items() if n != "value")
    return max(float((found[n] - g).abs().max()) for n, g in known.items()) / scale


def _records(path: Path, rank: int, **options: Any) -> list[int]:
    """The points of each record in the file."""
    model = classifier()
    with attach_states(model, PersistentEntropy(3.0), **options), Monitor(path, model) as monitor:
        model(**part(rank)).loss.backward()
        monitor.step()
    torch.distributed.barrier()
    lines = path.read_text().splitlines()[1:] if rank == 0 else []
    return [int(json.loads(line)["states.n"]) for line in lines] + [-1] * (rank > 0 and bool(monitor.last))


def ddp(model: Any) -> Any:
    return torch.nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)


def on_a_rank(rank: int, folder: Path) -> dict[str, Any]:
    from torch.distributed.fsdp import fully_shard

    found = {}
    for name, run in (("ddp", gradients), ("asked", asked), ("uneven", of_the_penalty)):
        model = classifier()
        found[name] = run(ddp(model), model, part(rank, 9 if name == "uneven" else ROWS // 2))
    model = classifier()
    found["a rank"] = {"value": gradients(ddp(model), model, part(rank), across_ranks=False)["value"]}
    model = classifier()
    fully_shard(model, mesh=torch.distributed.init_device_mesh("cpu", (2,)))
    found["fsdp"] = gradients(model, model, part(rank))
    found["own cloud"] = _records(folder / "own.jsonl", rank, across_ranks=False)
    found["joined cloud"] = _records(folder / "run.jsonl", rank)
    return found


@pytest.mark.parametrize("way", ["ddp", "fsdp", "asked"])
def test_gradients_of_two_ranks_are_those_of_the_joined_batch(ranks: list[dict[str, Any]], way: str) -> None:
    model = classifier()
    alone = (asked if way == "asked" else gradients)(model, model, batch(ROWS))
    for found in ranks:
        assert largest(found[way], alone) < 1e-9
    plain = classifier()
    plain(**batch(ROWS)).loss.backward()
    without = {n: p.grad for n, p in plain.named_parameters() if p.grad is not None}
    assert largest(alone, without) > 1e-3, "the penalty acted"


def test_ranks_may_have_different_numbers_of_points(ranks: list[dict[str, Any]]) -> None:
    model = classifier()
    alone = of_the_penalty(model, model, batch(ROWS))
    assert float(alone["value"]) != 0
    for found in ranks:
        assert largest(found["uneven"], alone) < 1e-9


def test_a_cloud_a_rank_is_that_of_its_own_points(ranks: list[dict[str, Any]]) -> None:
    for rank, found in enumerate(ranks):
        model = classifier()
        alone = gradients(model, model, part(rank))["value"]
        assert found["a rank"]["value"].item() == pytest.approx(alone.item(), rel=1e-9)


def test_the_first_rank_alone_records_the_joined_cloud(ranks: list[dict[str, Any]]) -> None:
    assert [found["joined cloud"] for found in ranks] == [[ROWS], []]


def test_the_first_rank_alone_records_where_each_has_its_own_cloud(ranks: list[dict[str, Any]]) -> None:
    assert [found["own cloud"] for found in ranks] == [[ROWS // 2], []]
