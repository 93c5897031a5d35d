"""Two ranks give what one process gives: tables cut by rows, models under DDP and FSDP2, and clouds of states."""

from typing import Any

import pytest
import torch

from ...processes import TRANSFORMERS, of_two_ranks, once
from . import ranks

Tensor = torch.Tensor
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
WAYS = ("DTensor of rows", "DTensor of copies", "DTensor of both", "sharded parameter")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = once(tmp_path_factory, "penalty_ranks", lambda folder: of_two_ranks(folder, ranks.main, *TRANSFORMERS))
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in (0, 1)]


@pytest.fixture(scope="module")
def alone() -> dict[str, dict[str, Any]]:
    return ranks.alone()


def same(found: dict[str, Any], known: dict[str, Any], by: float) -> bool:
    assert known.keys() == found.keys()
    scale = max(float(x.abs().max()) for n, x in known.items() if n != "value")
    values = abs(float(found["value"]) - float(known["value"])) <= by
    return values and all(float((found[n] - x).abs().max()) <= by * scale for n, x in known.items() if n != "value")


@pytest.mark.parametrize("rows", ranks.GROUPS)
def test_a_table_cut_over_ranks(pair: list[dict[str, Any]], alone: dict[str, Any], rows: str) -> None:
    known, slices = alone[f"table, {rows}"], [part[f"group, {rows}"] for part in pair]
    joined = {"value": slices[0]["value"], "gradient": torch.cat([each["gradient"] for each in slices])}
    assert torch.equal(slices[0]["value"], slices[1]["value"])
    assert same(joined, known, 1e-12)
    for part in pair:
        assert all(same(part[f"{way}, {rows}"], known, 1e-12) for way in WAYS)


@pytest.mark.parametrize("way", ["ddp", "fsdp, root", "fsdp, head by itself"])
def test_a_model_on_two_ranks(pair: list[dict[str, Any]], alone: dict[str, Any], way: str) -> None:
    assert float(alone["model"]["value"]) > 0.1
    assert all(same(part[f"model, {way}"], alone["model"], 1e-6) for part in pair)


@pytest.mark.parametrize("name", ranks.STATES)
def test_states_of_two_ranks_are_one_cloud(pair: list[dict[str, Any]], alone: dict[str, Any], name: str) -> None:
    assert all(same(part[f"states, {name}"], alone[f"states, {name}"], 1e-6) for part in pair)


@pytest.mark.parametrize(
    ("attempt", "first", "second"),
    [
        ("columns", "table that is whole or sharded by rows (Shard(0)), got S(1): redistribute it to Shard(0)", None),
        ("group and DTensor", "expected no group with a DTensor, got one: leave it out", None),
        ("another mask", "expected rows among the 41 of the table, got a mask of 25", None),
        (
            "NaN in the second slice",
            "got a row on another rank that is not finite",
            "got 1 of 16 rows with NaN, infinity",
        ),
        ("NaN in a DTensor", "got a row on another rank that is not finite", "overflows, first row 30"),
    ],
)
def test_every_rank_refuses(pair: list[dict[str, Any]], attempt: str, first: str, second: str | None) -> None:
    assert first in pair[0]["refused"][attempt]
    assert (second or first) in pair[1]["refused"][attempt]
