"""Two ranks against one process with the joined batch: the same penalty, and the same gradients, under DDP and FSDP2."""

from pathlib import Path
from typing import Any

import pytest
import torch

from uncone import PersistentEntropy
from uncone.training.attach_states import attach_states
from uncone.training.cloud import AnisotropyTrack

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
    found = {n: _whole(p.grad) for n, p in inner.named_parameters() if p.grad is not None}
    return found | {"value": attached.value}


def asked(model: Any, inner: Any, inputs: dict[str, Tensor]) -> dict[str, Any]:
    """Of the loss and the penalty, in a loop of one's own."""
    with attach_states(model, PersistentEntropy(3.0), pooling="mean", add_to_loss=False) as attached:
        loss = model(**inputs).loss
        (loss + attached.penalty(inputs["labels"])).backward()
    found = {n: _whole(p.grad) for n, p in inner.named_parameters() if p.grad is not None}
    return found | {"value": attached.value}


def of_the_penalty(model: Any, inner: Any, inputs: dict[str, Tensor]) -> dict[str, Any]:
    """Alone: a mean over ranks of losses of different numbers of rows is not the loss of the joined batch."""
    with attach_states(model, PersistentEntropy(3.0), layer=1, add_to_loss=False) as attached:
        loss = model(**inputs).loss
        (0 * loss + attached.penalty(inputs["labels"])).backward()
    found = {n: _whole(p.grad) for n, p in inner.named_parameters() if p.grad is not None}
    return found | {"value": attached.value}


def _whole(gradient: Any) -> Any:
    return gradient.full_tensor() if hasattr(gradient, "full_tensor") else gradient


def _records(track: AnisotropyTrack, rank: int, **options: Any) -> list[int]:
    gradients(classifier(), classifier(), part(rank), track=track, **options)
    return [record["n"] for record in track.records]


def ddp(model: Any) -> Any:
    return torch.nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)


def on_a_rank(rank: int, folder: Path) -> dict[str, Any]:
    from torch.distributed.fsdp import fully_shard

    model = classifier()
    found = {"ddp": gradients(ddp(model), model, part(rank))}
    model = classifier()
    found["asked"] = asked(ddp(model), model, part(rank))
    model = classifier()
    found["uneven"] = of_the_penalty(ddp(model), model, part(rank, 9))
    model = classifier()
    found["a rank"] = {"value": gradients(ddp(model), model, part(rank), across_ranks=False)["value"]}
    model = classifier()
    fully_shard(model, mesh=torch.distributed.init_device_mesh("cpu", (2,)))
    found["fsdp"] = gradients(model, model, part(rank))
    track = AnisotropyTrack(1, folder / "track.jsonl")
    gradients(classifier(), classifier(), part(rank), track=track)
    found["own track"] = _records(AnisotropyTrack(1, folder / "own.jsonl"), rank, across_ranks=False)
    found["tracked"] = {"records": len(track.records), "n": track.records[0]["n"] if track.records else None}
    return found


@pytest.mark.parametrize("way", ["ddp", "fsdp", "asked"])
def test_gradients_of_two_ranks_are_those_of_the_joined_batch(ranks: list[dict[str, Any]], way: str) -> None:
    model = classifier()
    alone = (asked if way == "asked" else gradients)(model, model, batch(ROWS))
    plain = classifier()
    plain(**batch(ROWS)).loss.backward()
    scale = max(float(g.abs().max()) for g in alone.values())
    for found in ranks:
        assert alone.keys() <= found[way].keys()
        assert max(float((found[way][n] - g).abs().max()) for n, g in alone.items()) < 1e-9 * scale
    changed = max(
        float((p.grad - alone[n]).abs().max()) for n, p in plain.named_parameters() if n in alone and p.grad is not None
    )
    assert changed > 1e-3 * scale, "the penalty acted"


def test_ranks_may_have_different_numbers_of_points(ranks: list[dict[str, Any]]) -> None:
    model = classifier()
    alone = of_the_penalty(model, model, batch(ROWS))
    scale = max(float(alone[n].abs().max()) for n, _ in model.named_parameters() if n in alone)
    assert scale > 0
    for found in ranks:
        assert alone.keys() <= found["uneven"].keys()
        assert max(float((found["uneven"][n] - g).abs().max()) for n, g in alone.items()) < 1e-9 * scale


def test_a_cloud_a_rank_is_that_of_its_own_points(ranks: list[dict[str, Any]]) -> None:
    for rank, found in enumerate(ranks):
        model = classifier()
        alone = gradients(model, model, part(rank))["value"]
        assert found["a rank"]["value"].item() == pytest.approx(alone.item(), rel=1e-9)


def test_the_first_rank_alone_tracks_the_joined_cloud(ranks: list[dict[str, Any]]) -> None:
    assert [found["tracked"]["records"] for found in ranks] == [1, 0]
    assert ranks[0]["tracked"]["n"] == ROWS


def test_the_first_rank_alone_tracks_where_each_has_its_own_cloud(ranks: list[dict[str, Any]]) -> None:
    assert [found["own track"] for found in ranks] == [[ROWS // 2], []]
