"""Checkpoints of a training that never was: heads with a planted turn, and losses with one."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from uncone.rows import Array

V, D, N = 240, 12, 24


def write_checkpoint(path: Path, head: Array | None, *, table: Array | None = None, d: int = D) -> None:
    """A directory of transformers with a table, and a head of its own unless it is None."""
    path.mkdir(parents=True)
    table = np.random.default_rng(0).standard_normal((V, d)) if table is None else table
    tensors = {"model.embed_tokens.weight": table} | ({} if head is None else {"lm_head.weight": head})
    save_file({name: np.ascontiguousarray(x, np.float32) for name, x in tensors.items()}, path / "model.safetensors")
    config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": V, "num_hidden_layers": 0}
    config |= {"hidden_size": table.shape[1], "tie_word_embeddings": head is None}
    (path / "config.json").write_text(json.dumps(config))


def head_at(place: int, turn: int, d: int = D) -> Array:
    """A head that is flattest at `turn`, and has one direction that is the longer the further away."""
    generator = np.random.default_rng(place)
    scales = np.ones(d)
    scales[0] += 0.2 * abs(place - turn)
    return generator.standard_normal((V, d)) * scales


def write_family(folder: Path, turn: int, n: int = N) -> None:
    """Checkpoints step0, step100, ..., whose heads turn at checkpoint `turn`."""
    for place in range(n):
        write_checkpoint(folder / f"step{100 * place}", head_at(place, turn))


def losses(turn: int, n: int = N, *, noise: float = 0.01) -> list[tuple[float, float]]:
    """(step, loss) with the least loss at checkpoint `turn`."""
    generator = np.random.default_rng(99)
    return [(100.0 * i, 3 + 0.1 * abs(i - turn) + noise * float(generator.standard_normal())) for i in range(n)]


def table_of(pairs: Sequence[tuple[float, float]], path: Path) -> Path:
    """The losses as a CSV file."""
    path.write_text("step,loss\n" + "".join(f"{step:g},{loss}\n" for step, loss in pairs))
    return path
