"""Other processes of a test: forked from one that has imported all they need, and run once for all workers."""

import fcntl
import multiprocessing
import multiprocessing.context
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch.multiprocessing.spawn import start_processes

_MODELS = (f"transformers.models.{name}.modeling_{name}" for name in ("bert", "gemma2", "gpt2", "llama", "marian"))
TRANSFORMERS = ("transformers.trainer", *_MODELS)


def forked(*imported: str) -> multiprocessing.context.ForkServerContext:
    """Processes that are forked from one that has imported torch and these modules, if they are the first to ask."""
    context = multiprocessing.get_context("forkserver")
    ours = ["torch.distributed.fsdp", "uncone.training.attach", "uncone.training.attach_states"]
    context.set_forkserver_preload([*ours, *imported])
    return context


def once(factory: pytest.TempPathFactory, name: str, run: Callable[[Path], None]) -> Path:
    """The folder that `run` filled, in the worker that asked first."""
    base = factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "done").exists():
            folder.mkdir(exist_ok=True)
            run(folder)
            (folder / "done").touch()
    return folder


def of_two_ranks(folder: Path, rank_main: Callable[[int, Path], None], *imported: str, ranks: int = 2) -> None:
    """Run `rank_main(rank, folder)` as both ranks of a gloo group, or as more."""
    forked(*imported)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    start_processes(_rank, (folder, rank_main, ranks), nprocs=ranks, start_method="forkserver")


def _rank(rank: int, folder: Path, rank_main: Callable[[int, Path], None], ranks: int) -> None:
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=ranks)
    rank_main(rank, folder)
    torch.distributed.destroy_process_group()
