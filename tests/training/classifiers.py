"""Small random models that classify sequences, and batches with padding for them."""

from typing import Any

import torch

from .models import CONFIGS, V, without_dropout

Tensor = torch.Tensor
CLASSIFIERS = {
    "BertFor": "BertForMaskedLM",
    "RobertaFor": "RobertaForMaskedLM",
    "GPT2For": "GPT2LMHeadModel",
    "LlamaFor": "LlamaForCausalLM",
}


def classifier(kind: str = "BertFor", *, dtype: torch.dtype = torch.float64, **config: Any) -> Any:
    """In training mode without dropout, two classes."""
    import transformers

    cls = getattr(transformers, f"{kind}SequenceClassification")
    options = {"pad_token_id": 0, "num_labels": 2} | CONFIGS[CLASSIFIERS[kind]] | config
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = cls(cls.config_class(**options)).to(dtype)
    without_dropout(model)
    return model.train()


def batch(rows: int = 16, length: int = 10, *, side: str = "right", pad: int = 0, seed: int = 0) -> dict[str, Tensor]:
    """Every other sequence is shorter, padded on one side; the labels are two classes."""
    ids = torch.randint(5, V - 5, (rows, length), generator=torch.Generator().manual_seed(seed))
    mask = torch.ones_like(ids)
    mask[::2, slice(length - 4, length) if side == "right" else slice(0, 4)] = 0
    return {"input_ids": ids.where(mask == 1, pad), "attention_mask": mask, "labels": torch.arange(rows) // 2 % 2}


class Kept:
    """A penalty that keeps what it is called with."""

    def __call__(self, points: Tensor, labels: Tensor | None) -> Tensor:
        self.points, self.labels = points, labels
        return points.square().sum()
