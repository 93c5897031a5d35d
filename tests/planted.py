"""Models with a known fault, and their healthy twins: directories as a user has them, made from a seed."""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file

from .matrices import gaussian

Tensor = torch.Tensor
V, D = 8000, 64


def random_table(seed: int = 0, v: int = V, d: int = D) -> Tensor:
    """A table before training: isotropic, with norms near 1, unrelated to ids."""
    return gaussian(v, d, seed=seed) / d**0.5


def healthy(seed: int = 0, v: int = V, d: int = D) -> Tensor:
    """A trained table without a fault: a spectrum that falls, and norms near 1, unrelated to ids."""
    return random_table(seed, v, d) * torch.linspace(1.25, 0.75, d)


def drifted(seed: int = 0) -> Tensor:
    """All rows pushed along one direction, a little longer than a row."""
    return healthy(seed) + 1.1 * torch.nn.functional.normalize(gaussian(1, D, seed=99), dim=1)


def rogue(seed: int = 0) -> Tensor:
    """One dimension with ten times the standard deviation of the others."""
    x = healthy(seed)
    x[:, 17] *= 10
    return x


def rare_tail(seed: int = 0) -> Tensor:
    """The last 500 rows and the reserved rows collapsed towards one point; the others as they were."""
    x = healthy(seed)
    point = torch.nn.functional.normalize(gaussian(1, D, seed=98), dim=1)
    x[-500:] = 0.4 * x[-500:] + 0.6 * point
    x[:200] = 0.1 * x[:200] + 0.6 * point
    return x


def low_rank(seed: int = 0) -> Tensor:
    """Rows in 8 of 64 dimensions, and a little noise."""
    return gaussian(V, 8, seed=seed) @ gaussian(8, D, seed=97) / D**0.5 + 0.01 * healthy(seed + 1)


def short_tail(seed: int = 0) -> Tensor:
    """Norms that fall with the id."""
    return healthy(seed) * torch.linspace(2, 0.5, V)[:, None]


FAULTS = {
    "common_direction_drift": drifted,
    "rogue_dimensions": rogue,
    "degenerate_tail": rare_tail,
    "low_effective_rank": low_rank,
    "norm_id_coupling": short_tail,
}


def write_model(folder: Path, table: Tensor, head: Tensor | None = None, *, tokens: list[str] | None = None) -> Path:
    """A GPT-NeoX-like checkpoint: config.json, model.safetensors (an untied head if given), vocab.json."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {"gpt_neox.embed_in.weight": table, "gpt_neox.final_layer_norm.weight": torch.ones(table.shape[1])}
    config = {"model_type": "gpt_neox", "architectures": ["GPTNeoXForCausalLM"], "vocab_size": len(table)}
    config |= {"hidden_size": table.shape[1], "num_hidden_layers": 1, "num_attention_heads": 4}
    config |= {"intermediate_size": 64, "tie_word_embeddings": head is None}
    if head is not None:
        tensors["embed_out.weight"] = head
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))
    if tokens is None:
        tokens = [f"[unused{i}]" if i < 200 else f"token{i}" for i in range(len(table))]
    (folder / "vocab.json").write_text(json.dumps({token: i for i, token in enumerate(tokens)}))
    return folder
