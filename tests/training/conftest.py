"""The models here are tiny: more than one thread would only wait for each other."""

import gc
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from ..processes import TRANSFORMERS, of_two_ranks, once


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def _little_is_searched_for_garbage() -> None:
    """Each `Trainer.train` collects all garbage, and would walk over every module that was imported."""
    gc.freeze()


@pytest.fixture(scope="session")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Results of each of two ranks, for all tests over ranks."""
    folder = once(tmp_path_factory, "ranks", lambda folder: of_two_ranks(folder, _on_a_rank, *TRANSFORMERS))
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in (0, 1)]


def _on_a_rank(rank: int, folder: Path) -> None:
    from . import test_ranks, test_states_ranks

    warnings.simplefilter("ignore")
    torch.save(test_ranks.on_a_rank(rank) | test_states_ranks.on_a_rank(rank, folder), folder / f"{rank}.pt")
