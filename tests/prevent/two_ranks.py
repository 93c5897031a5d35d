"""Two gloo processes, and what each of them found."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.multiprocessing as mp


def of_two_ranks(rank_main: Callable[[int, str], None], folder: Path) -> list[dict[str, Any]]:
    """Run `rank_main(rank, folder)` in two processes; each saves what it found as folder/RANK.pt."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    mp.spawn(rank_main, (str(folder),), nprocs=2)
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in (0, 1)]
