"""A head that is cut by rows over two ranks gives what the whole head gives."""

from typing import Any

import pytest
import torch

from uncone import InputError
from uncone.training.loss.options import CrossEntropyOptions

from ...processes import of_two_ranks, once
from . import ranks

CASES = {name: case for name, *case in ranks.cases()}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The results of the two ranks, each in a process of its own."""
    folder = once(tmp_path_factory, "head_ranks", lambda folder: of_two_ranks(folder, ranks.main))
    return [torch.load(folder / f"{rank}.pt") for rank in (0, 1)]


@pytest.mark.parametrize("name", CASES)
def test_two_ranks_give_what_one_gives(pair: list[dict[str, Any]], name: str) -> None:
    known, parts = ranks.found(*CASES[name], slice(None)), [part["cases"][name] for part in pair]
    tolerance = 1e-12 if "float64" in name else 1e-6

    def near(mine: torch.Tensor, expected: torch.Tensor) -> bool:
        return float((mine - expected).abs().max()) <= tolerance * max(1.0, float(expected.abs().max()))

    assert torch.equal(parts[0]["loss"], parts[1]["loss"])
    assert torch.equal(parts[0]["hidden"], parts[1]["hidden"])
    assert torch.equal(parts[0]["stats"], parts[1]["stats"])
    assert near(parts[0]["stats"], known["stats"])
    assert near(parts[0]["loss"], known["loss"])
    assert near(parts[0]["hidden"], known["hidden"])
    assert near(torch.cat([part["weight"] for part in parts]), known["weight"])
    if known["bias"] is not None:
        assert near(torch.cat([part["bias"] for part in parts]), known["bias"])
    assert parts[0]["told"] == parts[1]["told"]
    if known["told"] is not None:
        assert len(parts[0]["told"]) == 1
        assert parts[0]["told"][0] == pytest.approx(known["told"][0], rel=tolerance, abs=tolerance)


@pytest.mark.parametrize(
    ("attempt", "first", "second"),
    [
        ("a gate of one slice", "expected gates for the head's 40 ids, got shapes (25,)", None),
        ("a label beyond the last rank", "expected labels from 0 to 39 or -100 (ignored), got 40 at position 4", None),
        ("NaN in the states", "expected hidden states without NaN, got 1 of 23 with NaN, first at position 0", None),
        ("NaN in the second slice", "got NaN or infinity on another rank", "got 1 of 15 rows with NaN, first row 28"),
        ("no rows", "got none on rank 1: use fewer ranks", None),
    ],
)
def test_every_rank_refuses(pair: list[dict[str, Any]], attempt: str, first: str, second: str | None) -> None:
    assert first in pair[0]["refusals"][attempt]
    assert (second or first) in pair[1]["refusals"][attempt]


def test_other_backends_refuse_a_group() -> None:
    group = torch.distributed.ProcessGroup(0, 2)
    with pytest.raises(InputError, match=r"expected the backend 'chunk' with a group, got 'triton'"):
        CrossEntropyOptions(group=group, backend="triton")
